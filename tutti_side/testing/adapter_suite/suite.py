"""`AdapterSuite`: the cases as one class, how one of them is run, and what an author may leave out.

A case is an `async` method of one argument, the stage; `case` makes of it a plain method that pytest collects and that
runs a Trio of its own. So the kit needs no plugin to run, and a case can be called by hand.
"""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import ClassVar

import trio
from trio.testing import MockClock

from tutti_side.testing.adapter_suite._capabilities import CapabilityCases
from tutti_side.testing.adapter_suite._case import Case, cases_of
from tutti_side.testing.adapter_suite._closing import ClosingCases
from tutti_side.testing.adapter_suite._ends import EndCases
from tutti_side.testing.adapter_suite._failed_opens import FailedOpenCases
from tutti_side.testing.adapter_suite._hard_end import CaseHangsError, HardEnd
from tutti_side.testing.adapter_suite._identity import IdentityCases
from tutti_side.testing.adapter_suite._interactions import InteractionCases
from tutti_side.testing.adapter_suite._opening import OpeningCases
from tutti_side.testing.adapter_suite._sessions import SessionCases
from tutti_side.testing.adapter_suite._stage import open_stage
from tutti_side.testing.adapter_suite._steering import SteeringCases
from tutti_side.testing.adapter_suite._transience import TransienceCases
from tutti_side.testing.adapter_suite.bed import AdapterBed

__all__ = ["AdapterSuite", "ExclusionError"]

EXCLUDED_SHARE_MAX = 0.1
"""At most this part of the cases may be excluded; an adapter that can do less does not conform."""


class ExclusionError(TypeError):
    """A suite excludes a case that does not exist, or too many, or gives no reason; raised where the class is made."""


class AdapterSuite(
    SessionCases,
    OpeningCases,
    TransienceCases,
    ClosingCases,
    FailedOpenCases,
    IdentityCases,
    CapabilityCases,
    InteractionCases,
    SteeringCases,
    EndCases,
):
    """All cases. Subclass it under a name that pytest collects, and give it a bed::

        class TestMyAdapter(AdapterSuite):
            def open_bed(self, directory):
                return open_my_bed(directory)

    Class attributes say what is special about an adapter. Each case is bounded by `bound_s`.
    """

    kit_name: ClassVar[str] = ""
    """What the report calls it; by default the class's name."""
    excluded: ClassVar[Mapping[str, str]] = {}
    """Case → why this adapter can't do it. Such a case is not collected; the report names it."""
    interactive: ClassVar[bool] = True
    """False: the provider never asks its user. The cases about that are then no part of the kit."""
    steers: ClassVar[bool] = False
    """True: the adapter takes more input for a turn that runs. Only then the cases about that are part of the kit."""
    virtual_time: ClassVar[bool] = False
    """True: everything happens in this process, so that time may jump. A case that hangs then fails at once."""
    bound_s: ClassVar[float] = 30.0
    """Seconds that one case may take."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        every = set(cls.cases())
        for name, reason in cls.excluded.items():
            if name not in every:
                raise ExclusionError(f"{cls.__name__} excludes {name}, which is no case of the kit")
            if not reason.strip():
                raise ExclusionError(f"{cls.__name__} excludes {name} without a reason")
        if len(cls.excluded) > EXCLUDED_SHARE_MAX * len(every):
            raise ExclusionError(f"{cls.__name__} excludes {len(cls.excluded)} of {len(every)} cases; at most a tenth")
        for name in {*cases_of(cls)} - (every - set(cls.excluded)):
            setattr(cls, name, None)

    @classmethod
    def cases(cls) -> Mapping[str, str]:
        """Return the kit's cases for this adapter, those that it excludes among them: id → the rule that it holds."""
        left_out: set[str] = set()
        for group, is_part in ((InteractionCases, cls.interactive), (SteeringCases, cls.steers)):
            left_out |= set() if is_part else set(cases_of(group))
        return {name: case.__doc__ or "" for name, case in cases_of(cls).items() if name not in left_out}

    def open_bed(self, directory: Path) -> AbstractAsyncContextManager[AdapterBed]:
        """Open a fresh bed below an empty directory, for one case; the author's part."""
        raise NotImplementedError(f"{type(self).__name__} needs an open_bed")

    def run_case(self, case: Case, directory: Path) -> None:
        """Run one case to its end.

        Raises:
          AssertionError: the adapter does not conform.
          CaseHangsError: it hung, and went on when it was cancelled; an `AssertionError` as well.
          LeftBehindError: it left a task, a thread or a process behind; an `AssertionError` as well.
          trio.TooSlowError: it hung.
        """
        clock = MockClock(autojump_threshold=0) if self.virtual_time else None
        end = HardEnd(self.bound_s)
        try:
            with end.striking():
                trio.run(self._play, case, directory, end, clock=clock)
        except BaseException as error:
            if end.told:
                raise CaseHangsError(end.told) from error  # noqa: ASYNC104 - its run has ended
            raise

    async def _play(self, case: Case, directory: Path, end: HardEnd) -> None:
        end.watch()
        with trio.fail_after(self.bound_s):
            async with self.open_bed(directory) as bed, open_stage(bed) as stage:
                await case(stage)
