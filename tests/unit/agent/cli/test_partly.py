"""A command of several things does what it can, and says what was done when some of it was refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from agent.cli import group_requests, requests
from agent.cli.failures import Failure, Status, together
from agent.cli.session import Refusal, session
from coordination.kafka_codes import Code
from tests.unit.agent.cli.conftest import Dev, inside

PROTO = 'syntax = "proto3"; message A { int32 a = 1; }'


def partitions(dev: Dev, topic: str) -> int:
    return len(json.loads(dev.run("topic", "describe", topic, "--output", "json").out)["partitions"])


@pytest.mark.parametrize("form", ["table", "json"])
def test_topics_are_deleted_but_those_that_cannot_be(dev: Dev, form: str) -> None:
    names = [f"partly-{form}-{letter}" for letter in "ab"]
    for name in names:
        dev.run("topic", "create", name)
    asked = [names[0], "partly-none", names[1], "partly-never", names[0]]
    ran = dev.run("topic", "delete", *asked, "--output", form, status=5)
    told = json.loads(ran.out)["deleted"] if form == "json" else ran.out.split(maxsplit=1)[1].split(", ")
    assert [each.strip() for each in told] == names
    (line,) = ran.err.splitlines()
    assert all(f"topic '{name}' is not deleted: UNKNOWN_TOPIC" in line for name in asked[1::2]), line
    assert dev.run("topic", "delete", "partly-none", status=5).out == ""


def test_partitions_are_not_added_where_the_configs_are_refused(dev: Dev) -> None:
    dev.run("topic", "create", "partly-grown", "--partitions", "1")
    more = ("topic", "config", "partly-grown", "--partitions", "3", "--set")
    status, line = dev.fails(*more, "retention.ms=much")
    assert (status, "retention.ms" in line, partitions(dev, "partly-grown")) == (5, True, 1), line
    dev.run(*more, "retention.ms=5000")
    assert partitions(dev, "partly-grown") == 3


def test_a_topic_that_is_made_and_not_bound_is_told_of(dev: Dev, tmp_path: Path) -> None:
    file = tmp_path / "a.proto"
    file.write_text(PROTO)
    bound = ("--proto", str(file), "--message", "A")
    ran = inside(
        *("topic", "create", "partly-made", *bound, "--http", "http://127.0.0.1:1", "--output", "json"),
        FLOE_BOOTSTRAP=dev.bootstrap,
    )
    assert (ran.status, ran.out) == (4, "")
    assert "stays so: topic partly-made was created" in ran.err
    dev.run("schema", "register", "partly-made-value", str(file))
    both = ("--subject", "partly-made-value", "--key-subject", "partly-none", "--key-version", "9")
    ran = dev.run("topic", "bind", "partly-made", *both, "--output", "json", status=5)
    assert "stays so: its values were bound" in ran.err


def test_what_a_schema_imports_is_registered_whatever_becomes_of_it(dev: Dev, tmp_path: Path) -> None:
    file = tmp_path / "main.proto"
    file.write_text('syntax = "proto3"; package m; message M { int32 a = 1; }')
    dev.run("schema", "register", "partly-main", str(file))
    (tmp_path / "partly.proto").write_text(PROTO)
    file.write_text(
        'syntax = "proto3"; package m; import "partly.proto"; message M { string a = 1; A b = 2; }'
    )
    ran = dev.run("schema", "register", "partly-main", str(file), "--output", "json", status=5)
    assert [each["subject"] for each in json.loads(ran.out)] == ["partly.proto"]
    assert ran.err


def test_records_that_were_written_are_told_of_when_others_are_refused(dev: Dev, tmp_path: Path) -> None:
    dev.run("topic", "create", "partly-large", "--partitions", "2", "--config", "max.message.bytes=200")
    values = ("-v", "x", "-v", "x" * 1_000, "-v", "y", "-v", "y" * 1_000)
    status, line = dev.fails("produce", "partly-large", *values)
    assert (status, "2 records not written" in line) == (5, True), line
    assert line.endswith("; done before that, and stays so: 2 records were written"), line
    file = tmp_path / "a.proto"
    file.write_text(PROTO)
    dev.run("topic", "create", "partly-bound", "--proto", str(file), "--message", "A")
    lines = '{"a": 1}\n' * 1_000 + '{"b": 1}\n'
    status, line = dev.fails("produce", "partly-bound", stdin=lines)
    assert (status, "record 1001: " in line) == (1, True), line
    described = json.loads(dev.run("topic", "describe", "partly-bound", "--output", "json").out)
    count = sum(each["end"] for each in described["partitions"])
    assert f"stays so: {count} records were written" in line if count else "stays so" not in line, line


async def test_of_many_partitions_each_is_told_of(dev: Dev) -> None:
    topic = "partly-split"
    await asyncio.to_thread(dev.run, "topic", "create", topic, "--partitions", "3")
    for number in range(3):
        await asyncio.to_thread(dev.run, "produce", topic, "-v", "x", "--partition", str(number))
    async with session(dev.bootstrap) as kafka:
        done, problems = await requests.delete_records(kafka, topic, {0: 9, 1: 1, 2: 9})
        assert (done, len(problems)) == ([1], 2)
        assert all("OFFSET_OUT_OF_RANGE" in str(each) for each in problems)
        places = {(topic, 0): 1, (topic, 7): 1, (topic, 8): 1}
        with pytest.raises(Refusal) as refused:
            await group_requests.commit(kafka, "partly-group", places)
        told = str(refused.value)
        assert refused.value.code == Code.UNKNOWN_TOPIC_OR_PARTITION
        assert all(f"{topic}-{number} is not set" in told for number in (7, 8))
        assert told.endswith("1 other positions were set")
        assert await group_requests.positions(kafka, "partly-group") == {(topic, 0): 1}


def test_of_very_many_some_are_told() -> None:
    told = together([Failure(Status.REFUSED, f"no {number}") for number in range(1_000)])
    assert (told.status, str(told).startswith("no 0; no 1; ")) == (5, True)
    assert str(told).endswith("no 19; and 980 more")
