"""The shapes of threads, turns and items as the recorded versions of the app-server write them."""

import hashlib
import re
import shlex
from typing import Any, cast

__all__ = [
    "UNKNOWN_METHOD",
    "agent_message",
    "command_item",
    "completed_params",
    "default_sandbox",
    "diff_of",
    "file_change_item",
    "id_complaint",
    "rate_limits",
    "reasoning_item",
    "started_params",
    "sub_object",
    "tool_call_item",
    "turn_shape",
    "usage_shape",
    "user_message",
    "version_tuple",
    "web_search_item",
]

UNKNOWN_METHOD = "Invalid request: unknown variant `{}`, expected one of `initialize`, `thread/start`, …"
"""The real one lists several kilobytes of method names."""

_NOT_IN_UUID = re.compile(r"[^0-9a-fA-F-]")

_SANDBOXES: dict[str, dict[str, Any]] = {
    "read-only": {"type": "readOnly", "networkAccess": False},
    "workspace-write": {
        "type": "workspaceWrite",
        "writableRoots": [],
        "networkAccess": False,
        "excludeTmpdirEnvVar": False,
        "excludeSlashTmp": False,
    },
    "danger-full-access": {"type": "dangerFullAccess"},
}


def sub_object(message: dict[str, Any], name: str) -> dict[str, Any]:
    """An object inside a message; empty when it is missing or something else."""
    value: Any = message.get(name)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def version_tuple(version: str) -> tuple[int, int]:
    """Major and minor number."""
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


def default_sandbox(mode: str) -> dict[str, Any] | None:
    """The policy that a mode word stands for; None for an unknown word."""
    return _SANDBOXES.get(mode)


def id_complaint(kind: str, value: str) -> str | None:
    """What is wrong with the id, in the real one's words; None when nothing is."""
    bad = _NOT_IN_UUID.search(value)
    if bad is None:
        return None
    expected = "expected an optional prefix of `urn:uuid:` followed by [0-9a-fA-F-]"
    return f"invalid {kind} id: invalid character: {expected}, found `{bad.group()}` at {bad.start() + 1}"


def turn_shape(turn_id: str, status: str, **fields: Any) -> dict[str, Any]:
    """A turn."""
    shape: dict[str, Any] = {
        "id": turn_id,
        "rootTurnId": turn_id,
        "items": [],
        "itemsView": "notLoaded",
        "status": status,
        "error": None,
        "startedAt": None,
        "completedAt": None,
        "durationMs": None,
    }
    return shape | fields


def user_message(item_id: str, inputs: list[Any]) -> dict[str, Any]:
    """What the user said."""
    content = [part | {"text_elements": []} if part.get("type") == "text" else part for part in inputs]
    return {"type": "userMessage", "id": item_id, "clientId": None, "content": content}


def agent_message(item_id: str, text: str, *, timed: bool) -> dict[str, Any]:
    """What the model said."""
    moderation = {"moderation": None} if timed else {}
    rest = {"phase": None, "memoryCitation": None, "delivery": None, "questions": None}
    return {"type": "agentMessage", **moderation, "id": item_id, "text": text, **rest}


def reasoning_item(item_id: str, *summary: str) -> dict[str, Any]:
    """What the model thought."""
    return {"type": "reasoning", "id": item_id, "summary": list(summary), "content": []}


def web_search_item(item_id: str, query: str) -> dict[str, Any]:
    """A search that the model's provider made."""
    action = {"type": "search", "query": query, "queries": None}
    return {"type": "webSearch", "id": item_id, "query": query, "action": action, "results": None}


def command_item(item_id: str, command: str, cwd: str, *, process: str | None) -> dict[str, Any]:
    """A shell command in progress; it has a process once it runs."""
    return {
        "type": "commandExecution",
        "id": item_id,
        "pluginId": None,
        "scriptPath": None,
        "command": f"/bin/bash -lc {shlex.quote(command)}",
        "cwd": cwd,
        "processId": process,
        "source": "agent" if process is None else "unifiedExecStartup",
        "status": "inProgress",
        "commandActions": [{"type": "unknown", "command": command}],
        "aggregatedOutput": None,
        "exitCode": None,
        "durationMs": None,
    }


