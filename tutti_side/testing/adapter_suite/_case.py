"""What a case is: an `async` method of a group of cases, made into a plain method that runs it."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from tutti_side.testing.adapter_suite._stage import Stage

__all__ = ["Case", "CaseGroup", "case", "cases_of"]

Case: TypeAlias = Callable[[Stage], Awaitable[None]]


class CaseGroup:
    """Some cases about one thing; `AdapterSuite` is all of them."""

    def run_case(self, case: Case, directory: Path) -> None:
        """Run one case; the suite knows how."""
        raise NotImplementedError


class _Collected(Protocol):
    """A case as pytest sees it."""

    __name__: str
    __doc__: str | None

    def __call__(self, group: Any, tmp_path: Path) -> None: ...


def case(body: Callable[[Any, Stage], Awaitable[None]]) -> Callable[[Any, Path], None]:
    """Make a collected method of a case's body; its name is the case's id, its docstring says what it holds."""

    def run(self: CaseGroup, tmp_path: Path) -> None:
        self.run_case(lambda stage: body(self, stage), tmp_path)

    # Not `functools.wraps`: pytest would follow it to the body, and ask for a fixture named `stage`.
    run.__name__ = body.__name__
    run.__qualname__ = body.__qualname__
    run.__doc__ = body.__doc__
    run.__module__ = body.__module__
    run.kit_case = True  # type: ignore[attr-defined]
    return run


def cases_of(group: type) -> Mapping[str, _Collected]:
    """Return every case of a class and its bases by id, in the order in which they are written."""
    found: dict[str, _Collected] = {}
    for base in group.__mro__:
        for name, value in vars(base).items():
            if getattr(value, "kit_case", False):
                found.setdefault(name, value)
    return found
