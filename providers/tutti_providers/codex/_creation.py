"""Creating a thread, by start or fork: one place for the answer that comes in time, late, or never.

The answer is taken in the request's result hook, at its place in the wire order, whether or not anybody still waits.
There the thread is validated, its early messages adopted and its route registered; or, when its creator has given up,
it is released. So a late answer and a timely one are the same code, and no message of the thread falls between.
"""

from collections.abc import Callable
from functools import partial
from typing import cast

import msgspec
import trio

from tutti_providers.codex._connection import Connection
from tutti_providers.codex._releases import Release
from tutti_providers.codex._router import PoolOverflowError
from tutti_providers.codex._settings import SourceSettings
from tutti_providers.codex._settling import settle_load
from tutti_providers.codex._thread import CodexThread
from tutti_providers.codex.errors import RequestRefusedError
from tutti_providers.codex.schema.requests import (
    REQUESTS,
    ForkParams,
    OpenedThread,
    ResumedThread,
    ResumeParams,
    StartParams,
)
from tutti_side.contract import ProviderProtocolError
from tutti_side.jsonrpc import Outcome

__all__ = ["ThreadCreation"]

ANSWER_WAIT_S = 30.0
"""After its creator gave up, early messages are kept so long for a thread that may still be answered for: as long as a
Side id stays draining. A later answer is released as well; but what strangers say is then dropped, and declined."""


CLOSING_TRIES_MAX = 9
"""A thread that its server is just closing is asked for so often, which takes up to 4 s; it is closed some milliseconds
after it was let go."""

CLOSING_PAUSE_S = 0.02
"""Pause after the first such refusal; doubled each time…"""

CLOSING_PAUSE_S_MAX = 1.0
"""…but never longer than this."""


class _OnlyId(msgspec.Struct):
    id: str


class _OnlyThread(msgspec.Struct):
    """As much of a strange answer as is needed to release what it created."""

    thread: _OnlyId


_DECODE = msgspec.json.Decoder(ResumedThread).decode
"""The answers of start and fork are the same, without a mode."""
_DECODE_ID = msgspec.json.Decoder(_OnlyThread).decode


