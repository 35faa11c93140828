"""Rules of protovalidate end to end: an agent as it is run, the command line, and librdkafka's clients."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from schema import framing
from tests.compat.conftest import Embedded, start, stop
from tests.unit.agent.cli.conftest import Ran, fails, inside
from tests.unit.schema import samples

pytestmark = pytest.mark.timeout(900)
FLIGHT = samples.message_type(samples.RULED_FLIGHTS, "nyc.Flight").message_class
COSTLY = samples.message_type(samples.COSTLY, "costly.Costly").message_class
GOOD = FLIGHT(month=1, origin="EWR", dest="JFK").SerializeToString()
BAD = FLIGHT(month=1, origin="EWR", dest="JFK", distance=-1).SerializeToString()
FLUSH_S_MAX = 240.0
"""A worker that gets no processor makes the agent ask for the batch again, as often as it takes."""

MINUTES = COSTLY(numbers=range(300_000)).SerializeToString()


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """An agent whose rules may take two seconds for a batch."""
    running = start(tmp_path_factory.mktemp("rules") / "data", "rules.batch_s_max=2", "rules.workers=2")
    yield running
    stop(running)


@pytest.fixture(scope="module")
def protos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources, without those that come with Floe."""
    folder = tmp_path_factory.mktemp("protos")
    (folder / "flights.proto").write_bytes(samples.RULED_FLIGHTS)
    (folder / "costly.proto").write_bytes(samples.COSTLY)
    (folder / "broken.proto").write_bytes(
        samples.RULED_FLIGHTS.replace(b"this.origin !=", b"this.origin >>>")
    )
    return folder


def floe(agent: Embedded, *words: str) -> Ran:
    """A command that must succeed."""
    ran = inside(*words, FLOE_BOOTSTRAP=agent.bootstrap, FLOE_HTTP=agent.http)
    assert ran.status == 0, ran
    return ran


def create(agent: Embedded, topic: str, file: Path, message: str = "nyc.Flight") -> str:
    """A topic that is bound; what the command says."""
    return floe(agent, "topic", "create", topic, "--proto", str(file), "--message", message).err


def send(agent: Embedded, topic: str, *values: bytes) -> list[KafkaError | None]:
    """Send records in one batch; each record's error."""
    outcomes: list[KafkaError | None] = []
    producer = Producer(
        # nothing is sent again because a busy machine is late: each batch is judged once
        {"bootstrap.servers": agent.bootstrap, "linger.ms": 100, "request.timeout.ms": 240_000}
    )
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _message: outcomes.append(error))
    assert producer.flush(FLUSH_S_MAX) == 0
    return outcomes


