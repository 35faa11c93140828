"""A quarantine of a million records brought back by Spark, repaired, with a kill in the middle; none doubled.

An agent of one process, a topic of flights with rules, two partitions, and so many flights that break them.
The replay makes each value anew by a function of Python; when half of it is done, driver, JVM and workers are
killed, and it is begun again. The time is that of both runs, with Spark's start. FLOE_REPLAY_RECORDS: another
number than a million.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from pyiceberg.catalog.rest import RestCatalog

from deploy.run.stages import Embedded
from tests.bench.figure import Figure
from tests.spark import quarantined
from tests.spark.quarantined import below, positions, read
from tests.spark.quarantined import kill as killed

RECORDS = int(os.environ.get("FLOE_REPLAY_RECORDS", "1000000"))
PARTITIONS = 2
TOPIC = "q"
WAIT_S_MAX, LOOK_S = 900, 0.2
WORDS = ("--each", f"{quarantined.__file__}:with_distance")


def in_table(floe: Embedded) -> None:
    """Wait until the quarantine's table has all."""
    until = time.monotonic() + WAIT_S_MAX
    while True:
        catalog = RestCatalog("floe", uri=f"{floe.http[0]}/iceberg")
        names = [name for _, name in catalog.list_tables("floe")]
        summary = None
        if f"{TOPIC}_quarantine" in names:
            snapshot = catalog.load_table(f"floe.{TOPIC}_quarantine").current_snapshot()
            summary = snapshot.summary if snapshot is not None else None
        catalog.close()
        if summary is not None and int(summary["total-records"] or 0) >= RECORDS:
            return
        assert time.monotonic() < until, f"the table does not get on: {summary}"
        time.sleep(1)


def ran(floe: Embedded, until: int) -> float:
    """Seconds of a replay, to its end or until so many are done, when it is killed."""
    begin = time.perf_counter()
    process = quarantined.begun(floe, TOPIC, *WORDS)
    while process.poll() is None:
        time.sleep(LOOK_S)
        if sum(positions(floe, TOPIC, PARTITIONS)) >= until:
            taken = time.perf_counter() - begin
            killed([process.pid, *below(process.pid)])
            process.communicate()
            return taken
    out, error = process.communicate()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args, out, error)
    assert json.loads(out)["written"] > 0
    return time.perf_counter() - begin


def measured(folder: Path) -> tuple[float, int, int]:
    """Records per second; how many are doubled, and how many are lost."""
    with Embedded(folder / "floe") as floe:
        quarantined.make(floe, TOPIC, PARTITIONS, folder)
        quarantined.fill(floe, TOPIC, PARTITIONS, range(RECORDS))
        in_table(floe)
        taken = ran(floe, RECORDS // 2) + ran(floe, RECORDS + 1)
        keys = [bytes(each.key()) for each in read(floe, TOPIC, PARTITIONS)]
        there = set(keys)
        return RECORDS / taken, len(keys) - len(there), RECORDS - len(there)


def figures() -> Iterable[Figure]:
    """The rate, and the counts that have to be nothing."""
    with TemporaryDirectory() as folder:
        rate, doubled, lost = measured(Path(folder))
    name = f"replay of {RECORDS:,} quarantined records by Spark, killed in the middle"
    yield Figure(name, rate, "records/s", goal=20_000)
    yield Figure(f"{name}: doubled and lost", doubled + lost, "records", goal=0, better="less")
