"""What a run says: a report per case, and the error that ends one."""

import msgspec

from tutti_replication.errors import ReplicationError

__all__ = ["CaseReport", "ConformanceError"]


class ConformanceError(ReplicationError):
    """An implementation differs from the contract. Its message holds ids, words and field names, no content.

    Attributes:
      case: name of the case.
      step: number of the step, from 1.
      problem: what differed.
    """

    def __init__(self, case: str, step: int, problem: str) -> None:
        super().__init__(f"{case}, step {step}: {problem}")
        self.case = case
        self.step = step
        self.problem = problem


class CaseReport(msgspec.Struct, frozen=True, kw_only=True):
    """How one case went; an empty problem is a pass."""

    name: str
    about: str
    problem: str

    @property
    def passed(self) -> bool:
        """Whether nothing differed."""
        return not self.problem
