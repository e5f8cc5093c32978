"""Bytes to messages and back; pure: no await, no clock, no logging.

`LineSplitter` makes lines of chunks, `Codec` makes messages of lines. Whatever a peer sends costs at most the line it
stands on: a line that is no message is dropped and counted by cause, and the next one is read as if nothing had been.
What we write is always whole: one JSON object in valid UTF-8 on one line, proven before it is queued.
"""

import collections
import functools
import re
from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec import Raw

from tutti_side.jsonrpc.errors import InvalidResultError, LocalError, RemoteError
from tutti_side.jsonrpc.messages import CODEX, NO_RAW, Dialect, Message, RequestId

__all__ = ["LINE_BYTES_MAX", "Codec", "LineSplitter"]

P = TypeVar("P")
T = TypeVar("T")

LINE_BYTES_MAX = 64 * 1024 * 1024
"""The longest line that is read. Real ones have 3 MB (a large message is one line); the proven server takes 64 MB."""

UNREADABLE_ERROR_CODE = 0
"""Our `RemoteError.code` for an error answer that has no readable code: 0 is no code of JSON-RPC's."""


class LineSplitter:
    r"""Cuts a stream of chunks into lines at the byte ``\n`` and at nothing else: U+2028 and the like are data.

    A line longer than the bound is skipped to its newline. Lines are the same however the stream was cut into chunks.

    Attributes:
      overlong: how many lines were skipped for their length.
      unfinished_bytes: length of the line that has no newline yet; at the end of the stream it is not a message.
    """

    __slots__ = ("_line_bytes_max", "_skipping", "_tail", "overlong")

    def __init__(self, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        self._line_bytes_max = line_bytes_max
        self._tail = bytearray()
        self._skipping = False
        self.overlong = 0

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of the last line that are kept while its newline is to come."""
        return len(self._tail)

    def receive_data(self, chunk: bytes) -> list[bytes]:
        r"""Return the lines that `chunk` completes, without their ``\n`` and without one ``\r`` before it."""
        lines = chunk.split(b"\n")
        rest = lines.pop()
        tail = self._tail
        longest = self._line_bytes_max
        if lines:
            if self._skipping:
                self._skipping = False
                del lines[0]
            elif tail:
                if len(tail) + len(lines[0]) > longest:
                    self.overlong += 1
                    del lines[0]
                else:
                    tail += lines[0]
                    lines[0] = bytes(tail)
                tail.clear()
            if len(chunk) > longest:
                fitting = [line for line in lines if len(line) <= longest]
                self.overlong += len(lines) - len(fitting)
                lines = fitting
            if b"\r" in chunk or (lines and lines[0][-1:] == b"\r"):
                lines = [line[:-1] if line[-1:] == b"\r" else line for line in lines]
        if rest and not self._skipping:
            if len(tail) + len(rest) > longest:
                self.overlong += 1
                self._skipping = True
                tail.clear()
            else:
                tail += rest
        return lines


class _LooseMessage(msgspec.Struct, gc=False):
    """The envelope when its parameters, or its version, are not what `Message` expects."""

    method: str | None = None
    id: RequestId | None = None
    params: Raw = NO_RAW
    result: Raw = NO_RAW
    error: Raw = NO_RAW
    jsonrpc: object = None


class _ErrorBody(msgspec.Struct):
    code: int
    message: str
    data: Raw = NO_RAW


_decode_loose = msgspec.json.Decoder(_LooseMessage).decode
_decode_error_body = msgspec.json.Decoder(_ErrorBody).decode
_encode = msgspec.json.Encoder().encode
_prove: Any = msgspec.json.Decoder().decode


class Codec(Generic[P]):
    """Decodes and encodes the messages of one connection.

    Attributes:
      dropped: how many lines were dropped, by cause: `blank`, `not_json`, `not_utf8`, `too_deep`, `not_a_message`,
        `version`.
    """

    def __init__(self, params_type: type[P], dialect: Dialect = CODEX) -> None:
        self._decode: Any = msgspec.json.Decoder(Message[params_type]).decode  # type: ignore[valid-type]
        self._dialect = dialect
        self.dropped: collections.Counter[str] = collections.Counter()

    def decode(self, line: bytes) -> Message[P] | None:
        """Return the message on `line`, or None if there is none: it was dropped, and counted."""
        messages = self.decode_lines([line])
        return messages[0] if messages else None

    def decode_lines(self, lines: list[bytes]) -> list[Message[P]]:
        """Return the messages on `lines`, in their order, without the lines that hold none.

        One pass over the envelope and the typed parameters together; only what doesn't fit takes a second one. The
        decoder doesn't look into what it skips or keeps raw, so UTF-8 is checked over the whole line.
        """
        messages: list[Message[P]] = []
        append = messages.append
        decode = self._decode
        for line in lines:
            try:
                message = decode(line)
                if not line.isascii():
                    line.decode()
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                message = self._decode_again(line, error)
                if message is None:
                    continue
            if message.method is None and (message.id is None or message.result is message.error):
                self.dropped["not_a_message"] += 1  # neither a method nor an answer (both absent: the same `NO_RAW`)
                continue
            message.line = line
            append(message)
        if self._dialect.requires_version:
            versioned = [message for message in messages if message.jsonrpc == "2.0"]
            if len(versioned) < len(messages):
                self.dropped["version"] += len(messages) - len(versioned)
            return versioned
        return messages

    def _decode_again(self, line: bytes, error: Exception) -> Message[P] | None:
        """Decode the envelope alone, if that is what the first error leaves to try; else count the cause."""
        try:
            if isinstance(error, msgspec.ValidationError):
                loose = _decode_loose(line)
                line.decode()
                version = loose.jsonrpc if isinstance(loose.jsonrpc, str) else None
                return Message(
                    method=loose.method, id=loose.id, result=loose.result, error=loose.error, jsonrpc=version
                )
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as second:
            error = second
        self.dropped[_cause_of(line, error)] += 1
        return None

    def encode_request(self, request_id: RequestId, method: str, params: object = None) -> bytes:
        r"""Return the request as one whole line, ``\n`` included; `params` None is sent as ``{}``.

        Raises:
          LocalError: it can't be written as one valid line; the message names the cause, not the content.
        """
        return self._line({"id": request_id, "method": method, "params": {} if params is None else params})

    def encode_notification(self, method: str, params: object = None) -> bytes:
        """Return the notification as one whole line; otherwise as `encode_request`."""
        return self._line({"method": method, "params": {} if params is None else params})

    def encode_response(self, request_id: RequestId, result: object) -> bytes:
        """Return the answer to the peer's request as one whole line, its id as it came; errors as `encode_request`."""
        return self._line({"id": request_id, "result": result})

    def encode_error(self, request_id: RequestId, code: int, message: str) -> bytes:
        """Return the error answer to the peer's request as one whole line; otherwise as `encode_response`."""
        return self._line({"id": request_id, "error": {"code": code, "message": message}})

    def _line(self, body: dict[str, object]) -> bytes:
        if self._dialect.writes_version:
            body = {"jsonrpc": "2.0", **body}
        try:
            line = _encode(body)
            _prove(line)  # raw JSON that we were given is copied unseen: it may be invalid, or hold a lone surrogate
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
            raise LocalError(f"what was given can't be written as JSON ({type(error).__name__})") from error
        if b"\n" in line:
            raise LocalError("what was given can't be written on one line: raw JSON in it holds a line break")
        return line + b"\n"


def _cause_of(line: bytes, error: Exception) -> str:
    if not line.strip():
        return "blank"
    try:
        line.decode()
    except UnicodeDecodeError:
        return "not_utf8"
    if isinstance(error, RecursionError):
        return "too_deep"
    return "not_a_message" if isinstance(error, msgspec.ValidationError) else "not_json"


def read_error(error: Raw, method: str) -> RemoteError:
    """Return the error answer that `error`, the raw JSON of the field, holds; an unreadable one has code 0."""
    try:
        body = _decode_error_body(error)
    except (msgspec.MsgspecError, RecursionError):
        return RemoteError(
            UNREADABLE_ERROR_CODE, "the error has no readable code and text", error.copy(), method=method
        )
    data = None if body.data is NO_RAW else body.data.copy()
    return RemoteError(body.code, body.message, data, method=method)


def read_result(result: Raw, result_type: type[T], method: str) -> T:
    """Return the typed result.

    Raises:
      InvalidResultError: it isn't of this type; the message has the path and the expected type, no content.
    """
    try:
        decoder: msgspec.json.Decoder[T] = _result_decoder(cast("Any", result_type))
        return decoder.decode(result)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidResultError(method, _where(error)) from None  # its own words can quote the peer's


@functools.lru_cache(maxsize=256)
def _result_decoder(result_type: Any) -> Any:
    return msgspec.json.Decoder(result_type)


def _where(error: Exception) -> str:
    text = str(error)
    expected = re.match(r"Expected `[^`]*`", text)
    path = re.search(r" - at `([^`]*)`$", text)
    return f"{expected[0] if expected else 'unexpected value'} at {path[1] if path else '$'}"
