"""Agents and replays die while records are set aside and brought back: none is lost, none is doubled.

A record is in its topic or in the quarantine, once, wherever the agent that stored it died, while the binding
changes. A replay is killed at each of its steps, and an agent below it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from agent.cli.failures import Status
from schema.proto.quarantine_pb2 import Record
from tests.torture.broker_log import read_log
from tests.torture.cluster import Cluster
from tests.torture.crashing_agent import Armed, CrashingAgent
from tests.torture.dying_replay import STEPS
from tests.torture.history import text
from tests.torture.run import create_topic
from tests.torture.schemas import WAIT_S_MAX, bind, die
from tests.torture.workload import BASE, read_all
from tests.unit.schema import samples

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]

PARTITIONS = (0, 1)
RULED = samples.message_type(samples.RULED_FLIGHTS, "nyc.Flight")
PLAIN = samples.message_type(samples.FLIGHTS, "nyc.Flight")
STORED_STEPS = (
    "flush/put", "flush/submit", "append/send", "append/answered", "flush/decided", "flush/answered",
)  # fmt: skip
RATE, CHANGED_S = 200, 0.3
GOOD, BROKEN, UNPARSABLE = range(3)
QUARANTINED = 40
"""Records that are replayed."""
REPAIR = """
from tests.torture.test_quarantine_killed import RULED

def repaired(kept):
    flight = RULED.message_class.FromString(kept.value)
    flight.distance = 1
    return flight.SerializeToString()
