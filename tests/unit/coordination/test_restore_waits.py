"""While a restore waits for agents of the lost log it applies the archive; what they still write counts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from coordination.clock import SystemClock
from coordination.commands import EndTransaction, InitTransactions
from coordination.restore.report import Report
from coordination.restore.run import restore
from coordination.state import Done
from objectstore.naming import piece_key
from tests.unit.coordination.kit import A, B, Script
from tests.unit.coordination.lost import Lost, Sent
from tests.unit.coordination.test_restore import NOW, CountingStore, Target, started, target, values

pytestmark = pytest.mark.services
__all__ = ["target"]
WAITING = replace(NOW, settle_s=1e-6)


class Waiting(SystemClock):
    """At each wait something happens. That of a restore is its only one."""

    def __init__(self, happens: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self._happens = happens

    async def sleep(self, seconds: float) -> None:
        await self._happens()


@pytest.fixture
async def lost(script: Script) -> Lost:
    store = CountingStore()
    store.asked = []
    made = Lost(store, script)
    script.topic(A, "t", partitions=2)
    await made.bind()
    await made.commit(A, Sent(0, ["a"]))
    await made.archive()
    return made


async def restored(lost: Lost, target: Target, happens: Callable[[], Awaitable[object]]) -> Report:
    return await restore(lost.store, target.log(), Waiting(happens), WAITING)


async def test_an_archive_that_stays_as_it_is_is_not_read_again(lost: Lost, target: Target) -> None:
    """Chunks are: the last ones may have come in the wait."""
    assert isinstance(lost.store, CountingStore)
    read: list[str] = lost.store.asked

    async def a_chunk_comes() -> None:
        read.clear()
        await lost.commit(B, Sent(0, ["b"]))

    report = await restored(lost, target, a_chunk_comes)
    assert [key for key in read if key.startswith(("log/", "snapshots/"))] == []
    assert (report.entries, report.found) == (len(lost.script.entries) - 1, 1)
    replica = await started(lost, target)
    assert await values(lost, replica.state) == ["a", "b"]
    await replica.stop()


async def test_what_is_archived_in_the_wait_counts(lost: Lost, target: Target) -> None:
    """An agent that has not looked yet archives the end of a transaction: it is not aborted."""
    pair = lost.script.one(A, InitTransactions(transactional_id="x", timeout_ms=60_000))
    assert isinstance(pair, Done)
    producer, epoch = pair.value  # type: ignore[misc]  # a pair
    await lost.commit(A, Sent(0, ["of x"], (producer, epoch, 0), transactional=True))

    async def its_end_is_archived() -> None:
        ended = EndTransaction(transactional_id="x", producer_id=producer, producer_epoch=epoch, commit=True)
        assert isinstance(lost.script.one(A, ended), Done)
        await lost.archive()

    report = await restored(lost, target, its_end_is_archived)
    assert (report.aborted, report.unended, report.certain) == ([], 0, lost.archived)
    replica = await started(lost, target)
    partition = replica.state.topics["t"].partitions[0]
    assert list(partition.aborted(0, partition.high_watermark)) == []
    await replica.stop()


@pytest.mark.parametrize("becomes", ["missing", "cut", "as long, and another"])
async def test_a_piece_that_changes_in_the_wait_is_judged_as_it_is_then(
    lost: Lost, target: Target, becomes: str
) -> None:
    await lost.snapshot()
    await lost.commit(A, Sent(0, ["b"]))
    key = piece_key(await lost.archive())

    async def changes() -> None:
        content = await lost.store.get(key)
        if becomes == "missing":
            await lost.store.delete([key])
        else:
            await lost.store.put(key, [content[:-1] if becomes == "cut" else bytes(len(content))])

    report = await restored(lost, target, changes)
    assert (report.entries, report.found) == (0, 1)
    assert [name for name, _ in report.damaged] == [key] * (becomes != "missing")
    replica = await started(lost, target)
    assert await values(lost, replica.state) == ["a", "b"]
    await replica.stop()
