"""etcd's data is removed under load, the cluster restored from its bucket, and everything acknowledged read.

One run is a plan drawn from a seed: when etcd is lost, and what else is missing of the archive. Three kinds
of producers are judged: each acknowledged record of an idempotent one is there once and in order; of a plain
one at least once; transactions are there whole or not at all, and none is missing without being told of.

    python -m tests.torture.restoring --runs 50 [--seed N] [--mbps 10]

`--mbps`: beside these, idempotent producers of large records, MB (10^6 bytes) a second of all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError

from deploy.services import Etcd
from deploy.services.floe import FloeAgent

TOPIC, PARTITIONS = "t", 3
IDEMPOTENT, PLAIN, TRANSACTIONAL = "i", "p", "x"
OLD = "no piece, and the oldest snapshot"
"""As if the bucket's archive was switched off and etcd's backup old: all else is found in chunks."""
BACKUP = "etcd from an old backup"
"""It has the log as it was before most of the load; agents refuse it, and the restore replaces it."""
MISSING, CUT = "last piece missing", "last piece cut"
ARCHIVES = ("whole", MISSING, CUT, "newest snapshot damaged", OLD, BACKUP)
BEFORE_S, BEFORE_OLD_S = (3, 9), (8, 12)
"""When etcd is lost: not before the oldest snapshot knows the topic, where that is all there is."""
TABLE_S_MAX = 120
REFUSED_S_MAX = 120
BULK_BYTES, BULK_WAITING_MAX = 10_000, 500
"""Of a large record's key, and records of one producer that wait for their acknowledgement."""
MB = 1_000_000
SETTINGS: dict[str, Any] = {
    "log": {"lease_ttl_s": 5},
    "snapshots": {"interval_s": 2},
    "log_archive": {"interval_ms": 1000},
    "shutdown": {"drain_ms": 0},
    "tables": {"interval_ms": 700},
}


@dataclass
class Load:
    """Values that were acknowledged, in order; of transactions one tuple of values each."""

    bootstrap: str
    sent: dict[str, list[str]] = field(default_factory=dict)
    transactions: list[tuple[str, ...]] = field(default_factory=list)
    over: bool = False

    async def single(self, name: str, *, idempotent: bool) -> None:
        """One record after the other, each acknowledged before the next, on one partition."""
        acknowledged = self.sent.setdefault(name, [])
        partition, number = int(name[1:]) % PARTITIONS, 0
        options: dict[str, Any] = {"enable_idempotence": idempotent, "request_timeout_ms": 180_000}
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, **options)
        await producer.start()
        try:
            while not self.over:
                value = f"{name}-{number}"
                number += 1
                with suppress(KafkaError):
                    await producer.send_and_wait(TOPIC, value.encode(), partition=partition)
                    acknowledged.append(value)
                await asyncio.sleep(0.005)
        finally:
            with suppress(KafkaError):
                await asyncio.wait_for(producer.stop(), 20)

    async def bulk(self, name: str, bytes_per_s: float) -> None:
        """Large records on one partition, many on their way; their bytes are in their keys."""
        acknowledged, partition, number = self.sent.setdefault(name, []), int(name[1:]) % PARTITIONS, 0
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, enable_idempotence=True, request_timeout_ms=180_000,
            linger_ms=20, max_batch_size=MB // 2,
        )  # fmt: skip
        waiting: deque[tuple[str, asyncio.Future[Any]]] = deque()
        await producer.start()
        begun = time.monotonic()
        try:
            while not self.over or waiting:
                due = (time.monotonic() - begun) * bytes_per_s / BULK_BYTES
                while not self.over and number < due and len(waiting) < BULK_WAITING_MAX:
                    value = f"{name}-{number}"
                    key = os.urandom(BULK_BYTES)
                    waiting.append((value, await producer.send(TOPIC, value.encode(), key, partition)))
                    number += 1
                while waiting and waiting[0][1].done():
                    value, told = waiting.popleft()
                    if told.exception() is None:
                        acknowledged.append(value)
                await asyncio.sleep(0.01)
        finally:
            with suppress(KafkaError):
                await asyncio.wait_for(producer.stop(), 20)

    async def transactional(self, name: str) -> None:
        """Transactions of one record on each partition. A producer that fails is made anew."""
        number = 0
        while not self.over:
            producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, transactional_id=name)
            try:
                await asyncio.wait_for(producer.start(), 20)
                while not self.over:
                    values = tuple(f"{name}-{number}-{each}" for each in range(PARTITIONS))
                    number += 1
                    async with asyncio.timeout(20), producer.transaction():
                        for partition, value in enumerate(values):
                            await producer.send(TOPIC, value.encode(), partition=partition)
                    self.transactions.append(values)
            except (KafkaError, TimeoutError, AssertionError):
                await asyncio.sleep(0.2)
            finally:
                with suppress(Exception):
                    await asyncio.wait_for(producer.stop(), 5)


