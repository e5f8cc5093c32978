"""The versioned JSON contract that takes canonical activity to a cloud projection.

Owns: batch, mutation, keys, scopes and snapshots (`structs`, `mutation`, `keys`), the canonical vocabulary
(`canonical`), JSON (`codec`), every rule (`validation`, `admission`), answers (`acknowledgement`, `rejection`, `epoch`)
and the two ports (`ports`). Does not own: queries, room authorisation, transport, WebSockets, anything a GUI derives.

Loads msgspec and the standard library only. `tutti_replication.conformance` is not imported from here.
"""

from .acknowledgement import (
    Acknowledgement,
    ApplyResponse,
    ApplyResult,
    summarize_acknowledgements,
)
from .admission import admit_batch
from .codec import BATCH_BYTES_MAX, decode_batch, encode_batch, encode_mutation, join_batch, to_wire
from .epoch import PROJECTION_EPOCH, EpochMismatch
from .errors import AcknowledgementError, BatchTooLarge, ReplicationError
from .mutation import Mutation
from .ports import Authorizer, ProjectionBuilder, Sink
from .rejection import PermanentRejection, Rule
from .structs import MAX_BATCH_MUTATIONS, SCHEMA_VERSION, ChangeBatch, WireMutation
from .validation import validate_batch, validate_mutation

__all__ = [
    "BATCH_BYTES_MAX",
    "MAX_BATCH_MUTATIONS",
    "PROJECTION_EPOCH",
    "SCHEMA_VERSION",
    "Acknowledgement",
    "AcknowledgementError",
    "ApplyResponse",
    "ApplyResult",
    "Authorizer",
    "BatchTooLarge",
    "ChangeBatch",
    "EpochMismatch",
    "Mutation",
    "PermanentRejection",
    "ProjectionBuilder",
    "ReplicationError",
    "Rule",
    "Sink",
    "WireMutation",
    "admit_batch",
    "decode_batch",
    "encode_batch",
    "encode_mutation",
    "join_batch",
    "summarize_acknowledgements",
    "to_wire",
    "validate_batch",
    "validate_mutation",
]
