"""What the errors say, and what they keep to themselves."""

import pytest

from tutti_side.errors import TuttiSideError
from tutti_side.jsonrpc import (
    ConnectionClosedError,
    InvalidResultError,
    JsonRpcError,
    LocalError,
    NotSentError,
    PeerExit,
    RemoteError,
    RequestNotOpenError,
    RequestTimeoutError,
    TransportBrokenError,
)


def test_every_error_has_the_one_root() -> None:
    """Our choice: one root per package."""
    errors = [
        TransportBrokenError(),
        ConnectionClosedError("eof"),
        RemoteError(1, "m"),
        RequestTimeoutError("m", 30),
        InvalidResultError("m", "$"),
        LocalError("l"),
        RequestNotOpenError(0),
        NotSentError("m"),
    ]

    assert all(isinstance(error, JsonRpcError) and isinstance(error, TuttiSideError) for error in errors)
    assert isinstance(errors[6], LocalError)


@pytest.mark.parametrize("reason", ["eof", "broken_pipe", "closed", "peer_not_reading", "unresponsive", "internal"])
def test_a_closed_connection_says_why_and_with_which_status_and_no_line_of_stderr(reason: str) -> None:
    """R2, our choice: the last stderr lines are an attribute, never in a message, a repr or a log."""
    error = ConnectionClosedError(reason, PeerExit(status=-9, stderr_tail=("secret",)))  # type: ignore[arg-type]

    assert reason in str(error)
    assert "exit status -9" in str(error)
    assert "secret" not in str(error) + repr(error) + repr(vars(error))
    assert error.exit is not None
    assert error.exit.stderr_tail == ("secret",)


def test_a_closed_connection_without_a_known_status_names_none() -> None:
    """Our choice: what isn't known isn't said."""
    for exit in (None, PeerExit()):
        assert "status" not in str(ConnectionClosedError("eof", exit))


def test_each_waiter_gets_an_exception_of_its_own_with_the_same_cause() -> None:
    """Our choice: one object raised in many tasks would collect their tracebacks."""
    error = ConnectionClosedError("internal", PeerExit(status=1))
    error.__cause__ = ValueError("bug")

    fresh = error.again()

    assert fresh is not error
    assert (fresh.reason, fresh.exit, fresh.__cause__) == (error.reason, error.exit, error.__cause__)


def test_a_timeout_says_whether_the_request_may_have_been_executed() -> None:
    """F35: an effect may have happened; only what was never sent surely didn't."""
    assert "may have been executed" in str(RequestTimeoutError("thread/fork", 30.0))
    assert str(RequestTimeoutError("thread/fork", 0.5, sent=False)) == "thread/fork could not be sent within 0.5 s"


def test_a_text_of_the_peer_is_an_attribute_only() -> None:
    """R2: a peer's error can quote what it was sent."""
    error = RemoteError(-32600, "x" * 5000, method="m")

    assert len(error.message) == 5000
    assert str(error) == "m was answered with error -32600; `message` has the peer's words"
    assert str(RemoteError(1, "short")) == "the request was answered with error 1; `message` has the peer's words"
