"""``python -m tutti_side.testing.simulate --seed N --seeds K [--trace]``: run simulations, and say how to repeat one.

The first line says what is run, the last one ``PASSED …`` or ``reproduce: …``. Providers are found by the entry points
``tutti_side.testbeds``; only test beds that offer a simulation will do.
"""

import argparse
import hashlib
import sys
from collections import Counter
from collections.abc import Sequence
from importlib import metadata

import trio

from tutti_side.testing.simulation import JOBS, Result, SimulationBed, simulate

__all__ = ["find_bed", "main"]


def find_bed(name: str) -> SimulationBed:
    """Make the test bed that is installed under that name.

    Raises:
      LookupError: there is none, or it offers no simulation.
    """
    points = metadata.entry_points(group="tutti_side.testbeds", name=name)
    beds = [point.load()() for point in points]
    if not beds or not hasattr(beds[0], "simulate"):
        raise LookupError(f"no test bed {name!r} that offers a simulation is installed")
    bed: SimulationBed = beds[0]
    return bed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and return the exit status: 0 when every seed passed."""
    parser = argparse.ArgumentParser(prog="python -m tutti_side.testing.simulate", description="Run simulations.")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many, in a row")
    parser.add_argument("--jobs", type=int, default=JOBS, help="jobs of each")
    parser.add_argument("--provider", default="codex", help="name of a test bed")
    parser.add_argument("--trace", action="store_true", help="print all that happened")
    options = parser.parse_args(arguments)
    try:
        bed = find_bed(options.provider)
    except LookupError as error:
        parser.error(str(error.args[0]))
    versions = f"python={sys.version.split()[0]} trio={trio.__version__}"
    chosen = f"SEEDS={options.seeds} JOBS={options.jobs} PROVIDER={options.provider}"
    _say(f"SEED={options.seed} {chosen} {versions}")
    whole = hashlib.sha256()
    counts: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.seeds):
        result = simulate(seed, bed, jobs=options.jobs)
        whole.update(result.digest.encode())
        counts.update(result.counts)
        if options.trace:
            _say(*result.trace)
        if result.violations:
            _say(*result.violations, *_reproduction(result, options.jobs, options.provider))
            return 1
    happened = ", ".join(f"{what} {count}" for what, count in sorted(counts.items()))
    _say(happened, f"PASSED {options.seeds} seeds, digest {whole.hexdigest()[:16]}")
    return 0


def _reproduction(result: Result, jobs: int, provider: str) -> list[str]:
    command = "python -m tutti_side.testing.simulate"
    return [
        f"seed {result.seed} failed, digest {result.digest}",
        f"reproduce: {command} --seed {result.seed} --jobs {jobs} --provider {provider} --trace",
    ]


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    sys.exit(main())
