"""Agents and replays die while schemas, policies and bindings change: nothing is lost, nothing is doubled.

What is registered has one id and one version through any agent. A record is in its topic or in quarantine,
once, wherever the agent that stored it died. A replay is killed at each of its steps, and an agent below it.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from schema.proto.quarantine_pb2 import Record
from tests.torture.cluster import Cluster
from tests.torture.crashing_agent import Armed, CrashingAgent
from tests.torture.dying_replay import STEPS
from tests.torture.run import create_topic
from tests.torture.workload import BASE, read_all
from tests.unit.schema import samples

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]

WAIT_S_MAX = 60.0
PARTITIONS = (0, 1)
RULED = samples.message_type(samples.RULED_FLIGHTS, "nyc.Flight")
PLAIN = samples.message_type(samples.FLIGHTS, "nyc.Flight")
REGISTERED_STEPS = ("append/send", "append/answered")
STORED_STEPS = (
    "flush/put", "flush/submit", "append/send", "append/answered", "flush/decided", "flush/answered",
)  # fmt: skip
RATE, CHANGED_S = 200, 0.3
GOOD, BROKEN, UNPARSABLE = range(3)
QUARANTINED = 40
"""Records that are replayed."""
REPAIR = """
from tests.torture.test_schemas_killed import RULED

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


def asked(cluster: Cluster, agent: int, path: str, body: object | None = None, method: str = "") -> Any:
    """The JSON that an agent answers with. Raises OSError where it does not, or is to be asked again."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{cluster.members[agent].agent.http}{path}", data)
    request.method = method or request.get_method()
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def until_answered(ask: Callable[[], Any]) -> Any:
    """Ask again for as long as nobody answers, or says that it cannot for now."""
    until = time.monotonic() + WAIT_S_MAX
    while True:
        try:
            return ask()
        except (OSError, ValueError) as error:  # a connection that breaks leaves half of an answer
            final = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if final or time.monotonic() > until:
                raise
            time.sleep(0.05)


def die(cluster: Cluster, armed: Armed, step: str, times: int) -> None:
    """Let an agent die at a step, and come back."""
    armed.arm(step, times)
    until = time.monotonic() + WAIT_S_MAX
    while all(each.agent.ended_by_itself is None for each in cluster.members):
        assert time.monotonic() < until, f"{step} is not reached"
        time.sleep(0.02)
    for member in cluster.members:
        if not member.agent.running:
            assert member.agent.ended_by_itself == -signal.SIGKILL, member.agent.log_tail()
            member.agent.restart()


class Registrar(threading.Thread):
    """Registers one subject after the other at its agent, as another one does at the same time."""

    def __init__(self, cluster: Cluster, agent: int) -> None:
        super().__init__(daemon=True)
        self.told: dict[str, tuple[int, int]] = {}
        """By subject, version and id."""
        self.failed: BaseException | None = None
        self.over = threading.Event()
        self._cluster, self._agent = cluster, agent

    def run(self) -> None:
        try:
            number = 0
            while not self.over.is_set():
                subject = f"s{number}"
                body = {"schema": schema(number)}
                path = f"/subjects/{subject}/versions"
                told = until_answered(lambda at=path, one=body: asked(self._cluster, self._agent, at, one))
                self.told[subject] = (told["version"], told["id"])
                number += 1
        except BaseException as error:
            self.failed = error


def schema(number: int) -> str:
    """A schema of AVRO that no other number has."""
    fields = [{"name": f"f{number}", "type": "long", "default": 0}]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def test_what_is_registered_at_two_agents_is_there_once_whoever_dies(cluster: Cluster, armed: Armed) -> None:
    registrars = [Registrar(cluster, agent) for agent in range(2)]
    for each in registrars:
        each.start()
    for turn, step in enumerate(REGISTERED_STEPS * 2):
        die(cluster, armed, step, 3 + turn)
    for each in registrars:
        each.over.set()
    for each in registrars:
        each.join(WAIT_S_MAX)
        assert each.failed is None, each.failed
    first, second = (each.told for each in registrars)
    assert min(len(first), len(second)) > 20
    every = first | second
    assert all(first[one] == second[one] for one in first.keys() & second.keys())
    assert len({schema_id for _, schema_id in every.values()}) == len(every)
    for agent in range(2):
        for subject, (version, schema_id) in every.items():
            assert asked(cluster, agent, f"/subjects/{subject}/versions") == [1] == [version]
            found = asked(cluster, agent, f"/subjects/{subject}", {"schema": schema(int(subject[1:]))})
            assert (found["version"], found["id"]) == (version, schema_id)


def bind(cluster: Cluster, topic: str, kind: Any) -> None:
    """Bind the topic's values to a message, by any agent."""
    body = {"message": kind.name, "descriptor_set": b64encode(kind.descriptor_set).decode()}
    path = f"/admin/topics/{topic}/schema"
    until_answered(lambda: asked(cluster, random.randrange(2), path, body))


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
        die(cluster, armed, step, 5)
    changing.set()
    changer.join(WAIT_S_MAX)
    writer.over.set()
    writer.join(2 * WAIT_S_MAX)
    assert bound > len(STORED_STEPS)
    here, aside = (Counter(each) for each in placed(cluster, topic))
    seen: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for number, good in writer.outcome.items():
        kind, sent = number % 3, value(number, number % 3)
        there = (here[sent], aside[sent])
        assert sum(there) == 1 if good else sum(there) <= 1, (number, there)
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
    assert ran.returncode in (0, -signal.SIGKILL), ran.stderr
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
    return Counter(RULED.message_class.FromString(each).flight for each in here)


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


def test_positions_that_are_committed_afterwards_are_seen_to_double(cluster: Cluster, tmp_path: Path) -> None:
    """The control: records and position are two transactions, and the replay dies between them."""
    quarantined(cluster, "late")
    assert replayed(cluster, "late", tmp_path, "committed", 1, "late") == -signal.SIGKILL
    assert replayed(cluster, "late", tmp_path, "nowhere", 1) == 0
    assert max(came_back(cluster, "late").values()) == 2
