"""Providers that are installed for one test, by real entry points."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tutti_side.cli import _providers

Install = Callable[..., None]


@pytest.fixture
def install_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that installs providers: entry point names, all pointing into one module with a given source.

    None of the really installed ones is seen in that test.
    """
    group = f"test_{tmp_path.name}.providers"
    monkeypatch.setattr(_providers, "PROVIDERS", group)

    def install(source: str, **points: str) -> None:
        module = f"installed_{tmp_path.name}".replace("-", "_")
        site = tmp_path / "site"
        info = site / f"{module}-1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
        lines = "".join(f"{name} = {module}:{attribute}\n" for name, attribute in points.items())
        (info / "entry_points.txt").write_text(f"[{group}]\n{lines}")
        (site / f"{module}.py").write_text(source)
        monkeypatch.syspath_prepend(str(site))

    return install
