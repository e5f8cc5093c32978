"""Ask a working agent a question without stopping its turn.

Where things are, from the top layer down (each imports only what stands below it):

- `cli`       the only place that composes: ``tutti-side demo``, ``doctor``, ``sink``
- `host`      what an application calls: `open_host`; metadata in a file, metrics for Prometheus
- `runtime`   live sessions and Sides: controller, scopes, event hub, sweeper
- `contract`  what a provider must be able to do; `jsonrpc`: a peer that knows nothing of Sides or providers
- `nursery`, `errors`

`testing` holds helpers that users need as well. Providers live in `tutti_providers`; nothing here imports them. Here
stands what a program that opens Sides needs: the host, its handles, the events and errors that come out of them. What a
provider's author needs is in `contract`.
"""

import logging

from tutti_side.contract import (
    EventBatch,
    Gap,
    InteractionAnswer,
    InteractionRequested,
    InteractionResolved,
    InvalidContentError,
    InvalidIdError,
    InvalidSettingsError,
    MessageDelta,
    MessageUpdated,
    ProviderLostError,
    ProviderProtocolError,
    SideCapabilities,
    SubAgentEvent,
    TextContent,
    TurnCanceled,
    TurnCompleted,
    TurnFailed,
    TurnMergedError,
    TurnNotActiveError,
    TurnStarted,
)
from tutti_side.errors import TuttiSideError
from tutti_side.host import (
    AgentHost,
    HostIdentity,
    HostStatistics,
    JsonFileMetadata,
    MetadataFileError,
    ProviderChoiceError,
    open_host,
)
from tutti_side.runtime import (
    Answer,
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
    SessionHandle,
    SessionUnknownError,
    SideBusyError,
    SideConflictError,
    SideError,
    SideExpiredError,
    SideHandle,
    SideInProgressError,
    SideNotFoundError,
    SideUnsupportedError,
    Subscription,
    SubscriptionInUseError,
    TurnCanceledError,
    TurnFailedError,
    TurnHandle,
    TurnResult,
)

logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = [
    "AgentHost",
    "Answer",
    "EventBatch",
    "Gap",
    "HostIdentity",
    "HostStatistics",
    "HostStoppedError",
    "InteractionAlreadyAnsweredError",
    "InteractionAnswer",
    "InteractionError",
    "InteractionInvalidError",
    "InteractionNotLiveError",
    "InteractionRequested",
    "InteractionResolved",
    "InvalidContentError",
    "InvalidIdError",
    "InvalidSettingsError",
    "JsonFileMetadata",
    "MessageDelta",
    "MessageUpdated",
    "MetadataFileError",
    "OpenFailedError",
    "OperationUnsupportedError",
    "ProviderChoiceError",
    "ProviderLostError",
    "ProviderProtocolError",
    "SessionBusyError",
    "SessionConflictError",
    "SessionExpiredError",
    "SessionHandle",
    "SessionUnknownError",
    "SideBusyError",
    "SideCapabilities",
    "SideConflictError",
    "SideError",
    "SideExpiredError",
    "SideHandle",
    "SideInProgressError",
    "SideNotFoundError",
    "SideUnsupportedError",
    "SubAgentEvent",
    "Subscription",
    "SubscriptionInUseError",
    "TextContent",
    "TurnCanceled",
    "TurnCanceledError",
    "TurnCompleted",
    "TurnFailed",
    "TurnFailedError",
    "TurnHandle",
    "TurnMergedError",
    "TurnNotActiveError",
    "TurnResult",
    "TurnStarted",
    "TuttiSideError",
    "open_host",
]
