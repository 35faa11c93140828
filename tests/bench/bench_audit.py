"""How long `floe table audit` takes, and in how much memory: records of 100 bytes, then an increment.

Agent, load and Spark share the machine. `python -m tests.bench.bench_audit 100` for a topic of 100 million.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from agent.cli.agent_http import ask
from deploy.services.floe import FloeAgent
from deploy.setup.java import java_home
from objectstore.batch import NewRecord, build
from tests.bench.bench_produce import embedded
from tests.bench.figure import Figure
from tests.bench.load import NOW, create_topic, produce_all, produce_frame

MILLION = 1_000_000
PARTITIONS, BATCH_RECORDS, VALUE_BYTES = 4, 5_000, 92
WINDOW = 4
LOOK_S = 0.5
INCREMENTS = 3
MEMORY_GIB_MAX, MINUTES_MAX, INCREMENT_S_MAX = 8, 30, 60


@dataclass(frozen=True, slots=True)
class Audited:
    """One audit: seconds, and the most memory of Spark's JVM, its Python and the command together, GiB."""

    seconds: float
    memory_gib: float


async def load(bootstrap: str, topic: str, records: int) -> None:
    """Keys of 8 bytes and values, half of them random."""
    draw = random.Random(records)
    text = b"what was ordered, when, and by whom"
    batch = build(
        [
            NewRecord(NOW, b"k%07d" % (at * 7919 % 10**7), draw.randbytes(VALUE_BYTES - len(text)) + text)
            for at in range(BATCH_RECORDS)
        ]
    )
    requests = records // (BATCH_RECORDS * PARTITIONS)
    await produce_all(bootstrap, produce_frame(topic, batch, range(PARTITIONS)), requests, WINDOW)


def caught_up(http: str, topic: str) -> None:
    """Wait until the table has all."""
    while not any(
        row["topic"] == topic and row["records_behind"] == 0 for row in ask(http, "/status.json")["tables"]
    ):
        time.sleep(LOOK_S)


def audit(agent: FloeAgent, topic: str, rows: int, *options: str) -> Audited:
    """One audit that must find so many rows equal."""
    command = [sys.executable, "-m", "agent", "table", "audit", topic, "--output", "json", *options]
    command += ["--bootstrap", agent.bootstrap, "--http", agent.http, "--java-home", str(java_home())]
    begin, most = time.perf_counter(), 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        while process.poll() is None:
            most = max(most, memory_kib(process.pid))
            time.sleep(LOOK_S)
        assert process.stdout is not None
        verdict = json.loads(process.stdout.read())
    assert verdict["equal"], verdict
    assert verdict["read_by"] == "spark", "bring the jars: python -m deploy.setup.jars sparkkafka"
    assert sum(each["table"] for each in verdict["topics"]) == rows
    return Audited(time.perf_counter() - begin, most / 2**20)


def memory_kib(root: int) -> int:
    """Memory of a process and all below it; what they share is counted once."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue  # it ended
        parents.setdefault(parent, []).append(int(path.parent.name))
    found, total = [root], 0
    for each in found:
        found += parents.get(each, [])
        total += proportional_kib(each)
    return total


def proportional_kib(pid: int) -> int:
    """A process' own memory and its part of what it shares."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0  # it ended
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def increment(agent: FloeAgent, topic: str) -> float:
    """Seconds of an audit of a million records more. What compaction moved meanwhile differs by turns."""
    asyncio.run(load(agent.bootstrap, topic, MILLION))
    caught_up(agent.http, topic)
    return audit(agent, topic, MILLION, "--since", "last").seconds


def measured(settings: Mapping[str, object], folder: Path, millions: int) -> Iterable[Figure]:
    """A whole audit of so many million records, and INCREMENTS of a million more each."""
    name, topic = f"audit of {millions} M records of 100 B", f"audit-{millions}"
    goals = millions == 100
    with FloeAgent("bench", settings, folder) as agent:
        asyncio.run(create_topic(agent.bootstrap, topic, PARTITIONS))
        asyncio.run(load(agent.bootstrap, topic, millions * MILLION))
        caught_up(agent.http, topic)
        whole = audit(agent, topic, millions * MILLION, "--since", "last")
        minutes = MINUTES_MAX if goals else None
        yield Figure(name, whole.seconds / 60, "min", goal=minutes, better="less")
        yield Figure(f"{name}, memory", whole.memory_gib, "GiB", goal=MEMORY_GIB_MAX, better="less")
        text = f"audit of a million records more than {millions} M"
        seconds = median(increment(agent, topic) for _ in range(INCREMENTS))
        yield Figure(text, seconds, "s", goal=INCREMENT_S_MAX, better="less")


def figures(millions: Iterable[int] = (1, 10)) -> Iterable[Figure]:
    """Time and memory by number of records."""
    for each in millions:
        with TemporaryDirectory() as folder:
            yield from measured({**embedded(folder), "tables": {"enabled": True}}, Path(folder), each)


if __name__ == "__main__":
    for found in figures([int(each) for each in sys.argv[1:]]):
        print(found.line(), flush=True)
