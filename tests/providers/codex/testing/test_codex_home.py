"""The home and the environment that the real binary is run with."""

import tomllib
from pathlib import Path

import pytest

from tutti_providers.codex.testing import ModelProvider, ToolServer, testing_env, write_codex_home


def test_the_home_leads_to_the_scripted_model_and_nowhere_else(tmp_path: Path) -> None:
    """PROTOCOL, first facts: the provider block that works; T17: no login shell."""
    home = write_codex_home(tmp_path / "codex", "http://127.0.0.1:1/v1")
    config = tomllib.loads((home / "config.toml").read_text("utf-8"))

    assert config["model_provider"] == "mock"
    assert config["model_providers"] == {
        "mock": {
            "name": "mock",
            "base_url": "http://127.0.0.1:1/v1",
            "wire_api": "responses",
            "request_max_retries": 0,
            "stream_max_retries": 0,
            "supports_websockets": False,
        }
    }
    assert config["features"]["shell_snapshot"] is False


def test_everything_given_stands_in_the_configuration(tmp_path: Path) -> None:
    """Required: a second provider and a stricter policy, tool servers, features, settings; quoted as TOML wants it."""
    odd = 'sp ace"quote\\back'
    write_codex_home(
        tmp_path,
        "http://127.0.0.1:1/v1",
        model="gpt-5.5",
        provider="main",
        approval_policy="never",
        sandbox_mode="workspace-write",
        other_providers=(ModelProvider(name="other", base_url="http://127.0.0.1:2/v1"),),
        tool_servers=(
            ToolServer(options=("--ignore-eof",)),
            ToolServer(name="own", command=("x", odd), env={"A": odd}),
        ),
        features={"default_mode_request_user_input": True},
        settings={"thread_unload_delay_secs": 1},
        extra_toml="[extra]\nkey = 1",
    )
    config = tomllib.loads((tmp_path / "config.toml").read_text("utf-8"))

    assert (config["model"], config["approval_policy"], config["sandbox_mode"]) == (
        "gpt-5.5",
        "never",
        "workspace-write",
    )
    assert set(config["model_providers"]) == {"main", "other"}
    assert config["mcp_servers"]["docs"]["args"][-1] == "--ignore-eof"
    assert config["mcp_servers"]["own"] == {"command": "x", "args": [odd], "env": {"A": odd}}
    assert (config["features"]["default_mode_request_user_input"], config["thread_unload_delay_secs"]) == (True, 1)
    assert config["extra"] == {"key": 1}


def test_the_environment_holds_nothing_of_the_users_but_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Required: explicit; no key, no proxy, no rc files."""
    monkeypatch.setenv("OPENAI_API_KEY", "s3cret")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    monkeypatch.setenv("PATH", "/bin")
    env = testing_env(tmp_path / "home", tmp_path / "codex", extra={"MORE": "1"})

    assert env == {
        "HOME": str(tmp_path / "home"),
        "CODEX_HOME": str(tmp_path / "codex"),
        "PATH": "/bin",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "NO_PROXY": "127.0.0.1,localhost",
        "MORE": "1",
    }
    assert list((tmp_path / "home").iterdir()) == []
