"""The last lines of a stream of bytes, in bounded memory, however much comes and however long a line is. Pure."""

from collections import deque

__all__ = ["STDERR_LINES_MAX", "STDERR_LINE_BYTES_MAX", "StderrTail"]

STDERR_LINES_MAX = 200
"""How many lines are kept: enough for a start-up failure with its backtrace."""

STDERR_LINE_BYTES_MAX = 4096
"""How much of a line is kept; the rest of a longer one is dropped up to its newline."""


class StderrTail:
    """Keeps the last `STDERR_LINES_MAX` lines, each of at most `STDERR_LINE_BYTES_MAX` bytes."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque(maxlen=STDERR_LINES_MAX)
        self._unfinished = b""

    def feed(self, data: bytes) -> None:
        """Take what was read, cut anywhere."""
        first, *rest = data.split(b"\n")
        self._unfinished = self._cut(self._unfinished + first)
        for part in rest:
            self._lines.append(self._unfinished)
            self._unfinished = self._cut(part)

    def lines(self) -> tuple[str, ...]:
        """Return the lines kept, oldest first, without their ends; bytes that are no UTF-8 become U+FFFD."""
        kept = [*self._lines, self._unfinished] if self._unfinished else [*self._lines]
        return tuple(line.removesuffix(b"\r").decode(errors="replace") for line in kept[-STDERR_LINES_MAX:])

    @staticmethod
    def _cut(line: bytes) -> bytes:
        return line[:STDERR_LINE_BYTES_MAX]
