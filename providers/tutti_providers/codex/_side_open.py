"""Opening a Side on a live source: what is sent, in which order, and what the model is told.

The source's own connection is used, since only it holds the running turn. Order: fork, validated and adopted in its
hook; then the items that the model will see before the first question: the Side instructions as a developer item (the
fork's own reach the model only after a compaction), and the boundary.
"""

import trio

from tutti_providers.codex._connection import Connection
from tutti_providers.codex._creation import ThreadCreation
from tutti_providers.codex._settings import check_fork, fork_params
from tutti_providers.codex._thread import CodexThread
from tutti_providers.codex.schema.requests import Empty, ForkParams, InjectedMessage, InjectItemsParams, OpenedThread
from tutti_side.contract import NO_METRICS, Metrics, ProviderLostError, SideBinding, SideCapabilities

__all__ = ["BOUNDARY", "SideOpening"]

FIRST_ITEM_WAIT_S = 5.0
"""A source whose first turn has just begun is forked once its first item is recorded, some 20 ms later, or after this.

Seen on 0.163 on an overloaded machine: sent right behind the first ``turn/start``, the fork found the session's file
still without its first line, and was refused.
"""

BOUNDARY = """\
<side_conversation_boundary>
Everything above is the main conversation, inherited for reference only. Everything below is the side conversation.
If the text above says that a turn was interrupted or aborted, or shows a tool call as "aborted", that only marks the \
point where this branch was taken: the main conversation was not interrupted. It goes on elsewhere, and its latest \
words may be missing here.
</side_conversation_boundary>"""
"""The item after which the Side begins. It corrects the false interruption that a fork in mid-turn carries."""


class SideOpening:
    """One Side on its way."""

    def __init__(
        self, connection: Connection, source: CodexThread, thread: CodexThread, metrics: Metrics = NO_METRICS
    ) -> None:
        self.thread = thread
        self._metrics = metrics
        self._connection = connection
        self._source = source
        self._creation = ThreadCreation(connection, thread, lambda opened: check_fork(opened, self._asked))
        self._asked: ForkParams

    async def run(self) -> SideBinding:
        """Fork and inject; return what was seen.

        Raises:
          what `Connection.request` and the checks raise, after `abandon`.

        Cancellation: abandoned.
        """
        try:
            with trio.move_on_after(FIRST_ITEM_WAIT_S):
                await self._source.first_item.wait()
            # Not before: the source may have been restricted meanwhile.
            self._asked = fork_params(self._source.thread_id, self._source.settings, self.thread.instructions)
            began = trio.current_time()
            opened = await self._creation.run(self._asked)
            forked = trio.current_time()
            self._metrics.observe("side_open_phase", forked - began, phase="fork")
            items = (
                InjectedMessage.of("developer", self.thread.instructions),
                InjectedMessage.of("user", BOUNDARY),
            )
            await self._connection.request(InjectItemsParams(thread_id=opened.thread.id, items=items), Empty)
            self._metrics.observe("side_open_phase", trio.current_time() - forked, phase="inject")
            if self.thread.lost:
                raise ProviderLostError(self.thread.exit_status)
        except BaseException:
            self.abandon()
            raise
        return SideBinding(
            provider_session_id=opened.thread.id,
            source_provider_session_id=opened.thread.forked_from_id or "",
            capabilities=self._seen(opened),
        )

    def abandon(self) -> None:
        """Release whatever there is or will be of it. Synchronous and idempotent."""
        self._creation.abandon()

    async def wait_released(self) -> None:
        """Wait until nothing is left of it. Cancellation: harmless."""
        await self._creation.wait_released()

    def _seen(self, opened: OpenedThread) -> SideCapabilities:
        promised = self._connection.attestation.capabilities()
        return SideCapabilities(
            supported=promised.supported,
            active_source_turn=promised.active_source_turn,
            ephemeral=opened.thread.ephemeral and opened.thread.path is None,
            hide_inherited_turns=not opened.thread.turns,
            model_boundary_injected=True,  # the injection was answered without an error
        )
