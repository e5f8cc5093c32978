"""One app-server: its process, its peer, its router, and the nursery for what nobody waits for any more.

A connection is leased by the sessions and Sides on it; the last lease closes it. Late answers and unsubscribes that
failed are its own business: whoever started them may be gone, the connection is there as long as they matter.
"""

import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import msgspec
import trio

from tutti_providers.codex._asking import refuse
from tutti_providers.codex._launch import Handshake, handshake
from tutti_providers.codex._notices import Notices
from tutti_providers.codex._releases import Releases
from tutti_providers.codex._router import Router, RouterStatistics
from tutti_providers.codex._subagents import SubAgentSink
from tutti_providers.codex._thread import TURN_BEGIN_WAIT_S, CodexThread
from tutti_providers.codex.errors import RequestRefusedError, UnansweredError
from tutti_providers.codex.schema.notifications import Head
from tutti_providers.codex.schema.requests import (
    REQUESTS,
    Empty,
    LoadedListParams,
    Params,
    TurnInterruptParams,
    UnsubscribeParams,
    UnsubscribeResult,
)
from tutti_side.contract import (
    NO_NOTICES,
    NoticePort,
    ProviderLostError,
    ProviderProtocolError,
    ScopeRef,
    TurnId,
)
from tutti_side.jsonrpc import (
    LINE_BYTES_MAX,
    REQUEST_DEADLINE_S,
    ConnectionClosedError,
    InvalidResultError,
    Message,
    Peer,
    PeerStatistics,
    RemoteError,
    RequestTimeoutError,
    ResultHook,
    Transport,
    open_peer,
)
from tutti_side.nursery import open_service_nursery

__all__ = ["CLEANUP_DEADLINE_S", "Connection", "ConnectionStatistics", "open_connection"]

R = TypeVar("R")

CLEANUP_DEADLINE_S = 5.0
"""How long one step of a cleanup may take: the slowest seen took some milliseconds, an unanswered one never ends."""

SILENCE_S = 30.0
"""While a turn is active, it is looked at once in so long whether the server said anything; if not, it is asked for a
sign of life. So it is asked after one to two of these without a message."""

LIFE_SIGN_DEADLINE_S = 30.0
"""How long it may take to give one. Then the connection is lost: a turn's waiter waits twice `SILENCE_S`, and this, at
most."""


class ConnectionStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What one connection holds, and what it counted."""

    version: str | None
    leases: int
    releasing: int
    """What runs in the background, for nobody who waits: unsubscribes, interrupts, waits for late answers."""
    doubted_turns: int
    """Turns of which it is being found out whether they have ended without a word."""
    sub_agents: int
    """Sub-agents that were followed so far, of all threads."""
    unreleased: int
    """What of that failed for good; a thread that could not be unsubscribed ends with the process."""
    unread: Mapping[str, int]
    """What its threads made nothing of, by cause: malformed, not modelled, repeated start, repeated end, missing end,
    refused."""
    notices: Mapping[str, int]
    """What belonged to no thread, by kind; its content went to the host, if one listens."""
    peer: PeerStatistics
    router: RouterStatistics


class Connection:
    """A running app-server; made by `open_connection`."""

    def __init__(
        self,
        peer: Peer[Head],
        router: Router,
        shaken: Handshake,
        nursery: trio.Nursery,
        notices: Notices,
        unread: Counter[str],
    ) -> None:
        self.peer = peer
        self.router = router
        self.attestation = shaken.attestation
        self.codex_home = shaken.codex_home
        self.ended = trio.Event()
        self.unread = unread
        self._notices = notices
        self._busy = trio.Event()
        self._nursery = nursery
        self._leases: set[ScopeRef] = set()
        self._releasing = 0
        self._doubted_turns = 0
        self._sub_agents = 0
        self._named: deque[tuple[CodexThread, str]] = deque()
        self._unreleased = 0
        self._is_closing = False
        self.releases = Releases(self._unsubscribe, router.retire, self._start)
        router.on_lost = self.ended.set

    def __repr__(self) -> str:
        return f"<Connection {self.attestation.version} leases={len(self._leases)}>"

    @property
    def is_usable(self) -> bool:
        """False once it is lost, or given up by its last lease."""
        return not self.ended.is_set() and self.peer.closed is None

    def lease(self, ref: ScopeRef) -> None:
        """Keep it open for a session or Side."""
        self._leases.add(ref)

    def give_back(self, ref: ScopeRef) -> None:
        """Drop a lease; the last one ends the connection. Idempotent."""
        if ref in self._leases:
            self._leases.discard(ref)
            if not self._leases:
                self.ended.set()

    def note_busy(self, is_busy: bool) -> None:
        """A thread has a turn, or none any more. While one has, a silent server is asked whether it lives. Synchronous.

        And while one has, a stranger may be a sub-agent of it.
        """
        if is_busy:
            self._busy.set()
        else:
            self.router.forget_strangers()

    async def watch(self) -> None:
        """End the connection when a server with an active turn says nothing any more, not even when asked.

        A model may think for minutes, so silence proves nothing; but a live server answers a cheap request. Nothing is
        sent while anything is heard, and nothing at all while no turn is active. A live server that says nothing of a
        turn has perhaps ended it without a word, so it is asked about that too. The owner of the nursery cancels it.
        """
        while True:
            await self._busy.wait()
            seen = self.peer.heard
            await trio.sleep(SILENCE_S)
            if not self.router.is_busy:
                self._busy = trio.Event()
            elif self.peer.heard == seen:
                await self._ask_whether_it_lives(seen)

    async def _ask_whether_it_lives(self, seen: int) -> None:
        try:
            await self.request(LoadedListParams(), Empty, deadline_s=LIFE_SIGN_DEADLINE_S, cleanup=True)
        except ProviderLostError:
            return  # what is lost needs no watch
        except (RequestRefusedError, ProviderProtocolError):
            pass  # an answer of any kind is one
        except UnansweredError:
            if self.peer.heard == seen:
                self.peer.fail(ConnectionClosedError("unresponsive"))
            return
        self.router.doubt_busy()

    def statistics(self) -> ConnectionStatistics:
        """Return counts."""
        return ConnectionStatistics(
            version=self.attestation.version,
            leases=len(self._leases),
            releasing=self._releasing,
            doubted_turns=self._doubted_turns,
            sub_agents=self._sub_agents,
            unreleased=self._unreleased,
            unread=dict(self.unread),
            notices={str(kind): count for kind, count in self._notices.counts.items()},
            peer=self.peer.statistics(),
            router=self.router.statistics(),
        )

    async def request(
        self,
        params: Params,
        result_type: type[R],
        *,
        deadline_s: float = REQUEST_DEADLINE_S,
        hook: ResultHook | None = None,
        cleanup: bool = False,
    ) -> R:
        """Send one of the protocol's requests; see `tutti_side.jsonrpc.Peer.request` for the rest.

        Raises:
          ProviderLostError: the connection is gone.
          RequestRefusedError: the server answered with an error.
          UnansweredError: it did not answer in time.
          ProviderProtocolError: its answer has another form.

        Cancellation: not sent, or may have been executed; the hook still runs.
        """
        assert REQUESTS[type(params)] is result_type
        method = params.METHOD
        try:
            return await self.peer.request(
                method, params, result_type=result_type, deadline_s=deadline_s, hook=hook, cleanup=cleanup
            )
        except ConnectionClosedError as error:
            raise ProviderLostError(None if error.exit is None else error.exit.status) from error
        except RemoteError as error:
            raise RequestRefusedError(method, error.code, error.message) from error
        except RequestTimeoutError as error:
            raise UnansweredError(method, deadline_s) from error
        except InvalidResultError as error:
            raise ProviderProtocolError(method, error.where) from error

    # What nobody waits for any more

    def start_late(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run something in the background that outlives its starter; it ends with the connection at the latest."""
        self._start(trio.Event(), work)

    def settle_later(self, settle: Callable[[], Awaitable[None]]) -> None:
        """Find out, in the background, whether a turn has ended.

        Bounded by the callers: a thread doubts each of its open turns once at a time, and `settle` has its own end.
        """
        if self.peer.closed is None and not self._is_closing:
            self._doubted_turns += 1
            self._nursery.start_soon(self._settle, settle)

    async def _settle(self, settle: Callable[[], Awaitable[None]]) -> None:
        try:
            await settle()
        finally:
            self._doubted_turns -= 1

    def follow(self, parent: CodexThread, agent_id: str) -> None:
        """Follow a sub-agent of a thread, and what it starts itself, until the parent is closed. Idempotent.

        Called in the reader; a thread that is known as something else stays that. What came early of one is told in
        here, and can name the next: that one waits for its turn, so that a long chain is no deep one.
        """
        self._named.append((parent, agent_id))
        if len(self._named) > 1:
            return  # whoever began goes on with it
        try:
            while self._named:
                self._follow(*self._named[0])
                self._named.popleft()
        finally:
            self._named.clear()

    def _follow(self, parent: CodexThread, agent_id: str) -> None:
        if self.router.knows(agent_id):
            return
        has_room, leaver = parent.sub_agents.make_room()
        if leaver is not None:
            leaver.detach()
            self.releases.begin(leaver.thread_id)
        if not has_room:
            return
        agent = CodexThread(
            SubAgentSink(agent_id, parent.emit_of_sub_agent),
            self.peer,
            on_busy=self.note_busy,
            on_sub_agent=lambda _, started: self.follow(parent, started),
            unread=self.unread,
        )
        agent.thread_id = agent_id
        agent.begin_close()  # what it asks is declined
        self.router.register(agent_id, agent, whole=False)
        parent.sub_agents.add(agent)
        self._sub_agents += 1

    def interrupt_later(self, thread: CodexThread, turn_id: TurnId) -> None:
        """Interrupt, in the background, a turn whose starter has gone."""
        self._start(trio.Event(), self._interrupt, thread, turn_id)

    def interrupt_over(self, thread: CodexThread, turn_id: TurnId) -> None:
        """Interrupt, in the background, a turn that is over for us but not for the server."""
        self._start(trio.Event(), self.send_interrupt, thread, turn_id)

    def close(self) -> None:
        """Begin nothing more in the background: the connection's block has ended, and its process ends now."""
        self._is_closing = True

    def _start(self, done: trio.Event, work: Any, *arguments: Any) -> bool:
        """Start late work; False when the connection is ending, and the process with it."""
        if self.peer.closed is not None or self._is_closing:
            done.set()
            return False
        self._releasing += 1
        self._nursery.start_soon(self._run_late, done, work, arguments)
        return True

    async def _run_late(self, done: trio.Event, work: Any, arguments: tuple[Any, ...]) -> None:
        try:
            await work(*arguments)
        except Exception:  # contained: it was tried as often as it may be, and it is counted
            self._unreleased += 1
        finally:
            self._releasing -= 1
            done.set()

    async def _unsubscribe(self, thread_id: str) -> None:
        params = UnsubscribeParams(thread_id=thread_id)
        await self.request(params, UnsubscribeResult, deadline_s=CLEANUP_DEADLINE_S, cleanup=True)

    async def _interrupt(self, thread: CodexThread, turn_id: TurnId) -> None:
        with trio.move_on_after(TURN_BEGIN_WAIT_S):
            await thread.turns.began.wait()
        if thread.turns.active != turn_id or thread.interrupting == turn_id:
            return
        await self._interrupt_once(thread, turn_id)
        if thread.turns.active == turn_id:
            thread.doubt()

    async def _interrupt_once(self, thread: CodexThread, turn_id: TurnId) -> None:
        """Interrupt a turn unless that is just being done."""
        if thread.interrupting != turn_id:
            with thread.being_interrupted(turn_id):
                await self.send_interrupt(thread, turn_id)

    async def interrupt_unheard(self, thread: CodexThread, turn_id: TurnId) -> None:
        """Interrupt a turn of which nothing is heard any more. Cancellation: may have been sent."""
        with trio.move_on_after(TURN_BEGIN_WAIT_S):
            await thread.turns.began.wait()
        await self._interrupt_once(thread, turn_id)

    async def send_interrupt(self, thread: CodexThread, turn_id: TurnId) -> None:
        """Ask once for a turn's interrupt; bounded, no failure is the caller's. Cancellation: may have been sent."""
        params = TurnInterruptParams(thread_id=thread.thread_id, turn_id=turn_id)
        # A refusal says that the turn has ended by itself. No answer is what 0.163 gives to a surplus interrupt.
        with suppress(RequestRefusedError, UnansweredError, ProviderProtocolError, ProviderLostError):
            await self.request(params, Empty, deadline_s=CLEANUP_DEADLINE_S, cleanup=True)


