"""Live sessions and Sides.

Read the pure files first: `_side_state` (lifecycle table), `_gate` (before the commit), `_turns` (whose text is whose),
`_interactions` (what waits for its user), `_registry` (which ids live, which are over). `_scope` is where an adapter's
events arrive; `event_hub` is where subscribers are; `_session_scope` is one live session, `_side_scope` a Side;
`controller` opens and closes, and contains failures, with `_sessions` for canonical sessions and `_tally` for counts;
`_shutdown` is the host's one deadline; `sweeper` ends what would not close; `handles` and `turn_handle` are what a
user holds, `ports` what a host brings. Nothing here knows a provider, a store or a wire.
"""

from tutti_side.runtime.controller import HOST_STOP_S, ControllerStatistics, RuntimeController, open_controller
from tutti_side.runtime.errors import (
    HostStoppedError,
    InteractionAlreadyAnsweredError,
    InteractionError,
    InteractionInvalidError,
    InteractionNotLiveError,
    OpenFailedError,
    OperationUnsupportedError,
    SessionBusyError,
    SessionConflictError,
    SessionExpiredError,
    SessionUnknownError,
    SideBusyError,
    SideConflictError,
    SideError,
    SideExpiredError,
    SideInProgressError,
    SideNotFoundError,
    SideUnsupportedError,
    SubscriptionInUseError,
    TurnCanceledError,
    TurnFailedError,
)
from tutti_side.runtime.event_hub import QUEUE_BYTES_MAX, QUEUE_EVENTS_MAX, Subscription
from tutti_side.runtime.handles import SessionHandle, SideHandle
from tutti_side.runtime.ports import (
    ActivityReporter,
    DurableGate,
    DurableRefusedError,
    MemoryMetadata,
    RecordedActivity,
    RecordingReporter,
)
from tutti_side.runtime.sweeper import Sweeper, open_sweeper
from tutti_side.runtime.turn_handle import Answer, TurnHandle, TurnResult

__all__ = [
    "HOST_STOP_S",
    "QUEUE_BYTES_MAX",
    "QUEUE_EVENTS_MAX",
    "ActivityReporter",
    "Answer",
    "ControllerStatistics",
    "DurableGate",
    "DurableRefusedError",
    "HostStoppedError",
    "InteractionAlreadyAnsweredError",
    "InteractionError",
    "InteractionInvalidError",
    "InteractionNotLiveError",
    "MemoryMetadata",
    "OpenFailedError",
    "OperationUnsupportedError",
    "RecordedActivity",
    "RecordingReporter",
    "RuntimeController",
    "SessionBusyError",
    "SessionConflictError",
    "SessionExpiredError",
    "SessionHandle",
    "SessionUnknownError",
    "SideBusyError",
    "SideConflictError",
    "SideError",
    "SideExpiredError",
    "SideHandle",
    "SideInProgressError",
    "SideNotFoundError",
    "SideUnsupportedError",
    "Subscription",
    "SubscriptionInUseError",
    "Sweeper",
    "TurnCanceledError",
    "TurnFailedError",
    "TurnHandle",
    "TurnResult",
    "open_controller",
    "open_sweeper",
]
