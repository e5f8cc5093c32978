"""Permanent rejections: what a retry can't mend, who is named, and by which rule.

Source: wire page, Answers ("PermanentRejection", "What a sink decides"). The rule names are ours.
"""

from enum import StrEnum
from typing import Final, Literal

import msgspec

from .errors import ReplicationError

__all__ = ["PermanentRejection", "PermanentRejectionBody", "RejectionKind", "Rule"]

RejectionKind = Literal["schema", "identity", "permission"]
"""Whose fault: the shape of the batch, a mutation or anchor that contradicts a stored one, or the sender's rights."""


ID_CHARACTERS_SHOWN: Final = 64
"""So much of an id stands in a message; the attributes hold all of it, and a wrong one may be megabytes long."""


class Rule(StrEnum):
    """Every rule that a batch can break; each has a test of its own."""

    MALFORMED_JSON = "malformed_json"
    INVALID_UTF8 = "invalid_utf8"
    NESTING_TOO_DEEP = "nesting_too_deep"
    WRONG_TYPE = "wrong_type"
    INTEGER_RANGE = "integer_range"
    SCHEMA_VERSION = "schema_version"
    MUTATION_COUNT = "mutation_count"
    ENTITY_TYPE = "entity_type"
    OPERATION = "operation"
    DELETE_ONLY = "delete_only"
    ID_BLANK = "id_blank"
    ID_TOO_LONG = "id_too_long"
    ID_NUL = "id_nul"
    KEY_PARTS = "key_parts"
    PAYLOAD_MISSING = "payload_missing"
    PAYLOAD_FOREIGN = "payload_foreign"
    SCOPE_MISSING = "scope_missing"
    SCOPE_FOREIGN = "scope_foreign"
    SCOPE_DEVICE = "scope_device"
    KEY_MISMATCH = "key_mismatch"
    WORKSPACE_MISMATCH = "workspace_mismatch"
    OBJECT_REQUIRED = "object_required"
    OBJECT_OR_NULL = "object_or_null"
    VOCABULARY = "vocabulary"
    TIME_NEGATIVE = "time_negative"
    TIME_ORDER = "time_order"
    TEXT_BLANK = "text_blank"
    LINEAGE_OF_ROOT = "lineage_of_root"
    LINEAGE_OF_CHILD = "lineage_of_child"
    LINEAGE_SELF = "lineage_self"
    SETTLED = "settled"
    GOAL_OPERATION = "goal_operation"
    ANCHOR_SELF = "anchor_self"
    VERSION_ZERO = "version_zero"
    ID_REUSED = "id_reused"
    ANCHOR_CHANGED = "anchor_changed"
    NOT_PERMITTED = "not_permitted"


class PermanentRejectionBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The answer with status 422 (403 when the kind is permission)."""

    kind: RejectionKind
    mutation_id: str
    transaction_id: str
    field: str = ""


class PermanentRejection(ReplicationError):
    """A batch that no retry can make acceptable; nothing of it was written.

    The client sets the named mutation aside and sends the rest. The message holds ids, a rule and a path, no content.

    Attributes:
      kind: schema, identity or permission.
      mutation_id: the offender's, empty when it could not be read or the batch is empty.
      transaction_id: the offender's, likewise.
      rule: the rule that was broken.
      field: path of the failing field with wire names, such as ``turn.outcome``; empty when no field is to blame.
      byte_offset: where malformed JSON stops making sense, None otherwise.
    """

    def __init__(
        self,
        kind: RejectionKind,
        mutation_id: str,
        transaction_id: str,
        *,
        rule: Rule,
        field: str = "",
        byte_offset: int | None = None,
    ) -> None:
        where = f" at {field}" if field else "" if byte_offset is None else f" at byte {byte_offset}"
        who = f"mutation {mutation_id[:ID_CHARACTERS_SHOWN]!r}" if mutation_id else "the batch"
        super().__init__(f"permanent {kind} rejection of {who}: {rule.value}{where}")
        self.kind: RejectionKind = kind
        self.mutation_id = mutation_id
        self.transaction_id = transaction_id
        self.rule = rule
        self.field = field
        self.byte_offset = byte_offset

    def body(self) -> PermanentRejectionBody:
        """Return what goes over HTTP with status 422 or 403."""
        return PermanentRejectionBody(
            kind=self.kind, mutation_id=self.mutation_id, transaction_id=self.transaction_id, field=self.field
        )
