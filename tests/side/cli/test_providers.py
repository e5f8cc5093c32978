"""Providers and test beds by entry point."""

import sys
from collections.abc import Callable

import pytest

from tutti_side.cli import _providers
from tutti_side.cli._providers import EntryPointError, installed, load

Install = Callable[..., None]


def test_what_is_installed_is_named_in_order_and_loaded_by_name(install_provider: Install) -> None:
    """LAYOUT: entry points are read in one place."""
    install_provider("def b(): return 'B'\ndef a(): return 'A'", second="b", first="a")
    assert installed(_providers.PROVIDERS) == ("first", "second")
    assert load(_providers.PROVIDERS, "second")() == "B"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("third", r"the provider 'third' is not installed \(installed: first, lost\)"),
        ("lost", "the provider 'lost' is installed but can't be loaded: .*nothing"),
    ],
)
def test_a_name_that_cannot_be_loaded_is_one_sentence(install_provider: Install, name: str, says: str) -> None:
    """Our choice: a provider's missing extra must read as that, not as a traceback."""
    install_provider("def a(): ...", first="a", lost="nothing")
    with pytest.raises(EntryPointError, match=says) as caught:
        load(_providers.PROVIDERS, name)
    assert caught.value.name == name


def test_a_module_that_cannot_be_imported_is_one_sentence_with_its_cause(install_provider: Install) -> None:
    """Our choice: as above."""
    install_provider("import a_driver_that_nobody_has", first="a")
    with pytest.raises(EntryPointError, match="a_driver_that_nobody_has") as caught:
        load(_providers.PROVIDERS, "first")
    assert isinstance(caught.value.__cause__, ImportError)


def test_what_an_extra_would_bring_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Required: without the extra there is no h11 either, and the demo must say how to get everything."""
    for module in [name for name in sys.modules if name.startswith("tutti_providers.codex.testing")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "h11", None)
    with pytest.raises(EntryPointError, match=r"h11.*; `pip install 'tutti-side\[codex\]'` brings what it needs"):
        load(_providers.TESTBEDS, "codex")


def test_codex_is_installed_as_provider_and_as_test_bed() -> None:
    """pyproject: both entry points."""
    assert "codex" in installed(_providers.PROVIDERS)
    assert "codex" in installed(_providers.TESTBEDS)
