"""`tutti-side doctor`: which runtimes are found, in which version, and what they attest for a Side, or why not."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import trio

from tutti_side.cli import _providers
from tutti_side.cli._terminal import plain
from tutti_side.contract.diagnosis import Diagnosis
from tutti_side.errors import TuttiSideError

__all__ = ["register", "run"]

CAPABILITIES = {
    "supported": "can branch at all",
    "active_source_turn": "can branch while a turn runs",
    "ephemeral": "the branch leaves nothing durable",
    "hide_inherited_turns": "inherited turns are not the Side's",
    "model_boundary_injected": "the model is told where the inherited context ends",
}
"""The five facts that a Side needs, for a person."""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the parser of `doctor`."""
    text = "Say which agent runtimes are found, which version, and whether Sides can be opened on them, or why not."
    parser = subparsers.add_parser("doctor", help="what is installed, and what it can do", description=text)
    parser.add_argument("--json", action="store_true", help="one JSON object a line, one line a provider")
    parser.add_argument("--codex-bin", metavar="PATH", type=Path, help="the Codex binary, instead of the one found")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Diagnose every installed provider; 0 when a Side can be opened on each of them, else 1."""
    diagnoses = trio.run(_diagnose_all, args.codex_bin)
    if not diagnoses:
        sys.stderr.write("tutti-side: no provider is installed\n")
    for diagnosis in diagnoses:
        if args.json:
            sys.stdout.write(msgspec.json.encode(diagnosis).decode() + "\n")
        else:
            sys.stdout.writelines(f"{line}\n" for line in _lines(diagnosis))
    return 0 if diagnoses and all(diagnosis.capabilities for diagnosis in diagnoses) else 1


async def _diagnose_all(codex_bin: Path | None) -> list[Diagnosis]:
    """Return a diagnosis for every provider, one after the other, so that none disturbs another's start."""
    diagnoses: list[Diagnosis] = []
    for name in _providers.installed(_providers.PROVIDERS):
        try:
            factory = _providers.load(_providers.PROVIDERS, name)
            provider = factory(binary=codex_bin) if name == "codex" and codex_bin is not None else factory()
            diagnoses.append(await provider.diagnose())
        except TuttiSideError as error:
            diagnoses.append(Diagnosis(provider=name, found=False, reason=str(error)))
    return diagnoses


def _lines(diagnosis: Diagnosis) -> Iterator[str]:
    yield f"{diagnosis.provider}: {'found' if diagnosis.found else 'not found'}"
    for fact in diagnosis.facts:
        yield f"  {fact.name}: {plain(fact.value)}"
    if diagnosis.found:
        yield f"  version: {diagnosis.version or 'unknown'}, {'proven' if diagnosis.supported else 'not proven'}"
        yield f"  Sides: {'yes' if diagnosis.capabilities else 'no'}"
        missing = diagnosis.capabilities.missing()
        for name, meaning in CAPABILITIES.items():
            yield f"    {'no ' if name in missing else 'yes'}  {meaning}"
    if diagnosis.startup_output:
        yield "  its last lines on stderr:"
        yield from (f"    {plain(line)}" for line in diagnosis.startup_output)
    if diagnosis.reason is not None:
        yield f"  why: {plain(diagnosis.reason)}"
    elif diagnosis.capabilities.reason is not None:
        yield f"  why: {plain(diagnosis.capabilities.reason)}"
