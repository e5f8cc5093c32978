"""Ask a working agent a question without stopping its turn.

Where things are, from the top layer down (each imports only what stands below it):

- `cli`       the only place that composes: ``tutti-side demo``, ``doctor``, ``sink``
- `host`      what an application calls: `open_host`
- `runtime`   live sessions and Sides: controller, scopes, event hub
- `contract`  what a provider must be able to do; `jsonrpc`: a peer that knows nothing of Sides or providers
- `nursery`, `errors`

`testing` holds helpers that users need as well. Providers live in `tutti_providers`; nothing here imports them.
"""

import logging

from tutti_side.contract import EventBatch, MessageDelta, MessageUpdated, TurnCompleted
from tutti_side.errors import TuttiSideError
from tutti_side.host import AgentHost, HostIdentity, open_host
from tutti_side.runtime import (
    Answer,
    OpenFailedError,
    SessionConflictError,
    SessionExpiredError,
    SessionHandle,
    SideConflictError,
    SideExpiredError,
    SideHandle,
    SideUnsupportedError,
    Subscription,
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
    "HostIdentity",
    "MessageDelta",
    "MessageUpdated",
    "OpenFailedError",
    "SessionConflictError",
    "SessionExpiredError",
    "SessionHandle",
    "SideConflictError",
    "SideExpiredError",
    "SideHandle",
    "SideUnsupportedError",
    "Subscription",
    "TurnCanceledError",
    "TurnCompleted",
    "TurnFailedError",
    "TurnHandle",
    "TurnResult",
    "TuttiSideError",
    "open_host",
]
