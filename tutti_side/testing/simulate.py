"""``python -m tutti_side.testing.simulate --seed N --seeds K [--trace]``: run simulations, and say how to repeat one.

The first line says what is run; the last one how to repeat it, or what failed of it, also after Ctrl-C. Before that
stand how often each fault point struck, which states of a Side's lifecycle it met, and what it all came to;
`COVERED_SEEDS` or more have to meet nearly all pairs.
With ``--processes`` a seed that says nothing for too long is named and its process killed; one process would hang.
Providers are found by the entry points ``tutti_side.testbeds``; only test beds that offer a simulation will do.
"""

import argparse
import functools
import hashlib
import itertools
import math
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata

import msgspec
import trio

from tutti_side.testing._workers import SILENCE_S, Lost, work_through
from tutti_side.testing.simulation import JOBS, Result, SimulationBed, simulate, trace_lines
from tutti_side.testing.simulation.coverage import Coverage, largest

__all__ = ["COVERED_SEEDS", "Tally", "find_bed", "main", "run_seeds"]

COVERED_SEEDS = 1_000
"""So many seeds, or more, must make each fault point strike, and meet nearly all pairs of state and fault."""

SHOWN = 10
"""Of what a seed has broken so much is printed: one cause can break a lot."""

CHUNK = 10
"""Seeds that a process runs before it tells."""

INTERRUPTED_STATUS = 128 + signal.SIGINT
"""Exit status after Ctrl-C, as shells have it."""


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """What some seeds came to."""

    digests: dict[int, str]
    """Of each seed that was run to its end."""
    failed: dict[int, tuple[str, ...]]
    """The seeds that broke something, and what."""
    outcomes: dict[str, int]
    faults: dict[str, str]
    impossible: dict[tuple[str, str], str]
    struck: dict[str, int]
    met: dict[tuple[str, str], int]
    """Seeds that met a pair of state and fault."""
    counted: dict[str, int]
    """Each count that was sampled, at its largest."""


def find_bed(name: str) -> SimulationBed:
    """Make the test bed that is installed under that name.

    Raises:
      LookupError: there is none, it offers no simulation, or something that it imports is not installed.
    """
    points = metadata.entry_points(group="tutti_side.testbeds", name=name)
    try:
        beds = [point.load()() for point in points]
    except ImportError as error:
        problem = f"test bed {name!r} can't be loaded: {error}; is an extra of its provider's package missing?"
        raise LookupError(problem) from error
    if not beds or not hasattr(beds[0], "simulate"):
        raise LookupError(f"no test bed {name!r} that offers a simulation is installed")
    bed: SimulationBed = beds[0]
    return bed


def _ignore(seed: int) -> None:
    del seed


def run_seeds(
    seeds: Sequence[int], provider: str, jobs: int, *, trace: bool = False, begin: Callable[[int], None] = _ignore
) -> Tally:
    """Run some seeds one after another; this is what a worker process does.

    Args:
      seeds: which.
      provider: name of a test bed.
      jobs: jobs of each.
      trace: whether to print all that happened.
      begin: is told of each seed before it is run.
    """
    bed = find_bed(provider)
    results: list[Result] = []
    for seed in seeds:
        begin(seed)
        try:
            result = simulate(seed, bed, jobs=jobs)
        except Exception as error:  # of the judge or the test bed: such a seed is to be repeated as well
            traceback.print_exc()
            result = _without_end(seed, f"the simulation itself failed: {type(error).__name__}")
        if trace:
            _say(*trace_lines(result.entries))
        results.append(msgspec.structs.replace(result, entries=()))
    return _tally(results)


def _tally(results: Sequence[Result]) -> Tally:
    outcomes, struck, met = Counter[str](), Counter[str](), Counter[tuple[str, str]]()
    for result in results:
        outcomes.update(result.outcomes)
        struck.update(result.struck)
        met.update(result.met)
    return Tally(
        digests={result.seed: result.digest for result in results if result.digest},
        failed={result.seed: result.violations for result in results if result.violations},
        outcomes=dict(outcomes),
        faults={name: told for result in results for name, told in result.faults.items()},
        impossible={pair: why for result in results for pair, why in result.impossible.items()},
        struck=dict(struck),
        met=dict(met),
        counted=largest(result.counted for result in results),
    )


