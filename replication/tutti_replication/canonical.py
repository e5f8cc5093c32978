"""The canonical vocabulary: the one place in the tree where these words stand.

Standard library only, so that anything may import it. A word is a plain `str` (a member of a `Literal`), because
drivers and JSON want plain strings; code compares with the `Final` constants below instead of spelling a word again.

Source: activity replication specification ("canonical activity vocabulary"), wire page, Mutation and Snapshots.
"""

from typing import Final, Literal, get_args

EntityType = Literal[
    "agentTarget",
    "session",
    "turn",
    "interaction",
    "message",
    "runtimeOperation",
    "runtimeOperationEvent",
    "submitClaim",
]
"""What a mutation is about; the last three are retained for tombstone deletes only."""

ENTITY_TARGET: Final = "agentTarget"
ENTITY_SESSION: Final = "session"
ENTITY_TURN: Final = "turn"
ENTITY_INTERACTION: Final = "interaction"
ENTITY_MESSAGE: Final = "message"
ENTITY_RUNTIME_OPERATION: Final = "runtimeOperation"
ENTITY_RUNTIME_OPERATION_EVENT: Final = "runtimeOperationEvent"
ENTITY_SUBMIT_CLAIM: Final = "submitClaim"

Operation = Literal["upsert", "delete"]
"""What a mutation does with its entity."""

OPERATION_UPSERT: Final = "upsert"
OPERATION_DELETE: Final = "delete"

SessionKind = Literal["root", "child"]
"""A root has no lineage; a child is a sub-agent's session and has all of it."""

SESSION_ROOT: Final = "root"
SESSION_CHILD: Final = "child"

TurnPhase = Literal["submitted", "running", "waiting", "settling", "settled"]
"""Where a turn is in its life."""

TURN_SUBMITTED: Final = "submitted"
TURN_RUNNING: Final = "running"
TURN_WAITING: Final = "waiting"
TURN_SETTLING: Final = "settling"
TURN_SETTLED: Final = "settled"

TurnOutcome = Literal["completed", "failed", "canceled", "interrupted"]
"""How a settled turn ended."""

OUTCOME_COMPLETED: Final = "completed"
OUTCOME_FAILED: Final = "failed"
OUTCOME_CANCELED: Final = "canceled"
OUTCOME_INTERRUPTED: Final = "interrupted"

TurnOrigin = Literal["user_prompt", "goal_arm", "goal_continuation", "provider_initiated", "legacy_unknown"]
"""What started a turn."""

ORIGIN_USER_PROMPT: Final = "user_prompt"
ORIGIN_GOAL_ARM: Final = "goal_arm"
ORIGIN_GOAL_CONTINUATION: Final = "goal_continuation"
ORIGIN_PROVIDER_INITIATED: Final = "provider_initiated"
ORIGIN_LEGACY_UNKNOWN: Final = "legacy_unknown"

RootProviderTurnPhase = Literal["running", "completed"]
"""Where the root provider's own turn is."""

ROOT_PROVIDER_TURN_RUNNING: Final = "running"
ROOT_PROVIDER_TURN_COMPLETED: Final = "completed"

InteractionKind = Literal["approval", "question", "plan"]
"""What a turn asks its user for."""

INTERACTION_APPROVAL: Final = "approval"
INTERACTION_QUESTION: Final = "question"
INTERACTION_PLAN: Final = "plan"

InteractionStatus = Literal["pending", "answered", "superseded"]
"""Whether an interaction still waits."""

INTERACTION_PENDING: Final = "pending"
INTERACTION_ANSWERED: Final = "answered"
INTERACTION_SUPERSEDED: Final = "superseded"

Visibility = Literal["members", "public"]
"""Who may see a session in the cloud projection."""

VISIBILITY_MEMBERS: Final = "members"
VISIBILITY_PUBLIC: Final = "public"

ENTITY_TYPES: Final = frozenset[str](get_args(EntityType))
OPERATIONS: Final = frozenset[str](get_args(Operation))
SESSION_KINDS: Final = frozenset[str](get_args(SessionKind))
TURN_PHASES: Final = frozenset[str](get_args(TurnPhase))
TURN_OUTCOMES: Final = frozenset[str](get_args(TurnOutcome))
TURN_ORIGINS: Final = frozenset[str](get_args(TurnOrigin))
ROOT_PROVIDER_TURN_PHASES: Final = frozenset[str](get_args(RootProviderTurnPhase))
INTERACTION_KINDS: Final = frozenset[str](get_args(InteractionKind))
INTERACTION_STATUSES: Final = frozenset[str](get_args(InteractionStatus))
VISIBILITIES: Final = frozenset[str](get_args(Visibility))

DELETE_ONLY_ENTITIES: Final = frozenset[str](
    {ENTITY_RUNTIME_OPERATION, ENTITY_RUNTIME_OPERATION_EVENT, ENTITY_SUBMIT_CLAIM}
)
"""Kept as names so that old tombstones decode; an upsert of one is a schema rejection."""
