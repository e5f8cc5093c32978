"""What the server's answers say of a turn whose end was perhaps not told. Pure.

A durable thread lists its turns, and how each ended. An ephemeral one, a Side, lists none: its status says whether a
turn runs, and of one that doesn't nothing more can be known.
"""

from collections.abc import Sequence
from typing import Literal

from tutti_providers.codex.errors import RequestRefusedError
from tutti_providers.codex.schema.items import ThreadStatus, Turn
from tutti_side.contract import TurnId

__all__ = [
    "StatusVerdict",
    "TurnVerdict",
    "judge_status",
    "judge_turns",
    "names_another_turn",
    "says_not_active",
    "says_not_loaded",
]

StatusVerdict = Literal["running", "resting", "unknown"]
"""``resting``: no turn runs in the thread."""

TurnVerdict = Turn | Literal["running", "unknown"]
"""The turn as it ended; or it runs; or the list does not know it, which it may later."""

_RESTING = frozenset({"idle", "systemError", "notLoaded"})


def judge_status(status: ThreadStatus | None) -> StatusVerdict:
    """Say whether a turn runs in a thread with this status; a word that we don't know proves nothing."""
    if status is None:
        return "unknown"
    if status.type == "active":
        return "running"
    return "resting" if status.type in _RESTING else "unknown"


def judge_turns(turns: Sequence[Turn], turn_id: TurnId) -> TurnVerdict:
    """Say what a thread's newest turns tell of one of them."""
    for turn in turns:
        if turn.id == turn_id:
            return "running" if turn.status == "inProgress" else turn
    return "unknown"


def names_another_turn(refused: RequestRefusedError) -> bool:
    """True when a request for one turn was refused since another is active. The words are those of 0.163 and 0.171."""
    return refused.server_message.startswith("expected active turn id")


def says_not_active(refused: RequestRefusedError) -> bool:
    """True when a request for one turn was refused because that turn is not active; the code is that of any refusal."""
    return names_another_turn(refused) or refused.server_message.startswith("no active turn")


def says_not_loaded(refused: RequestRefusedError) -> bool:
    """True when a thread could not be read since it is not loaded. The words are those of 0.163 and 0.171."""
    return refused.server_message.startswith("thread not loaded")
