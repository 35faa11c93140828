"""etcd's data is removed under load, the cluster restored from its bucket, and everything acknowledged read.

One run is a plan drawn from a seed: when etcd is lost, and what else is missing of the archive. Three kinds
of producers are judged: each acknowledged record of an idempotent one is there once and in order; of a plain
one at least once; transactions are there whole or not at all, and none is missing without being told of.
What was damaged is told, too, and the topic's table has each record once.

    python -m tests.torture.restoring --runs 50 [--seed N] [--mbps 10]

`--mbps`: beside these, producers of large records, MB (10^6 bytes) a second of all of them: idempotent,
plain or transactional ones in turns, by the seed. A run is a row of the table that is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError

from deploy.services import Etcd
from deploy.services.floe import FloeAgent
from objectstore.naming import parse_piece_key
from tests.torture.restore_load import KINDS, PARTITIONS, TOPIC, Load, Note
from tests.torture.restore_verdict import Found, Row, judge, told

OLD = "no piece, and the oldest snapshot"
"""As if the bucket's archive was switched off and etcd's backup old: all else is found in chunks."""
BACKUP = "etcd from an old backup"
"""Some snapshots older than the loss; agents refuse it, and the restore replaces it."""
MISSING, CUT, MIDDLE = "last piece missing", "last piece cut", "a piece before the last missing"
SNAPSHOT = "newest snapshot damaged"
BOTH = "newest snapshot and last piece damaged"
ARCHIVES = ("whole", MISSING, CUT, MIDDLE, SNAPSHOT, BOTH, OLD, BACKUP)
BEFORE_S, BEFORE_OLD_S = (4, 9), (8, 12)
"""When etcd is lost: not before the oldest snapshot knows the topic, where that is all there is; and where
an old backup is played, when snapshots of before it are gone."""
TABLE_S_MAX = 120
REFUSED_S_MAX = 120
GO_ON_S_MAX = 120
SETTINGS: dict[str, Any] = {
    "log": {"lease_ttl_s": 5},
    "snapshots": {"interval_s": 2},
    "log_archive": {"interval_ms": 1000},
    "shutdown": {"drain_ms": 0},
    "tables": {"interval_ms": 700},
}


def restore(bucket: Path, etcd: Etcd, *, replace: bool = False) -> dict[str, Any]:
    """The command, as an operator gives it: first a dry run. `replace`: the etcd has the log of a backup."""
    command = [
        sys.executable, "-m", "agent", "restore", "cluster", "--from", f"file://{bucket}",
        "--to", f"etcd://{etcd.endpoint}/floe", "--log-is-lost", "--settle", "0", "--output", "json",
        *["--replace-log"] * replace,
    ]  # fmt: skip
    for more in (["--dry-run"], []):
        begun = time.monotonic()
        done = subprocess.run([*command, *more], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said | {"took_s": time.monotonic() - begun}


def spoil(bucket: Path, how: str) -> list[str]:
    """What else the disaster took: the keys."""
    snapshots = sorted(bucket.glob("snapshots/*.snap"))
    pieces = sorted(bucket.glob("log/*/*.log"), key=lambda path: _last(bucket, path))
    if how == OLD:
        gone = [*snapshots[1:], *pieces]
    elif how == MIDDLE:
        gone = pieces[-2:-1]
    elif how in (MISSING, CUT):
        gone = pieces[-1:]
    elif how in (SNAPSHOT, BOTH):
        gone = snapshots[-1:] + pieces[-1:] * (how == BOTH)
    else:
        gone = []
    for each in gone:
        if how.endswith(("cut", "damaged")):
            each.write_bytes(each.read_bytes()[:-7])
        else:
            each.unlink()
    return [str(each.relative_to(bucket)) for each in gone]


def _last(bucket: Path, piece: Path) -> int:
    """The last revision in it."""
    name = parse_piece_key(str(piece.relative_to(bucket)))
    return name.last if name is not None else 0


async def read(bootstrap: str) -> Found:
    """Every committed record by partition."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", enable_auto_commit=False
    )
    await consumer.start()
    places = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    consumer.assign(places)
    await consumer.seek_to_beginning()
    ends = await consumer.end_offsets(places)
    found: Found = [[] for _ in places]
    for place in places:
        while await consumer.position(place) < ends[place]:
            for which, records in (await consumer.getmany(timeout_ms=500)).items():
                found[which.partition] += [(each.offset, (each.value or b"").decode()) for each in records]
    await consumer.stop()
    return found


def table_differs(http: str, found: Found) -> str:
    """Each row is one record and each record one row, at its offset; else what is not."""
    due = Counter((part, at, value) for part, records in enumerate(found) for at, value in records)
    catalog = RestCatalog("floe", uri=f"{http}/iceberg")
    until, told = time.monotonic() + TABLE_S_MAX, "no table"
    while time.monotonic() < until:
        with suppress(NoSuchTableError):
            rows = catalog.load_table(("floe", TOPIC)).scan().to_arrow().to_pylist()
            have = Counter(
                (row["kafka"]["partition"], row["kafka"]["offset"], row["value"]["__raw__"].decode())
                for row in rows
            )
            if have == due:
                return ""
            more, missing = list(have - due)[:3], list(due - have)[:3]
            told = f"{len(rows)} rows of {due.total()}; too many {more}, missing {missing}"
        time.sleep(1)
    return told


