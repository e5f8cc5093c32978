"""What arrives before the commit."""

import pytest

from tutti_side.contract import MessageDelta, TurnId
from tutti_side.runtime._gate import Gate


def delta(text: str) -> MessageDelta:
    return MessageDelta(TurnId("t"), "i", text)


def test_what_is_held_comes_out_in_order_once() -> None:
    """R3; specification: open buffering."""
    gate = Gate()
    assert gate.hold([delta("a"), delta("b")], 2)
    assert gate.hold([delta("c")], 1)
    events, size_bytes = gate.open()
    assert [event.text for event in events if isinstance(event, MessageDelta)] == ["a", "b", "c"]
    assert size_bytes == 3
    assert gate.kept == 0
    with pytest.raises(RuntimeError, match="open gate"):
        gate.hold([delta("d")], 1)


@pytest.mark.parametrize(("events_max", "bytes_max"), [(2, 100), (100, 2)])
def test_more_than_the_bound_is_refused_and_not_kept(events_max: int, bytes_max: int) -> None:
    """R12: in events and in bytes."""
    gate = Gate(events_max, bytes_max)
    assert gate.hold([delta("a"), delta("b")], 2)
    assert not gate.hold([delta("c")], 1)
    assert gate.kept == 2


def test_a_dropped_gate_forgets() -> None:
    """R6: a failed open leaves no buffer."""
    gate = Gate()
    gate.hold([delta("a")], 1)
    gate.drop()
    assert gate.open() == ((), 0)
