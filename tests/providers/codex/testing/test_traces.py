"""What a trace keeps of a session, and what it leaves out."""

from pathlib import Path
from typing import Any

import pytest

from tutti_providers.codex.testing.traces import SessionLine, load_transcript, merged_lengths, trace_of

GOLDEN = Path(__file__).parents[3] / "golden" / "codex" / "transcripts"

THREAD = "01a22be6-f7ef-7d92-a4d3-000000000001"


def line(direction: Any, **message: Any) -> SessionLine:
    return SessionLine(dir=direction, msg=message)


def delta(text: str, item: str = "msg_1", thread: str = THREAD) -> SessionLine:
    params = {"threadId": thread, "turnId": "t", "itemId": item, "delta": text}
    return line("in", method="item/agentMessage/delta", params=params)


def completed(item: str = "msg_1") -> SessionLine:
    params = {"threadId": THREAD, "turnId": "t", "item": {"id": item, "text": "x"}, "completedAtMs": 7}
    return line("in", method="item/completed", params=params)


STARTED = (
    line("out", id=1, method="thread/start", params={}),
    line("in", id=1, result={"thread": {"id": THREAD, "path": "/home/x", "createdAt": 1}}),
)


def test_times_and_places_are_starred_and_null_stays_null() -> None:
    """Our choice."""
    other = (STARTED[0], line("in", id=1, result={"thread": {"id": "other", "path": "/elsewhere", "createdAt": 2}}))
    side = (STARTED[0], line("in", id=1, result={"thread": {"id": THREAD, "path": None, "createdAt": 1}}))

    assert trace_of(STARTED) == trace_of(other)
    assert trace_of(STARTED) != trace_of(side)


def test_how_a_text_was_cut_into_deltas_does_not_matter_but_the_text_does() -> None:
    """Our choice: adjacent deltas are one, others of the item are not."""
    assert trace_of([*STARTED, delta("a"), delta("b"), completed()]) == trace_of([*STARTED, delta("ab"), completed()])
    assert trace_of([*STARTED, delta("a"), completed()]) != trace_of([*STARTED, delta("b"), completed()])


def test_a_text_that_was_cut_off_counts_as_begun_only() -> None:
    """Our choice: where a stream was interrupted is a matter of time."""
    assert trace_of([*STARTED, delta("a")]) == trace_of([*STARTED, delta("abc")])
    assert trace_of([*STARTED, delta("a")]) != trace_of(STARTED)


def test_the_order_within_a_thread_matters_and_between_threads_does_not() -> None:
    """Our choice: R3 is what can be promised."""
    one, two = delta("x", thread="a"), completed()
    status = line("in", method="thread/status/changed", params={"threadId": THREAD, "status": {"type": "idle"}})

    assert trace_of([*STARTED, one, two]) == trace_of([*STARTED, two, one])
    assert trace_of([*STARTED, status, two]) != trace_of([*STARTED, two, status])


def test_an_answer_that_never_came_is_said_so() -> None:
    """T14."""
    assert trace_of(STARTED[:1])["answers"] == ["never answered"]


def test_lengths_count_a_run_of_deltas_once() -> None:
    """Our choice: the replay waits by them."""
    messages = [entry.msg for entry in (delta("a"), delta("b"), completed(), delta("c"), *STARTED[1:])]

    assert merged_lengths(messages) == {THREAD: 3}


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.jsonl")), ids=lambda path: path.stem)
def test_every_recorded_session_is_read_and_says_how_it_ended(path: Path) -> None:
    """Golden data."""
    transcript = load_transcript(path)

    assert transcript.version in ("0.163.0", "0.171.0")
    assert transcript.exit == (-9 if transcript.was_killed else 0)
    assert "never answered" not in trace_of(transcript.lines)["answers"]


def test_when_a_thread_stops_waiting_may_be_told_before_or_after_what_the_answer_leads_to() -> None:
    """Measured on 0.163 and 0.171: that status comes from another task; others keep their place."""

    def status(kind: str) -> SessionLine:
        word = {"type": kind, "activeFlags": []} if kind == "active" else {"type": kind}
        return line("in", method="thread/status/changed", params={"threadId": THREAD, "status": word})

    resolved = line("in", method="serverRequest/resolved", params={"threadId": THREAD, "requestId": 0})

    early = trace_of([*STARTED, resolved, status("active"), completed(), status("idle")])
    assert early == trace_of([*STARTED, resolved, completed(), status("active"), status("idle")])
    assert early != trace_of([*STARTED, resolved, completed(), status("idle"), status("active")])
    assert trace_of([*STARTED, resolved, status("idle"), completed()]) != trace_of(
        [*STARTED, resolved, completed(), status("idle")]
    )
