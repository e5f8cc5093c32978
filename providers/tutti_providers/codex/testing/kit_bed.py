"""The real Codex for the conformance kit: the binary over a scripted model, with a tap on its wire."""

import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tutti_providers.codex import CodexProvider
from tutti_providers.codex._connection import Connection, open_connection
from tutti_providers.codex._launch import UNLOAD_AT_ONCE, app_server_command, find_binary, launch_environment
from tutti_side.contract import NoticePort
from tutti_side.jsonrpc.transports.stdio import open_stdio
from tutti_side.testing.adapter_suite import ASK, FAIL, HELD_TEXTS, HOLD, QUERY, SAID, SAY

from ._kit_tap import Hand, KitTap
from .codex_home import testing_env, write_codex_home
from .model_script import Answer, Fail, ModelScript, Pause, Reply, Say, ask_user, run_command
from .scripted_model import ScriptedModel, open_scripted_model

__all__ = ["CodexKitBed", "open_codex_kit_bed"]

COLOR = {
    "id": "color",
    "header": "Color",
    "question": "Which color?",
    "options": [{"label": "Blue", "description": "As the sky."}, {"label": "Red", "description": "As a rose."}],
}
"""What a turn of the kit asks."""

SCRIPT = ModelScript(
    answers=(
        Answer.of(Say(tokens=(SAID,)), when=SAY),
        Answer.of(Say(tokens=HELD_TEXTS[:1]), Pause(gate="held"), Say(tokens=HELD_TEXTS[1:]), when=HOLD),
        Answer.of(Fail(message="the kit says so"), when=FAIL),
        Answer(
            replies=(
                Reply(steps=(run_command("true", justification="May I?"),)),
                Reply(steps=(Say(tokens=(SAID,)),)),
            ),
            when=ASK,
        ),
        Answer(replies=(Reply(steps=(ask_user([COLOR]),)), Reply(steps=(Say(tokens=(SAID,)),))), when=QUERY),
    )
)
"""What the model says to the kit's texts."""


class _Tapped(CodexProvider):
    """Codex, with its wires within reach."""

    def __init__(self, hand: Hand, environ: Mapping[str, str]) -> None:
        super().__init__(find_binary(None, os.environ).path, None, environ, {})
        self.taps: list[KitTap] = []
        self._hand = hand

    @asynccontextmanager
    async def _open_app_server(self, notices: NoticePort) -> AsyncIterator[Connection]:
        binary = find_binary(self._binary, self._environ)
        environment = launch_environment(self._environ, codex_home=self._codex_home, extra=self._extra_environ)
        command = app_server_command(binary.path, overrides=(UNLOAD_AT_ONCE,))
        async with open_stdio(command, env=environment, name=self.name) as transport:
            tap = KitTap(transport, self._hand)
            self.taps.append(tap)
            try:
                async with open_connection(tap, name=self.name, notices=notices) as connection:
                    yield connection
            finally:
                self.taps.remove(tap)


class CodexKitBed:
    """Implements `tutti_side.testing.adapter_suite.AdapterBed`; made by `open_codex_kit_bed`."""

    settings = None

    def __init__(self, workspace: Path, codex_home: Path, environ: Mapping[str, str], model: ScriptedModel) -> None:
        self.workspace = workspace
        self._codex_home = codex_home
        self._model = model
        self._hand = Hand()
        self.provider = _Tapped(self._hand, environ)

    async def wait_held(self, times: int = 1) -> None:
        """See `AdapterBed`."""
        await self._model.wait_reached("held", times)

    def let_go(self) -> None:
        """See `AdapterBed`."""
        self._model.gate("held").set()

    def told_model(self) -> str:
        """See `AdapterBed`."""
        request = self._model.requests[-1]
        return f"{request.instructions}\n{request.items}"

    def kept(self) -> str:
        """See `AdapterBed`: every file of Codex' home, whatever it is for."""
        files = sorted(path for path in self._codex_home.rglob("*") if path.is_file())
        return "\n".join(path.read_bytes().decode(errors="replace") for path in files)

    def loaded(self) -> int:
        """See `AdapterBed`: what the server has told on the wire, not what the adapter believes."""
        return sum(len(tap.threads) for tap in self.provider.taps)

    def refuse_opens(self, *, refused: bool = True) -> None:
        """See `AdapterBed`."""
        self._hand.refuses = refused

    def hold_opens(self) -> None:
        """See `AdapterBed`."""
        self._hand.holds = True

    async def wait_open_held(self) -> None:
        """See `AdapterBed`."""
        await self._hand.held.wait()

    def release_opens(self) -> None:
        """See `AdapterBed`."""
        self._hand.holds = False
        self._hand.released.set()

    def drop(self) -> None:
        """See `AdapterBed`: the app-servers get SIGKILL."""
        for tap in self.provider.taps:
            os.kill(tap.pid, signal.SIGKILL)


@asynccontextmanager
async def open_codex_kit_bed(directory: Path) -> AsyncIterator[CodexKitBed]:
    """Serve the model, and write a home for the binary below `directory`.

    The binary is the one that `tutti_providers.codex.codex` finds by itself.

    Cancellation: the model is closed.
    """
    async with open_scripted_model(SCRIPT) as model:
        codex_home = write_codex_home(
            directory / "codex", model.base_url, features={"default_mode_request_user_input": True}
        )
        workspace = directory / "workspace"
        workspace.mkdir()
        yield CodexKitBed(workspace, codex_home, testing_env(directory / "home", codex_home), model)
