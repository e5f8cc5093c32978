"""The cases as data: JSON that any language can read, loaded from the package.

A sink case is a list of steps in order: apply a batch and compare the answer, look an entity up and compare what is
there, or restart. Cursors are labels, because their numbers are the sink's own: a new label must be greater than every
cursor before it in the case, a known one must be the same number again, 0 is 0. How to run them elsewhere:
``docs/sinks.md``.

A projection case is canonical state and the mutations it must become.
"""

import base64
from collections.abc import Iterator
from importlib.resources import files

import msgspec
from msgspec import Raw

from tutti_replication.acknowledgement import Disposition
from tutti_replication.canonical import EntityType
from tutti_replication.keys import KEY_TYPES, EntityKey
from tutti_replication.rejection import RejectionKind
from tutti_replication.stored import read_stored_entity
from tutti_replication.structs import Snapshot

from .ports import CanonicalEntity, StoredEntity

__all__ = [
    "AbsentRow",
    "Apply",
    "ApplyInput",
    "ExpectedAcknowledgement",
    "ExpectedAnswer",
    "ExpectedMismatch",
    "ExpectedMutation",
    "ExpectedRejection",
    "ExpectedResult",
    "Lookup",
    "ProjectionCase",
    "Restart",
    "Row",
    "SinkCase",
    "Step",
    "StoredRow",
    "projection_cases",
    "respelled",
    "sink_cases",
]


class CaseStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What everything in a fixture has in common: keys that nobody knows are mistakes."""


class ApplyInput(CaseStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The batch to apply: one of the three. ``base64`` is for bytes that are no text at all."""

    batch: Raw = Raw(b"")
    text: str = ""
    base64: str = ""

    def encoded(self) -> bytes:
        """Return the bytes to send; a batch's own, just as they stand in the file."""
        if bytes(self.batch):
            return bytes(self.batch)
        return base64.b64decode(self.base64) if self.base64 else self.text.encode()


class ExpectedAcknowledgement(CaseStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One acknowledgement; its cursor is a label or 0."""

    mutation_id: str
    transaction_id: str
    disposition: Disposition
    cursor: str | int


class ExpectedResult(CaseStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sum of the acknowledgements; its cursor is a label or 0."""

    accepted_count: int
    cursor: str | int
    projection_epoch: int


class ExpectedAnswer(CaseStruct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="answer", tag_field="kind"):
    """The batch is accepted."""

    result: ExpectedResult
    acknowledgements: tuple[ExpectedAcknowledgement, ...]


class ExpectedRejection(
    CaseStruct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="rejection", tag_field="kind"
):
    """The batch is permanently rejected. ``field`` is only compared where it stands."""

    rejection: RejectionKind
    mutation_id: str
    transaction_id: str
    field: str = ""


class ExpectedMismatch(
    CaseStruct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="epochMismatch", tag_field="kind"
):
    """The batch is of another epoch."""

    expected: int
    actual: int


class Row(CaseStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to look. ``key`` holds just the parts of this entity's key."""

    workspace_id: str
    source_device_id: str
    entity_type: EntityType
    key: dict[str, str]

    def typed_key(self) -> EntityKey:
        """Return the key as the contract has it."""
        key: EntityKey = msgspec.convert(self.key, KEY_TYPES[self.entity_type])
        return key


class StoredRow(CaseStruct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="stored", tag_field="kind"):
    """What must be there. ``verbatim`` names raw fields that must be these very characters."""

    snapshot: Raw
    scope: Raw
    verbatim: dict[str, str] = {}

    def entity(self, row: Row) -> StoredEntity:
        """Return it as the contract has it."""
        return StoredEntity(*read_stored_entity(row.entity_type, bytes(self.snapshot), bytes(self.scope)))


class AbsentRow(CaseStruct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="absent", tag_field="kind"):
    """Nothing must be there."""


class Apply(CaseStruct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="apply", tag_field="do"):
    """Apply a batch through one of two writers.

    Attributes:
      about: why.
      writer: "a" or "b": two handles on the same projection.
      permitted_workspaces: when there, the caller may only send mutations of these.
      input: what is sent.
      expect: the answer.
    """

    about: str
    writer: str = "a"
    permitted_workspaces: tuple[str, ...] | None = None
    input: ApplyInput
    expect: ExpectedAnswer | ExpectedRejection | ExpectedMismatch


class Lookup(CaseStruct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="lookup", tag_field="do"):
    """Look one entity up."""

    row: Row
    expect: StoredRow | AbsentRow


class Restart(CaseStruct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="restart", tag_field="do"):
    """Close every handle; whatever comes next opens new ones."""


Step = Apply | Lookup | Restart


class SinkCase(CaseStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One case for a sink; it starts on an empty projection."""

    name: str
    about: str
    source: str
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return self.name


class ExpectedMutation(CaseStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a seeded entity must become; ids are the builder's. ``verbatim`` is as in `StoredRow`."""

    workspace_id: str
    source_device_id: str
    entity_type: EntityType
    key: dict[str, str]
    snapshot: Raw
    scope: Raw
    verbatim: dict[str, str] = {}


class SeedEntity(CaseStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of canonical state. ``verbatim`` names raw fields that hold these very characters."""

    workspace_id: str
    source_device_id: str
    entity_type: EntityType
    snapshot: Raw
    scope: Raw
    verbatim: dict[str, str] = {}

    def entity(self) -> CanonicalEntity:
        """Return it as the contract has it."""
        snapshot, scope = read_stored_entity(self.entity_type, bytes(self.snapshot), bytes(self.scope))
        raw = {_python_name(snapshot, name): Raw(text.encode()) for name, text in self.verbatim.items()}
        snapshot = msgspec.structs.replace(snapshot, **raw)
        return CanonicalEntity(
            workspace_id=self.workspace_id, source_device_id=self.source_device_id, snapshot=snapshot, scope=scope
        )


class ProjectionCase(CaseStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One case for a builder; it starts on empty canonical state."""

    name: str
    about: str
    source: str
    seed: tuple[SeedEntity, ...]
    mutations: tuple[ExpectedMutation, ...]

    def __str__(self) -> str:
        return self.name


def sink_cases() -> tuple[SinkCase, ...]:
    """Return every sink case, by name."""
    return tuple(msgspec.json.decode(data, type=SinkCase) for data in _fixtures("sink"))


def projection_cases() -> tuple[ProjectionCase, ...]:
    """Return every projection case, by name."""
    return tuple(msgspec.json.decode(data, type=ProjectionCase) for data in _fixtures("projection"))


def respelled(snapshot: Snapshot, verbatim: dict[str, str]) -> str:
    """Return the wire name of the first raw field that doesn't hold these very characters, or nothing."""
    for name, characters in verbatim.items():
        if bytes(getattr(snapshot, _python_name(snapshot, name))) != characters.encode():
            return name
    return ""


def _python_name(snapshot: Snapshot, wire_name: str) -> str:
    return snapshot.__struct_fields__[snapshot.__struct_encode_fields__.index(wire_name)]


def _fixtures(folder: str) -> Iterator[bytes]:
    entries = files("tutti_replication.conformance").joinpath("fixtures", folder).iterdir()
    for entry in sorted(entries, key=lambda entry: entry.name):
        if entry.name.endswith(".json"):
            yield entry.read_bytes()
