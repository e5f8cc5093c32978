"""Playing the client's half of a recorded session against a server, to compare the traces."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import trio

from tutti_side.jsonrpc.transports import Transport

from .traces import SessionLine, Trace, Transcript, merged_lengths, trace_of

__all__ = ["Replay"]

READ_BYTES = 65536
"""What a pipe holds."""

_encode = msgspec.json.Encoder().encode


class Replay:
    """Sends each recorded message of the client once everything recorded before it has come from this server too.

    So it needs no clock, and the same decisions are made at the same points of the session, whatever the server's pace.
    """

    def __init__(
        self,
        transcript: Transcript,
        transport: Transport,
        *,
        ids: dict[str, str] | None = None,
        on_answer: Callable[[Any], Awaitable[None]] | None = None,
        end: Callable[[bool], None],
    ) -> None:
        """Prepare a replay.

        Args:
          transcript: what was recorded.
          transport: the server under test.
          ids: texts of the recording and what stands for them here: directories, a stored thread.
          on_answer: called with the id of each answered request; opens the gates of the model.
          end: ends the server when all is played: killed (True) or asked to stop (False), as recorded.
        """
        self._transcript = transcript
        self._transport = transport
        self._ids = dict(ids or {})
        self._on_answer = on_answer
        self._end = end
        self._recorded: list[dict[str, Any]] = []
        self._got: list[dict[str, Any]] = []
        self._lines: list[SessionLine] = []
        self._changed = trio.Condition()

    async def run(self) -> Trace:
        """Play to the end of the server's stream and return the trace. Cancellation: the session is left as it is."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read)
            for line in self._transcript.lines:
                if line.dir == "in":
                    self._recorded.append(line.msg)
                elif line.dir == "out":
                    await self._wait_caught_up()
                    await self._send(line.msg)
            await self._wait_caught_up()
            # What still comes until the stream's end belongs to the trace.
            self._end(self._transcript.was_killed)
        return self.trace()

    def trace(self) -> Trace:
        """The trace so far."""
        return trace_of(self._lines)

    async def _send(self, message: dict[str, Any]) -> None:
        text = _encode(message).decode()
        for recorded, live in self._ids.items():
            text = text.replace(recorded, live)
        self._lines.append(SessionLine(dir="out", msg=msgspec.json.decode(text)))
        await self._transport.send_all(text.encode() + b"\n")

    async def _read(self) -> None:
        rest = b""
        while data := await self._transport.receive_some(READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                await self._receive(msgspec.json.decode(line))
            async with self._changed:
                self._changed.notify_all()

    async def _receive(self, message: dict[str, Any]) -> None:
        self._lines.append(SessionLine(dir="in", msg=message))
        self._got.append(message)
        if "method" not in message and self._on_answer is not None:
            await self._on_answer(message["id"])

    async def _wait_caught_up(self) -> None:
        async with self._changed:
            while not self._is_caught_up():
                await self._changed.wait()

    def _is_caught_up(self) -> bool:
        self._learn_ids()
        answered = {message["id"] for message in self._got if "method" not in message}
        if any(message["id"] not in answered for message in self._recorded if "method" not in message):
            return False
        got = merged_lengths(self._got)
        wanted = merged_lengths(self._recorded)
        # What names no thread depends on the machine and is not waited for.
        return all(
            got.get(self._live(lane), 0) >= length for lane, length in wanted.items() if not lane.startswith("global ")
        )

    def _live(self, lane: str) -> str:
        first, _, rest = lane.partition(" ")
        return f"{self._ids.get(first, first)} {rest}".strip()

    def _learn_ids(self) -> None:
        """Pair the ids in answers that both sessions have."""
        live = _results(self._got)
        for request_id, result in _results(self._recorded).items():
            for kind in ("thread", "turn"):
                if kind in result and kind in live.get(request_id, {}):
                    self._ids[result[kind]["id"]] = live[request_id][kind]["id"]


def _results(messages: list[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    return {message["id"]: message["result"] for message in messages if "result" in message}
