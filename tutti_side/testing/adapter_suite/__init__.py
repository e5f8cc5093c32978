"""The conformance kit: one suite that any provider's author runs over his adapter.

Subclass `AdapterSuite`, give it an `AdapterBed`, and let pytest collect the class; `tutti_side.testing.pytest_plugin`
adds the report. Each case is a method whose name is its id: a sentence that an adapter makes true, with its source.

- `bed`         what an author provides so that the kit can provoke his provider
- `suite`       `AdapterSuite`: how a case is run, and what is excluded
- `_stage`      what a case stands on: a host over the bed, a parent that has spoken, and ears on both
- `_hearing`    what subscribers and waiters are told, and which error was raised
- `_seam`       between the runtime and the adapter: it watches, holds events back, and tells the runtime lies
- `_hard_end`   what ends a case that no cancel ends
- `_left_behind` which task, thread or process is still there when the provider is closed
- `_case`       what makes a method a case
- `_sessions`, `_opening`, `_transience`, `_closing`, `_failed_opens`, `_identity`, `_capabilities`, `_interactions`,
  `_steering`, `_ends`: the cases

Nothing here needs pytest. It knows no provider; providers bring their beds.
"""

from tutti_side.testing.adapter_suite._hard_end import CaseHangsError
from tutti_side.testing.adapter_suite._left_behind import LeftBehindError
from tutti_side.testing.adapter_suite.bed import (
    ASK,
    FAIL,
    HELD_TEXTS,
    HOLD,
    QUERY,
    SAID,
    SAY,
    AdapterBed,
)
from tutti_side.testing.adapter_suite.suite import AdapterSuite, ExclusionError

__all__ = [
    "ASK",
    "FAIL",
    "HELD_TEXTS",
    "HOLD",
    "QUERY",
    "SAID",
    "SAY",
    "AdapterBed",
    "AdapterSuite",
    "CaseHangsError",
    "ExclusionError",
    "LeftBehindError",
]
