"""What a provider must be able to do, on one screen.

`adapter` is the ordinary half (start, exec, cancel, close), `side` what offering Sides adds. `events`, `ids`,
`capabilities` and `content` are pure data. This package knows neither the runtime nor any provider, and owns no
ordering: numbering, gating and fan-out are the runtime's, wire formats the provider's.
"""

from tutti_side.contract.adapter import Adapter, EventSink, ExecTurn, Provider, SessionBinding, StartSession
from tutti_side.contract.capabilities import SideCapabilities
from tutti_side.contract.content import CONTENT_BYTES_MAX, Content, InvalidContentError, TextContent, check_content
from tutti_side.contract.diagnosis import Diagnosis
from tutti_side.contract.errors import (
    InvalidSettingsError,
    ProviderLostError,
    ProviderProtocolError,
    TurnActiveError,
    TurnNotActiveError,
)
from tutti_side.contract.events import (
    ADAPTER_EVENTS,
    EndReason,
    Event,
    EventBatch,
    Gap,
    MessageDelta,
    MessageUpdated,
    SessionClosed,
    SessionExpired,
    SessionStarted,
    TurnCanceled,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
)
from tutti_side.contract.ids import (
    ID_BYTES_MAX,
    CanonicalRef,
    InvalidIdError,
    RequestId,
    ScopeRef,
    SessionId,
    SideId,
    SideRef,
    TurnId,
    WorkspaceId,
    check_id,
    new_id,
)
from tutti_side.contract.side import SIDE_INSTRUCTIONS, OpenSide, SideBinding, SideConversationAdapter

__all__ = [
    "ADAPTER_EVENTS",
    "CONTENT_BYTES_MAX",
    "ID_BYTES_MAX",
    "SIDE_INSTRUCTIONS",
    "Adapter",
    "CanonicalRef",
    "Content",
    "Diagnosis",
    "EndReason",
    "Event",
    "EventBatch",
    "EventSink",
    "ExecTurn",
    "Gap",
    "InvalidContentError",
    "InvalidIdError",
    "InvalidSettingsError",
    "MessageDelta",
    "MessageUpdated",
    "OpenSide",
    "Provider",
    "ProviderLostError",
    "ProviderProtocolError",
    "RequestId",
    "ScopeRef",
    "SessionBinding",
    "SessionClosed",
    "SessionExpired",
    "SessionId",
    "SessionStarted",
    "SideBinding",
    "SideCapabilities",
    "SideConversationAdapter",
    "SideId",
    "SideRef",
    "StartSession",
    "TextContent",
    "TurnActiveError",
    "TurnCanceled",
    "TurnCompleted",
    "TurnFailed",
    "TurnId",
    "TurnNotActiveError",
    "TurnStarted",
    "WorkspaceId",
    "check_content",
    "check_id",
    "new_id",
]
