from hypothesis import given
from hypothesis import strategies as st

from tutti_side.jsonrpc.transports._stderr_tail import STDERR_LINE_BYTES_MAX, STDERR_LINES_MAX, StderrTail


@given(lines=st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line), max_size=300), data=st.data())
def test_the_last_lines_are_the_same_wherever_the_reads_are_cut(lines: list[bytes], data: st.DataObject) -> None:
    """F13: a stream has no borders but its newlines; bytes that are no UTF-8 are shown, not raised."""
    stream = b"".join(line + b"\n" for line in lines)
    tail = StderrTail()
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        tail.feed(stream[:size])
        stream = stream[size:]
    assert tail.lines() == tuple(
        line.removesuffix(b"\r").decode(errors="replace") for line in lines[-STDERR_LINES_MAX:]
    )


def test_a_line_without_an_end_is_kept_up_to_its_bound_and_shown_as_the_last() -> None:
    """R12: a flood without a newline costs one line."""
    tail = StderrTail()
    tail.feed(b"first\n")
    for _ in range(1000):
        tail.feed(b"x" * 1000)
    assert tail.lines() == ("first", "x" * STDERR_LINE_BYTES_MAX)
    tail.feed(b"y\nlast")
    assert tail.lines() == ("first", "x" * STDERR_LINE_BYTES_MAX, "last")


def test_an_unfinished_line_counts_among_the_lines_kept() -> None:
    """R12: the number of lines is a bound, not a bound and one."""
    tail = StderrTail()
    tail.feed(b"a\n" * STDERR_LINES_MAX + b"b")
    assert tail.lines() == ("a",) * (STDERR_LINES_MAX - 1) + ("b",)
