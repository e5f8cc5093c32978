"""What a Side carries of its source, and which answers of a fork are refused."""

from typing import Any

import msgspec
import pytest

from tutti_providers.codex._settings import (
    SourceSettings,
    check_fork,
    check_started,
    fork_params,
    side_turn_params,
    turn_params,
)
from tutti_providers.codex.schema.notifications import ThreadSettings
from tutti_providers.codex.schema.requests import OpenedThread
from tutti_side.contract import TextContent

SOURCE, CHILD = "thread-source", "thread-child"

WORKSPACE_WRITE = {"type": "workspaceWrite", "writableRoots": ["/project"], "networkAccess": False, "newer": ["kept"]}

ANSWER: dict[str, Any] = {
    "thread": {"id": SOURCE, "ephemeral": False, "path": "/home/user/rollout.jsonl", "turns": []},
    "model": "the-model",
    "modelProvider": "the-provider",
    "cwd": "/project",
    "approvalPolicy": {"granular": {"rules": True}},
    "approvalsReviewer": "auto_review",
    "sandbox": WORKSPACE_WRITE,
    "serviceTier": "flex",
    "reasoningEffort": "high",
}
"""What the start of the source was answered with."""


def opened(**changes: Any) -> OpenedThread:
    thread = {**ANSWER["thread"], **changes.pop("thread", {})}
    return msgspec.convert({**ANSWER, **changes, "thread": thread}, OpenedThread)


def source() -> SourceSettings:
    return SourceSettings.of_opened(opened())


def wire(params: Any) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(params))
    return decoded


def test_a_fork_says_everything_that_it_would_not_inherit() -> None:
    """T1, T3, F19, R19, architecture §4.5: the whole of the request, letter by letter."""
    assert wire(fork_params(SOURCE, source(), "be brief")) == {
        "threadId": SOURCE,
        "ephemeral": True,
        "excludeTurns": True,
        "developerInstructions": "be brief",
        "model": "the-model",
        "modelProvider": "the-provider",
        "serviceTier": "flex",
        "sandbox": "read-only",
        "approvalPolicy": {"granular": {"rules": True}},
        "approvalsReviewer": "user",
        "cwd": "/project",
    }


def test_a_turn_of_a_side_carries_its_sources_policy_model_effort_and_mode() -> None:
    """T1, T3, R19, architecture §4: the full sandbox policy, verbatim; approvals go to the user."""
    content = (TextContent("what?"), TextContent("and why?"))
    assert wire(side_turn_params(CHILD, content, "submit-1", source(), "be brief")) == {
        "threadId": CHILD,
        "input": [{"type": "text", "text": "what?"}, {"type": "text", "text": "and why?"}],
        "clientUserMessageId": "submit-1",
        "cwd": "/project",
        "model": "the-model",
        "effort": "high",
        "serviceTier": "flex",
        "approvalPolicy": {"granular": {"rules": True}},
        "approvalsReviewer": "user",
        "sandboxPolicy": WORKSPACE_WRITE,
        "collaborationMode": {
            "mode": "default",
            "settings": {"model": "the-model", "reasoning_effort": "high", "developer_instructions": "be brief"},
        },
    }


def test_a_turn_of_a_session_changes_none_of_its_settings() -> None:
    """Architecture §4: they are the user's."""
    plain = {"threadId": SOURCE, "input": [{"type": "text", "text": "go"}]}
    assert wire(turn_params(SOURCE, (TextContent("go"),), None, source(), None)) == plain


def test_the_hosts_context_goes_with_a_turn_of_a_session_in_its_own_mode() -> None:
    """Architecture §4: the latest host context; the mode keeps the session's own model and effort."""
    written = wire(turn_params(SOURCE, (TextContent("go"),), "submit-1", source(), "the host says"))
    assert written["collaborationMode"] == {
        "mode": "default",
        "settings": {"model": "the-model", "reasoning_effort": "high", "developer_instructions": "the host says"},
    }
    assert written["clientUserMessageId"] == "submit-1"


