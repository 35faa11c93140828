"""Records that DeleteRecords took and that are held: brought back byte for byte, or let go of for good."""

from __future__ import annotations

import itertools
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from tests.compat.conftest import Embedded, start, stop
from tests.compat.test_restore_rows_embedded import take
from tests.compat.test_restore_topic_embedded import PARTITIONS, end_of, floe, restored, transactional, write

WAIT_S_MAX = 180.0
GRACE_MS = 24 * 3_600_000
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """One that collects what nothing refers to within seconds."""
    folder = tmp_path_factory.mktemp("held") / "data"
    quickly = ("collection.interval_s=1", "collection.grace_s=1", "tables.enabled=false")
    found = start(folder, *quickly, "http.barrier_timeout_ms=60000")
    yield found
    stop(found)


def made(agent: Embedded, grace_ms: int = GRACE_MS) -> str:
    """A topic of two partitions with transactions, one of them aborted."""
    topic = f"held-{next(_numbers)}"
    configs = ("--config", "retention.ms=-1", "--config", f"floe.records.grace.ms={grace_ms}")
    floe(agent, "topic", "create", topic, "--partitions", "2", *configs)
    plain = Producer({"bootstrap.servers": agent.bootstrap, "linger.ms": 50})
    write(plain, topic, range(20))
    done, gone = transactional(agent, f"{topic}-a"), transactional(agent, f"{topic}-b")
    write(done, topic, range(20, 30))
    write(gone, topic, range(30, 40))
    gone.abort_transaction(60)
    done.commit_transaction(60)
    write(plain, topic, range(40, 60))
    return topic


Read = dict[int, list[tuple[Any, ...]]]
"""By partition: offset, key, value, headers, timestamp."""


def read(agent: Embedded, topic: str) -> Read:
    """All that committed readers get from the beginning."""
    consumer = Consumer(
        {
            "bootstrap.servers": agent.bootstrap,
            "group.id": "g",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    found: Read = {number: [] for number in range(PARTITIONS)}
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        (message,) = consumer.consume(1, 60)
        error, partition = message.error(), message.partition()
        assert partition is not None
        if error is None:
            headers, stamp = tuple(message.headers() or ()), message.timestamp()[1]
            found[partition].append((message.offset(), message.key(), message.value(), headers, stamp))
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(partition)
    consumer.close()
    return found


def behind(whole: Read, starts: dict[int, int]) -> Read:
    """What is there from these offsets on."""
    return {number: [each for each in rows if each[0] >= starts[number]] for number, rows in whole.items()}


def without_offsets(found: Read) -> Read:
    return {number: [each[1:] for each in rows] for number, rows in found.items()}


def as_written(agent: Embedded, topic: str, offset: int = 0, *, held: bool = False) -> bytes:
    """The bytes of partition 0 from the offset on, as they lie in the log."""
    more = "&held=true" if held else ""
    path = f"{agent.http}/admin/restorable/{topic}/batches?partition=0&offset={offset}{more}"
    with urllib.request.urlopen(path, timeout=120) as answer:
        found: bytes = answer.read()
        return found


def start_of(agent: Embedded, topic: str, partition: int = 0) -> int:
    """Where a consumer begins."""
    consumer = Consumer({"bootstrap.servers": agent.bootstrap, "group.id": "g"})
    low = consumer.get_watermark_offsets(TopicPartition(topic, partition), 60)[0]
    consumer.close()
    return int(low)


def held(agent: Embedded, topic: str) -> Any:
    return json.loads(floe(agent, "topic", "held", topic, "-o", "json"))


def objects(agent: Embedded) -> set[str]:
    """Names of the chunks, segments and manifests in the bucket."""
    kinds = ("chunks", "segments", "manifests")
    return {
        str(each)
        for each in agent.data.rglob("*")
        if each.is_file() and any(kind in each.parts for kind in kinds)
    }


def until(what: str, holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < end:
        if holds():
            return
        time.sleep(0.2)
    raise AssertionError(what)


def test_deleted_records_come_back_byte_for_byte_from_where_one_says(agent: Embedded) -> None:
    topic = made(agent)
    whole, before, end = read(agent, topic), as_written(agent, topic), end_of(agent, topic)[1]
    take(agent, topic, {0: 13, 1: end})
    assert (start_of(agent, topic), read(agent, topic)) == (13, behind(whole, {0: 13, 1: end}))
    with pytest.raises(urllib.error.HTTPError, match="409"):
        as_written(agent, topic)
    assert as_written(agent, topic, held=True) == before, "they are there, for who asks for them"
    (row, other) = held(agent, topic)["partitions"]
    assert (row["held_start"], row["start"], other["held_start"]) == (0, 13, 0)
    assert 0 < row["held_bytes"] < row["size_bytes"]
    assert other["held_bytes"] == other["size_bytes"]
    said = floe(agent, "topic", "undelete-records", topic, "--partition", "0", "--to", "3", "-o", "json")
    assert json.loads(said)["partitions"] == [{"partition": 0, "start": 3}]
    assert (start_of(agent, topic), read(agent, topic)) == (3, behind(whole, {0: 3, 1: end}))
    floe(agent, "topic", "undelete-records", topic)
    assert (start_of(agent, topic), start_of(agent, topic, 1)) == (0, 0)
    assert (read(agent, topic), as_written(agent, topic)) == (whole, before)
    assert held(agent, topic)["partitions"] == []
    write(Producer({"bootstrap.servers": agent.bootstrap}), topic, range(60, 64))
    after = read(agent, topic)
    assert [len(after[number]) - len(whole[number]) for number in whole] == [2, 2], "and it goes on"


def test_a_topic_as_it_was_is_made_of_what_is_held(agent: Embedded) -> None:
    topic = made(agent)
    whole = read(agent, topic)
    take(agent, topic, {0: 13, 1: 7})
    told = restored(agent, topic, f"{topic}-whole", "--with-held")
    assert (told["equal"], told["whole"]) == (True, True)
    assert without_offsets(read(agent, f"{topic}-whole")) == without_offsets(whole)
    restored(agent, topic, f"{topic}-log")
    alone = without_offsets(behind(whole, {0: 13, 1: 7}))
    assert without_offsets(read(agent, f"{topic}-log")) == alone, "control: without it, the log alone"


def test_what_is_purged_leaves_the_bucket_and_does_not_come_back(agent: Embedded) -> None:
    none = objects(agent)
    topic = made(agent)
    its = objects(agent) - none
    take(agent, topic, {0: -1, 1: -1})
    other = made(agent, grace_ms=0)
    its_own = objects(agent) - none - its
    take(agent, other, {0: -1, 1: -1})
    until("what has no grace goes", lambda: not objects(agent) & its_own)
    assert objects(agent) >= its, "collections came by, and what is held is there"
    said = floe(agent, "topic", "purge-records", topic)
    assert f"offsets of {topic} below the log start" in said
    until("what was purged goes", lambda: not objects(agent) & its)
    refused = floe(agent, "topic", "undelete-records", topic, "--partition", "0", "--to", "0", status=5)
    assert "name one of them" in refused
    assert read(agent, topic) == {0: [], 1: []}
