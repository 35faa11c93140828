"""A topic's own rules end to end: an agent as it is run, the command line, Kafka's own tool, librdkafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from deploy.services.kafka import tool
from tests.compat.conftest import Embedded, start, stop
from tests.compat.test_rules_embedded import BAD, FLIGHT, GOOD, create, floe, metric, send
from tests.unit.agent.cli.conftest import fails, inside
from tests.unit.schema import samples

NEAR = FLIGHT(month=1, origin="EWR", dest="JFK", distance=20).SerializeToString()
FAR = '[{"id": "far", "expression": "value.distance >= 100.0", "message": "nobody flies so near"}]'


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    running = start(tmp_path_factory.mktemp("own-rules") / "data")
    yield running
    stop(running)


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("protos") / "flights.proto"
    file.write_bytes(samples.FLIGHTS)
    return file


def where(agent: Embedded) -> dict[str, str]:
    return {"FLOE_BOOTSTRAP": agent.bootstrap, "FLOE_HTTP": agent.http}


def test_tried_over_what_is_stored_then_set(agent: Embedded, flights: Path, tmp_path: Path) -> None:
    create(agent, "flights", flights)
    assert send(agent, "flights", *[NEAR] * 3, GOOD) == [None] * 4
    asked = ("topic", "rules", "flights", "--output", "json")
    ran = inside(*asked, "--rule", "value.distance >= 1.0", **where(agent))
    found = json.loads(ran.out)
    assert (ran.status, found["records"], found["with_rules"], found["bad_records"]) == (1, 4, 4, 1)
    (broken,) = found["broken"]
    assert (broken["role"], broken["field"], broken["rule"], broken["times"]) == (
        "record",
        "",
        "floe.rules",
        1,
    )
    assert broken["examples"][0]["text"] == "does not hold: value.distance >= 1.0"
    file = tmp_path / "rules.json"
    file.write_text(FAR)
    ran = inside("topic", "rules", "flights", "--rules-file", str(file), **where(agent))
    assert ran.status == 1
    assert ran.out.splitlines()[1].split()[:3] == ["record", "far", "4"]
    assert "4 of the newest 4 records of flights break rules" in ran.err
    assert inside(*asked, "--last", "2", "--rule", "value.distance >= 0.0", **where(agent)).status == 0
    told = floe(agent, "topic", "config", "flights", "--set", f"floe.rules={FAR}")
    assert "nobody looks at floe.rules" in told.err
    assert send(agent, "flights", NEAR) == [None]
    told = floe(agent, "topic", "config", "flights", "--set", "floe.value.rules=reject")
    assert "nobody looks" not in told.err
    (error,) = send(agent, "flights", NEAR)
    assert error is not None
    assert error.code() == KafkaError.INVALID_RECORD
    newest = agent.status()["refused"]
    assert "record: nobody flies so near (rule far)" in str(newest)
    assert metric(agent, "floe_rules_broken_total", 'topic="flights"', 'role="record"', 'rule="far"') == 1
    assert json.loads(inside(*asked, **where(agent)).out)["bad_records"] == 5, "what is set"


def test_what_cannot_be_used_is_told_by_every_way(agent: Embedded, flights: Path) -> None:
    create(agent, "unusable", flights)
    why = "floe.rules: rule floe.rules: there is no field distanc"
    for words in (
        ("topic", "rules", "unusable", "--rule", "value.distanc > 1.0"),
        ("topic", "config", "unusable", "--set", "floe.rules=value.distanc > 1.0"),
    ):
        status, told = fails(*words, **where(agent))
        assert status in (1, 5)
        assert why in told
    assert fails("topic", "rules", "unusable", "--rule", '[{"id": "a"}]', **where(agent))[0] == 2
    status, told = fails("topic", "create", "new", "--config", "floe.rules=value.a >", **where(agent))
    assert status == 5
    assert "does not compile: line 1, column 10" in told


def test_of_a_topic_that_is_bound_to_nothing(agent: Embedded) -> None:
    floe(agent, "topic", "create", "bytes", "--config", "floe.value.rules=quarantine")
    floe(agent, "topic", "config", "bytes", "--set", "floe.rules=size(value) < 100")
    assert send(agent, "bytes", b"a", b"x" * 100, b"b") == [None] * 3
    lines = floe(agent, "consume", "bytes").out.splitlines()
    assert [json.loads(line)["value"] for line in lines] == ["a", "b"]
    (kept,) = [json.loads(line) for line in floe(agent, "consume", "bytes.quarantine").out.splitlines()]
    (violation,) = kept["value"]["violations"]
    assert violation == {"role": "record", "rule": "floe.rules", "text": "does not hold: size(value) < 100"}
    shown = floe(agent, "quarantine", "show", "bytes")
    assert "floe.rules" in shown.out
    found = json.loads(floe(agent, "topic", "rules", "bytes", "--output", "json").out)
    assert (found["with_rules"], found["bad_records"]) == (2, 0)
    assert BAD != GOOD


def test_kafka_s_own_tool_sets_them(agent: Embedded, tmp_path: Path) -> None:
    """Behind --add-config it takes all brackets away; what needs brackets comes from a file."""
    floe(agent, "topic", "create", "tool")
    of = (
        "--bootstrap-server",
        agent.bootstrap,
        "--alter",
        "--entity-type",
        "topics",
        "--entity-name",
        "tool",
    )
    two = '[{"id": "a", "expression": "size(value) < 9"},{"id": "b", "expression": "size(value) == 1"}]'
    done = tool("configs", *of, "--add-config", f"floe.rules={two},floe.value.rules=reject", timeout_s=120)
    assert done.returncode == 0, done
    (error,) = send(agent, "tool", b"long")
    assert error is not None
    assert "(rule b)" in str(agent.status()["refused"])
    file = tmp_path / "configs.properties"
    file.write_text("floe.rules=!('x' in headers) && size(value) > [2, 1][1]\n")
    assert tool("configs", *of, "--add-config-file", str(file), timeout_s=120).returncode == 0
    assert send(agent, "tool", b"long") == [None]
    done = tool("configs", *of, "--add-config", "floe.rules=size(value) >", timeout_s=120)
    assert done.returncode != 0
    assert "floe.rules: rule floe.rules: does not compile: line 1, column" in done.stdout + done.stderr