def file_change_item(item_id: str, patch: str, cwd: str) -> dict[str, Any]:
    """A patch, waiting or applied."""
    changes: list[dict[str, Any]] = []
    for line in patch.splitlines():
        header = re.match(r"\*\*\* (Add|Update|Delete) File: (.+)", line)
        if header:
            kind = header[1].lower()
            changes.append({"path": f"{cwd}/{header[2]}", "kind": {"type": kind}, "diff": ""})
        elif changes and not line.startswith("***"):
            text = line[1:] if changes[-1]["kind"]["type"] == "add" else line
            changes[-1]["diff"] += f"{text}\n"
    return {"type": "fileChange", "id": item_id, "changes": changes, "status": "inProgress"}


def diff_of(item: dict[str, Any], cwd: str) -> str:
    """What `turn/diff/updated` shows for a file change; exact for one added file, the headers alone for others."""
    text = ""
    for change in item["changes"]:
        name = str(change["path"]).removeprefix(f"{cwd}/")
        text += f"diff --git a/{name} b/{name}\n"
        if change["kind"]["type"] == "add":
            content: str = change["diff"]
            blob = content.encode()
            digest = hashlib.sha1(b"blob %d\0%s" % (len(blob), blob), usedforsecurity=False).hexdigest()
            lines = content.splitlines()
            text += f"new file mode 100644\nindex {'0' * 40}..{digest}\n--- /dev/null\n+++ b/{name}\n"
            text += f"@@ -0,0 +1{f',{len(lines)}' if len(lines) > 1 else ''} @@\n"
            text += "".join(f"+{line}\n" for line in lines)
    return text


def tool_call_item(item_id: str, server: str, tool: str, arguments: Any) -> dict[str, Any]:
    """A call of a tool server's tool."""
    return {
        "type": "mcpToolCall",
        "id": item_id,
        "server": server,
        "tool": tool,
        "status": "inProgress",
        "arguments": arguments,
        "appContext": None,
        "mcpAppUi": None,
        "pluginId": None,
        "readOnlyHint": True,
        "result": None,
        "error": None,
        "durationMs": None,
    }


def started_params(item: dict[str, Any], at_ms: int, *, timed: bool) -> dict[str, Any]:
    """The item-specific part of `item/started`; newer versions (``timed``) also stamp the item itself."""
    stamps = {"startedAtMs": at_ms, "completedAtMs": None} if timed else {}
    return {"item": item | stamps, "startedAtMs": at_ms}


def completed_params(item: dict[str, Any], at_ms: int, *, timed: bool) -> dict[str, Any]:
    """The item-specific part of `item/completed`."""
    if not timed:
        return {"item": item, "completedAtMs": at_ms}
    stamps = {"startedAtMs": at_ms, "completedAtMs": at_ms}
    return {"item": item | stamps, "contentTokenCount": None, "completedAtMs": at_ms}


def usage_shape(responses: int) -> dict[str, Any]:
    """Token usage after so many model responses, each of the scripted model's constant size."""
    return {"total": _tokens(responses), "last": _tokens(1), "modelContextWindow": 258400}


def rate_limits() -> dict[str, Any]:
    """The account's limits, all unknown."""
    unknown = (
        "limitName",
        "normalModelSlug",
        "primary",
        "secondary",
        "credits",
        "individualLimit",
        "spendControlReached",
        "planType",
        "rateLimitReachedType",
    )
    return {"rateLimits": {"limitId": "codex", **dict.fromkeys(unknown)}}


def _tokens(responses: int) -> dict[str, int]:
    return {
        "totalTokens": 15 * responses,
        "inputTokens": 10 * responses,
        "cachedInputTokens": 0,
        "cacheWriteInputTokens": 0,
        "outputTokens": 5 * responses,
        "reasoningOutputTokens": 0,
    }
