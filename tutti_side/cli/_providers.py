"""Which providers and test beds are installed: the one place that reads entry points."""

import importlib.metadata
from typing import Any

from tutti_side.errors import TuttiSideError

__all__ = ["PROVIDERS", "TESTBEDS", "EntryPointError", "installed", "load"]

PROVIDERS = "tutti_side.providers"
"""Entry points of factories that return a `Provider`."""
TESTBEDS = "tutti_side.testbeds"
"""Entry points of factories that return what a demo and tests run a provider in."""


class EntryPointError(TuttiSideError):
    """A provider or test bed was named that is not installed, or can't be loaded.

    Attributes:
      group: `PROVIDERS` or `TESTBEDS`.
      name: the name that was given.
    """

    def __init__(self, group: str, name: str, problem: str) -> None:
        super().__init__(f"the {group.rpartition('.')[2].removesuffix('s')} {name!r} {problem}")
        self.group = group
        self.name = name


def installed(group: str) -> tuple[str, ...]:
    """Return the names of what is installed in `group`, sorted."""
    return tuple(sorted({point.name for point in importlib.metadata.entry_points(group=group)}))


def load(group: str, name: str) -> Any:
    """Return the factory that is installed under `name` in `group`.

    Raises:
      EntryPointError: there is none, or importing it failed; the failed import is its cause.
    """
    points = importlib.metadata.entry_points(group=group, name=name)
    if not points:
        known = ", ".join(installed(group)) or "none"
        raise EntryPointError(group, name, f"is not installed (installed: {known})")
    point = next(iter(points))
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        problem = f"is installed but can't be loaded: {error}{_hint(point)}"
        raise EntryPointError(group, name, problem) from error


def _hint(point: importlib.metadata.EntryPoint) -> str:
    """Say how to install what a provider needs, when its distribution has an extra of the provider's name."""
    distribution = point.dist
    if distribution is None or point.name not in (distribution.metadata.get_all("Provides-Extra") or ()):
        return ""
    return f"; `pip install '{distribution.name}[{point.name}]'` brings what it needs"
