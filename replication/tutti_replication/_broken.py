"""How a rule says that it is broken, before anyone knows whose mutation it was."""

from .rejection import PermanentRejection, Rule

__all__ = ["BrokenRuleError"]


class BrokenRuleError(Exception):
    """Inside this package only: a rule and the path of the field that broke it.

    Attributes:
      rule: which.
      field: wire path within the mutation, or within the batch when no mutation is to blame.
    """

    def __init__(self, rule: Rule, field: str = "") -> None:
        super().__init__(rule, field)
        self.rule = rule
        self.field = field

    def rejection(self, mutation_id: str, transaction_id: str) -> PermanentRejection:
        """Return the schema rejection that names this mutation."""
        return PermanentRejection("schema", mutation_id, transaction_id, rule=self.rule, field=self.field)