def test_an_update_replaces_everything_that_was_known_of_the_source() -> None:
    """T3: a Side opened or asked after it follows the new settings."""
    updated = msgspec.convert(
        {
            "cwd": "/elsewhere",
            "model": "m2",
            "modelProvider": "p2",
            "approvalPolicy": "never",
            "approvalsReviewer": "user",
            "sandboxPolicy": {"type": "readOnly", "networkAccess": False},
            "collaborationMode": {"mode": "plan", "settings": {"model": "m2"}},
        },
        ThreadSettings,
    )
    settings = SourceSettings.of_update(updated)
    fork, turn = wire(fork_params(SOURCE, settings, "x")), wire(side_turn_params(CHILD, (), None, settings, "x"))
    assert (fork["model"], fork["modelProvider"], fork["cwd"], fork["approvalPolicy"]) == (
        "m2",
        "p2",
        "/elsewhere",
        "never",
    )
    assert turn["sandboxPolicy"] == {"type": "readOnly", "networkAccess": False}
    assert turn["collaborationMode"]["mode"] == "plan"
    assert turn["collaborationMode"]["settings"]["reasoning_effort"] is None
    assert fork["sandbox"] == "read-only"


# the answer of a fork

GOOD: dict[str, Any] = {
    "thread": {"id": CHILD, "ephemeral": True, "path": None, "forkedFromId": SOURCE, "turns": []},
    "approvalsReviewer": "user",
    "sandbox": {"type": "readOnly", "networkAccess": False},
}

LIES: dict[str, tuple[dict[str, Any], str]] = {
    "no id": ({"thread": {"id": ""}}, "itself"),
    "the source itself": ({"thread": {"id": SOURCE}}, "itself"),
    "persistent": ({"thread": {"ephemeral": False}}, "not ephemeral"),
    "a file": ({"thread": {"path": "/home/user/rollout.jsonl"}}, "written"),
    "an empty path": ({"thread": {"path": ""}}, "written"),
    "no lineage": ({"thread": {"forkedFromId": None}}, "another thread"),
    "another lineage": ({"thread": {"forkedFromId": "thread-other"}}, "another thread"),
    "inherited turns": ({"thread": {"turns": [{"id": "t", "status": "completed"}]}}, "inherited turns"),
    "another model": ({"model": "cheap"}, "model or provider"),
    "another provider": ({"modelProvider": "openai"}, "model or provider"),
    "another policy": ({"approvalPolicy": "never"}, "policy or reviewer"),
    "a model approves": ({"approvalsReviewer": "auto_review"}, "policy or reviewer"),
    "may write": ({"sandbox": WORKSPACE_WRITE}, "less restricted"),
    "has no sandbox": ({"sandbox": {"type": "dangerFullAccess"}}, "less restricted"),
    "has network": ({"sandbox": {"type": "readOnly", "networkAccess": True}}, "less restricted"),
    "has some network": ({"sandbox": {"type": "readOnly", "networkAccess": "restricted"}}, "less restricted"),
    "an empty sandbox": ({"sandbox": {}}, "less restricted"),
    "another directory": ({"cwd": "/"}, "another directory"),
}


def fork_answer(changes: dict[str, Any]) -> OpenedThread:
    return opened(**{**GOOD, **changes, "thread": {**GOOD["thread"], **changes.get("thread", {})}})


def test_a_fork_that_is_what_was_asked_for_passes() -> None:
    """R15."""
    assert check_fork(fork_answer({}), fork_params(SOURCE, source(), "x")) is None


@pytest.mark.parametrize("lie", LIES)
def test_a_fork_that_is_anything_else_is_refused_by_name(lie: str) -> None:
    """R15, R19, T3, T20: each field that was asked for; no content of the answer is in the words."""
    changes, words = LIES[lie]
    problem = check_fork(fork_answer(changes), fork_params(SOURCE, source(), "x"))
    assert problem is not None
    assert words in problem
    assert "/" not in problem


@pytest.mark.parametrize(
    ("thread", "fine"),
    [({}, True), ({"id": ""}, False), ({"ephemeral": True}, False), ({"forkedFromId": "thread-other"}, False)],
    ids=["its own", "no id", "ephemeral", "a fork"],
)
def test_a_started_session_is_a_durable_thread_of_its_own(thread: dict[str, Any], fine: bool) -> None:
    """Our choice: anything else is not a canonical session."""
    assert (check_started(opened(thread=thread)) is None) is fine
