"""Random histories: what happens to a projection in months, in a few milliseconds, from one seed.

A history is data: batches with repeated, reused and broken mutations, lost answers, other epochs, concurrent writers,
resets and restarts, over few ids and times so that everything collides. `run_history` plays one against a
`HistoryBed` (a sink, and whatever can drop its connections) and against the oracle, and demands the same answers and
the same projection.

Source: wire page, "What a sink decides"; the choice of histories is ours.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NoReturn, Protocol

import msgspec
from msgspec.structs import replace

from tutti_replication.acknowledgement import STALE, ApplyResponse, summarize_acknowledgements
from tutti_replication.canonical import INTERACTION_ANSWERED, INTERACTION_PENDING, INTERACTION_SUPERSEDED
from tutti_replication.codec import encode_batch
from tutti_replication.epoch import PROJECTION_EPOCH, EpochMismatch
from tutti_replication.keys import EntityKey, SubmitClaimKey, TargetKey, bare_device
from tutti_replication.mutation import Mutation, Upsert
from tutti_replication.rejection import PermanentRejection

from . import samples
from .oracle import OracleSink
from .ports import StoredEntity

__all__ = [
    "Concurrent",
    "Cut",
    "Entity",
    "HistoryBed",
    "HistoryMismatchError",
    "NewEpoch",
    "Outcome",
    "Restart",
    "Send",
    "Step",
    "entity_of",
    "generate_history",
    "run_history",
]

ATTEMPTS_MAX: Final = 3
"""How often a batch is sent whose connection was dropped once; the second must go through, one more for a pooled
connection that the drop left behind."""

WORKSPACES: Final = ("w", "W")
DEVICES: Final = ("d1", " d1", "d2")
TARGETS: Final = ("target", "Target")
SESSIONS: Final = ("s", "S", "s ")
TURNS: Final = ("turn", "Turn ")
MESSAGES: Final = ("message", "Message")
"""Ids that a collation, or a careless trim, would make equal."""

Entity = tuple[str, str, EntityKey]
"""Workspace, bare source device of a target ("" for the others), key."""

Outcome = ApplyResponse | PermanentRejection | EpochMismatch
"""How a batch ends, apart from a lost connection."""


class Cut(msgspec.Struct, frozen=True):
    """Drop the connection at the n-th statement from now, before it is run or before its answer is read."""

    statement: int
    when: Literal["before", "after"]


class Send(msgspec.Struct, frozen=True):
    """Apply a batch, and again when its answer was lost."""

    batch: bytes
    cut: Cut | None


class Concurrent(msgspec.Struct, frozen=True):
    """Apply batches at the same time, each by a writer of its own."""

    batches: tuple[bytes, ...]


class NewEpoch(msgspec.Struct, frozen=True):
    """Reset the projection to the next epoch, as a release that rebuilds it does."""

    epoch: int


class Restart(msgspec.Struct, frozen=True):
    """Close the sink and open it again."""


Step = Send | Concurrent | NewEpoch | Restart


class HistoryBed(Protocol):
    """A sink that is empty at first, and what can happen to it."""

    def apply(self, batch: bytes, cut: Cut | None) -> ApplyResponse | None:
        """Apply a batch; None when the connection was lost. A bed that can't drop connections ignores ``cut``."""
        ...

    def apply_concurrently(self, batches: Sequence[bytes]) -> Sequence[tuple[int, Outcome]]:
        """Apply batches at once; return (index, outcome) in the order in which they had the projection."""
        ...

    def new_epoch(self, epoch: int) -> None:
        """Empty the projection and give it this epoch."""
        ...

    def restart(self) -> None:
        """Close and open."""
        ...

    def read_all(self) -> Mapping[Entity, StoredEntity]:
        """Return everything that a reader sees."""
        ...


class HistoryMismatchError(AssertionError):
    """The sink did something else than the oracle.

    Attributes:
      seed: of the history.
      step: which step, counted from 0; the number of steps when it was the projection at the end.
    """

    def __init__(self, seed: int, step: int, what: str) -> None:
        super().__init__(f"history {seed}, step {step}: {what}")
        self.seed = seed
        self.step = step


def generate_history(seed: int) -> tuple[Step, ...]:
    """Return the history of a seed; the same one everywhere."""
    return tuple(_Writer(random.Random(seed)).steps())