def restore(bucket: Path, etcd: Etcd, *, replace: bool = False) -> dict[str, Any]:
    """The command, as an operator gives it: first a dry run. `replace`: the etcd has the log of a backup."""
    command = [
        sys.executable, "-m", "agent", "restore", "cluster", "--from", f"file://{bucket}",
        "--to", f"etcd://{etcd.endpoint}/floe", "--log-is-lost", "--settle", "0", "--output", "json",
        *["--replace-log"] * replace,
    ]  # fmt: skip
    for more in (["--dry-run"], []):
        done = subprocess.run([*command, *more], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def spoil(bucket: Path, how: str) -> None:
    """What else the disaster took."""
    if how == OLD:
        _, *newer = sorted(bucket.glob("snapshots/*.snap"))
        for each in (*newer, *bucket.glob("log/*/*.log")):
            each.unlink()
        return
    kind = "snapshots/*.snap" if "snapshot" in how else "log/*/*.log"
    found = sorted(bucket.glob(kind), key=lambda path: path.name.rpartition("-")[2 if "log" in kind else 0])
    if how in ("whole", BACKUP) or not found:
        return
    newest = found[-1]
    if how.endswith("missing"):
        newest.unlink()
    else:
        newest.write_bytes(newest.read_bytes()[:-7])


Found = list[list[tuple[int, str]]]
"""Offsets and values by partition."""


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


def judge(load: Load, partitions: Found, report: dict[str, Any]) -> str:
    """Raises AssertionError; else says in short what there was."""
    found = [[value for _, value in partition] for partition in partitions]
    counts = Counter(value for partition in found for value in partition)
    for name, acknowledged in load.sent.items():
        missing = [value for value in acknowledged if not counts[value]]
        assert not missing, f"{name}: {len(missing)} acknowledged records are missing, such as {missing[0]}"
        if name.startswith(IDEMPOTENT):
            mine = [v for v in found[int(name[1:]) % PARTITIONS] if v.startswith(f"{name}-")]
            numbers = [int(value.rpartition("-")[2]) for value in mine]
            assert numbers == sorted(set(numbers)), f"{name}: doubled or out of order"
    lost = [each for each in load.transactions if not counts[each[0]]]
    for values in load.transactions:
        assert {counts[value] for value in values} in ({0}, {1}), f"{values}: torn or doubled"
    assert not lost or report["unended"] or report["aborted"], f"{lost[0]} is missing and not told of"
    acknowledged_in_all = sum(map(len, load.sent.values()))
    return (
        f"{acknowledged_in_all} records and {len(load.transactions)} transactions acknowledged; found again "
        f"{report['found']}, in doubt {report['in_doubt']}, transactions without an end {len(lost)}"
    )


async def one_run(seed: int, how: str = "", mbps: float = 0) -> str:
    """One disaster, of the kind `how`, one of ARCHIVES, or what the seed draws. Raises AssertionError."""
    dice = random.Random(seed)
    how = how or dice.choice(ARCHIVES)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        bucket = Path(folder)
        etcd = stack.enter_context(Etcd(fsync=False))
        settings = {
            **SETTINGS,
            "log": {**SETTINGS["log"], "url": f"etcd://{etcd.endpoint}/floe"},
            "store": {"url": f"file://{bucket}"},
        }
        agents = [stack.enter_context(FloeAgent(f"agent-{number}", settings)) for number in range(2)]
        load = Load(",".join(agent.bootstrap for agent in agents))
        await _create(load.bootstrap)
        if how == BACKUP:
            await asyncio.to_thread(_back_up, etcd)
        tasks = _begin(load, mbps)
        await asyncio.sleep(dice.uniform(*(BEFORE_OLD_S if how == OLD else BEFORE_S)))
        before = {name: len(acknowledged) for name, acknowledged in load.sent.items()}
        await asyncio.to_thread(_disaster, etcd, agents, how)
        spoil(bucket, how)
        report = await asyncio.to_thread(restore, bucket, etcd, replace=how == BACKUP)
        for agent in agents:
            await asyncio.to_thread(agent.start)
        await _go_on(load, before)
        load.over = True
        await asyncio.gather(*tasks)
        return f"{how}: {await _judged(load, report, agents[0].http)}"


def _begin(load: Load, mbps: float) -> list[asyncio.Task[None]]:
    running = [load.single(f"{IDEMPOTENT}{n}", idempotent=True) for n in range(3)]
    running += [load.single(f"{PLAIN}4", idempotent=False), load.transactional(f"{TRANSACTIONAL}5")]
    if mbps:
        running += [load.bulk(f"{IDEMPOTENT}{n}", mbps * MB / PARTITIONS) for n in range(6, 6 + PARTITIONS)]
    return [asyncio.create_task(each) for each in running]


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


async def _judged(load: Load, report: dict[str, Any], http: str) -> str:
    """The topic and its table. Raises AssertionError; else says in short what there was."""
    found = await read(load.bootstrap)
    said = judge(load, found, report)
    differs = await asyncio.to_thread(table_differs, http, found)
    assert not differs, f"the table: {differs}"
    ahead = sum(each["newer"] for each in report["tables"])
    return f"{said}; the table was {ahead} commits ahead, and has each record once"


async def _create(bootstrap: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
    await admin.close()


async def _go_on(load: Load, before: dict[str, int]) -> None:
    """Until every producer that is not transactional has sent more."""
    async with asyncio.timeout(120):
        while any(len(load.sent[name]) < count + 5 for name, count in before.items()):  # noqa: ASYNC110 - clients have no event
            await asyncio.sleep(0.1)


def main() -> None:
    """Some runs, one seed each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    parser.add_argument("--how", default="", choices=("", *ARCHIVES), help="each run's; else its seed's")
    parser.add_argument("--mbps", type=float, default=0, help="MB/s of large records beside the others")
    given = parser.parse_args()
    for seed in range(given.seed, given.seed + given.runs):
        print(f"seed {seed}: {asyncio.run(one_run(seed, given.how, given.mbps))}", flush=True)


if __name__ == "__main__":
    main()
