"""Running the projection cases against a builder: canonical seed, batch, and the same batch after a lost response.

Source: activity replication specification ("`ProjectionBuilder` seeds canonical state and builds the official
mutations"); wire page, "What the source side owes".
"""

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from tutti_replication.admission import admit_batch
from tutti_replication.canonical import ENTITY_SESSION, ENTITY_TURN
from tutti_replication.codec import to_wire
from tutti_replication.errors import ReplicationError
from tutti_replication.keys import KEY_TYPES, key_text
from tutti_replication.mutation import EntityDelete, Mutation, SessionUpsert, TurnUpsert, Upsert

from .cases import ExpectedMutation, ProjectionCase, projection_cases, respelled
from .ports import ConformanceBuilder
from .report import CaseReport, ConformanceError

__all__ = ["run_projection", "run_projection_case"]


def run_projection(
    builder: ConformanceBuilder, cases: Iterable[ProjectionCase] | None = None
) -> tuple[CaseReport, ...]:
    """Run every case, each on emptied canonical state, and report on each.

    Args:
      builder: reset before each case.
      cases: instead of all that ship.
    """
    reports: list[CaseReport] = []
    for case in projection_cases() if cases is None else cases:
        problem = ""
        try:
            run_projection_case(builder, case)
        except ConformanceError as error:
            problem = str(error)
        except Exception as error:
            problem = f"{case.name}: the builder raised {type(error).__name__}"
        reports.append(CaseReport(name=case.name, about=case.about, problem=problem))
    return tuple(reports)


def run_projection_case(builder: ConformanceBuilder, case: ProjectionCase) -> None:
    """Run one case: seed, build, compare, build again.

    Raises:
      ConformanceError: the first difference; step 1 is the first build, step 2 the one after a lost response.
      Exception: whatever else the builder raised.
    """
    builder.reset()
    builder.seed([seed.entity() for seed in case.seed])
    first = builder.build()
    try:
        mutations = admit_batch(first)
    except ReplicationError as error:
        raise ConformanceError(case.name, 1, f"no valid batch: {error}") from error
    problem = _compare(case, mutations)
    if problem:
        raise ConformanceError(case.name, 1, problem)
    again = builder.build()
    if again != first:
        raise ConformanceError(case.name, 2, _difference(mutations, again))


def _compare(case: ProjectionCase, mutations: tuple[Mutation, ...]) -> str:
    ids = [mutation.mutation_id for mutation in mutations]
    if len(set(ids)) != len(ids):
        return "two mutations have the same id"
    upserts = [mutation for mutation in mutations if not isinstance(mutation, EntityDelete)]
    if len(upserts) != len(mutations):
        return "there is a delete, and nothing was deleted"
    built = {_where(mutation): mutation for mutation in upserts}
    wanted = {_where_wanted(expected): expected for expected in case.mutations}
    for where in sorted(wanted.keys() | built.keys()):
        if where not in built:
            return f"{where[2]} is not in the batch"
        if where not in wanted:
            return f"{where[2]} is in the batch and was never seeded"
        problem = _compare_mutation(wanted[where], built[where])
        if problem:
            return f"{where[2]}: {problem}"
    if len(built) != len(upserts):
        return "an entity is in the batch twice"
    return _out_of_order(upserts)


def _where(mutation: Upsert) -> tuple[str, str, str]:
    return mutation.workspace_id, mutation.source_device_id, key_text(mutation.key)


def _where_wanted(expected: ExpectedMutation) -> tuple[str, str, str]:
    key = msgspec.convert(expected.key, KEY_TYPES[expected.entity_type])
    return expected.workspace_id, expected.source_device_id, key_text(key)


def _compare_mutation(expected: ExpectedMutation, mutation: Upsert) -> str:
    for part, want, have in (
        ("snapshot", bytes(expected.snapshot), msgspec.json.encode(mutation.snapshot)),
        ("scope", bytes(expected.scope), msgspec.json.encode(mutation.scope)),
    ):
        wanted, had = _plain(want), _plain(have)
        for name in sorted(wanted.keys() | had.keys()):
            if wanted.get(name) != had.get(name):
                return f"{part}.{name} differs"
    name = respelled(mutation.snapshot, expected.verbatim)
    return f"snapshot.{name} is not copied verbatim" if name else ""


def _plain(data: bytes) -> dict[str, str]:
    fields: dict[str, Any] = json.loads(data)
    return {name: json.dumps(value) for name, value in fields.items()}


def _out_of_order(mutations: list[Upsert]) -> str:
    """Say which mutation comes before one that it depends on."""
    ranks = {entity_type: rank for rank, entity_type in enumerate(KEY_TYPES)}
    seen: set[tuple[str, ...]] = set()
    rank = 0
    for mutation in mutations:
        if ranks[mutation.entity_type] < rank:
            return f"{key_text(mutation.key)} comes after an entity of a later kind"
        rank = ranks[mutation.entity_type]
        needs: tuple[str, ...] | None = None
        if isinstance(mutation, SessionUpsert) and mutation.snapshot.parent_agent_session_id is not None:
            needs = (ENTITY_SESSION, mutation.workspace_id, mutation.snapshot.parent_agent_session_id)
        elif isinstance(mutation, TurnUpsert) and mutation.snapshot.identity_anchor_turn_id is not None:
            anchor = mutation.snapshot.identity_anchor_turn_id
            needs = (ENTITY_TURN, mutation.workspace_id, mutation.key.agent_session_id, anchor)
        if needs is not None and needs not in seen:
            return f"{key_text(mutation.key)} comes before what it refers to"
        seen.add((mutation.entity_type, mutation.workspace_id, *msgspec.structs.astuple(mutation.key)))
    return ""


def _difference(mutations: tuple[Mutation, ...], again: bytes) -> str:
    try:
        repeated = admit_batch(again)
    except ReplicationError as error:
        return f"the rebuilt batch is not valid: {error}"
    if [mutation.mutation_id for mutation in repeated] != [mutation.mutation_id for mutation in mutations]:
        return "the rebuilt batch has other mutation ids"
    if [to_wire(mutation) for mutation in repeated] != [to_wire(mutation) for mutation in mutations]:
        return "the rebuilt batch has the same mutation ids and other content"
    return "the rebuilt batch is spelled in other bytes"
