"""`floe quarantine`: what broke rules comes back repaired, each record once, whenever the command dies."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.compat.conftest import Embedded, start, stop
from tests.compat.test_rules_embedded import FLIGHT, floe
from tests.unit.agent.cli.conftest import inside
from tests.unit.schema import samples

COUNT, PARTITIONS = 90, 3
_numbers = itertools.count(1)
REPAIR = """
import os, signal
from pathlib import Path
from tests.compat.test_rules_embedded import FLIGHT

seen = 0

def repaired(kept):
    global seen
    seen += 1
    if seen == int(os.environ.get("DIE_AT", "0")):
        os.kill(os.getpid(), signal.SIGKILL)
    flight = FLIGHT.FromString(kept.value)
    if flight.flight % 10 == 9:
        return None
    flight.distance = 1
    return flight.SerializeToString()

def broken(kept):
    raise KeyError("no such airport")

def odd(kept):
    return 7
"""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    running = start(tmp_path_factory.mktemp("replay") / "data")
    yield running
    assert stop(running) == 0


@pytest.fixture(scope="module")
def repair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("repair") / "fix.py"
    file.write_text(REPAIR)
    return file


def flight(number: int, distance: float) -> bytes:
    made: bytes = FLIGHT(
        month=1, origin="EWR", dest="JFK", flight=number, distance=distance
    ).SerializeToString()
    return made


@pytest.fixture
def topic(agent: Embedded, tmp_path: Path) -> str:
    """A topic of which each third record is in quarantine."""
    name, file = f"t{next(_numbers)}", tmp_path / "flights.proto"
    file.write_bytes(samples.RULED_FLIGHTS)
    floe(agent, "topic", "create", name, "--partitions", str(PARTITIONS))
    floe(
        agent, "topic", "bind", name, "--proto", str(file), "--message", "nyc.Flight", "--rules", "quarantine"
    )
    producer = Producer(
        {"bootstrap.servers": agent.bootstrap, "enable.idempotence": True, "client.id": "gate 7"}
    )
    for number in range(3 * COUNT):
        producer.produce(
            name,
            flight(number, -1.0 if number % 3 == 0 else 5.0),
            key=b"%d" % number,
            partition=number % 2,
            timestamp=1_700_000_000_000 + number,
            headers=[("n", b"%d" % number)],
        )
    assert producer.flush(180) == 0
    return name


def read(agent: Embedded, topic: str) -> list[Message]:
    """All that committed readers get."""
    consumer = Consumer(
        {
            "bootstrap.servers": agent.bootstrap,
            "group.id": "g",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found, ended = [], set()
    while len(ended) < PARTITIONS:
        (message,) = consumer.consume(1, 60)
        error = message.error()
        if error is None:
            found.append(message)
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
    consumer.close()
    return found


def listed(agent: Embedded, topic: str) -> dict[str, int]:
    """The numbers in the topic's row of `floe quarantine list`."""
    rows = json.loads(floe(agent, "quarantine", "list", "-o", "json").out)
    own = next(row for row in rows if row["topic"] == topic)
    return {name: int(own[name]) for name in ("offsets", "left")}


def left(agent: Embedded, topic: str) -> int:
    """Those behind the last replay."""
    return listed(agent, topic)["left"]


def replay(agent: Embedded, topic: str, repair: Path, die_at: int) -> int:
    """The command as a process that dies when so many records were looked at; its status."""
    command = [sys.executable, "-m", "agent", "quarantine", "replay", topic, "--batch", "7"]
    command += ["--with", f"{repair}:repaired", "--bootstrap", agent.bootstrap]
    ran = subprocess.run(
        command, env={**os.environ, "DIE_AT": str(die_at)}, capture_output=True, check=False, timeout=120
    )
    return ran.returncode


