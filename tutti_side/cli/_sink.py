"""`tutti-side sink`: check a database against the replication contract, or empty a projection for a new epoch."""

import argparse
import sys
from collections.abc import Callable

from tutti_side.errors import TuttiSideError
from tutti_sinks import SinkError

__all__ = ["register", "run"]

EPOCH_MAX = 2**63 - 1
"""The greatest epoch that the wire can carry."""


class SinkCommandError(TuttiSideError):
    """The database can't be used; the sentence is the sink's."""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the parsers of `sink check` and `sink reset`."""
    parser = subparsers.add_parser("sink", help="check or reset a replication sink", description="Replication sinks.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    text = "Run the conformance suite over an unused database, and leave its projection empty."
    check = commands.add_parser("check", help="run the conformance suite over a database", description=text)
    text = "Delete everything in a projection and give it a greater epoch. Clients of older epochs are refused then."
    reset = commands.add_parser("reset", help="empty a projection for a new epoch", description=text)
    reset.add_argument("--epoch", metavar="N", type=_epoch, required=True, help="greater than the recorded epoch")
    for command, act in ((check, _check), (reset, _reset)):
        command.add_argument("--database", metavar="URL", required=True, help="such as sqlite:///sink.sqlite")
        command.set_defaults(run=run, act=act)


def run(args: argparse.Namespace) -> int:
    """Do one of the two; 0 when it went well, else 1."""
    act: Callable[[argparse.Namespace], int] = args.act
    try:
        return act(args)
    except SinkError as error:
        raise SinkCommandError(str(error)) from error


def _check(args: argparse.Namespace) -> int:
    from tutti_replication.conformance.sink import run_sink
    from tutti_sinks import open_conformance_sink

    with open_conformance_sink(args.database) as open_sink:
        reports = run_sink(open_sink)
    for report in reports:
        sys.stdout.write(f"ok    {report.name}\n" if report.passed else f"FAIL  {report.problem}\n")
    failed = sum(not report.passed for report in reports)
    sys.stdout.write(f"{len(reports) - failed} passed, {failed} failed\n")
    return 1 if failed else 0


def _reset(args: argparse.Namespace) -> int:
    from tutti_replication.epoch import PROJECTION_EPOCH
    from tutti_sinks import reset_projection

    reset_projection(args.database, args.epoch)
    sys.stdout.write(f"the projection is empty and belongs to epoch {args.epoch}\n")
    if args.epoch != PROJECTION_EPOCH:
        sys.stdout.write(f"this release speaks epoch {PROJECTION_EPOCH} and won't open it\n")
    return 0


def _epoch(text: str) -> int:
    epoch = int(text) if text.isdecimal() and len(text) <= len(str(EPOCH_MAX)) else 0
    if not 1 <= epoch <= EPOCH_MAX:
        raise argparse.ArgumentTypeError(f"an epoch is between 1 and {EPOCH_MAX}")
    return epoch
