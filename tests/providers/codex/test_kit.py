"""The conformance kit over the real Codex, and that it would find a fault there."""

import pathlib
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import trio

from tutti_providers.codex import CodexAdapter
from tutti_providers.codex.testing.kit_bed import CodexKitBed, open_codex_kit_bed
from tutti_side.contract import SideRef
from tutti_side.testing.adapter_suite import AdapterSuite

pytestmark = [pytest.mark.codex, pytest.mark.process]


class TestCodex(AdapterSuite):
    """The binary does all of it."""

    kit_name = "codex"
    steers = True

    def open_bed(self, directory: pathlib.Path) -> AbstractAsyncContextManager[CodexKitBed]:
        """Make a bed."""
        return open_codex_kit_bed(directory)


def test_the_kit_sees_a_child_that_a_close_leaves_at_the_server(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our choice: what is loaded is the server's word, so an adapter that only forgets its child is found out."""
    close = CodexAdapter.close

    async def forget(adapter: CodexAdapter, ref: Any) -> None:
        live = adapter._live.get(ref)
        if isinstance(ref, SideRef) and live is not None:
            live.thread.lost = True
        await close(adapter, ref)

    monkeypatch.setattr(CodexAdapter, "close", forget)
    with pytest.raises(AssertionError, match="2 == 1"):
        TestCodex().test_a_closed_side_is_no_longer_held_by_its_provider(tmp_path)


def test_the_kit_sees_a_child_that_is_left_when_its_result_was_not_believed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our choice: the same for an open that failed."""

    async def leave(adapter: CodexAdapter, side: Any) -> None:
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(CodexAdapter, "wait_side_released", leave)
    with pytest.raises(AssertionError, match="2 == 1"):
        TestCodex().test_a_branch_of_another_source_is_not_taken(tmp_path)
