"""One streamed response as server-sent events: which events a step becomes.

Source: the event names and fields that Codex 0.163 and 0.171 read, found by running them.
"""

from typing import Any

import msgspec

from .model_script import CallTool, Fail, Reason, SearchWeb, Think

__all__ = ["USAGE", "ResponseStream"]

USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 15,
}
"""What every response claims to have used; small and constant, so that traces are comparable."""

_encode = msgspec.json.Encoder().encode


class ResponseStream:
    """Renders the events of response `number`; each call returns the bytes to send."""

    def __init__(self, number: int, model: str) -> None:
        self._number = number
        self._model = model
        self._items: list[dict[str, Any]] = []
        self._text: list[str] | None = None

    def open(self) -> bytes:
        """Begin the response."""
        return self._event("response.created", response=self._response("in_progress"))

    def say(self, token: str) -> bytes:
        """Stream one token, opening a message if none is open."""
        begin = b""
        if self._text is None:
            self._text = []
            begin = self._event("response.output_item.added", output_index=len(self._items), item=self._message(""))
        self._text.append(token)
        return begin + self._event(
            "response.output_text.delta",
            item_id=self._message_id(),
            output_index=len(self._items),
            content_index=0,
            delta=token,
        )

    def reason(self, step: Reason) -> bytes:
        """Send a whole reasoning item."""
        item = {
            "type": "reasoning",
            "id": f"rs_{self._number}_{len(self._items)}",
            "summary": [{"type": "summary_text", "text": step.summary}],
        }
        return self._close_message() + self._whole_item(item)

    def think(self, step: Think) -> bytes:
        """Stream a reasoning item."""
        index = len(self._items) + (self._text is not None)
        item_id = f"rs_{self._number}_{index}"
        item: dict[str, Any] = {"type": "reasoning", "id": item_id, "summary": []}
        data = self._close_message() + self._event("response.output_item.added", output_index=index, item=item)
        for position, pieces in enumerate(step.parts):
            where = {"item_id": item_id, "output_index": index, "summary_index": position}
            empty = {"type": "summary_text", "text": ""}
            data += self._event("response.reasoning_summary_part.added", part=empty, **where)
            for piece in pieces:
                data += self._event("response.reasoning_summary_text.delta", delta=piece, **where)
            data += self._event("response.reasoning_summary_text.done", text="".join(pieces), **where)
        for piece in step.text:
            where = {"item_id": item_id, "output_index": index, "content_index": 0}
            data += self._event("response.reasoning_text.delta", delta=piece, **where)
        item = item | {"summary": [{"type": "summary_text", "text": "".join(pieces)} for pieces in step.parts]}
        if step.text:
            item["content"] = [{"type": "reasoning_text", "text": "".join(step.text)}]
        self._items.append(item)
        return data + self._event("response.output_item.done", output_index=index, item=item)

    def search_web(self, step: SearchWeb) -> bytes:
        """Send a whole web search."""
        position = len(self._items) + (self._text is not None)
        action = {"type": "search", "query": step.query}
        item = {
            "type": "web_search_call",
            "id": f"ws_{self._number}_{position}",
            "status": "completed",
            "action": action,
        }
        return self._close_message() + self._whole_item(item)

    def call_tool(self, step: CallTool) -> bytes:
        """Send a whole tool call."""
        position = len(self._items) + (self._text is not None)
        item: dict[str, Any] = {
            "type": "custom_tool_call" if step.custom else "function_call",
            "id": f"fc_{self._number}_{position}",
            "call_id": f"call_{self._number}_{position}",
            "name": step.name,
            ("input" if step.custom else "arguments"): step.arguments,
            "status": "completed",
        }
        if step.namespace is not None:
            item["namespace"] = step.namespace
        return self._close_message() + self._whole_item(item)

    def complete(self) -> bytes:
        """End the response well."""
        closing = self._close_message()
        return closing + self._event("response.completed", response=self._response("completed") | {"usage": USAGE})

    def fail(self, step: Fail) -> bytes:
        """End the response with an error."""
        error = {"code": step.code, "message": step.message}
        return self._event("response.failed", response=self._response("failed") | {"error": error})

    def _close_message(self) -> bytes:
        if self._text is None:
            return b""
        item = self._message("".join(self._text))
        self._text = None
        index = len(self._items)
        self._items.append(item)
        return self._event("response.output_item.done", output_index=index, item=item)

    def _whole_item(self, item: dict[str, Any]) -> bytes:
        index = len(self._items)
        self._items.append(item)
        added = self._event("response.output_item.added", output_index=index, item=item)
        return added + self._event("response.output_item.done", output_index=index, item=item)

    def _message_id(self) -> str:
        return f"msg_{self._number}_{len(self._items)}"

    def _message(self, text: str) -> dict[str, Any]:
        content: list[dict[str, Any]] = [{"type": "output_text", "text": text, "annotations": []}] if text else []
        return {"type": "message", "id": self._message_id(), "role": "assistant", "content": content}

    def _response(self, status: str) -> dict[str, Any]:
        return {
            "id": f"resp_{self._number}",
            "object": "response",
            "model": self._model,
            "status": status,
            "output": self._items,
        }

    def _event(self, kind: str, **fields: Any) -> bytes:
        return b"event: %s\ndata: %s\n\n" % (kind.encode(), _encode({"type": kind, **fields}))