def test_what_is_replayed_is_there_once_whenever_the_command_is_killed(
    agent: Embedded, topic: str, repair: Path
) -> None:
    """SIGKILL within the first transaction, and in later ones; then to its end, and once more for nothing."""
    assert left(agent, topic) == COUNT
    for die_at in (3, 8, 20):
        assert replay(agent, topic, repair, die_at) == -signal.SIGKILL
    ran = floe(agent, "quarantine", "replay", topic, "--with", f"{repair}:repaired", "-o", "json")
    done = json.loads(ran.out)
    assert 0 < done["written"] + done["left_out"] < COUNT, "those killed did some of it"
    numbers = [FLIGHT.FromString(each.value() or b"").flight for each in read(agent, topic)]
    bad = [number for number in range(3 * COUNT) if number % 3 == 0]
    back = [number for number in bad if number % 10 != 9]
    assert Counter(numbers) == Counter([number for number in range(3 * COUNT) if number % 3] + back)
    for each in read(agent, topic):
        number, headers = int(each.key() or b""), dict(each.headers() or ())
        assert each.partition() == number % 2
        assert each.timestamp()[1] == 1_700_000_000_000 + number
        assert headers["n"] == b"%d" % number
        assert (b"quarantine/" in headers.get("floe.replayed-from", b"")) is (number % 3 == 0)
    assert floe(agent, "quarantine", "replay", topic).out.startswith("0 records written")


def test_who_still_breaks_rules_is_set_aside_anew(agent: Embedded, topic: str) -> None:
    ran = floe(agent, "quarantine", "replay", topic, "--max", "10", "-o", "json")
    assert json.loads(ran.out) == {"topic": topic, "written": 10, "left_out": 0}
    shown = json.loads(floe(agent, "quarantine", "show", topic, "--last", "1000", "-o", "json").out)
    assert len(shown) == COUNT + 10
    origins = [each["headers"][-1]["key"] for each in shown if len(each["headers"]) > 1]
    assert origins == ["floe.replayed-from"] * 10


def test_what_is_shown_and_discarded(agent: Embedded, topic: str) -> None:
    shown = json.loads(floe(agent, "quarantine", "show", topic, "--last", "4", "-o", "json").out)
    assert len(shown) == 4
    assert {each["client_id"] for each in shown} == {"gate 7"}
    assert {each["violations"][0]["field"] for each in shown} == {"distance"}
    one = floe(agent, "quarantine", "show", topic, "--last", "1")
    assert one.err == f"1 of {listed(agent, topic)['offsets']}\n"
    assert "value.distance" in one.out
    assert "gate 7" in one.out
    floe(agent, "quarantine", "replay", topic, "--max", "20")
    assert "20 offsets of" in floe(agent, "quarantine", "discard", topic, "--replayed").out
    row = listed(agent, topic)
    assert row["left"] <= row["offsets"]
    floe(agent, "quarantine", "discard", topic, "--all")
    assert left(agent, topic) == 0
    assert json.loads(floe(agent, "quarantine", "show", topic, "-o", "json").out) == []


@pytest.mark.parametrize(
    ("words", "status", "what"),
    [
        (
            ("replay", "{topic}", "--with", "{repair}:broken"),
            1,
            "KeyError: 'no such airport'; nothing of it is lost",
        ),
        (("replay", "{topic}", "--with", "{repair}:odd"), 1, "the function gave int"),
        (("replay", "{topic}", "--with", "{repair}:missing"), 2, "has no function 'missing'"),
        (("replay", "{topic}", "--with", "nowhere.py:f"), 1, "nowhere.py cannot be loaded"),
        (("replay", "{topic}", "--with", "f"), 2, "is not FILE.py:FUNCTION"),
        (("replay", "nobody"), 5, "topic 'nobody' has no quarantine"),
        (("discard", "{topic}"), 2, "--replayed or --all"),
    ],
)
def test_bad_words(
    agent: Embedded, topic: str, repair: Path, words: tuple[str, ...], status: int, what: str
) -> None:
    asked = [each.format(topic=topic, repair=repair) for each in words]
    ran = inside("quarantine", *asked, FLOE_BOOTSTRAP=agent.bootstrap, FLOE_HTTP=agent.http)
    assert (ran.status, what in ran.err) == (status, True), ran
    assert left(agent, topic) == COUNT
