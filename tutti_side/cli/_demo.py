"""`tutti-side demo`: a Side in the middle of a running turn, on the real Codex with a scripted model and no account.

Another provider's test bed will do as well. Everything happens in a temporary directory and on loopback. Both streams
are shown as they come, and the last line says what was asserted. Nothing is taken on trust: tokens are compared with
the script, files are read, processes counted.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import trio

from tutti_side.cli import _providers
from tutti_side.cli._terminal import plain
from tutti_side.contract import Event, EventBatch, MessageDelta, new_id
from tutti_side.errors import TuttiSideError
from tutti_side.host import open_host
from tutti_side.runtime import SessionHandle, SideHandle, Subscription
from tutti_side.testing.demo_plan import DemoPlan
from tutti_side.testing.processes import marked_processes

__all__ = ["register", "run"]

DEMO_BOUND_S = 120.0
"""The whole demo, on a slow machine; it takes some five seconds."""

MARKER = "TUTTI_SIDE_DEMO"
"""Stands in the environment of every process of the demo, so that a survivor would be found."""

MISSING_EXIT = 3
"""There is no binary to show anything on."""


class DemoStuckError(TuttiSideError):
    """The demo did not end within its bound."""

    def __init__(self) -> None:
        super().__init__(f"the demo did not end within {DEMO_BOUND_S:g} s")


class Check(msgspec.Struct, frozen=True):
    """One thing that was asserted."""

    what: str
    held: bool


class Shown:
    """Writes both streams as they come, and keeps what was shown."""

    def __init__(self, as_json: bool) -> None:
        self.texts: dict[str, list[str]] = {"main": [], "side": []}
        self.sequences: dict[str, list[int]] = {"main": [], "side": []}
        self._as_json = as_json

    def note(self, text: str) -> None:
        """Write a line that belongs to no stream."""
        self._write({"note": text}, f"            {text}")

    def take(self, stream: str, batch: EventBatch) -> None:
        """Write each event with its number in its own stream."""
        for sequence, event in batch.numbered():
            self.sequences[stream].append(sequence)
            if isinstance(event, MessageDelta):
                self.texts[stream].append(event.text)
            row = {"stream": stream, "sequence": sequence, **msgspec.to_builtins(event)}
            self._write(row, f"{stream} {sequence:>5}  {'  ' * (stream == 'side')}{_words(event)}")

    def summary(self, checks: list[Check]) -> None:
        """Write the last line."""
        held = all(check.held for check in checks)
        verdict = "held" if held else "FAILED"
        parts = "; ".join(check.what if check.held else f"NOT {check.what}" for check in checks)
        self._write({"summary": checks, "held": held}, f"demo: {verdict}: {parts}")

    def _write(self, row: dict[str, Any], line: str) -> None:
        text = msgspec.json.encode(row).decode() if self._as_json else plain(line)
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the parser of `demo`."""
    text = (
        "Run the real Codex against a scripted model in a temporary home: start a long turn, open a Side in the "
        "middle, ask it, close it, let the turn finish, and say what held. Exit code 1 if anything did not."
    )
    parser = subparsers.add_parser("demo", help="see a Side on the real Codex; no account needed", description=text)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--codex-bin", metavar="PATH", type=Path, help="the Codex binary, instead of the one found")
    parser.add_argument(
        "--provider",
        default="codex",
        metavar="NAME",
        help="the provider to show (default: codex); `scripted` needs no binary and plays in this process",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the demo; 0 when everything held, 1 when something did not, 3 without a binary."""
    return trio.run(_run, args.json, args.provider, args.codex_bin)


async def _run(as_json: bool, name: str, codex_bin: Path | None) -> int:
    make_testbed = _providers.load(_providers.TESTBEDS, name)
    make_provider = _providers.load(_providers.PROVIDERS, name)
    bed: Any = make_testbed()
    shown = Shown(as_json)
    try:
        with trio.fail_after(DEMO_BOUND_S), tempfile.TemporaryDirectory(prefix="tutti-side-demo-") as directory:
            async with bed.open(Path(directory)) as place:
                if codex_bin is None and place.no_binary:
                    sys.stderr.write(f"tutti-side: {plain(place.no_binary)}\n")
                    return MISSING_EXIT
                checks = await _show(shown, bed.demo, place, make_provider, codex_bin or place.binary)
    except trio.TooSlowError:
        raise DemoStuckError from None
    shown.summary(checks)
    return 0 if all(check.held for check in checks) else 1


async def _show(
    shown: Shown, plan: DemoPlan, place: Any, make_provider: Callable[..., Any], binary: Path | None
) -> list[Check]:
    """Play the demo and return what was asserted.

    A test bed either brings its provider, ready to play, or a binary and an environment to make one of.
    """
    marker = new_id()
    provider = getattr(place, "provider", None)
    if provider is None:
        provider = make_provider(binary=binary, environ=place.env, extra_environ={MARKER: marker})
    diagnosis = await provider.diagnose()
    async with open_host(provider) as host:
        session = await host.start_session(cwd=place.workspace)
        version = f" {diagnosis.version}" if diagnosis.version else ""
        shown.note(f"{provider.name}{version}, scripted model, temporary home")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_follow, shown, "main", session.events())
            turn = await session.send(plan.parent_prompt)
            shown.note(f"a turn is running: {plan.parent_prompt!r}")
            await _wait_first_words(session)
            in_middle = await _ask_a_side(shown, plan, session)
            place.model.gate(plan.parent_gate).set()
            result = await turn.wait()
            await session.close()
    main_text, side_text = shown.texts["main"], shown.texts["side"]
    home: Path = getattr(place, "codex_home", None) or place.home
    persisted = _files_with(home, (plan.side_question, *plan.side_tokens))
    return [
        Check(
            f"all {len(plan.parent_tokens)} tokens of the turn, in order",
            main_text == list(plan.parent_tokens)
            and result.status == "completed"
            and result.answer.text == "".join(plan.parent_tokens),
        ),
        Check("the Side opened and closed while it ran", in_middle),
        Check(
            f"all {len(plan.side_tokens)} tokens of the Side in the Side alone",
            side_text == list(plan.side_tokens) and not set(plan.side_tokens) & set(main_text),
        ),
        Check("both sequences without a gap", all(_is_gapless(numbers) for numbers in shown.sequences.values())),
        Check("no Side text in the provider's files", not persisted),
        Check("no process left", not marked_processes(f"{MARKER}={marker}")),
    ]


async def _ask_a_side(shown: Shown, plan: DemoPlan, session: SessionHandle) -> bool:
    """Open, ask, close; True when the turn ran all the while."""
    was_running = session.active_turn is not None
    async with trio.open_nursery() as nursery, session.side(subscribe=True) as side:
        nursery.start_soon(_follow, shown, "side", side.events())  # noqa: ASYNC111 - it ends with the Side's last event
        shown.note(f"a Side is open; asking it: {plan.side_question!r}")
        await _answer(shown, plan, side)
    shown.note("the Side is closed")
    return was_running and session.active_turn is not None


async def _answer(shown: Shown, plan: DemoPlan, side: SideHandle) -> None:
    answer = await side.ask(plan.side_question)
    shown.note(f"the Side has answered, in {len(answer.text.split())} words")


async def _follow(shown: Shown, stream: str, events: Subscription) -> None:
    with events:
        async for batch in events:
            shown.take(stream, batch)


async def _wait_first_words(session: SessionHandle) -> None:
    """Wait until the turn has said something, so that the Side opens in its middle."""
    with session.events() as events:
        async for batch in events:
            if any(isinstance(event, MessageDelta) for event in batch.events):
                return


def _files_with(home: Path, texts: tuple[str, ...]) -> list[Path]:
    """Return the files below the provider's home that hold any of the texts."""
    needles = [text.strip().encode() for text in texts]
    return [
        path
        for path in sorted(home.rglob("*"))
        if path.is_file() and any(needle in path.read_bytes() for needle in needles)
    ]


def _is_gapless(numbers: list[int]) -> bool:
    return bool(numbers) and numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def _words(event: Event) -> str:
    """Say an event in a few words."""
    kind: str = msgspec.to_builtins(event)["type"]
    return event.text if isinstance(event, MessageDelta) else kind
