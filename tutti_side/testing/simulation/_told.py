"""What a record says of what a call returned."""

from tutti_side.runtime import Answer, SessionHandle, SideHandle, TurnHandle, TurnResult

__all__ = ["told_answer", "told_result", "told_session", "told_side", "told_turn"]


def told_session(session: SessionHandle) -> dict[str, str]:
    """A session: what its provider calls it."""
    return {"child": session.provider_session_id}


def told_side(side: SideHandle) -> dict[str, str]:
    """A Side: its id, and what its provider calls it, once that is known."""
    binding = side.scope.binding
    return {"returned": side.id, "child": "" if binding is None else binding.provider_session_id}


def told_turn(turn: TurnHandle) -> dict[str, str]:
    """A turn that was sent."""
    return {"turn": turn.id}


def told_answer(answer: Answer) -> dict[str, str]:
    """An answer: its turn has completed."""
    return {"returned": "completed", "text": "".join(answer.messages), "turn": answer.turn_id}


def told_result(result: TurnResult) -> dict[str, str]:
    """How a turn that was waited for ended."""
    answer = result.answer
    text, reason = "".join(answer.messages), result.reason or ""
    return {"returned": result.status, "reason": reason, "text": text, "turn": answer.turn_id}
