"""`make soak MINUTES=n [SEED=s]`: torture for as long as you like. The same seed gives the same schedule."""

from __future__ import annotations

import argparse
import itertools
import secrets
import sys
import time
from collections.abc import Iterator

from tests.torture.cluster import Cluster
from tests.torture.faults import Step, schedule
from tests.torture.run import torture


def for_minutes(steps: Iterator[Step], minutes: float) -> Iterator[Step]:
    """Steps until the time is over, at least one."""
    end = time.monotonic() + minutes * 60
    yield next(steps)
    yield from itertools.takewhile(lambda _: time.monotonic() < end, steps)


def main() -> int:
    """Run, print the verdict; 0 when nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else secrets.randbelow(1_000_000)
    print(f"soak: seed {seed}, {arguments.minutes:g} min, 3 agents")
    with Cluster() as cluster:
        verdict = torture(cluster, for_minutes(schedule(seed, 3), arguments.minutes))
    print(verdict.report())
    print(
        f"soak: seed {seed}: {'FOUND ' + str(len(verdict.findings)) if verdict.findings else 'nothing lost'}"
    )
    return 1 if verdict.findings else 0


if __name__ == "__main__":
    sys.exit(main())
