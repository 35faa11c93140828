"""`make soak MINUTES=n [SEED=s]`: torture for as long as you like. The same seed gives the same schedule.

The clients' history and what the log holds are kept as Parquet below build/soak and judged by Spark as well.
"""

from __future__ import annotations

import argparse
import itertools
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.torture.cluster import Cluster
from tests.torture.faults import Step, schedule
from tests.torture.run import torture
from tests.torture.spark import Kept

FOLDER = Path("build/soak")


def for_minutes(steps: Iterator[Step], minutes: float) -> Iterator[Step]:
    """Steps until the time is over, at least one."""
    end = time.monotonic() + minutes * 60
    yield next(steps)
    yield from itertools.takewhile(lambda _: time.monotonic() < end, steps)


def noted(steps: Iterator[Step], faults: list[str]) -> Iterator[Step]:
    """The steps, each written down when it comes."""
    for step in steps:
        faults.append(str(step))
        yield step


def main() -> int:
    """Run, print the verdict; 0 when nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else secrets.randbelow(1_000_000)
    print(f"soak: seed {seed}, {arguments.minutes:g} min, 3 agents")
    faults: list[str] = []
    kept = Kept()
    with Cluster() as cluster:
        steps = noted(for_minutes(schedule(seed, 3), arguments.minutes), faults)
        verdict = torture(cluster, steps, keep=kept.keeper("soak"))
    print(verdict.report())
    found = kept.judged(FOLDER / f"seed-{seed}", faults)["soak"]
    print(f"by Spark: {dict(found) or 'clean'}")
    count = len(verdict.findings) + found.total()
    print(f"soak: seed {seed}: {f'FOUND {count}' if count else 'nothing lost'}")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
