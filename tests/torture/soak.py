"""`make soak MINUTES=n [SEED=s]`: torture for as long as you like. The same seed gives the same schedule.

The clients' history is kept as Parquet below build/soak and judged by Spark as well.
"""

from __future__ import annotations

import argparse
import itertools
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.setup.jars import ensure
from deploy.setup.java import java_home
from iceberg.spark.session import session
from tests.checker.operations import History
from tests.checker.spark_judge import judge_all
from tests.checker.tables import write
from tests.torture.cluster import Cluster
from tests.torture.faults import Step, schedule
from tests.torture.run import torture

FOLDER = Path("build/soak")
NO_CATALOG = "http://127.0.0.1:1/iceberg"  # histories are files, no tables


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


def judged_by_spark(history: History, faults: list[str], folder: Path) -> Counter[str]:
    """What the checker finds in the history's tables, by anomaly; only what fails a history."""
    write({"soak": history}, folder, faults)
    with TemporaryDirectory() as scratch:
        jars, java = ensure("iceberg"), java_home()
        spark = session(NO_CATALOG, jars, scratch=Path(scratch), java_home=java, short_lived=True)
        try:
            found = judge_all(spark, folder).get("soak", Counter())
        finally:
            spark.stop()
    failing: Counter[str] = Counter()
    for (anomaly, weight, _), count in found.items():
        failing[anomaly] += count * (weight == "fail")
    return +failing


def main() -> int:
    """Run, print the verdict; 0 when nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else secrets.randbelow(1_000_000)
    print(f"soak: seed {seed}, {arguments.minutes:g} min, 3 agents")
    faults: list[str] = []
    histories: list[History] = []
    with Cluster() as cluster:
        steps = noted(for_minutes(schedule(seed, 3), arguments.minutes), faults)
        verdict = torture(cluster, steps, keep=histories.append)
    print(verdict.report())
    found = judged_by_spark(histories[0], faults, FOLDER / f"seed-{seed}")
    print(f"by Spark: {dict(found) or 'clean'}")
    count = len(verdict.findings) + found.total()
    print(f"soak: seed {seed}: {f'FOUND {count}' if count else 'nothing lost'}")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
