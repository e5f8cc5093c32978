"""Lines and messages, without any I/O."""

import enum
import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutti_side.jsonrpc import (
    CODEX,
    LINE_BYTES_MAX,
    NO_RAW,
    STRICT,
    Codec,
    InvalidResultError,
    LineSplitter,
    LocalError,
    Message,
)
from tutti_side.jsonrpc.codec import read_error, read_result

Raw = msgspec.Raw

PIECES = [b"\n", b"\r\n", b"\r", b"a", b"bc", b"0123456789", "\u2028".encode(), b"\x0b\x0c\x1c\x85", b""]


class Params(msgspec.Struct, gc=False, rename="camel"):
    """Hot fields."""

    thread_id: str | None = None


def make_codec(dialect: Any = CODEX) -> Codec[Params]:
    """Make a codec with the hot fields above."""
    return Codec(Params, dialect)


# ---- lines ----


@given(st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join), st.data())
def test_any_cut_into_chunks_gives_the_same_lines(data: bytes, draw: st.DataObject) -> None:
    r"""Our choice: split on ``\n`` only; overlong lines are skipped and counted; one ``\r`` is stripped."""
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=12)))
    splitter = LineSplitter(line_bytes_max=8)

    lines: list[bytes] = []
    for start, end in itertools.pairwise([0, *cuts, len(data)]):
        if start < end:
            lines += splitter.receive_data(data[start:end])

    *whole, rest = data.split(b"\n")
    assert lines == [line.removesuffix(b"\r") for line in whole if len(line) <= 8]
    assert splitter.overlong == sum(len(line) > 8 for line in [*whole, rest])
    assert splitter.unfinished_bytes == (len(rest) if len(rest) <= 8 else 0)


def test_no_byte_but_the_newline_ends_a_line() -> None:
    """Our choice: U+2028 (and every other separator) is data."""
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg"

    assert LineSplitter().receive_data(f"{text}\nrest".encode()) == [text.encode()]


def test_a_line_of_three_megabytes_arrives_whole() -> None:
    """F11, T22: far over any reader's default of 64 KiB."""
    line = msgspec.json.encode({"method": "m", "params": {"threadId": "t", "text": "x" * 3_000_000}})
    data = line + b"\n" + b'{"method":"next"}\n'
    splitter = LineSplitter()

    chunks = [data[start : start + 65536] for start in range(0, len(data), 65536)]
    lines = [found for chunk in chunks for found in splitter.receive_data(chunk)]
    messages = make_codec().decode_lines(lines)

    assert lines[0] == line
    assert [message.method for message in messages] == ["m", "next"]