def run_history(seed: int, bed: HistoryBed) -> None:
    """Play the history of a seed.

    Raises:
      HistoryMismatchError: naming the seed and the step.
    """
    judge = _Judge(seed)
    steps = generate_history(seed)
    for number, step in enumerate(steps):
        judge.step = number
        if isinstance(step, Send):
            _send(step, bed, judge)
        elif isinstance(step, Concurrent):
            for index, outcome in bed.apply_concurrently(step.batches):
                judge.compare(outcome, judge.outcome(step.batches[index]))
        elif isinstance(step, NewEpoch):
            bed.new_epoch(step.epoch)
            judge.new_epoch(step.epoch)
        else:
            bed.restart()
    judge.step = len(steps)
    judge.compare_projection(bed.read_all())


def _send(step: Send, bed: HistoryBed, judge: "_Judge") -> None:
    """Send until there is an answer. Whether a lost attempt was applied shows in it: whole, or not at all."""
    cut = step.cut
    outcome: Outcome | None = None
    for _ in range(ATTEMPTS_MAX):
        try:
            outcome = bed.apply(step.batch, cut)
        except (PermanentRejection, EpochMismatch) as refused:
            outcome = refused
        if outcome is not None:
            break
        cut = None
    if outcome is None:
        judge.fail("no answer, though the connection is no longer dropped")
    first = judge.outcome(step.batch)
    if step.cut is not None and not judge.is_like(outcome, first):
        first = judge.outcome(step.batch)
    judge.compare(outcome, first)


class _Judge:
    """The oracle, and the correspondence of its cursors to the sink's, which may have gaps."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.step = 0
        self._oracle = OracleSink()
        self._cursors: dict[int, int] = {}

    def outcome(self, batch: bytes) -> Outcome:
        try:
            return self._oracle.apply(batch)
        except (PermanentRejection, EpochMismatch) as refused:
            return refused

    def new_epoch(self, epoch: int) -> None:
        self._cursors.clear()
        self._oracle = OracleSink(epoch=epoch)

    def fail(self, what: str) -> NoReturn:
        raise HistoryMismatchError(self.seed, self.step, what)

    def is_like(self, outcome: Outcome, expected: Outcome) -> bool:
        return _shape(outcome) == _shape(expected)

    def compare(self, outcome: Outcome, expected: Outcome) -> None:
        if not self.is_like(outcome, expected):
            self.fail(f"answered {_shape(outcome)}, the oracle {_shape(expected)}")
        if not isinstance(outcome, ApplyResponse) or not isinstance(expected, ApplyResponse):
            return
        if outcome.result != summarize_acknowledgements(outcome.acknowledgements, epoch=self._oracle.epoch):
            self.fail("the result doesn't summarise the acknowledgements")
        for mine, its in zip(outcome.acknowledgements, expected.acknowledgements, strict=True):
            if mine.disposition == STALE:
                continue
            known = self._cursors.setdefault(its.cursor, mine.cursor)
            if known != mine.cursor:
                self.fail(f"cursor {mine.cursor} for what had {known}")
        ordered = [self._cursors[place] for place in sorted(self._cursors)]
        if ordered != sorted(set(ordered)):
            self.fail(f"cursors don't rise in the order of commits: {ordered}")

    def compare_projection(self, found: Mapping[Entity, StoredEntity]) -> None:
        expected: dict[Entity, StoredEntity] = {}
        for mutation in self._oracle.log.accepted:
            entity = entity_of(mutation.workspace_id, mutation.source_device_id, mutation.key)
            stored = self._oracle.lookup(mutation.workspace_id, mutation.source_device_id, mutation.key)
            if stored is not None:
                expected[entity] = stored
        for entity in expected.keys() | found.keys():
            if found.get(entity) != expected.get(entity):
                self.fail(f"{entity} differs: {_difference(found.get(entity), expected.get(entity))}")


def entity_of(workspace_id: str, source_device_id: str, key: EntityKey) -> Entity:
    """Return the name of an entity here: targets are of a device, the others aren't."""
    return workspace_id, bare_device(source_device_id) if isinstance(key, TargetKey) else "", key


def _difference(found: StoredEntity | None, expected: StoredEntity | None) -> str:
    """Return the names of what differs."""
    if found is None or expected is None:
        return "it is there and should not be" if expected is None else "it is not there"
    return ", ".join(
        f"{part}.{name}"
        for part, mine, its in (
            ("snapshot", found.snapshot, expected.snapshot),
            ("scope", found.scope, expected.scope),
        )
        for name in its.__struct_fields__
        if getattr(mine, name, None) != getattr(its, name)
    )