@dataclass(frozen=True)
class Watch:
    """Who keeps what clients did. `note`: see Load. `over` is given the load, what was read in the end, what
    the restore told, and how many transactions were acknowledged when etcd was lost.
    """

    note: Note
    over: Callable[[Load, Found, dict[str, Any], int], None]


async def one_run(seed: int, how: str = "", mbps: float = 0, watch: Watch | None = None) -> Row:
    """One disaster, of the kind `how`, one of ARCHIVES, or what the seed draws.

    Raises AssertionError, TimeoutError where the cluster does not go on.
    """
    dice = random.Random(seed)
    row = Row(seed, how or dice.choice(ARCHIVES), KINDS[seed % len(KINDS)] if mbps else "")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        bucket = Path(folder)
        etcd = stack.enter_context(Etcd(fsync=False))
        settings = {
            **SETTINGS,
            "log": {**SETTINGS["log"], "url": f"etcd://{etcd.endpoint}/floe"},
            "store": {"url": f"file://{bucket}"},
        }
        agents = [stack.enter_context(FloeAgent(f"agent-{number}", settings)) for number in range(2)]
        load = Load(",".join(agent.bootstrap for agent in agents), note=watch.note if watch else None)
        await _create(load.bootstrap)
        if row.how == BACKUP:
            await asyncio.to_thread(_back_up, etcd)
        tasks = [asyncio.create_task(each) for each in load.writers(row.kind, mbps)]
        await asyncio.sleep(dice.uniform(*(BEFORE_OLD_S if row.how in (OLD, BACKUP) else BEFORE_S)))
        row.mbps = load.mbps
        await asyncio.to_thread(_disaster, etcd, agents, row.how)
        sent, transactions = {name: len(values) for name, values in load.sent.items()}, len(load.transactions)
        spoilt = spoil(bucket, row.how)
        report = await asyncio.to_thread(restore, bucket, etcd, replace=row.how == BACKUP)
        row.restore_s = report["took_s"]
        for agent in agents:
            await asyncio.to_thread(agent.start)
        row.findings += await _go_on(load, sent)
        row.findings += await _ended(load, tasks)
        row.findings += told(row.how, spoilt, report)
        found = await read(load.bootstrap)
        judge(load, found, report, row, transactions)
        if watch is not None:
            watch.over(load, found, report, transactions)
        differs = await asyncio.to_thread(table_differs, agents[0].http, found)
        row.findings += [f"the table: {differs}"] * bool(differs)
        row.ahead = sum(each["newer"] for each in report["tables"])
        return row


def _back_up(etcd: Etcd) -> None:
    etcd.kill()
    etcd.backup(etcd.directory / "backup")
    etcd.start()


def _disaster(etcd: Etcd, agents: Sequence[FloeAgent], how: str) -> None:
    """etcd's data is gone, or is that of a backup, which no agent takes for its log. No agent runs then."""
    etcd.kill()
    if how == BACKUP:
        etcd.restore(etcd.directory / "backup")
        etcd.start()
        _refused(agents)
    else:
        shutil.rmtree(etcd.data)
    for agent in agents:
        agent.kill()
    if how != BACKUP:
        etcd.start()


def _refused(agents: Sequence[FloeAgent]) -> None:
    """Wait until every agent has ended by itself. Raises AssertionError."""
    until = time.monotonic() + REFUSED_S_MAX
    while any(agent.ended_by_itself is None for agent in agents):
        assert time.monotonic() < until, "an agent goes on with a log that went back"
        time.sleep(0.1)


async def _create(bootstrap: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
    await admin.close()


async def _go_on(load: Load, before: dict[str, int]) -> list[str]:
    """Until every producer that is not transactional has sent more; those that have not in time."""
    waiting = list(before)
    with suppress(TimeoutError):
        async with asyncio.timeout(GO_ON_S_MAX):
            while waiting := [name for name in waiting if len(load.sent[name]) < before[name] + 5]:  # noqa: ASYNC110 - clients have no event
                await asyncio.sleep(0.1)
    return [f"{name} does not go on" for name in waiting]


async def _ended(load: Load, tasks: list[asyncio.Task[None]]) -> list[str]:
    """Everything that was sent is told of. Raises what a producer raised."""
    load.over = True
    done, late = await asyncio.wait(tasks, timeout=GO_ON_S_MAX)
    for task in late:
        task.cancel()
    await asyncio.gather(*done)
    return [f"{len(late)} producers have not heard of what they sent"] * bool(late)


def main() -> None:
    """Some runs, one seed each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    parser.add_argument("--how", default="", choices=("", *ARCHIVES), help="each run's; else its seed's")
    parser.add_argument("--mbps", type=float, default=0, help="MB/s of large records beside the others")
    given = parser.parse_args()
    print(Row.HEAD, flush=True)
    bad = 0
    for seed in range(given.seed, given.seed + given.runs):
        try:
            row = asyncio.run(one_run(seed, given.how, given.mbps))
        except (AssertionError, TimeoutError) as error:
            row = Row(seed, given.how, "", findings=[f"the run did not end: {error!r}"])
        bad += bool(row.findings)
        print(row.line(), flush=True)
    sys.exit(f"{bad} of {given.runs} runs have findings" if bad else 0)


if __name__ == "__main__":
    main()
