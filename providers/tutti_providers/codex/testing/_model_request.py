"""What the model was sent: the decoded body of one Responses API request."""

from typing import Any, cast

import msgspec

__all__ = ["ModelRequest", "decode_request"]

_SECRET_HEADERS = frozenset({"authorization", "cookie", "openai-organization", "openai-project", "x-api-key"})


class _Body(msgspec.Struct):
    model: str
    input: list[dict[str, Any]]
    instructions: str = ""
    tools: list[dict[str, Any]] = []
    reasoning: dict[str, Any] | None = None
    prompt_cache_key: str | None = None


class _TurnMetadata(msgspec.Struct):
    turn_id: str = ""


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request, as the model saw it."""

    number: int
    """From 1, in order of arrival at this server."""
    path: str
    model: str
    instructions: str
    items: tuple[dict[str, Any], ...]
    """The input items: messages (with ``role``), tool calls and their outputs, in order."""
    tools: tuple[str, ...]
    reasoning_effort: str | None
    prompt_cache_key: str | None
    """For a fork this is the *source's* thread id."""
    headers: dict[str, str]
    """Lower-case names; those that can carry a secret are left out."""

    @property
    def thread_id(self) -> str | None:
        """The thread that asks, from Codex' own header."""
        return self.headers.get("thread-id")

    @property
    def turn_id(self) -> str:
        """The turn that asks, from Codex' own header; empty when it isn't there."""
        try:
            return msgspec.json.decode(self.headers.get("x-codex-turn-metadata", "{}"), type=_TurnMetadata).turn_id
        except msgspec.DecodeError:
            return ""

    @property
    def last_user_text(self) -> str:
        """The text of the last user message."""
        return next((text for role, text in reversed(self.messages) if role == "user"), "")

    @property
    def messages(self) -> list[tuple[str, str]]:
        """Every message as ``(role, text)``, its parts joined."""
        return [(item["role"], _text_of(item)) for item in self.items if item.get("type") == "message"]

    @property
    def tool_rounds(self) -> int:
        """How many rounds of tool output came after the last user message (parallel calls are one round)."""
        rounds = 0
        in_outputs = False
        for item in self.items:
            kind = str(item.get("type"))
            is_output = kind.endswith("_output")
            if kind == "message" and item.get("role") == "user":
                rounds = 0
            elif is_output and not in_outputs:
                rounds += 1
            in_outputs = is_output
        return rounds


def decode_request(number: int, path: str, headers: dict[str, str], body: bytes) -> ModelRequest:
    """Decode a request body.

    Raises:
      msgspec.DecodeError: it isn't JSON, or lacks `model` or `input`.
    """
    decoded = msgspec.json.decode(body, type=_Body)
    return ModelRequest(
        number=number,
        path=path,
        model=decoded.model,
        instructions=decoded.instructions,
        items=tuple(decoded.input),
        tools=tuple(str(tool.get("name") or tool.get("type")) for tool in decoded.tools),
        reasoning_effort=(decoded.reasoning or {}).get("effort"),
        prompt_cache_key=decoded.prompt_cache_key,
        headers={name: value for name, value in headers.items() if name not in _SECRET_HEADERS},
    )


def _text_of(item: dict[str, Any]) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    parts = cast("list[dict[str, Any]]", content) if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts)
