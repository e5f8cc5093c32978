"""What waits to be written, without a writer."""

from tutti_side.jsonrpc._write_queue import (
    WRITE_BYTES_MAX,
    WRITE_FRAMES_MAX,
    WRITE_QUEUE_BYTES_MAX,
    WRITE_RESERVE_BYTES,
    WriteQueue,
)


def room(queue: WriteQueue[str]) -> tuple[bool, bool]:
    """Return whether there is room, and whether there is reserve."""
    return queue.has_room, queue.has_reserve


def test_frames_are_taken_whole_in_their_order_up_to_a_bound() -> None:
    """Our choice: what we write is whole lines; R12: one write is bounded."""
    queue: WriteQueue[str] = WriteQueue()
    small, half = b"s\n", b"h" * (WRITE_BYTES_MAX // 2)
    for data in (small, half, half, small):
        queue.put(data)

    assert [frame.data for frame in queue.take()] == [small, half]
    assert [frame.data for frame in queue.take()] == [half, small]
    assert queue.take() == []
    assert queue.queued_bytes == 0


def test_a_frame_longer_than_one_write_goes_alone() -> None:
    """T22: a line of 3 MB is one write."""
    queue: WriteQueue[str] = WriteQueue()
    queue.put(b"x" * (3 * WRITE_BYTES_MAX))
    queue.put(b"y")

    assert [len(frame.data) for frame in queue.take()] == [3 * WRITE_BYTES_MAX]
    assert [frame.data for frame in queue.take()] == [b"y"]


def test_a_frame_into_an_empty_queue_is_always_admitted_and_then_counts() -> None:
    """ARCHITECTURE §3: what comes on top counts against the bound."""
    queue: WriteQueue[str] = WriteQueue()
    assert room(queue) == (True, True)
    queue.put(b"x" * (WRITE_QUEUE_BYTES_MAX + WRITE_RESERVE_BYTES))

    assert room(queue) == (False, False)
    queue.take()
    assert room(queue) == (True, True)


def test_the_reserve_begins_where_the_room_for_requests_ends() -> None:
    """ARCHITECTURE §3: a reserve for declines and cleanup."""
    queue: WriteQueue[str] = WriteQueue()
    queue.put(b"x" * (WRITE_QUEUE_BYTES_MAX - 1))
    assert room(queue) == (True, True)
    queue.put(b"x")

    assert room(queue) == (False, True)
    queue.put(b"x" * WRITE_RESERVE_BYTES)
    assert room(queue) == (False, False)


def test_frames_are_bounded_in_number_too() -> None:
    """R12: bounded in items and bytes."""
    queue: WriteQueue[str] = WriteQueue()
    for _ in range(WRITE_FRAMES_MAX):
        assert room(queue) == (True, True)
        queue.put(b"")

    assert room(queue) == (False, False)


def test_a_frame_that_is_taken_back_is_never_written_and_leaves_no_trace() -> None:
    """Our choice: one still queued when cancelled was never sent; R12: nothing of it stays counted."""
    queue: WriteQueue[str] = WriteQueue()
    queue.put(b"a", "first")
    frame = queue.put(b"bb", "second")
    queue.put(b"c", "third")

    queue.take_back(frame)

    assert (len(queue), queue.queued_bytes) == (2, 2)
    assert [frame.request for frame in queue.take()] == ["first", "third"]
    queue.put(b"d")
    queue.clear()
    assert (len(queue), queue.queued_bytes, queue.take()) == (0, 0, [])
