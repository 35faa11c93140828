"""`floe group …` against a real agent and a real client's group."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from agent.cli import group_requests, groups
from agent.cli.requests import Bounds
from tests.unit.agent.cli.conftest import Dev


def committed(dev: Dev, group: str, topic: str, offset: int) -> None:
    """A group whose only member has left a position behind."""
    consumer = Consumer({"bootstrap.servers": dev.bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def described(dev: Dev, group: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(dev.run("group", "describe", group, "--output", "json").out)
    return found


@pytest.fixture
def lagging(dev: Dev, request: pytest.FixtureRequest) -> str:
    """A topic of ten records and a group of the same name that stands at 4."""
    name = re.sub(r"[^a-z0-9_]+", "-", request.node.name)
    dev.run("produce", name, stdin="".join(f"{n}\n" for n in range(10)))
    committed(dev, name, name, 4)
    return name


def test_lag_is_seen_in_one_look(dev: Dev, lagging: str) -> None:
    rows = {row["group"]: row for row in json.loads(dev.run("group", "list", "-o", "json").out)}
    assert rows[lagging] == {"group": lagging, "type": "classic", "state": "Empty"}
    found = described(dev, lagging)
    assert (found["state"], found["lag"], found["members"]) == ("Empty", 6, [])
    row = {"topic": lagging, "partition": 0, "position": 4, "end": 10, "lag": 6, "client": None}
    assert found["partitions"] == [row]
    told = dev.run("group", "describe", lagging).out.splitlines()
    assert told[0] == f"{lagging}: Empty, classic, 0 members, 6 records behind"
    assert told[2].split() == [lagging, "0", "4", "10", "6", "-"]


@pytest.mark.parametrize(
    ("to", "position"),
    [
        *(("earliest", 0), ("latest", 10), ("7", 7), ("99", 10), ("2001-01-01T00:00:00+00:00", 0)),
        ("1969-12-31T23:59:59.999+00:00", 0),  # as Kafka counts -1, which stands for the end there
    ],
)
def test_positions_are_set(dev: Dev, lagging: str, to: str, position: int) -> None:
    asked = ("group", "reset", lagging, "--to", to, "--output", "json")
    row = {"topic": lagging, "partition": 0, "before": 4, "position": position}
    assert json.loads(dev.run(*asked, "--dry-run").out) == [row]
    assert described(dev, lagging)["partitions"][0]["position"] == 4
    assert json.loads(dev.run(*asked, "--topic", lagging).out) == [row]
    assert described(dev, lagging)["partitions"][0]["position"] == position


@pytest.mark.parametrize(
    ("to", "stamp"), [("2026-11-22T16:00:00", 1_795_363_200_000), ("2026-11-22T16+01:00", 1_795_359_600_000)]
)
async def test_a_time_is_utc_unless_it_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, to: str, stamp: int
) -> None:
    """Whatever the zone of the machine, as everywhere and as kafka-consumer-groups has it."""
    asked = []

    async def at_time(_kafka: object, _places: object, stamp_ms: int) -> dict[tuple[str, int], int]:
        asked.append(stamp_ms)
        return {}

    monkeypatch.setattr(group_requests, "at_time", at_time)
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        await groups._targets(object(), {("t", 0): Bounds(0, 0, 0, 10)}, to)  # type: ignore[arg-type]  # asks nobody
    finally:
        monkeypatch.undo()
        time.tzset()
    assert asked == [stamp]


def test_an_offset_that_is_not_there_is_told(dev: Dev, lagging: str) -> None:
    """A date without dashes is one, too."""
    ran = dev.run("group", "reset", lagging, "--to", "20261122", "--dry-run")
    assert ran.out.split()[-1] == "10"
    assert ran.err == f"{lagging}-0: no offset 20261122 is there, the nearest one is taken\n"
    assert dev.run("group", "reset", lagging, "--to", "10", "--dry-run").err == ""


def test_a_group_with_members_keeps_its_positions_until_they_are_gone(dev: Dev, lagging: str) -> None:
    options = {"bootstrap.servers": dev.bootstrap, "group.id": lagging, "group.protocol": "consumer"}
    member = Consumer({**options, "auto.offset.reset": "earliest", "client.id": "reads"})
    member.subscribe([lagging])
    while not member.assignment():
        member.poll(0.2)
    found = described(dev, lagging)
    assert (found["type"], [each["client"] for each in found["members"]]) == ("consumer", ["reads"])
    assert found["partitions"][0]["client"] == "reads"
    status, line = dev.fails("group", "delete", lagging)
    assert (status, "NON_EMPTY_GROUP" in line) == (5, True)
    status, line = dev.fails("group", "reset", lagging, "--to", "earliest")
    assert (status, lagging in line) == (5, True)
    member.close()
    dev.run("group", "delete", lagging)
    assert dev.fails("group", "describe", lagging)[0] == 5


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("describe", "nobody"), 5, "group 'nobody' does not exist"),
        (("delete", "nobody"), 5, "GROUP_ID_NOT_FOUND"),
        (("reset", "nobody"), 2, "--to is missing"),
        (("reset", "nobody", "--to", "yesterday"), 5, "no such partition"),
        (("reset", "nobody", "--to", "earliest", "--partition", "1"), 2, "--partition needs --topic"),
        (("reset", "nobody", "--to", "earliest", "--topic", "absent"), 5, "no such partition"),
    ],
)
def test_what_makes_no_sense_is_told(dev: Dev, arguments: tuple[str, ...], status: int, told: str) -> None:
    ended, line = dev.fails("group", *arguments)
    assert (ended, told in line) == (status, True), line


@pytest.mark.parametrize("to", ["yesterday", "9" * 5_000])
def test_a_time_that_is_none_is_told(dev: Dev, lagging: str, to: str) -> None:
    status, line = dev.fails("group", "reset", lagging, "--to", to)
    assert (status, "neither earliest, latest, an offset, nor a time" in line) == (2, True)
