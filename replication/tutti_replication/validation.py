"""From a batch to valid mutations: the header, then mutation after mutation; the first offender is named.

Three layers hold the rules. The C decoder holds types, words and bounds; `_ranges` holds them again, only for structs
that did not come from it; `_makers` with `_rules` holds what relates one field to another and makes the closed union.

Source: wire page, ChangeBatch, Mutation, Answers ("A batch whose own header is wrong").
"""

from ._broken import BrokenRuleError
from ._makers import MAKERS, make_delete
from ._ranges import check_ranges
from ._rules import refuse_blank_envelope
from .canonical import DELETE_ONLY_ENTITIES, OPERATION_DELETE
from .epoch import PROJECTION_EPOCH, check_epoch
from .mutation import Mutation
from .rejection import Rule
from .structs import MAX_BATCH_MUTATIONS, SCHEMA_VERSION, ChangeBatch, DecodedBatch, WireMutation

__all__ = ["check_header", "validate_batch", "validate_mutation"]


def validate_batch(batch: ChangeBatch, *, epoch: int = PROJECTION_EPOCH) -> tuple[Mutation, ...]:
    """Return the mutations of a batch as the closed union, in order.

    Args:
      batch: from `codec.decode_batch`, or made by a program.
      epoch: the one that is expected.

    Raises:
      EpochMismatch: before anything else.
      PermanentRejection: kind schema, naming the first offender; the batch's first mutation when its own header is
        wrong, none when it is empty.
    """
    check_epoch(batch.projection_epoch, epoch)
    mutations = batch.mutations
    try:
        check_header(batch.schema_version, len(mutations))
    except BrokenRuleError as broken:
        first = mutations[0] if mutations else None
        raise broken.rejection(first.mutation_id if first else "", first.transaction_id if first else "") from None
    ranges_held = type(batch) is DecodedBatch
    valid: list[Mutation] = []
    append = valid.append
    wire = mutations[0]
    try:
        for wire in mutations:
            if not ranges_held:
                check_ranges(wire)
            append(_close(wire))
    except BrokenRuleError as broken:
        raise broken.rejection(wire.mutation_id, wire.transaction_id) from None
    return tuple(valid)


def validate_mutation(wire: WireMutation) -> Mutation:
    """Return one mutation as a member of the closed union.

    Raises:
      PermanentRejection: kind schema, naming the mutation, the rule and the field.
    """
    try:
        check_ranges(wire)
        return _close(wire)
    except BrokenRuleError as broken:
        raise broken.rejection(wire.mutation_id, wire.transaction_id) from None


def check_header(schema_version: int, count: int) -> None:
    """Hold the batch's own header, its epoch apart: schema version, and between 1 and `MAX_BATCH_MUTATIONS` mutations.

    Raises:
      BrokenRuleError: the caller knows whom to name.
    """
    if schema_version != SCHEMA_VERSION:
        raise BrokenRuleError(Rule.SCHEMA_VERSION, "schemaVersion")
    if not 1 <= count <= MAX_BATCH_MUTATIONS:
        raise BrokenRuleError(Rule.MUTATION_COUNT, "mutations")


def _close(wire: WireMutation) -> Mutation:
    if wire.schema_version != SCHEMA_VERSION:
        raise BrokenRuleError(Rule.SCHEMA_VERSION, "schemaVersion")
    if (
        wire.mutation_id.isspace()
        or wire.transaction_id.isspace()
        or wire.source_device_id.isspace()
        or wire.workspace_id.isspace()
    ):
        refuse_blank_envelope(wire)
    if wire.operation == OPERATION_DELETE:
        return make_delete(wire)
    maker = MAKERS.get(wire.entity_type)
    if maker is None:
        raise BrokenRuleError(
            Rule.DELETE_ONLY if wire.entity_type in DELETE_ONLY_ENTITIES else Rule.ENTITY_TYPE, "entityType"
        )
    return maker(wire)
