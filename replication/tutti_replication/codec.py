"""The only JSON encoder and decoder of the contract; decode errors become contract errors.

A batch is decoded typed and whole first. Only when that fails it is taken apart: header, then envelope by envelope,
each typed again, and the one that is refused leniently (`_lenient`), so that the offender is named or the leniency of
the wire page comes true. Malformed JSON is only salvaged for names (`_salvage`).

Source: wire page, ChangeBatch, Rules over all, Answers ("At most 8 MiB encoded", "Epoch … before anything else").
"""

import re
from collections.abc import Iterable
from itertools import filterfalse
from typing import Any, Final, NoReturn

import msgspec
from msgspec import Raw

from ._broken import BrokenRuleError
from ._lenient import read_ids, read_integer, read_mutation
from ._salvage import salvage
from .canonical import ENTITY_TARGET
from .epoch import PROJECTION_EPOCH, check_epoch
from .errors import BatchTooLarge
from .mutation import EntityDelete, Mutation, TargetUpsert
from .rejection import PermanentRejection, Rule
from .structs import NULL, SCHEMA_VERSION, ChangeBatch, DecodedBatch, WireKey, WireMutation
from .validation import check_header, validate_mutation

__all__ = ["BATCH_BYTES_MAX", "decode_batch", "encode_batch", "encode_mutation", "join_batch", "to_wire"]

BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""Most bytes of an encoded batch; above it a client halves the batch."""

_ENCODER: Final = msgspec.json.Encoder()
_BATCH_DECODER: Final = msgspec.json.Decoder(DecodedBatch)
_MUTATION_DECODER: Final = msgspec.json.Decoder(WireMutation)
_HEADER_DECODER: Final = msgspec.json.Decoder(dict[str, Raw] | None)
_LIST_DECODER: Final = msgspec.json.Decoder(list[Raw] | None)
_ESCAPED_NUL: Final = b"\\u0000"
"""Only an escape can put U+0000 into a string; a scan of the whole batch is cheaper than a look at every id."""
_PIECES_MAX: Final = 8192
"""Into so many pieces a batch is cut to check its UTF-8: several for each mutation, few enough to bound memory."""
_byte_offset: Final = re.compile(r"\(byte (\d+)\)").search


def encode_batch(batch: ChangeBatch | Iterable[Mutation], *, epoch: int = PROJECTION_EPOCH) -> bytes:
    """Return the JSON of a batch. Nothing is checked: see `validation`.

    Args:
      batch: as it stands, or mutations to be put under a header of this schema version and epoch.
      epoch: for mutations only.
    """
    if isinstance(batch, ChangeBatch):
        return _ENCODER.encode(batch)
    return join_batch([encode_mutation(mutation) for mutation in batch], epoch=epoch)


def encode_mutation(mutation: Mutation | WireMutation) -> bytes:
    """Return the JSON of one mutation, as an outbox keeps it. Nothing is checked: see `validation`."""
    return _ENCODER.encode(mutation if isinstance(mutation, WireMutation) else to_wire(mutation))


def join_batch(encoded: Iterable[bytes], *, epoch: int = PROJECTION_EPOCH) -> bytes:
    """Return the batch of these encoded mutations, their bytes untouched: a retry sends the same bytes."""
    header = b'{"schemaVersion":%d,"projectionEpoch":%d,"mutations":[' % (SCHEMA_VERSION, epoch)
    return header + b",".join(encoded) + b"]}"


def to_wire(mutation: Mutation) -> WireMutation:
    """Return the wide form of a member of the closed union."""
    key = mutation.key
    payload: dict[str, Any] = {}
    if not isinstance(mutation, EntityDelete):
        name = "target" if mutation.entity_type == ENTITY_TARGET else mutation.entity_type
        scope = "target_scope" if isinstance(mutation, TargetUpsert) else "session_scope"
        payload = {name: mutation.snapshot, scope: mutation.scope}
    return WireMutation(
        schema_version=SCHEMA_VERSION,
        mutation_id=mutation.mutation_id,
        transaction_id=mutation.transaction_id,
        source_device_id=mutation.source_device_id,
        workspace_id=mutation.workspace_id,
        entity_type=mutation.entity_type,
        operation=mutation.operation,
        key=WireKey(**{name: getattr(key, name) for name in key.__struct_fields__}),
        **payload,
    )


def decode_batch(data: bytes, *, epoch: int = PROJECTION_EPOCH) -> ChangeBatch:
    """Return the batch in these bytes: what `validation.validate_batch` then holds against the rules.

    Args:
      data: JSON in UTF-8, at most `BATCH_BYTES_MAX` bytes.
      epoch: the one that is expected; it is looked at first, also in a batch that can't be decoded.

    Raises:
      EpochMismatch: another epoch.
      PermanentRejection: kind schema; names the first offender where its ids can be read, and the field by its path or
        the byte offset. As decoding goes mutation by mutation then, the rules before the offender are held as well.
      BatchTooLarge: not read.
    """
    if len(data) > BATCH_BYTES_MAX:
        raise BatchTooLarge(len(data), BATCH_BYTES_MAX)
    batch = _decode_typed(data)
    if batch is None:
        return _take_apart(data, epoch)
    check_epoch(batch.projection_epoch, epoch)
    if data.rfind(_ESCAPED_NUL) >= 0:  # four times as fast as find, on what is hardly ever there
        return ChangeBatch(
            schema_version=batch.schema_version, projection_epoch=batch.projection_epoch, mutations=batch.mutations
        )
    return batch


def _decode_typed(data: bytes) -> DecodedBatch | None:
    """Return the batch, or None when something is wrong with it. What is raised here can quote values: it ends here."""
    try:
        batch = _BATCH_DECODER.decode(data)
        _check_utf8(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return batch


def _check_utf8(data: bytes) -> None:
    """Raise UnicodeDecodeError unless all of it is UTF-8; the C decoder skips what it keeps raw or doesn't know.

    Cut at an ASCII character the pieces are UTF-8 exactly when the whole is. Most are ASCII, which is known in no time;
    decoding the whole costs twice as much as soon as it holds one wide character.
    """
    for piece in filterfalse(bytes.isascii, data.split(b"{", _PIECES_MAX)):
        piece.decode()


def _take_apart(data: bytes, epoch: int) -> ChangeBatch:
    broken_off: Exception | None = None
    header: dict[str, Raw] = {}
    try:
        header = _HEADER_DECODER.decode(data) or {}
    except msgspec.ValidationError:
        raise PermanentRejection("schema", "", "", rule=Rule.WRONG_TYPE) from None
    except (msgspec.DecodeError, RecursionError) as error:
        broken_off = error
    if broken_off is not None:
        _refuse_malformed(data, epoch, broken_off)
    elements: list[Raw] = []
    no_list: BrokenRuleError | None = None
    try:
        elements = _LIST_DECODER.decode(header.get("mutations", NULL)) or []
    except msgspec.ValidationError:
        no_list = BrokenRuleError(Rule.WRONG_TYPE, "mutations")
    try:
        actual = read_integer(header.get("projectionEpoch"), "projectionEpoch")
        check_epoch(actual, epoch)
        if no_list is not None:
            raise no_list
        schema_version = read_integer(header.get("schemaVersion"), "schemaVersion")
        check_header(schema_version, len(elements))
    except BrokenRuleError as broken:
        raise broken.rejection(*(read_ids(elements[0]) if elements else ("", ""))) from None
    wrong_byte = _first_wrong_byte(data)
    mutations = tuple(_read_element(index, element, wrong_byte) for index, element in enumerate(elements))
    if wrong_byte is not None:
        _refuse_bytes(elements[0], wrong_byte)
    return ChangeBatch(schema_version=schema_version, projection_epoch=actual, mutations=mutations)


def _read_element(index: int, element: Raw, wrong_byte: int | None) -> WireMutation:
    if wrong_byte is not None and _first_wrong_byte(bytes(element)) is not None:
        _refuse_bytes(element, wrong_byte)
    try:
        mutation = _MUTATION_DECODER.decode(element)
    except msgspec.DecodeError:
        try:
            mutation = read_mutation(element)
        except BrokenRuleError as broken:
            named = broken if broken.field else BrokenRuleError(broken.rule, f"mutations[{index}]")
            raise named.rejection(*read_ids(element)) from None
    validate_mutation(mutation)
    return mutation


def _first_wrong_byte(data: bytes) -> int | None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None


def _refuse_bytes(element: Raw, wrong_byte: int) -> NoReturn:
    raise PermanentRejection("schema", *read_ids(element), rule=Rule.INVALID_UTF8, byte_offset=wrong_byte)


def _refuse_malformed(data: bytes, epoch: int, error: Exception) -> NoReturn:
    found = salvage(data)
    if found.epoch is not None:
        check_epoch(found.epoch, epoch)
    offset = _byte_offset(str(error))
    raise PermanentRejection(
        "schema",
        found.mutation_id,
        found.transaction_id,
        rule=Rule.NESTING_TOO_DEEP if isinstance(error, RecursionError) else Rule.MALFORMED_JSON,
        byte_offset=int(offset[1]) if offset else None if isinstance(error, RecursionError) else len(data),
    )