def _shape(outcome: Outcome) -> tuple[Any, ...]:
    """Return what two outcomes have in common when they are alike: all but the numbers of cursors."""
    if isinstance(outcome, PermanentRejection):
        return outcome.kind, outcome.rule, outcome.mutation_id, outcome.transaction_id, outcome.field
    if isinstance(outcome, EpochMismatch):
        return "epoch", outcome.expected, outcome.actual
    acknowledgements = outcome.acknowledgements
    return tuple((one.mutation_id, one.transaction_id, one.disposition, one.cursor > 0) for one in acknowledgements)


class _Writer:
    """Invents one history. Few ids and few times, so that everything collides."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._epoch = PROJECTION_EPOCH
        self._sent: list[bytes] = []
        self._known: list[Mutation] = []
        self._ids = 0

    def steps(self) -> Iterator[Step]:
        for _ in range(self._rng.randint(4, 10)):
            chance = self._rng.random()
            if chance < 0.04:
                self._epoch += 1
                self._sent.clear()
                yield NewEpoch(self._epoch)
            elif chance < 0.08:
                yield Restart()
            elif chance < 0.18:
                yield Concurrent(tuple(self._batch() for _ in range(self._rng.randint(2, 3))))
            elif chance < 0.30 and self._sent:
                yield Send(self._rng.choice(self._sent), self._cut())
            else:
                yield Send(self._batch(), self._cut())

    def _cut(self) -> Cut | None:
        if self._rng.random() < 0.7:
            return None
        return Cut(self._rng.randint(1, 11), self._rng.choice(("before", "after")))

    def _batch(self) -> bytes:
        mutations = [self._mutation() for _ in range(self._rng.randint(1, 6))]
        wrong = self._rng.random() < 0.04
        batch = encode_batch(mutations, epoch=self._epoch + self._rng.choice((-1, 1)) if wrong else self._epoch)
        self._sent.append(batch)
        self._known.extend(mutations)
        return batch

    def _mutation(self) -> Mutation:
        """Most are new; some come again as a retry does; a few are poison."""
        rng, chance = self._rng, self._rng.random()
        self._ids += 1
        transaction = f"t{self._ids}"
        if chance < 0.12 and self._known:
            return replace(rng.choice(self._known), transaction_id=transaction)
        if chance < 0.14 and self._known:
            return replace(self._upsert("", transaction), mutation_id=rng.choice(self._known).mutation_id)
        upsert = self._upsert(f"m{self._ids}", transaction)
        if chance < 0.15:
            return replace(upsert, source_device_id=" ")
        if chance < 0.27:
            key: EntityKey = upsert.key
            if chance < 0.16:
                key = SubmitClaimKey(rng.choice(SESSIONS), "claim")
            return samples.delete(
                upsert.mutation_id,
                key,
                transaction_id=transaction,
                workspace_id=upsert.workspace_id,
                device=upsert.source_device_id,
            )
        return upsert

    def _upsert(self, mutation_id: str, transaction_id: str) -> Upsert:
        rng = self._rng
        updated = rng.randint(0, 5)
        about: dict[str, Any] = {
            "transaction_id": transaction_id,
            "workspace_id": rng.choice(WORKSPACES),
            "device": rng.choice(DEVICES),
            "updated_at_unix_ms": updated,
            "created_at_unix_ms": rng.randint(0, updated),
        }
        kind = rng.randrange(10)
        if kind == 0:
            about["target_id"] = rng.choice(TARGETS)
            return samples.target_upsert(mutation_id, name=transaction_id, **about)
        about["session_id"] = rng.choice(SESSIONS)
        about["scope"] = {"launch_kind": transaction_id}
        if kind in (1, 2, 3):
            version = rng.randint(0, 4)
            return samples.session_upsert(mutation_id, title=transaction_id, message_version=version, **about)
        if kind in (4, 5):
            about["turn_id"] = rng.choice(TURNS)
            about["identity_anchor_turn_id"] = rng.choice((None, None, None, "a1", "a2"))
            about["root_provider_turn_id"] = transaction_id
            if rng.random() < 0.4:
                about |= samples.settled(updated)
            return samples.turn_upsert(mutation_id, **about)
        if kind == 6:
            status = rng.choice((INTERACTION_PENDING, INTERACTION_ANSWERED, INTERACTION_SUPERSEDED))
            return samples.interaction_upsert(mutation_id, status=status, tool_name=transaction_id, **about)
        about["message_id"] = rng.choice(MESSAGES)
        return samples.message_upsert(mutation_id, version=rng.randint(1, 4), status=transaction_id, **about)