class ThreadCreation:
    """One thread on its way.

    Args:
      check: says what is wrong with the answer, or None; pure.
    """

    def __init__(
        self, connection: Connection, thread: CodexThread, check: Callable[[OpenedThread], str | None]
    ) -> None:
        self._connection = connection
        self._thread = thread
        self._check = check
        self._method = ""
        self._abandoned = False
        self._is_creating = False
        self._is_running = False
        self._loads = ""
        self._is_loading = False
        self._owes_release = False
        self._has_repaid = False
        self._settled = trio.Event()
        self._release: Release | None = None

    async def run(self, params: StartParams | ResumeParams | ForkParams) -> OpenedThread:
        """Send the request and return its validated answer; the thread's route stands then.

        Raises:
          what `Connection.request` raises; ProviderProtocolError: the answer failed its check, and was released.

        Cancellation: call `abandon`; a thread that appears later is released.
        """
        if not isinstance(params, ResumeParams):
            return await self._request(params)
        self._loads = params.thread_id
        self._connection.router.begin_load(self._loads)
        self._is_loading = self._is_running = True
        try:
            self._owes_release = await self._connection.releases.reclaim(params.thread_id)
            return await self._load(params)
        finally:
            self._is_running = False
            self._end_load()

    async def _load(self, params: ResumeParams) -> OpenedThread:
        for attempt in range(CLOSING_TRIES_MAX - 1):
            try:
                return await self._request(params)
            except RequestRefusedError as error:
                if not _says_closing(error):
                    raise
            await trio.sleep(min(CLOSING_PAUSE_S * 2**attempt, CLOSING_PAUSE_S_MAX))
        return await self._request(params)

    async def _request(self, params: StartParams | ResumeParams | ForkParams) -> OpenedThread:
        self._method = params.METHOD
        self._is_creating = True
        self._settled = trio.Event()
        self._connection.router.begin_creation(self._loads or None)
        # Exactly once, whatever happens, the hook or `_stop_waiting` ends what `begin_creation` began.
        result_type = cast("type[OpenedThread]", REQUESTS[type(params)])
        return await self._connection.request(params, result_type, hook=self._take_answer)

    def abandon(self) -> None:
        """Want it no longer: nothing reaches the sink from now on, and the thread, known or still to come, is released.

        Synchronous and idempotent.
        """
        if not self._abandoned and self._is_creating:
            self._connection.start_late(self._stop_waiting)
        self._abandoned = True
        self._thread.detach()
        if not self._method:
            self._settled.set()  # nothing was asked for, so no answer will say so
        if self._thread.thread_id and self._release is None:
            self._release = self._connection.releases.begin(self._thread.thread_id)
        elif self._settled.is_set():
            self._repay()
        elif self._loads:
            self._connection.releases.abandoned_loads[self._loads] = self._settled

    async def wait_released(self) -> None:
        """Wait until the answer came, or can't come any more, and what it created was released.

        Cancellation: harmless.
        """
        await self._settled.wait()
        if self._release is not None:
            await self._release.done.wait()

    async def _stop_waiting(self) -> None:
        """Let go of the pool when the answer does not come, and give back what it was waited for with."""
        with trio.move_on_after(ANSWER_WAIT_S):
            await self._settled.wait()
        self._end_creation()
        if not self._settled.is_set():
            self._repay()

    def _end_creation(self) -> None:
        if self._is_creating:
            self._is_creating = False
            self._connection.router.end_creation()
            self._end_load()

    def _end_load(self) -> None:
        """Let the thread be known by its route alone, once nothing of this load is to come any more."""
        if self._is_loading and not self._is_running and not self._is_creating:
            self._is_loading = False
            self._connection.router.end_load(self._loads)

    def _take_answer(self, outcome: Outcome) -> None:
        try:
            if not isinstance(outcome, Exception):
                self._adopt(outcome)
        finally:
            self._end_creation()
            self._settled.set()
            if self._connection.releases.abandoned_loads.get(self._loads) is self._settled:
                del self._connection.releases.abandoned_loads[self._loads]
            if self._abandoned:
                self._repay()

    def _repay(self) -> None:
        """Begin the unsubscribe anew that this load was to make needless: it came to nothing."""
        if self._owes_release and self._release is None and not self._is_known(self._loads):
            self._release = self._connection.releases.begin(self._loads)
            self._has_repaid = True
        self._owes_release = False

    def _adopt(self, result: msgspec.Raw) -> None:
        try:
            opened = _DECODE(result)
        except (msgspec.DecodeError, RecursionError) as error:
            thread_id = _id_in(result)
            problem: str | None = f"it has another form ({type(error).__name__})"
        else:
            thread_id = opened.thread.id
            problem = self._check(opened)
            if problem is None and self._is_known(thread_id):
                problem = "it names a thread that exists already"
            if problem is None and not self._abandoned:
                is_persisted = self._method == ResumeParams.METHOD
                self._thread.bind(thread_id, SourceSettings.of_opened(opened), is_persisted=is_persisted)
                try:
                    if self._connection.router.register(thread_id, self._thread):
                        self._connection.settle_later(partial(settle_load, self._connection, self._thread))
                except PoolOverflowError:
                    problem = "more of the thread came before the answer than is kept (overflow)"
        # A thread that was known before is not ours to release: it could be the parent.
        if (problem is not None or self._abandoned) and thread_id and not self._is_known(thread_id):
            self._release = self._connection.releases.begin(thread_id)
        if problem is not None:
            raise ProviderProtocolError(self._method, problem)

    def _is_known(self, thread_id: str) -> bool:
        if self._has_repaid and thread_id == self._loads:  # an answer after that has loaded it once more
            return self._connection.router.has_route(thread_id)
        return self._connection.router.knows(thread_id, loaded_by_asker=self._loads)


def _says_closing(refused: RequestRefusedError) -> bool:
    """True when a load was refused since the thread is being unloaded. The words are those of 0.163."""
    return "is closing; retry thread/resume" in refused.server_message


def _id_in(result: msgspec.Raw) -> str:
    try:
        return _DECODE_ID(result).thread.id
    except (msgspec.DecodeError, RecursionError):
        return ""