@asynccontextmanager
async def open_connection(
    transport: Transport,
    *,
    name: str,
    rng: random.Random | None = None,
    notices: NoticePort = NO_NOTICES,
    line_bytes_max: int = LINE_BYTES_MAX,
) -> AsyncIterator[Connection]:
    """Speak to an app-server over an open transport; the handshake is done when the block begins.

    Args:
      transport: stays the caller's.
      name: names the tasks.
      rng: draws the delays of retries; give a seeded one for a repeatable run.
      notices: told what belongs to no thread.
      line_bytes_max: a longer line of the server is skipped, and counted.

    Raises:
      StartFailedError: the process ended before it answered.
      HandshakeError: it is no app-server that we can talk to.

    Cancellation: what runs in the background is cancelled; the transport's owner ends the process.
    """
    peers: list[Peer[Head]] = []

    def decline(message: Message[Head]) -> None:
        assert message.id is not None
        refuse(peers[0], message.id, message.method or "")

    unread: Counter[str] = Counter()
    taken = Notices(notices.notice, unread)
    router = Router(decline, taken.take)
    async with open_peer(
        transport, router, params_type=Head, name=name, rng=rng, line_bytes_max=line_bytes_max
    ) as peer:
        peers.append(peer)
        shaken = await handshake(peer)
        async with open_service_nursery() as nursery:
            connection = Connection(peer, router, shaken, nursery, taken, unread)
            nursery.start_soon(connection.watch, name=f"{name}/watch")
            try:
                yield connection
            finally:
                connection.close()
