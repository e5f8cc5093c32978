"""Which versions count as proven, and how one is read from a user agent."""

import importlib.metadata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutti_providers.codex._versions import PROVEN, attest

REAL = "tutti-side/0.163.0 (Debian 12.0.0; x86_64) xterm (tutti-side; 0.1.0)"


def test_a_proven_version_attests_all_five_facts_of_a_side() -> None:
    """R15; the user agent is the binary's own form (PROTOCOL: initialize)."""
    attestation = attest(REAL, "tutti-side")
    assert attestation.version == "0.163.0"
    assert attestation.supported
    assert attestation.reason is None
    assert attestation.capabilities().missing() == ()


@pytest.mark.parametrize("version", ["0.100.0", "0.120.0", "0.162.9", "0.163.1", "0.171.0", "1.163.0", "00.163.0"])
def test_a_version_that_is_not_on_the_list_is_not_supported_and_says_which_are(version: str) -> None:
    """F38, R15, T20: 0.100 makes a persistent fork without a word; newer ones are not proven either."""
    attestation = attest(f"tutti-side/{version} (Debian 12.0.0; x86_64) xterm", "tutti-side")
    assert attestation.version == version
    assert not attestation.supported
    assert attestation.facts is None
    assert version in (attestation.reason or "")
    assert "0.163.0" in (attestation.reason or "")
    capabilities = attestation.capabilities()
    assert len(capabilities.missing()) == 5
    assert capabilities.reason == attestation.reason


@pytest.mark.parametrize("version", ["0.0.0", "0.163.0-dev", "0.163.0-alpha.2", "0.163.0+local", "0.163.0.1"])
def test_a_development_or_pre_release_build_is_not_supported_and_is_called_what_it_is(version: str) -> None:
    """F38, R15."""
    attestation = attest(f"tutti-side/{version} (Debian 12.0.0; x86_64) xterm", "tutti-side")
    assert attestation.version == version
    assert not attestation.supported
    assert "pre-release or development" in (attestation.reason or "")


@pytest.mark.parametrize(
    "user_agent",
    [
        "tutti-side/",
        "tutti-side/0.163 (Debian)",
        "tutti-side/0.163.0",
        "tutti-side/0.163.0(Debian)",
        "tutti-side/v0.163.0 (Debian)",
        "tutti-side/x/0.163.0 (Debian)",
        "tutti-side/0.163.0\u001b[31m (Debian)",
        "tutti-side/\u0660.163.0 (Debian)",
        "tutti-side/0.163.0" + "9" * 100 + " (Debian)",
        "tutti-side/0.163.0-" + "9" * 100 + " (Debian)",
    ],
)
def test_a_user_agent_without_a_readable_version_is_not_supported_and_nothing_of_it_is_repeated(
    user_agent: str,
) -> None:
    """F38, R15: unparsable is unsupported; a peer's text never reaches a terminal unread."""
    attestation = attest(user_agent, "tutti-side")
    assert attestation.version is None
    assert not attestation.supported
    assert attestation.reason == "its user agent names no version that we can read"


@pytest.mark.parametrize(
    "user_agent", ["", "tutti-side", "other/0.163.0 (Debian)", "0.163.0 (Debian)", "TUTTI-SIDE/0.163.0 (Debian)"]
)
def test_a_user_agent_with_another_name_at_its_head_is_not_supported(user_agent: str) -> None:
    """Our choice: with somebody else's name in front, nothing says where the version begins."""
    attestation = attest(user_agent, "tutti-side")
    assert attestation.version is None
    assert "our client name" in (attestation.reason or "")


@pytest.mark.parametrize("name", ["a/b", "my/0.100.0 (x)", "0.163.0 (", "lab 2/1.2.3", "(", ".*"])
def test_the_version_is_read_behind_our_own_name_whatever_is_in_the_name(name: str) -> None:
    """PROTOCOL, initialize: a client name may hold slashes, digits, even a version."""
    assert attest(f"{name}/0.163.0 (Debian 12.0.0; x86_64) xterm ({name}; 1)", name).version == "0.163.0"
    assert attest(f"{name}/0.100.0 (Debian 12.0.0; x86_64) xterm ({name}; 1)", name).version == "0.100.0"


@given(st.text(max_size=200), st.text(max_size=20))
def test_no_user_agent_raises(user_agent: str, name: str) -> None:
    """R9: whatever the peer calls itself is an answer, not a crash."""
    for text in (user_agent, f"{name}/{user_agent}", f"{name}/1.2.3{user_agent} (x)"):
        attestation = attest(text, name)
        assert attestation.supported == (attestation.version in PROVEN)
        assert (attestation.reason is None) == attestation.supported


def test_the_version_of_the_wheel_that_the_project_pins_is_proven() -> None:
    """Our choice: the extra `codex` brings exactly a proven version."""
    assert importlib.metadata.version("openai-codex-cli-bin") in PROVEN
    pins = [r for r in importlib.metadata.requires("tutti-side") or () if r.startswith("openai-codex-cli-bin")]
    assert [r.split(";")[0].replace(" ", "").split("==")[1] for r in pins] == ["0.163.0"]