def metric(agent: Embedded, name: str, *labels: str) -> float:
    """One line of /metrics."""
    with urllib.request.urlopen(f"{agent.http}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    found = [line for line in lines if line.startswith(name) and all(label in line for label in labels)]
    return float(found[0].split()[-1]) if found else 0.0


def test_a_bad_record_is_refused_kept_or_not_looked_at(agent: Embedded, protos: Path) -> None:
    told = create(agent, "flights", protos / "flights.proto")
    assert "its message has rules: floe.value.rules=reject" in told
    assert send(agent, "flights", GOOD, GOOD) == [None, None]
    refused = send(agent, "flights", GOOD, BAD)
    assert [error.code() for error in refused if error is not None][:1] == [KafkaError.INVALID_RECORD]
    newest: Any = agent.status()["refused"]
    assert "value.distance: must be greater than or equal to 0 (rule double.gte)" in newest[0]["message"]
    floe(agent, "topic", "config", "flights", "--set", "floe.value.rules=observe")
    assert send(agent, "flights", GOOD, BAD) == [None, None]
    seen: Any = agent.status()["observed"]
    assert (seen[0]["topic"], seen[0]["records"]) == ("flights", 1)
    assert metric(agent, "floe_rules_broken_total", 'topic="flights"', 'rule="double.gte"') == 2
    floe(agent, "topic", "config", "flights", "--set", "floe.value.rules=off")
    assert send(agent, "flights", BAD) == [None]
    assert metric(agent, "floe_rules_records_total", 'topic="flights"') == 6


def test_rules_that_take_too_long_stop_no_other_topic(agent: Embedded, protos: Path) -> None:
    create(agent, "beside", protos / "flights.proto")
    create(agent, "costly", protos / "costly.proto", "costly.Costly")
    (error,) = send(agent, "costly", MINUTES)
    assert error is not None
    assert error.code() == KafkaError.INVALID_RECORD
    assert send(agent, "beside", GOOD) == [None]
    assert send(agent, "costly", COSTLY(numbers=[1]).SerializeToString()) == [None]
    assert metric(agent, "floe_rules_failed_total", 'topic="costly"') == 1


def test_rules_that_cannot_be_used_are_told_by_the_command_line(agent: Embedded, protos: Path) -> None:
    environment = {"FLOE_BOOTSTRAP": agent.bootstrap, "FLOE_HTTP": agent.http}
    file = str(protos / "broken.proto")
    floe(agent, "topic", "create", "broken")
    status, words = fails(
        *("topic", "bind", "broken", "--proto", file, "--message", "nyc.Flight"), **environment
    )
    assert status == 5
    assert "rules of nyc.Flight cannot be used: nyc.Flight: rule flight.route: does not compile" in words
    ran = inside("schema", "check", "broken-value", file, "--output", "json", **environment)
    assert ran.status == 1
    (told,) = json.loads(ran.out)["unusable_rules"]
    assert told.startswith("nyc.Flight: rule flight.route: does not compile: ")
    assert (
        "it goes with good-value"
        in floe(agent, "schema", "check", "good-value", str(protos / "flights.proto")).out
    )


def test_a_dry_run_over_what_is_stored(agent: Embedded, protos: Path) -> None:
    """Before a message with rules is bound, and after; the newest of all partitions, and no more."""
    environment = {"FLOE_BOOTSTRAP": agent.bootstrap, "FLOE_HTTP": agent.http}
    floe(agent, "topic", "create", "stored", "--partitions", "1")
    assert send(agent, "stored", *[GOOD] * 5, BAD, *[GOOD] * 3, b"\xff") == [None] * 10
    rules = ("topic", "rules", "stored", "--output", "json")
    unbound = floe(agent, *rules)
    assert json.loads(unbound.out)["with_rules"] == 0
    assert "10 records of stored were read; none has a message with rules" in unbound.err
    given = ("--proto", str(protos / "flights.proto"), "--message", "nyc.Flight")
    ran = inside(*rules, *given, **environment)
    assert ran.status == 1
    assert (
        "1 of the newest 10 records of stored break rules; 1 keys or values are not that message" in ran.err
    )
    found = json.loads(ran.out)
    (broken,) = found["broken"]
    assert (broken["role"], broken["field"], broken["rule"]) == ("value", "distance", "double.gte")
    (example,) = broken["examples"]
    assert example == {"partition": 0, "offset": 5, "text": "must be greater than or equal to 0"}
    counts = [found[each] for each in ("records", "with_rules", "bad_records", "unreadable")]
    assert counts == [10, 10, 1, 1]
    floe(agent, "topic", "bind", "stored", *given)
    assert inside(*rules, **environment).status == 1
    assert json.loads(floe(agent, *rules, "--last", "4").out)["bad_records"] == 0
    assert json.loads(inside(*rules, "--last", "5", **environment).out)["bad_records"] == 1
    table = inside("topic", "rules", "stored", **environment).out.splitlines()
    assert table[1].split()[:6] == ["value.distance", "double.gte", "1", "0", "at", "5"]


def test_a_dry_run_where_values_name_versions_of_a_subject(agent: Embedded, protos: Path) -> None:
    environment = {"FLOE_BOOTSTRAP": agent.bootstrap, "FLOE_HTTP": agent.http}
    floe(agent, "topic", "create", "named", "--config", "confluent.value.schema.validation=true")
    plain = protos / "plain.proto"
    plain.write_bytes(samples.FLIGHTS)
    register = "schema", "register", "named-value", "--output", "json"
    ids = [
        json.loads(floe(agent, *register, str(file)).out)[-1]["id"]
        for file in (plain, protos / "flights.proto")
    ]
    assert send(agent, "named", *[framing.prefix(each, (0,)) + BAD for each in ids]) == [None, None]
    ran = inside("topic", "rules", "named", "--output", "json", **environment)
    found = json.loads(ran.out)
    assert (ran.status, found["with_rules"], found["bad_records"]) == (1, 1, 1)
    floe(agent, "topic", "config", "named", "--set", "floe.value.rules=reject")
    first, second = (framing.prefix(each, (0,)) + BAD for each in ids)
    assert send(agent, "named", first) == [None]
    (error,) = send(agent, "named", second)
    assert error is not None
    assert error.code() == KafkaError.INVALID_RECORD


def test_a_dry_run_that_cannot_be_done(agent: Embedded, protos: Path) -> None:
    environment = {"FLOE_BOOTSTRAP": agent.bootstrap, "FLOE_HTTP": agent.http}
    floe(agent, "topic", "create", "undone")
    assert send(agent, "undone", GOOD) == [None]
    given = ("--proto", str(protos / "broken.proto"), "--message", "nyc.Flight")
    status, words = fails("topic", "rules", "undone", *given, **environment)
    assert status == 1
    assert "the rules of nyc.Flight do not compile: failed to compile expression flight.route" in words
    assert fails("topic", "rules", "undone", "--message", "nyc.Flight", **environment)[0] == 2
    assert fails("topic", "rules", "nowhere", **environment)[0] == 5
