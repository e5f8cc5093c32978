"""What a scripted model says: frozen structs, and the pure choice of a reply for a question.

One script drives both halves of the test bed: the scripted model (real binary, HTTP in between) and the fake app-server
(no model at all). A *turn* of the agent is a row of samplings: the model is asked, answers, perhaps calls tools, is
asked again with their output. So an `Answer` has one `Reply` for each round of a turn, and the last one repeats.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

__all__ = [
    "Answer",
    "CallTool",
    "Drop",
    "Fail",
    "ModelScript",
    "Pause",
    "Reason",
    "Reply",
    "Say",
    "SearchWeb",
    "Step",
    "Think",
    "apply_patch",
    "ask_user",
    "run_command",
]

SCRIPT_STEPS_MAX = 100_000
"""Tokens and steps one reply may have; a longer script is a mistake of its author."""


class Say(msgspec.Struct, frozen=True, kw_only=True, tag="say"):
    """Stream text. Says in a row, also around a `Pause`, are one message."""

    tokens: tuple[str, ...]
    delay_s: float = 0.0
    """Seconds before each token. Zero in tests; the demo paces a stream with it."""


class Pause(msgspec.Struct, frozen=True, kw_only=True, tag="pause"):
    """Hold the stream until the named gate is opened."""

    gate: str


class Reason(msgspec.Struct, frozen=True, kw_only=True, tag="reason"):
    """A reasoning item with a one-part summary."""

    summary: str


class Think(msgspec.Struct, frozen=True, kw_only=True, tag="think"):
    """A reasoning item that is streamed, piece by piece."""

    parts: tuple[tuple[str, ...], ...]
    """The parts of its summary, each as the pieces in which it is said."""
    text: tuple[str, ...] = ()
    """The model's own words, in pieces; most providers show none."""


class SearchWeb(msgspec.Struct, frozen=True, kw_only=True, tag="search_web"):
    """A search that the model's provider itself has made."""

    query: str


class CallTool(msgspec.Struct, frozen=True, kw_only=True, tag="call_tool"):
    """Call a tool of the agent; the agent runs it and asks the model again."""

    name: str
    arguments: str
    """JSON text for a function, free text for a custom tool."""
    custom: bool = False
    """A custom tool takes free text instead of JSON (Codex' `apply_patch`)."""
    namespace: str | None = None
    """Tools of MCP servers stand in one, ``mcp__<server>``, under their bare name."""
    runs_until: str | None = None
    """For the fake app-server, which runs nothing: the tool ends when this gate opens. The real one runs the tool."""


class Fail(msgspec.Struct, frozen=True, kw_only=True, tag="fail"):
    """Fail: as the HTTP status when it is the reply's first step, else as a `response.failed` event."""

    status: int = 500
    code: str = "server_error"
    message: str = "scripted failure"


class Drop(msgspec.Struct, frozen=True, kw_only=True, tag="drop"):
    """Close the connection without ending the stream."""


Step = Say | Pause | Reason | Think | SearchWeb | CallTool | Fail | Drop


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One streamed response."""

    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        """Refuse a script without an end."""
        size = sum(len(step.tokens) if isinstance(step, Say) else 1 for step in self.steps)
        if size > SCRIPT_STEPS_MAX:
            raise ValueError(f"a reply has at most {SCRIPT_STEPS_MAX} tokens and steps, this one has {size}")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Which replies a turn gets."""

    replies: tuple[Reply, ...]
    when: str = ""
    """A part of the turn's last user text; the empty text matches every turn."""
    turn: int | None = None
    """Only the n-th turn of a thread, from 1, as its server counts them; None for any."""

    def matches(self, user_text: str, turn: int) -> bool:
        """Say whether this answer is meant for that turn."""
        return self.when in user_text and self.turn in (None, turn)

    @classmethod
    def of(cls, *steps: Step, when: str = "", turn: int | None = None) -> "Answer":
        """Answer every round of a matching turn with the same steps."""
        return cls(replies=(Reply(steps=steps),), when=when, turn=turn)


class ModelScript(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a model will say. The first matching answer counts."""

    answers: tuple[Answer, ...]
    otherwise: Reply = Reply(steps=(Say(tokens=("Done.",)),))

    def reply_for(self, user_text: str, *, turn: int = 1, tool_rounds: int = 0) -> Reply:
        """Choose the reply.

        Args:
          user_text: the last user text the model was sent.
          turn: which turn of its thread this is, from 1.
          tool_rounds: how many rounds of tool output came after that text.
        """
        for answer in self.answers:
            if answer.matches(user_text, turn):
                return answer.replies[min(tool_rounds, len(answer.replies) - 1)]
        return self.otherwise


def run_command(command: str, *, justification: str | None = None, runs_until: str | None = None) -> CallTool:
    """Call the shell tool; with a justification it asks to run outside the sandbox, which needs the user's approval.

    Source: measured on 0.163 and 0.171 (`exec_command`, `sandbox_permissions`).
    """
    arguments: dict[str, Any] = {"cmd": command}
    if justification is not None:
        arguments |= {"sandbox_permissions": "require_escalated", "justification": justification}
    return CallTool(name="exec_command", arguments=_text(arguments), runs_until=runs_until)


def apply_patch(patch: str) -> CallTool:
    """Call the patch tool (only models that Codex knows, such as gpt-5.5, have it).

    Args:
      patch: ``*** Begin Patch`` … ``*** End Patch``.
    """
    return CallTool(name="apply_patch", arguments=patch, custom=True)


def ask_user(questions: Sequence[dict[str, Any]]) -> CallTool:
    """Call `request_user_input` (plan mode, or a feature flag, offers it)."""
    return CallTool(name="request_user_input", arguments=_text({"questions": list(questions)}))


def _text(arguments: dict[str, Any]) -> str:
    return msgspec.json.encode(arguments).decode()
