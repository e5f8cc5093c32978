"""What waits to be written, bounded in bytes and frames; pure.

A frame is one whole line. It is taken by the writer or taken back by its owner, never both, and never in part. Room
is decided by what waits already, not by the newcomer's length: into an empty queue every frame fits, however long, and
a long answer is no reason to give a healthy peer up.
"""

import collections
from typing import Generic, TypeVar

__all__ = [
    "WRITE_BYTES_MAX",
    "WRITE_FRAMES_MAX",
    "WRITE_QUEUE_BYTES_MAX",
    "WRITE_RESERVE_BYTES",
    "QueuedFrame",
    "WriteQueue",
]

WRITE_QUEUE_BYTES_MAX = 1024 * 1024
"""Backlog at which requests wait to be queued: sixteen times what a pipe holds, so that it means something."""

WRITE_RESERVE_BYTES = 1024 * 1024
"""Backlog on top of that for what can't wait: answers, declines, cleanup."""

WRITE_FRAMES_MAX = 8192
"""Backlog in frames at which even those don't fit: twice the peer's requests that may be open."""

WRITE_BYTES_MAX = 256 * 1024
"""What one write joins at most, unless a single frame is longer: it bounds the copy and what counts as sent at once."""

R = TypeVar("R")


class QueuedFrame(Generic[R]):
    """One whole line in the queue, and the request it belongs to, if it is one."""

    __slots__ = ("data", "request")

    def __init__(self, data: bytes, request: R | None) -> None:
        self.data = data
        self.request = request


class WriteQueue(Generic[R]):
    """The frames of one connection that nobody has begun to write.

    Attributes:
      queued_bytes: their length together.
    """

    def __init__(self) -> None:
        self._frames: collections.OrderedDict[QueuedFrame[R], None] = collections.OrderedDict()
        self.queued_bytes = 0

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def has_room(self) -> bool:
        """Whether a request may be queued."""
        return self.queued_bytes < WRITE_QUEUE_BYTES_MAX and len(self._frames) < WRITE_FRAMES_MAX

    @property
    def has_reserve(self) -> bool:
        """Whether that may be queued which can't wait."""
        return self.queued_bytes < WRITE_QUEUE_BYTES_MAX + WRITE_RESERVE_BYTES and len(self._frames) < WRITE_FRAMES_MAX

    def put(self, data: bytes, request: R | None = None) -> QueuedFrame[R]:
        """Queue a whole line behind the others; the caller has looked for room."""
        frame = QueuedFrame(data, request)
        self._frames[frame] = None
        self.queued_bytes += len(data)
        return frame

    def take(self) -> list[QueuedFrame[R]]:
        """Return the next frames to write as one, oldest first, or none; from now on they count as sent."""
        taken: list[QueuedFrame[R]] = []
        size = 0
        for frame in self._frames:
            size += len(frame.data)
            if taken and size > WRITE_BYTES_MAX:
                break
            taken.append(frame)
        for frame in taken:
            self.take_back(frame)
        return taken

    def holds(self, frame: QueuedFrame[R]) -> bool:
        """Whether nobody has begun to write this frame."""
        return frame in self._frames

    def take_back(self, frame: QueuedFrame[R]) -> None:
        """Remove a frame that is still queued: not one byte of it is written."""
        del self._frames[frame]
        self.queued_bytes -= len(frame.data)

    def clear(self) -> None:
        """Drop all: there is nobody left to write to."""
        self._frames.clear()
        self.queued_bytes = 0