def test_a_line_of_seventy_mebibytes_is_skipped_to_its_newline_and_counted() -> None:
    """Our choice: at most 64 MiB; R12: while it is skipped nothing of it is kept."""
    assert LINE_BYTES_MAX == 64 * 1024 * 1024
    splitter = LineSplitter()
    chunk = b"x" * 65536
    kept = 0

    for _ in range(70 * 1024 * 1024 // len(chunk)):
        assert splitter.receive_data(chunk) == []
        kept = max(kept, splitter.unfinished_bytes)
    assert kept == LINE_BYTES_MAX
    assert splitter.unfinished_bytes == 0
    assert splitter.receive_data(b'xx\n{"method":"next"}\n') == [b'{"method":"next"}']
    assert splitter.overlong == 1


def test_a_line_of_exactly_the_bound_is_read_and_one_byte_more_is_not() -> None:
    """Our choice: the bound is inclusive, the newline not counted."""
    splitter = LineSplitter(line_bytes_max=4)

    assert splitter.receive_data(b"1234\n12345\n1234\n") == [b"1234", b"1234"]
    assert splitter.receive_data(b"12") + splitter.receive_data(b"34\n") == [b"1234"]
    assert splitter.receive_data(b"12") + splitter.receive_data(b"345\nok\n") == [b"ok"]
    assert splitter.overlong == 2


# ---- messages in ----


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (b"", "blank"),
        (b"  ", "blank"),
        (b"Welcome to the app-server v1!", "not_json"),
        (b"2026-01-01T00:00:00Z INFO listening", "not_a_message"),  # its start is a JSON number
        (b'{"method":"m"', "not_json"),
        (b'{"method":"m"} {"method":"m"}', "not_json"),
        (b'{"method":"m","x":NaN}', "not_json"),
        (b'\xef\xbb\xbf{"method":"m"}', "not_json"),
        (b'{"method":"m","params":{"threadId":"\\ud800"}}', "not_json"),
        (b"[]", "not_a_message"),
        (b'[{"method":"m"}]', "not_a_message"),
        (b"3", "not_a_message"),
        (b"null", "not_a_message"),
        (b'"method"', "not_a_message"),
        (b"{}", "not_a_message"),
        (b'{"id":1}', "not_a_message"),
        (b'{"id":null,"result":1}', "not_a_message"),
        (b'{"error":{"code":1,"message":"m"}}', "not_a_message"),
        (b'{"method":3}', "not_a_message"),
        (b'{"id":1.5,"method":"m"}', "not_a_message"),
        (b'{"id":true,"method":"m"}', "not_a_message"),
        (b'{"id":[],"result":{}}', "not_a_message"),
        (b'{"method":"m\xff"}', "not_utf8"),
        (b'{"method":"m","other":"\xff"}', "not_utf8"),
        (b'{"id":1,"result":{"text":"\xc3"}}', "not_utf8"),
        (b'{"method":"m","params":[],"x":"\xed\xa0\x80"}', "not_utf8"),
        (b"\xff\xfe", "not_utf8"),
        (b'{"method":"m","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too_deep"),
        (b'{"method":"m","params":[],"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too_deep"),
    ],
)
def test_a_line_that_is_no_message_is_one_dropped_and_counted_frame(line: bytes, cause: str) -> None:
    """Required; F12 (a banner or log line on stdout); R9: nonsense costs its own line only."""
    codec = make_codec()

    messages = codec.decode_lines([b'{"method":"before"}', line, b'{"method":"after"}'])

    assert [message.method for message in messages] == ["before", "after"]
    assert codec.dropped == {cause: 1}
    assert codec.decode(line) is None


@pytest.mark.parametrize("request_id", [0, "0", "", 1, -1, 2**63, 10**30, "\u2028", "-32001"])
def test_an_id_is_echoed_exactly_as_it_came(request_id: int | str) -> None:
    """T4: 0 is an id, and ``"0"`` another."""
    codec = make_codec()
    message = codec.decode(msgspec.json.encode({"id": request_id, "method": "ask"}))

    assert message is not None
    assert message.id is not None
    assert (message.id, type(message.id)) == (request_id, type(request_id))
    for line in (codec.encode_response(message.id, {}), codec.encode_error(message.id, -1, "no")):
        echoed = msgspec.json.decode(line)["id"]
        assert (echoed, type(echoed)) == (request_id, type(request_id))


def test_what_has_a_method_and_an_id_is_a_request_even_with_a_result_beside() -> None:
    """F10: a server request is never taken for a response."""
    message = make_codec().decode(b'{"id":0,"method":"ask","result":{},"params":{"threadId":"t"}}')

    assert message is not None
    assert (message.method, message.id) == ("ask", 0)
    assert message.params == Params(thread_id="t")


@pytest.mark.parametrize("params", ["[1]", "3", '"text"', '{"threadId":7}', '{"threadId":["t"]}', "null"])
def test_parameters_of_another_form_still_make_a_message(params: str) -> None:
    """Observed in msgspec: on a mismatch the envelope is decoded alone; the message is still routed."""
    line = f'{{"id":5,"method":"ask","params":{params}}}'.encode()
    codec = make_codec()

    message = codec.decode(line)

    assert message == Message(method="ask", id=5, line=line)
    assert codec.dropped == {}


@pytest.mark.parametrize("version", ["", '"jsonrpc":"2.0",', '"jsonrpc":"1.0",', '"jsonrpc":2,', '"jsonrpc":null,'])
def test_codex_may_write_any_version_or_none(version: str) -> None:
    """Observed on Codex app-server: no `jsonrpc` member anywhere, any is accepted."""
    message = make_codec().decode(f'{{{version}"id":1,"result":{{"a":1}}}}'.encode())

    assert message is not None
    assert bytes(message.result) == b'{"a":1}'


def test_the_strict_dialect_drops_what_has_not_exactly_its_version_and_writes_it() -> None:
    """JSON-RPC 2.0 §4: `jsonrpc` must be exactly "2.0"."""
    codec = make_codec(STRICT)
    lines = [b'{"method":"a"}', b'{"jsonrpc":"1.0","method":"b"}', b'{"jsonrpc":2.0,"method":"c"}']

    assert codec.decode_lines(lines) == []
    assert codec.dropped == {"version": 3}
    assert codec.decode(b'{"jsonrpc":"2.0","method":"d"}') is not None
    for line in (
        codec.encode_request(1, "m"),
        codec.encode_notification("m"),
        codec.encode_response(1, None),
        codec.encode_error(1, 2, "m"),
    ):
        assert msgspec.json.decode(line)["jsonrpc"] == "2.0"


def test_the_line_is_ours_whatever_the_peer_sends_under_its_name() -> None:
    """Our choice: the envelope's own field can't be forged from outside."""
    line = b'{"method":"m","<the whole line>":"AAAA","line":"AAAA"}'
    message = make_codec().decode(line)

    assert message is not None
    assert message.line == line


def test_absent_raw_fields_are_the_one_absent_value_and_null_is_present() -> None:
    """Observed in msgspec: `Raw | None` rejects every value, so absence is a value of its own."""
    message = make_codec().decode(b'{"id":1,"result":null}')

    assert message is not None
    assert message.error is NO_RAW
    assert message.result is not NO_RAW
    assert bytes(message.result) == b"null"


# ---- messages out ----


def test_parameters_are_always_present() -> None:
    """T15: a missing `params` is refused by the server."""
    codec = make_codec()

    assert codec.encode_request(1, "m") == b'{"id":1,"method":"m","params":{}}\n'
    assert codec.encode_notification("m") == b'{"method":"m","params":{}}\n'


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(JSON)
def test_whatever_is_sent_is_one_line_of_valid_json_in_utf8_that_says_the_same(value: object) -> None:
    """T15; our choice: whole, valid UTF-8, one object a line."""
    codec = make_codec()

    for line in (codec.encode_request(1, "m", {"v": value}), codec.encode_notification("m", {"v": value})):
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        assert msgspec.json.decode(line)["params"] == {"v": value}
    assert msgspec.json.decode(codec.encode_response("x", value)) == {"id": "x", "result": value}


@pytest.mark.parametrize(
    "params",
    [
        {"text": "secret \ud800"},
        {"\udfff": 1},
        {"x": object()},
        {(1, 2): 3},
        {"x": Raw(b'{"a":\n1}')},
        {"x": Raw(b"}{")},
        {"x": Raw(b"")},
        {"x": Raw(b'1},{"id":2')},
        {"x": Raw(b'"\xff"')},
        {"x": Raw(b'"\\ud800"')},
        {"x": Raw(b"[" * 100_000 + b"]" * 100_000)},
    ],
)
def test_what_cannot_be_written_as_one_valid_line_is_refused(params: object) -> None:
    """T15: an invalid byte ends the server, a lone surrogate makes it drop the line without a word."""
    codec = make_codec()

    for write in (codec.encode_notification, lambda method, value: codec.encode_request(1, method, value)):
        with pytest.raises(LocalError) as caught:
            write("m", params)
        assert "secret" not in str(caught.value)
    with pytest.raises(LocalError):
        codec.encode_response(1, params)


def test_a_structure_that_contains_itself_is_refused() -> None:
    """T15: nothing is written in part."""
    params: dict[str, object] = {}
    params["me"] = params

    with pytest.raises(LocalError):
        make_codec().encode_request(1, "m", params)


# ---- results and errors ----


def test_an_error_answer_keeps_its_whole_text_and_shows_none_of_it() -> None:
    """Codex answers an unknown method with several kB of names; R2: a text can quote a prompt."""
    text = "Invalid request: unknown variant `bogus`, expected one of " + "`method`, " * 500
    raw = Raw(msgspec.json.encode({"code": -32600, "message": text, "data": {"a": 1}}))

    error = read_error(raw, "bogus")

    assert (error.code, error.message, error.method) == (-32600, text, "bogus")
    assert error.data is not None
    assert bytes(error.data) == b'{"a":1}'
    assert str(error) == "bogus was answered with error -32600; `message` has the peer's words"


@pytest.mark.parametrize("raw", [b"null", b'"text"', b"{}", b'{"code":"x","message":"m"}', b'{"code":1}', b"[]"])
def test_an_error_answer_without_a_readable_code_is_still_an_error(raw: bytes) -> None:
    """R9: nonsense in an answer fails the request, typed."""
    error = read_error(Raw(raw), "m")

    assert error.code == 0
    assert error.data is not None
    assert bytes(error.data) == raw


class Colour(enum.Enum):
    RED = "red"


class Shape(msgspec.Struct):
    name: str
    colour: Colour = Colour.RED
    sizes: dict[str, int] = {}


@pytest.mark.parametrize(
    ("raw", "where"),
    [
        (b'{"name":3}', "Expected `str` at $.name"),
        (b'{"name":"n","colour":"secret"}', "unexpected value at $.colour"),
        (b'{"name":"n","sizes":{"secret":"secret"}}', "Expected `int` at $.sizes[...]"),
        (b"{}", "unexpected value at $"),
        (b'"secret"', "Expected `object` at $"),
        (b'{"name":"\\ud800"}', "unexpected value at $"),
    ],
)
def test_a_result_of_another_form_is_named_by_path_and_type_without_content(raw: bytes, where: str) -> None:
    """R2, our choice: no content of the peer in a message."""
    with pytest.raises(InvalidResultError) as caught:
        read_result(Raw(raw), Shape, "m")

    assert caught.value.where == where
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_result_of_the_right_form_is_decoded() -> None:
    """Our choice."""
    assert read_result(Raw(b'{"name":"n","new":1}'), Shape, "m") == Shape(name="n")
    assert read_result(Raw(b"[1]"), list[int], "m") == [1]
    assert read_result(Raw(b"null"), type(None), "m") is None
