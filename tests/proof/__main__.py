"""`make proof MINUTES=n`: every experiment by its name, one report for people and one for machines.

What a run is does not depend on the time; mixes and late EndTxn go on for as long as there is. 1 where any
experiment fails.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyiceberg.exceptions import NoSuchTableError

from agent.version import VERSION
from tests.proof.ran import SETTLE_S, Ran, judged_by_all
from tests.proof.report import Proof
from tests.proof.runs import RUNS, Lab
from tests.proof.spark import table_of
from tests.torture.broker_log import read_log
from tests.torture.cluster import Cluster
from tests.torture.run import TABLE_SECONDS_MAX, open_catalog

FOLDER = Path("build/proof")
LATE_OF, MIX_OF = 0.06, 0.07
"""Shares of the time: of each run with late EndTxn, of each mix. The rest takes what it takes."""
AGREE = ("tests/checker", "tests/spark/test_spark_judge.py")


def lab(cluster: Cluster, seed: int, minutes: float) -> Lab:
    """Runs as long as there is time for. Short forms leave out who is stuck, and send less."""
    seconds = minutes * 60
    short = minutes < 10
    return Lab(
        cluster, seed, max(5.0, seconds * MIX_OF - SETTLE_S), 3.0 if short else SETTLE_S,
        messages=20_000 if short else 100_000, short=short, late_s=max(20.0, seconds * LATE_OF),
    )  # fmt: skip


def all_runs(where: Lab, names: Sequence[str]) -> list[Ran]:
    """Each run; one that raises is a finding, and the others go on."""
    done = []
    for name in names:
        print(f"{time.strftime('%H:%M:%S')} {name}", flush=True)
        begun = time.monotonic()
        try:
            ran = RUNS[name](where)
        except Exception as error:
            where.cluster.heal()
            ran = Ran(name, findings=[f"run-ended: {type(error).__name__}: {error}"[:500]])
        ran.seconds = time.monotonic() - begun
        done.append(ran)
        own = "; ".join(ran.findings[:3]) if ran.findings else "nothing found by itself"
        print(f"  {ran.seconds:.0f} s, {len(ran.history.operations)} operations: {own}", flush=True)
    return done


def look_again(cluster: Cluster, runs: Sequence[Ran]) -> None:
    """Take each topic's log as it is in the end.

    What a client gave up and sent to another agent, the first one may commit when it reaches etcd again,
    behind the run's last look: legal without idempotence, and rows of the table.
    """
    for ran in runs:
        if ran.topic:
            ran.log = read_log(*cluster.opened, ran.topic)


def wait_for_tables(cluster: Cluster, runs: Sequence[Ran]) -> None:
    """Let tables come to the ends of their topics; what is missing then is a finding of the audit."""
    catalog = open_catalog(cluster.members[0].agent.http, cluster.s3_properties)
    deadline = time.monotonic() + TABLE_SECONDS_MAX
    for ran in runs:
        ends = sum(each.next_offset for each in ran.log if each.kind == "bounds")
        while ran.topic and time.monotonic() < deadline and _rows(catalog, ran.topic) < ends:
            if any(each.transactional for each in ran.log):  # markers are no rows: a while, then the audit
                time.sleep(5)
                break
            time.sleep(1)


def _rows(catalog: Any, topic: str) -> int:
    try:
        return int(catalog.load_table(("floe", table_of(topic))).scan().count())
    except NoSuchTableError:
        return 0


def prove(minutes: float, seed: int, names: Sequence[str], folder: Path) -> Proof:
    """All runs and their judgement, while the cluster with the tables still stands."""
    begun, load = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), os.getloadavg()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    with Cluster() as cluster:
        runs = all_runs(lab(cluster, seed, minutes), names)
        cluster.heal()
        look_again(cluster, runs)
        wait_for_tables(cluster, runs)
        store = cluster.store
        keys = {"access_key": store.access_key, "secret_key": store.secret_key}
        uri = f"{cluster.members[0].agent.http}/iceberg"
        judged_by_all(runs, folder / "histories", {"uri": uri, "endpoint": store.endpoint, **keys})
    only = f' ONLY="{" ".join(names)}"' if len(names) < len(RUNS) else ""
    how = {
        "version": VERSION, "commit": commit.stdout.strip() or "unknown", "begun": begun,
        "command": f"make proof MINUTES={minutes:g} SEED={seed}{only}",
        "seed": seed, "machine": f"{os.cpu_count()} cores",
        "load before and after": f"{load[0]:.1f}, {os.getloadavg()[0]:.1f}",
    }  # fmt: skip
    return Proof({each.name: each for each in runs}, how)


def main() -> int:
    """Run, write the reports, tell; 0 where every experiment held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", default="", help="names of runs")
    parser.add_argument(
        "--skip-agreement", action="store_true", help="not the judges over histories at random"
    )
    given = parser.parse_args()
    names = [name for name in RUNS if not given.only or name in given.only.split()]
    if not names:
        print(f"--only {given.only!r} names no run; there are: {' '.join(RUNS)}", file=sys.stderr)
        return 2
    seed = given.seed if given.seed is not None else secrets.randbelow(1_000_000)
    print(f"proof: seed {seed}, {given.minutes:g} min, {len(names)} runs", flush=True)
    proof = prove(given.minutes, seed, names, FOLDER)
    failed = list(proof.failed)
    if not given.skip_agreement and agreement():
        failed.append("the judges do not agree over histories at random, or porcupine with the known ones")
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "report.html").write_text(proof.people(), encoding="utf-8")
    (FOLDER / "report.json").write_text(json.dumps(proof.machines(), indent=1) + "\n", encoding="utf-8")
    print(*failed, sep="\n")
    print(f"proof: seed {seed}: {f'FAILED {len(failed)}' if failed else 'held'}; {FOLDER / 'report.html'}")
    return 1 if failed else 0


def agreement() -> int:
    """The judges over every known history and 1,000 at random; 0 where they agree."""
    command = [sys.executable, "-m", "pytest", "-q", "--timeout", "1800", *AGREE]
    return subprocess.run(command, env={**os.environ, "MADE": "1000"}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
