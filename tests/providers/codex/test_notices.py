"""What the server says that names no thread: told to the host, counted, and nobody's event."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutti_providers.codex._notices import SUBJECT_MAX, Notices
from tutti_providers.codex._router import Router
from tutti_providers.codex.schema.notifications import NOTIFICATIONS, Head
from tutti_providers.codex.testing import ModelScript
from tutti_side.contract import NOTICE_TEXT_MAX, Notice, RateLimit
from tutti_side.jsonrpc import CODEX, Message
from tutti_side.jsonrpc.codec import Codec

Lab = Any


class Wire:
    """A router whose unthreaded messages become notices."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.declined: list[Any] = []
        self.unread: Counter[str] = Counter()
        self.taken = Notices(self.notices.append, self.unread)
        self.router = Router(lambda message: self.declined.append(message.id), self.taken.take)

    def say(self, method: str, params: object, **rest: Any) -> None:
        line = msgspec.json.encode({"method": method, "params": params, **rest})
        read: list[Message[Head]] = list(Codec(Head, CODEX).decode_lines([line]))
        self.router.feed(read)


WINDOWS = {
    "primary": {"usedPercent": 90, "windowDurationMins": 300, "resetsAt": 1_800_000_000},
    "secondary": {"usedPercent": 5},
}


@pytest.mark.parametrize(
    ("method", "params", "notice"),
    [
        ("warning", {"message": "m"}, Notice(kind="warning", subject="warning", message="m")),
        (
            "configWarning",
            {"summary": "s", "details": "d", "path": "/p"},
            Notice(kind="warning", subject="configWarning", message="s", detail="d\n/p"),
        ),
        (
            "deprecationNotice",
            {"summary": "s"},
            Notice(kind="warning", subject="deprecationNotice", message="s"),
        ),
        (
            "mcpServer/startupStatus/updated",
            {"name": "docs", "status": "failed", "error": "e"},
            Notice(
                kind="warning",
                subject="mcpServer/startupStatus/updated",
                message="the tool server docs did not start",
                detail="e",
            ),
        ),
        (
            "account/rateLimits/updated",
            {"rateLimits": {"limitId": "codex", **WINDOWS}},
            Notice(
                kind="rate_limits",
                subject="account/rateLimits/updated",
                limits=(
                    RateLimit(name="primary", used_percent=90, window_s=18_000, resets_at_s=1_800_000_000),
                    RateLimit(name="secondary", used_percent=5),
                ),
            ),
        ),
        ("account/updated", {"authMode": "secret"}, Notice(kind="account", subject="account/updated")),
        ("skills/changed", {}, Notice(kind="other", subject="skills/changed")),
        ("brand/new" * 100, {}, Notice(kind="other", subject=("brand/new" * 100)[:SUBJECT_MAX])),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_each_kind_becomes_a_notice_and_is_counted(method: str, params: object, notice: Notice) -> None:
    """Schema of 0.163; of what we don't model only its name is told."""
    wire = Wire()
    wire.say(method, params)
    assert wire.notices == [notice]
    assert wire.taken.counts == {notice.kind: 1}
    assert wire.router.statistics().dropped == {}


def test_a_request_without_a_thread_is_no_notice_and_is_declined() -> None:
    """R11: it waits for an answer."""
    wire = Wire()
    wire.say("account/chatgptAuthTokens/refresh", {"reason": "unauthorized"}, id=0)
    assert (wire.notices, wire.declined) == ([], [0])


def test_what_names_a_thread_that_nobody_knows_is_no_notice() -> None:
    """R1: another client's thread is nobody's business here."""
    wire = Wire()
    wire.say("warning", {"message": "secret", "threadId": "stranger"})
    assert wire.notices == []
    assert wire.router.statistics().dropped == {"unknown": 1}


def test_a_wrong_type_is_dropped_and_counted_and_the_next_is_told() -> None:
    """R9."""
    wire = Wire()
    wire.say("configWarning", {"summary": 7})
    wire.say("account/rateLimits/updated", {"rateLimits": [1]})
    wire.say("warning", {"message": "next"})
    assert [notice.message for notice in wire.notices] == ["next"]
    assert wire.unread == {"malformed": 2}


@given(
    st.sampled_from(sorted([*NOTIFICATIONS, "brand/new"])),
    st.dictionaries(
        st.sampled_from(["summary", "message", "details", "rateLimits", "name", "status", "thread"]),
        st.none() | st.integers() | st.text(max_size=4) | st.dictionaries(st.text(max_size=4), st.integers()),
    ),
)
def test_no_frame_raises(method: str, params: dict[str, Any]) -> None:
    """R9: whatever stands in the right envelope is told or counted."""
    wire = Wire()
    wire.say(method, params)
    wire.say("warning", {"message": "still here"})
    assert wire.notices[-1].message == "still here"


def test_a_long_text_is_cut() -> None:
    """R12: a host keeps some of them."""
    wire = Wire()
    wire.say("configWarning", {"summary": "a" * (NOTICE_TEXT_MAX + 1), "details": "b" * (NOTICE_TEXT_MAX + 1)})
    [notice] = wire.notices
    assert (len(notice.message), len(notice.detail)) == (NOTICE_TEXT_MAX, NOTICE_TEXT_MAX)


@pytest.mark.codex
@pytest.mark.process
async def test_a_host_hears_what_a_real_codex_says_of_itself_and_no_stream_holds_it(lab: Lab) -> None:
    """Required: server-wide warnings go to the connection's own listeners. It misses a sandbox helper on this PATH."""
    async with lab.bench(ModelScript(answers=())) as bench:
        bench.environ["PATH"] = str(bench.directory / "nothing")
        async with bench.host() as host:
            session = await host.start_session(cwd=bench.workspace)
            await session.ask("hello")
            said = {notice.subject: notice for notice in host.notices()}
            counts = bench.connection.notices
            dropped = bench.connection.router.dropped
    warning = said["configWarning"]
    assert (warning.kind, warning.provider) == ("warning", "codex")
    assert warning.message
    assert said["account/rateLimits/updated"].kind == "rate_limits"
    assert said["remoteControl/status/changed"].kind == "other"
    assert counts.keys() == {"warning", "rate_limits", "other"}
    assert dropped == {}
