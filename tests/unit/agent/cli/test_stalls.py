"""Commands that read records end and say why, where aiokafka would ask again for ever."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from confluent_kafka import Producer

from agent.cli import audit, reading, replaying, stalls
from agent.cli.failures import Failure, Status
from agent.cli.requests import Bounds
from agent.cli.session import Refusal
from agent.cli.stalls import Stalls
from agent.cli.values import Values
from coordination.kafka_codes import Code
from tests.unit.agent.cli.conftest import Dev, inside, start_dev

TOPIC = "damaged"
UNCACHED = ("fetch.cache_bytes_max=1024", "fetch.cold_cache_bytes_max=1024", "merging.enabled=false")
DAMAGED = f"{TOPIC}-0 cannot be read at 1: CORRUPT_MESSAGE; floe topic skip-damaged {TOPIC} --partition 0"
NOWHERE = "127.0.0.1:1"


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """Two partitions of three records, a chunk each; that of offset 1 of partition 0 is damaged."""
    data = tmp_path_factory.mktemp("stalls") / "data"
    agent = start_dev(data, *(part for setting in UNCACHED for part in ("--set", setting)))
    agent.run("topic", "create", TOPIC, "--partitions", "2")
    agent.run("cluster", "config", "set", "auto.create.topics.enable=false")  # aiokafka asks for it
    producer = Producer({"bootstrap.servers": agent.bootstrap, "linger.ms": 0})
    for number in range(3):
        for partition in (0, 1):
            producer.produce(TOPIC, f"{partition}-{number}".encode() * 500, partition=partition)
            assert producer.flush(60) == 0
    (path,) = [path for path in data.rglob("*.chunk") if b"0-10-1" in path.read_bytes()]
    path.write_bytes(path.read_bytes().replace(b"0-10-1", b"0-1x-1", 1))
    yield agent
    assert agent.stop() == 0


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits here."""
    monkeypatch.setattr(stalls, "QUIET_S", 0.5)
    monkeypatch.setattr(stalls, "FOLLOWED_QUIET_S", 0.0)


def test_a_damaged_record_ends_consume_behind_all_that_is_sound(damaged: Dev) -> None:
    ran = damaged.run("consume", TOPIC, status=5)
    got = {(line["partition"], line["offset"]) for line in map(json.loads, ran.out.splitlines())}
    assert got == {(0, 0), (1, 0), (1, 1), (1, 2)}
    assert ran.err.startswith(f"floe: {DAMAGED} --from 1 tells what is damaged"), ran.err


def test_a_damaged_record_ends_a_trial_of_rules(damaged: Dev) -> None:
    status, line = damaged.fails("topic", "rules", TOPIC, "--rule", "size(value) > 0")
    assert (status, DAMAGED in line) == (5, True), line


async def test_a_damaged_record_ends_what_reads_for_an_audit(damaged: Dev, tmp_path: Path) -> None:
    given = audit.Auditing(TOPIC, damaged.bootstrap, damaged.http, (), None, 0.0, None)
    with pytest.raises(Refusal, match="CORRUPT_MESSAGE"):
        await audit.consume(given, tmp_path / "history" / "records.parquet", [Bounds(0, 1, 0, 3)])


async def test_a_topic_that_was_deleted_meanwhile_ends_them_too(damaged: Dev) -> None:
    bounds = [Bounds(0, 1, 0, 3)]
    asked = reading.Reading("gone", follow=False, records_max=0, newest=False, offset=-1, partition=-1)
    with pytest.raises(Refusal, match="gone-0 cannot be read at 0: UNKNOWN_TOPIC_OR_PARTITION"):
        await reading.read(damaged.bootstrap, asked, bounds, Values({}))
    replay = replaying.Replaying("gone", 1, replaying.as_it_was, batch=5, records_max=5)
    with pytest.raises(Refusal, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await replaying.replay(damaged.bootstrap, replay, bounds, lambda _more: None)


async def test_who_follows_is_told_and_goes_on(damaged: Dev, capsys: pytest.CaptureFixture[str]) -> None:
    damage, end = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
    watched = Stalls(damaged.bootstrap, follow=True)
    async with reading._reader(damaged.bootstrap, {damage: 1, end: 3}) as consumer:
        for _ in range(2):
            assert await watched.positions(consumer, [damage, end]) == {damage: 1, end: 3}
        assert (err := capsys.readouterr().err).startswith(DAMAGED), err
        assert (err.count("CORRUPT_MESSAGE"), err.endswith("waiting\n")) == (1, True)
        await Stalls(damaged.bootstrap, follow=True).positions(consumer, [end])
        assert capsys.readouterr().err == "", "the end of a partition is nothing wrong"


async def test_what_may_pass_is_waited_for_but_not_for_ever(damaged: Dev) -> None:
    """No agent for a while, as in a restart of the only one; and an end that nothing comes up to."""
    where = TopicPartition(TOPIC, 1)
    for bootstrap, status, told in (
        (NOWHERE, Status.UNREACHABLE, "no agent is reached"),
        (damaged.bootstrap, Status.REFUSED, f"{TOPIC}-1: nothing comes at offset 3"),
    ):
        watched = Stalls(bootstrap)
        watched._at[where] = 3
        for _ in range(stalls.ASKS_MAX - 1):
            await watched._end([where])
        with pytest.raises(Failure, match=told) as failed:
            await watched._end([where])
        assert failed.value.status is status


async def test_an_address_that_is_not_reached_is_a_remark(
    damaged: Dev, capsys: pytest.CaptureFixture[str]
) -> None:
    watched = Stalls(damaged.bootstrap)
    for _ in range(stalls.ASKS_MAX):
        await watched._end([TopicPartition(TOPIC, 1)])
    assert capsys.readouterr().err.count(f"has records of {TOPIC}-1, but none come from") == 1


def test_codes_that_pass() -> None:
    passing = [Code.KAFKA_STORAGE_ERROR, Code.NOT_LEADER_OR_FOLLOWER, Code.LEADER_NOT_AVAILABLE]
    staying = [Code.CORRUPT_MESSAGE, Code.UNKNOWN_TOPIC_OR_PARTITION, Code.TOPIC_AUTHORIZATION_FAILED]
    assert all(stalls._may_pass(Refusal(code, "")) for code in passing)
    assert not any(stalls._may_pass(Refusal(code, "")) for code in staying)


def test_nothing_is_asked_where_all_is_sound(damaged: Dev) -> None:
    ran = inside(
        "consume", TOPIC, "--partition", "1", FLOE_BOOTSTRAP=damaged.bootstrap, FLOE_HTTP=damaged.http
    )
    assert (ran.status, len(ran.out.splitlines()), ran.err) == (0, 3, "3 records\n")