"""


@pytest.fixture(scope="module")
def armed(tmp_path_factory: pytest.TempPathFactory) -> Armed:
    return Armed(tmp_path_factory.mktemp("schemas") / "armed")


@pytest.fixture(scope="module")
def cluster(armed: Armed) -> Iterator[Cluster]:
    class Agent(CrashingAgent):
        """Knows where the armed step is written."""

    Agent.armed = armed.path
    with Cluster(2, {"replica": {"heartbeat_ms": 300}}, agent=Agent) as made:
        yield made


def value(number: int, kind: int) -> bytes:
    """A flight that is good, breaks a rule, or is none."""
    if kind == UNPARSABLE:
        return b"\xff\xff\xff%d" % number
    distance = -1 if kind == BROKEN else 5
    made: bytes = RULED.message_class(
        month=1, origin="EWR", dest="JFK", flight=number, distance=distance
    ).SerializeToString()
    return made


class Writer(threading.Thread):
    """Sends all three kinds of records by turns; `outcome` by number: None while nobody knows."""

    def __init__(self, cluster: Cluster, topic: str, kinds: int = 3) -> None:
        super().__init__(daemon=True)
        self.outcome: dict[int, bool] = {}
        self.over = threading.Event()
        self._topic, self._kinds = topic, kinds
        own = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 10}
        self._producer = Producer({**BASE, **own})

    def run(self) -> None:
        number = 0
        while not self.over.is_set():
            self.send(number, number % self._kinds)
            number += 1
            self._producer.poll(1 / RATE)
        self.flush()

    def send(self, number: int, kind: int) -> None:
        def delivered(error: Any, _message: Any) -> None:
            self.outcome[number] = error is None

        self._producer.produce(
            self._topic, value(number, kind), b"%d" % number, number % len(PARTITIONS), on_delivery=delivered
        )

    def flush(self) -> None:
        assert self._producer.flush(WAIT_S_MAX) == 0


def placed(cluster: Cluster, topic: str) -> tuple[list[bytes], list[bytes]]:
    """Values in the topic, and those that were set aside."""
    found = read_all(cluster.bootstrap, topic, PARTITIONS)
    aside = read_all(cluster.bootstrap, f"{topic}.quarantine", PARTITIONS)
    kept = [Record.FromString(each).value for records in aside.values() for _, each in records]
    return [each for records in found.values() for _, each in records], kept


def stored(cluster: Cluster, topic: str, sent: bytes) -> list[Any]:
    """Batches of the topic that have the record, and those around them."""
    rows = read_log(*cluster.opened, topic)
    at = [number for number, each in enumerate(rows) if any(text(sent) == one for _, one in each.records)]
    return [replace(each, records=()) for number in at for each in rows[max(0, number - 2) : number + 3]]


def test_a_record_is_in_the_topic_or_set_aside_once_whoever_dies(cluster: Cluster, armed: Armed) -> None:
    """The binding changes meanwhile, so that what breaks a rule is good by turns."""
    topic = "gate"
    create_topic(cluster.bootstrap, topic, len(PARTITIONS), {"floe.value.rules": "quarantine"})
    bind(cluster, topic, RULED)
    writer, bound = Writer(cluster, topic), 0
    writer.start()
    changing = threading.Event()

    def change() -> None:
        nonlocal bound
        while not changing.wait(CHANGED_S):
            bind(cluster, topic, (PLAIN, RULED)[bound % 2])
            bound += 1

    changer = threading.Thread(target=change, daemon=True)
    changer.start()
    for step in STORED_STEPS:
        before, until = bound, time.monotonic() + WAIT_S_MAX
        die(cluster, armed, step, 5)
        while bound == before:
            assert time.monotonic() < until, "the binding changes no more"
            time.sleep(0.02)
    changing.set()
    changer.join(WAIT_S_MAX)
    writer.over.set()
    writer.join(2 * WAIT_S_MAX)
    here, aside = (Counter(each) for each in placed(cluster, topic))
    seen: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for number, good in writer.outcome.items():
        kind, sent = number % 3, value(number, number % 3)
        there = (here[sent], aside[sent])
        once = sum(there) == 1 if good else sum(there) <= 1
        assert once, (number, there, stored(cluster, topic, sent))
        assert kind == BROKEN or not there[kind == GOOD], (number, there)
        seen[kind]["aside" if there[1] else "topic" if there[0] else "nowhere"] += 1
    assert max((here + aside).values()) == 1
    print(f"\n{dict(seen)}, bound anew {bound} times")
    assert seen[BROKEN]["aside"] > 0 < seen[BROKEN]["topic"]
    assert seen[UNPARSABLE]["aside"] > 0 < seen[GOOD]["topic"]


def replayed(cluster: Cluster, topic: str, folder: Path, step: str, times: int, *late: str) -> int:
    """A replay that dies at a step; its status."""
    file = folder / "fix.py"
    file.write_text(REPAIR)
    words = [*late, topic, "--batch", "5", "--with", f"{file}:repaired", "--bootstrap", cluster.bootstrap]
    line = [sys.executable, "-m", "tests.torture.dying_replay", step, str(times), *words]
    ran = subprocess.run(line, capture_output=True, text=True, check=False, timeout=2 * WAIT_S_MAX)
    assert ran.returncode in (0, Status.UNREACHABLE, -signal.SIGKILL), ran.stderr
    return ran.returncode


def quarantined(cluster: Cluster, topic: str) -> None:
    """A topic that has nothing but a quarantine."""
    create_topic(cluster.bootstrap, topic, len(PARTITIONS), {"floe.value.rules": "quarantine"})
    bind(cluster, topic, RULED)
    writer = Writer(cluster, topic)
    for number in range(QUARANTINED):
        writer.send(number, BROKEN)
    writer.flush()
    assert all(writer.outcome.values())


def came_back(cluster: Cluster, topic: str) -> Counter[int]:
    here, _ = placed(cluster, topic)
    flight: Any = RULED.message_class
    return Counter(flight.FromString(each).flight for each in here)


@pytest.mark.thorough
def test_a_replay_that_is_killed_at_each_step_doubles_nothing(
    cluster: Cluster, armed: Armed, tmp_path: Path
) -> None:
    quarantined(cluster, "back")
    for step in STEPS:
        assert replayed(cluster, "back", tmp_path, step, 1) == -signal.SIGKILL, step
    killed = threading.Thread(target=die, args=(cluster, armed, "append/send", 4), daemon=True)
    killed.start()
    while replayed(cluster, "back", tmp_path, "nowhere", 1):
        time.sleep(0.1)
    killed.join(WAIT_S_MAX)
    assert came_back(cluster, "back") == Counter(range(QUARANTINED))


@pytest.mark.thorough
def test_positions_that_are_committed_afterwards_are_seen_to_double(cluster: Cluster, tmp_path: Path) -> None:
    """The control: records and position are two transactions, and the replay dies between them."""
    quarantined(cluster, "afterwards")
    assert replayed(cluster, "afterwards", tmp_path, "committed", 1, "late") == -signal.SIGKILL
    assert replayed(cluster, "afterwards", tmp_path, "nowhere", 1) == 0
    assert max(came_back(cluster, "afterwards").values()) == 2
