"""The run's record: one list, in order, of what driver and stand-in tell, with free lines between for people."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import trio

from tutti_side.testing.simulation.records import Fault, LogLine, Record

__all__ = ["Noted", "Recorder", "captured_log"]


class Noted(Record, frozen=True, kw_only=True, tag=True):
    """A line for a person who reads the trace; no checker sees it."""

    text: str


class Recorder:
    """Keeps all, and passes each fault on to whoever wants to know when one strikes."""

    def __init__(self) -> None:
        self.entries: list[Record] = []
        self.on_fault: Callable[[Fault], None] | None = None

    def add(self, record: Record) -> None:
        """Append a record."""
        self.entries.append(record)
        if type(record) is Fault and self.on_fault is not None:
            self.on_fault(record)

    def note(self, line: str) -> None:
        """Append a line of no meaning to the checkers."""
        self.entries.append(Noted(at_s=trio.current_time(), text=line))

    def fault(self, name: str) -> None:
        """Record a fault of the driver's own: it is no connection's."""
        self.add(Fault(at_s=trio.current_time(), fault=name, connection=-1))

    def facts(self) -> list[Record]:
        """Return what the checkers judge."""
        return [entry for entry in self.entries if type(entry) is not Noted]


class _Capture(logging.Handler):
    """Records each line of the log with everything that a handler could print."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(logging.DEBUG)
        self._recorder = recorder
        self._plain = frozenset(logging.makeLogRecord({}).__dict__)

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = {key: value for key, value in vars(record).items() if key not in self._plain}
        text = f"{record.levelname} {self.format(record)} {msgspec.json.encode(fields, enc_hook=repr).decode()}"
        self._recorder.add(LogLine(at_s=trio.current_time(), text=text))


@contextmanager
def captured_log(recorder: Recorder, *names: str) -> Iterator[None]:
    """Record what is logged under these names while the block runs, down to debugging; nobody else hears it."""
    handler = _Capture(recorder)
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate
