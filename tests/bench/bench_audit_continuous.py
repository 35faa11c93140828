"""What `floe table audit --continuous` costs: processor seconds of Spark, its Python and the command.

A round is given what 5 MB/s of records of 1 kB bring in so many seconds, at once: what counts is the
processor's time, divided by that of the round. The first round, with Spark's start, is not in it.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from agent.cli.tables import AUDITS_EVERY_S
from deploy.services.floe import FloeAgent
from deploy.setup.java import java_home
from objectstore.batch import NewRecord, build
from tests.bench.bench_audit import caught_up
from tests.bench.bench_idle_agent import cpu_s
from tests.bench.bench_produce import embedded
from tests.bench.figure import ROUNDS, Figure
from tests.bench.load import NOW, create_topic, produce_all, produce_frame

PARTITIONS, BATCH_RECORDS, VALUE_BYTES = 4, 1_000, 1_000
BYTES_PER_S = 5_000_000
EVERY_S = {60: ROUNDS, 300: ROUNDS, int(AUDITS_EVERY_S): ROUNDS}
"""How many rounds of each length: each of the long ones brings 4.5 GB."""
GOAL_PERCENT = 5.0
TOPIC = "continuous"


def load(bootstrap: str, size: int) -> int:
    """Send about so many bytes; how many records."""
    value = bytes(range(250)) * 4
    batch = build([NewRecord(NOW, b"k%07d" % at, value[:VALUE_BYTES]) for at in range(BATCH_RECORDS)])
    requests = max(1, size // (VALUE_BYTES * BATCH_RECORDS * PARTITIONS))
    asyncio.run(produce_all(bootstrap, produce_frame(TOPIC, batch, range(PARTITIONS)), requests, 4))
    return requests * BATCH_RECORDS * PARTITIONS


@contextmanager
def continuous(agent: FloeAgent) -> Iterator[subprocess.Popen[str]]:
    """The command, which looks every second."""
    words = ["table", "audit", TOPIC, "--continuous", "--every", "1", "--output", "json"]
    words += ["--bootstrap", agent.bootstrap, "--http", agent.http, "--java-home", str(java_home())]
    command = [sys.executable, "-m", "agent", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def compared(process: subprocess.Popen[str], records: int) -> None:
    """Read what it says until so many were found equal."""
    assert process.stdout is not None
    while records > 0:
        said = json.loads(process.stdout.readline())
        assert said["equal"], said
        records -= said["topics"][0]["consumed"]


def round_cpu_s(agent: FloeAgent, process: subprocess.Popen[str], size: int) -> float:
    """Processor seconds of one round over so many bytes."""
    before = cpu_s(process.pid)
    process.send_signal(signal.SIGSTOP)  # else it looks at the first part of it
    records = load(agent.bootstrap, size)
    caught_up(agent.http, TOPIC)
    process.send_signal(signal.SIGCONT)
    compared(process, records)
    return cpu_s(process.pid) - before


def figures(rounds_of: Mapping[int, int] = EVERY_S) -> Iterable[Figure]:
    """Rounds of a minute, of five, and of what `--every` is by default, for which there is the goal.

    `rounds_of`: by seconds how many.
    """
    with TemporaryDirectory() as folder:
        settings = {**embedded(folder), "tables": {"enabled": True}}
        with FloeAgent("bench", settings, Path(folder)) as agent:
            asyncio.run(create_topic(agent.bootstrap, TOPIC, PARTITIONS))
            first = load(agent.bootstrap, BYTES_PER_S)
            caught_up(agent.http, TOPIC)
            with continuous(agent) as process:
                compared(process, first)
                for every_s, rounds in rounds_of.items():
                    taken = [round_cpu_s(agent, process, BYTES_PER_S * every_s) for _ in range(rounds)]
                    print(f"rounds of {every_s} s: {[round(each, 1) for each in taken]} s", file=sys.stderr)
                    name = f"continuous audit at 5 MB/s of 1 kB records, a round each {every_s} s"
                    share = 100 * median(taken) / every_s
                    goal = GOAL_PERCENT if every_s == AUDITS_EVERY_S else None
                    yield Figure(name, share, "% of a core", goal=goal, better="less")


if __name__ == "__main__":  # seconds of rounds, one of each
    for found in figures({int(each): 1 for each in sys.argv[1:]} or EVERY_S):
        print(found.line(), flush=True)
