"""A private `CODEX_HOME` for the real binary, and the trimmed environment to run it in."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

__all__ = ["ModelProvider", "ToolServer", "testing_env", "write_codex_home"]


class ModelProvider(msgspec.Struct, frozen=True, kw_only=True):
    """A second place to send the context to, for tests of what a fork inherits."""

    name: str
    base_url: str


class ToolServer(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server that Codex starts for every thread; the default is the one of this package."""

    name: str = "docs"
    command: tuple[str, ...] = ()
    """Empty: `mcp_server` of this package."""
    options: tuple[str, ...] = ()
    """Arguments appended to the command, such as ``--ignore-eof``."""
    env: dict[str, str] = {}


def write_codex_home(
    path: Path,
    base_url: str,
    *,
    model: str = "mock-model",
    provider: str = "mock",
    approval_policy: str = "on-request",
    sandbox_mode: str = "read-only",
    other_providers: Sequence[ModelProvider] = (),
    tool_servers: Sequence[ToolServer] = (),
    features: Mapping[str, bool] | None = None,
    settings: Mapping[str, str | int | bool] | None = None,
    extra_toml: str = "",
) -> Path:
    """Write a Codex home whose model is the scripted one, and return its path.

    Args:
      path: the directory; made when missing. Codex demands that it exists.
      base_url: of a `ScriptedModel`.
      model: a name Codex doesn't know gets fallback metadata; a known one (``gpt-5.5``) gets more tools.
      provider: the name of the scripted model's provider block.
      approval_policy: not ``untrusted``: with it Codex exits at start (measured on 0.163 and 0.171).
      sandbox_mode: the sandbox of new threads.
      other_providers: further provider blocks.
      tool_servers: MCP servers.
      features: further feature flags; the shell snapshot is always off, because it runs the user's rc files.
      settings: further top-level settings, such as ``thread_unload_delay_secs``.
      extra_toml: text appended after the last table.
    """
    path.mkdir(parents=True, exist_ok=True)
    top: dict[str, Any] = {
        "model": model,
        "model_provider": provider,
        "approval_policy": approval_policy,
        "sandbox_mode": sandbox_mode,
        "check_for_update_on_startup": False,
        **(settings or {}),
    }
    lines = [f"{name} = {_toml(value)}" for name, value in top.items()]
    lines += _table("features", {"shell_snapshot": False, **(features or {})})
    lines += _table("analytics", {"enabled": False})
    for block in (ModelProvider(name=provider, base_url=base_url), *other_providers):
        lines += _table(f"model_providers.{block.name}", _provider_settings(block))
    for server in tool_servers:
        command, *arguments = server.command or (sys.executable, "-I", "-S", str(_MCP_SERVER))
        values: dict[str, Any] = {"command": command, "args": [*arguments, *server.options]}
        if server.env:
            values["env"] = dict(server.env)
        lines += _table(f"mcp_servers.{server.name}", values)
    (path / "config.toml").write_text("\n".join([*lines, extra_toml, ""]), "utf-8")
    return path


def testing_env(home: Path, codex_home: Path, *, extra: Mapping[str, str] | None = None) -> dict[str, str]:  # noqa: PT028  (no test)
    """The whole environment for a binary under test: nothing of the user's but PATH, and no key.

    Args:
      home: a directory without rc files; made when missing.
      codex_home: as written by `write_codex_home`.
      extra: further variables.
    """
    home.mkdir(parents=True, exist_ok=True)
    return {
        "HOME": str(home),
        "CODEX_HOME": str(codex_home),
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "NO_PROXY": "127.0.0.1,localhost",
        **(extra or {}),
    }


testing_env.__test__ = False  # type: ignore[attr-defined]  # pytest would collect it where it is imported

_MCP_SERVER = Path(__file__).with_name("mcp_server.py")


def _provider_settings(block: ModelProvider) -> dict[str, Any]:
    # Retries off: a scripted failure must be seen as it is. WebSockets off: the scripted model speaks SSE.
    return {
        "name": block.name,
        "base_url": block.base_url,
        "wire_api": "responses",
        "request_max_retries": 0,
        "stream_max_retries": 0,
        "supports_websockets": False,
    }


def _table(name: str, values: Mapping[str, Any]) -> list[str]:
    return ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return "{ " + ", ".join(f"{_toml(key)} = {_toml(item)}" for key, item in pairs) + " }"
    # JSON's strings, integers, booleans and arrays are TOML too.
    return msgspec.json.encode(value).decode()
