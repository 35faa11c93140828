"""The look inside after a torture run finds what it is for: damage that no client has read yet."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from agent.app import App
from agent.config import Config, embedded_values
from objectstore.batch import NewRecord, build
from objectstore.chunk import HEADER_SIZE
from objectstore.naming import segment_key
from tests.bench.load import create_topic
from tests.compat import raw
from tests.torture import inside
from tests.torture.inside import chunks_differ
from tests.torture.verdict import Finding

WAIT_S_MAX = 60.0
NOW = 1_700_000_000_000


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    """What an agent left that took three batches."""
    app = App(Config.embedded(tmp_path, kafka_port=0, http_port=0))
    await app.start()
    bootstrap = f"127.0.0.1:{app.kafka_port}"
    await create_topic(bootstrap, "t", 1)
    for value in (b"one", b"two", b"three"):
        await raw.produce(bootstrap, "t", build([NewRecord(NOW, None, value)]))
    await app.stop()
    return tmp_path


async def findings(data: Path) -> list[Finding]:
    return await chunks_differ(f"sqlite://{data}/log.sqlite", f"file://{data}/store", {}, None)


def chunks(data: Path) -> list[Path]:
    return sorted((data / "store/chunks").rglob("*.chunk"))


async def test_what_is_whole_has_no_findings(data: Path) -> None:
    assert len(chunks(data)) == 3
    assert await findings(data) == []


async def test_a_chunk_that_is_gone_is_found(data: Path) -> None:
    chunks(data)[1].unlink()
    (found,) = await findings(data)
    assert (found.anomaly, found.place) == ("unreadable-chunk", "t-0")
    assert "offset 1:" in found.detail


async def test_what_was_replaced_during_a_look_is_looked_at_again(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agents merge and collect meanwhile; the next state names what is there."""
    chunk, looks = chunks(data)[1], 0

    @asynccontextmanager
    async def gone_the_first_time(*where: Any) -> AsyncIterator[inside.Inside]:
        nonlocal looks
        looks += 1
        aside = chunk.rename(chunk.with_suffix(".aside")) if looks == 1 else None
        async with standing(*where) as there:
            yield there
        if aside is not None:
            aside.rename(chunk)

    standing = inside.standing
    monkeypatch.setattr(inside, "standing", gone_the_first_time)
    assert await findings(data) == []
    assert looks == 2


async def test_a_flipped_bit_is_found(data: Path) -> None:
    chunk = chunks(data)[2]
    content = bytearray(chunk.read_bytes())
    content[HEADER_SIZE + 65] ^= 1
    chunk.write_bytes(content)
    (found,) = await findings(data)
    assert found.anomaly == "unreadable-chunk"
    assert "offset 2:" in found.detail


def transactions(bootstrap: str) -> None:
    """One that is aborted in front of one that is committed, and again."""
    for number, commit in enumerate((False, True, False, True)):
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "x"})
        producer.init_transactions(WAIT_S_MAX)
        producer.begin_transaction()
        producer.produce("t", b"%d" % number)
        assert producer.flush(WAIT_S_MAX) == 0
        if commit:
            producer.commit_transaction(WAIT_S_MAX)
        else:
            producer.abort_transaction(WAIT_S_MAX)


async def test_aborted_records_that_merging_left_behind_are_no_finding(tmp_path: Path) -> None:
    settings = embedded_values(tmp_path, kafka_port=0, http_port=0)
    app = App(Config.model_validate({**settings, "merging": {"interval_ms": 50, "age_s": 1}}))
    await app.start()
    bootstrap = f"127.0.0.1:{app.kafka_port}"
    await create_topic(bootstrap, "t", 1)
    await asyncio.to_thread(transactions, bootstrap)
    (partition,) = app.replica.state.topics["t"].partitions
    async with asyncio.timeout(WAIT_S_MAX):
        while len(partition.slices):  # noqa: ASYNC110  # nothing tells of a merge
            await asyncio.sleep(0.05)
    assert partition.merged is not None
    assert (partition.merged.records, partition.high_watermark) == (6, 8), "two were aborted"
    await app.stop()
    assert await findings(tmp_path) == []


async def test_a_segment_behind_others_that_is_gone_is_found(tmp_path: Path) -> None:
    """A plan ends in front of it: nobody is to take that for the end of the partition."""
    settings = embedded_values(tmp_path, kafka_port=0, http_port=0)
    merging = {"interval_ms": 50, "age_s": 1, "segment_bytes": 65_536}
    app = App(Config.model_validate({**settings, "merging": merging}))
    await app.start()
    bootstrap = f"127.0.0.1:{app.kafka_port}"
    await create_topic(bootstrap, "t", 1)
    for _ in range(3):
        await raw.produce(bootstrap, "t", build([NewRecord(NOW, None, os.urandom(60_000))]))
    (partition,) = app.replica.state.topics["t"].partitions
    async with asyncio.timeout(WAIT_S_MAX):
        while len(partition.slices):  # noqa: ASYNC110  # nothing tells of a merge
            await asyncio.sleep(0.05)
    assert partition.merged is not None
    named = await app.merged.manifest(partition.merged.manifest)
    assert len(named) > 1
    await app.stop()
    assert await findings(tmp_path) == []
    (tmp_path / "store" / segment_key(named[len(named) - 1].segment)).unlink()
    (found,) = await findings(tmp_path)
    assert (found.anomaly, found.place) == ("unreadable-manifest", "t-0")