def _without_end(seed: int, why: str) -> Result:
    """Return what a seed came to that was not run to its end: it broke something, and has no digest."""
    return Result(
        seed=seed,
        digest="",
        violations=(why,),
        outcomes={},
        faults={},
        impossible={},
        struck={},
        met=(),
        counted={},
        entries=(),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and return the exit status: 0 when every seed passed, and together they met what they should."""
    options = _parser().parse_args(arguments)
    try:
        find_bed(options.provider)
    except LookupError as error:
        _parser().error(str(error.args[0]))
    versions = f"python={sys.version.split()[0]} trio={trio.__version__}"
    much = f"SEEDS={options.seeds}" if options.seconds is None else f"SECONDS={options.seconds:g}"
    _say(f"SEED={options.seed} {much} JOBS={options.jobs} PROVIDER={options.provider} {versions}")
    tallies: list[Tally] = []
    is_interrupted = False
    try:
        for tally in _tallies(options):
            tallies.append(tally)
            for seed, violations in tally.failed.items():
                _say(*(f"seed {seed}: {violation}" for violation in violations[:SHOWN]))
            if tally.failed and not options.keep_going:
                break
    except* KeyboardInterrupt:  # in a group, when Trio was running
        is_interrupted = True
    return _conclude(options, tallies, is_interrupted=is_interrupted)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tutti_side.testing.simulate",
        description="Run simulations. The first line says what is run, the last one how it ended, or how to repeat it.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--seed", type=_natural, default=0, help="the first seed")
    parser.add_argument("--seeds", type=_positive, default=1, help="how many, in a row")
    parser.add_argument("--seconds", type=_seconds, help="run on until so much time is over, whatever --seeds says")
    parser.add_argument(
        "--least", type=_natural, default=0, metavar="SEEDS", help="fewer seeds than that are a failure"
    )
    parser.add_argument("--jobs", type=_positive, default=JOBS, help="jobs of each")
    parser.add_argument("--provider", default="codex", help="name of an installed test bed that offers a simulation")
    parser.add_argument("--processes", type=_positive, default=1, help="how many work at once")
    parser.add_argument(
        "--silence", type=_seconds, default=SILENCE_S, metavar="SECONDS", help="of several processes, that one is hung"
    )
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first seed that fails")
    parser.add_argument("--trace", action="store_true", help="print all that happened")
    return parser


def _natural(text: str) -> int:
    """Read a number of 0 or more: a seed below would draw the same as the one above."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("it has to be 0 or more")
    return number


def _positive(text: str) -> int:
    """Read a number of 1 or more: nothing run would be nothing proven."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("it has to be 1 or more")
    return number


def _seconds(text: str) -> float:
    """Read a time that ends."""
    seconds = float(text)
    if not math.isfinite(seconds) or seconds < 0:
        raise argparse.ArgumentTypeError("it has to be a time that ends, in seconds")
    return seconds


def _chunks(options: argparse.Namespace) -> Iterator[range]:
    """Yield the seeds to run, some at a time, until they are done or the time is over."""
    began, seconds = time.monotonic(), float(options.seconds or 0)
    end = None if options.seconds is not None else options.seed + options.seeds
    for first in itertools.count(options.seed, CHUNK):
        if (end is not None and first >= end) or (end is None and time.monotonic() - began >= seconds):
            return
        yield range(first, first + CHUNK if end is None else min(first + CHUNK, end))


def _tallies(options: argparse.Namespace) -> Iterator[Tally]:
    """Yield what came of each chunk; closing this kills what still runs."""
    if options.processes == 1:
        for seeds in _chunks(options):
            yield run_seeds(seeds, options.provider, options.jobs, trace=options.trace)
        return
    work = functools.partial(run_seeds, provider=options.provider, jobs=options.jobs, trace=options.trace)
    for result in work_through(_chunks(options), work, options.processes, options.silence):
        if isinstance(result, Lost):
            yield _tally([_without_end(result.seed, f"R9 the run has no end: {result.why}")])
        else:
            yield result


def _conclude(options: argparse.Namespace, tallies: Sequence[Tally], *, is_interrupted: bool = False) -> int:
    """Print what all came to, and return the exit status."""
    digests, failed = dict[int, str](), dict[int, tuple[str, ...]]()
    outcomes = Counter[str]()
    told = next((tally for tally in tallies if tally.faults), None)
    coverage = Coverage(told.faults, told.impossible) if told is not None else Coverage({}, {})
    for tally in tallies:
        digests |= tally.digests
        failed |= tally.failed
        outcomes.update(tally.outcomes)
        coverage.add(tally.struck, tally.met, tally.counted)
    _say("how calls ended:", *(f"  {what:40} {count:>8}" for what, count in sorted(outcomes.items())))
    _say(*coverage.lines())
    problems = coverage.problems() if len(digests) >= COVERED_SEEDS else []
    least = max(options.least, 1)
    if len(digests) < least:
        problems.append(f"only {len(digests)} seeds were run, not {least}")
    command = f"reproduce: python -m tutti_side.testing.simulate --jobs {options.jobs} --provider {options.provider}"
    if failed:
        seed = min(failed)
        _say(f"FAILED {len(failed)} of {len(digests.keys() | failed)} seeds: {' '.join(map(str, sorted(failed)))}")
        _say(
            f"seed {seed}, digest {digests.get(seed, 'unknown')}: {failed[seed][0]}", f"{command} --seed {seed} --trace"
        )
        return 1
    if is_interrupted:
        missing = next(seed for seed in itertools.count(options.seed) if seed not in digests)
        _say(f"INTERRUPTED: {len(digests)} seeds had passed; the next is one of those that were under way")
        _say(f"{command} --seed {missing} --seeds {CHUNK * options.processes}")
        return INTERRUPTED_STATUS
    if problems:
        much = f"--seeds {len(digests)}" if options.seconds is None else f"--seconds {options.seconds:g}"
        _say(*(f"FELL SHORT: {problem}" for problem in problems))
        _say(f"{command} --seed {options.seed} {much}" + (f" --least {options.least}" if options.least else ""))
        return 1
    whole = hashlib.sha256("".join(digests[seed] for seed in sorted(digests)).encode()).hexdigest()[:16]
    _say(f"PASSED {len(digests)} seeds, {len(set(digests.values()))} distinct traces, digest {whole}")
    _say(f"{command} --seed {options.seed} --seeds {len(digests)}")
    return 0


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # whoever read this has gone, as `head` does; nor is there anybody to be told so
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
