"""The two conformance suites, one per direction of the flow, over language-neutral fixtures.

`run_sink` tries a sink, `run_projection` a builder; `oracle` is the model sink that also judges random histories.
`pytest_plugin` gives each case a test id. Importing this loads msgspec and the standard library only.
"""

from .cases import ProjectionCase, SinkCase, projection_cases, sink_cases
from .oracle import OracleLog, OracleSink
from .ports import CanonicalEntity, ConformanceBuilder, ConformanceSink, OpenSink, StoredEntity
from .projection import run_projection, run_projection_case
from .report import CaseReport, ConformanceError
from .sink import run_sink, run_sink_case

__all__ = [
    "CanonicalEntity",
    "CaseReport",
    "ConformanceBuilder",
    "ConformanceError",
    "ConformanceSink",
    "OpenSink",
    "OracleLog",
    "OracleSink",
    "ProjectionCase",
    "SinkCase",
    "StoredEntity",
    "projection_cases",
    "run_projection",
    "run_projection_case",
    "run_sink",
    "run_sink_case",
    "sink_cases",
]
