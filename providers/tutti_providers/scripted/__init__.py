"""A provider in this process that plays a script: ``open_host(scripted())``. No binary, no account, no network.

`script` is what can happen, as data; `adapter` makes it happen behind the same contract as a real provider. It is the
provider of examples, of ``demo --provider scripted`` and of tests that need a provider to fail at a chosen step. It
owns no durability: sessions are kept in the provider object, as long as the program runs.
"""

from tutti_providers.scripted._transcript import Message
from tutti_providers.scripted.adapter import Call, ScriptedAdapter, ScriptedStatistics
from tutti_providers.scripted.errors import (
    ConnectionNotClosedError,
    InvalidScriptError,
    ScriptedError,
    ScriptedFailureError,
    SessionHeldError,
    SessionNotKeptError,
)
from tutti_providers.scripted.provider import ScriptedProvider, scripted
from tutti_providers.scripted.script import (
    ALL_CAPABILITIES,
    APPROVAL_OPTIONS,
    Ask,
    Closing,
    Drop,
    Echo,
    Emit,
    Fail,
    Opening,
    OwnTurn,
    Recall,
    Say,
    Script,
    Starting,
    Turn,
    Wait,
    words,
)

__all__ = [
    "ALL_CAPABILITIES",
    "APPROVAL_OPTIONS",
    "Ask",
    "Call",
    "Closing",
    "ConnectionNotClosedError",
    "Drop",
    "Echo",
    "Emit",
    "Fail",
    "InvalidScriptError",
    "Message",
    "Opening",
    "OwnTurn",
    "Recall",
    "Say",
    "Script",
    "ScriptedAdapter",
    "ScriptedError",
    "ScriptedFailureError",
    "ScriptedProvider",
    "ScriptedStatistics",
    "SessionHeldError",
    "SessionNotKeptError",
    "Starting",
    "Turn",
    "Wait",
    "scripted",
    "words",
]
