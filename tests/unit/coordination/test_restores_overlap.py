"""Two restores of one bucket: agents start on the log of the one that took it last, the other says why."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from coordination.clock import SystemClock
from coordination.etcd import beginning
from coordination.etcd.log import EtcdLog
from coordination.restore.report import Report
from coordination.restore.run import restore
from coordination.restore.source import CannotRestore
from deploy.services import Etcd
from objectstore import fingerprint
from objectstore.adapters.memory import MemoryStore
from objectstore.naming import CHUNKS, FINGERPRINT_KEY, SNAPSHOTS
from objectstore.store import PLAIN, Buffer, PutMode
from tests.unit.coordination.kit import A, Script
from tests.unit.coordination.lost import Lost, Sent
from tests.unit.coordination.test_restore import NOW, Target, restored, started, target, values
from tests.unit.coordination.test_restore_waits import WAITING, Waiting

pytestmark = pytest.mark.services
__all__ = ["target"]
HIGHER = 1 << 20
Happens = Callable[[], Awaitable[object]]


class Overtaken(MemoryStore):
    """Before or behind its nth put, or look at cluster.json, another restore runs to its end, undisturbed."""

    def __init__(self, of: MemoryStore, number: int, *, behind: bool) -> None:
        super().__init__()
        self._objects, self._writes = dict(of._objects), of._writes
        self._left, self._behind = number, behind
        self.happens: Happens | None = None
        self._over = False
        self.happened, self.put_since = "", list[str]()

    async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
        await self._comes(f"put {key}", behind=False)
        etag = await super().put(key, parts, mode)
        if self._over:
            self.put_since.append(key)
        await self._comes(f"put {key}", behind=True)
        return etag

    async def get(self, key: str) -> bytes:
        if key == FINGERPRINT_KEY:
            await self._comes("look", behind=False)
        content = await super().get(key)
        if key == FINGERPRINT_KEY:
            await self._comes("look", behind=True)
        return content

    async def _comes(self, what: str, *, behind: bool) -> None:
        if self.happens is None or self.happened or behind is not self._behind:
            return
        self._left -= 1
        if self._left < 0:
            self.happened = what
            await self.happens()
            self._over = True


@pytest.fixture
async def lost(script: Script) -> Lost:
    """Something is to be copied, too."""
    made = Lost(MemoryStore(), script)
    script.topic(A, "t", partitions=2)
    await made.bind()
    await made.archive()
    await made.chunk(A, Sent(0, ["given up"], (6, 0, 0)))
    await made.commit(A, Sent(0, ["acknowledged"], (6, 0, 0)), Sent(1, ["plain"]))
    return made


async def all_is_there(lost: Lost, target: Target) -> None:
    replica = await started(lost, target)
    assert sorted(await values(lost, replica.state)) == ["acknowledged", "given up"]
    assert await values(lost, replica.state, index=1) == ["plain"]
    await replica.stop()


@pytest.mark.parametrize("behind", [False, True])
async def test_another_one_runs_to_its_end_at_every_object(
    lost: Lost, etcd: Etcd, behind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that stands still meanwhile has the higher base: its etcd may be an old one."""
    ours, bucket, seen = beginning.begin, lost.store, list[str]()
    assert isinstance(bucket, MemoryStore)
    for number in itertools.count():
        store = lost.store = Overtaken(bucket, number, behind=behind)
        first, second = Target(etcd), Target(etcd)
        log, made = first.log(), list[Report]()

        async def begin(
            of: EtcdLog, drawn: bytes, base: int, *, replace: bool, slow: EtcdLog = log.inner
        ) -> tuple[str, int]:
            return await ours(of, drawn, base + (HIGHER if of is slow else 0), replace=replace)

        async def other(into: Target = second, made: list[Report] = made) -> None:
            made.append(await restored(lost, into))

        monkeypatch.setattr(beginning, "begin", begin)
        store.happens = other
        with suppress(CannotRestore):
            await restore(store, log, SystemClock(), NOW)
        if not store.happened:
            break
        seen.append(store.happened)
        (report,) = made
        assert (await fingerprint.stored(store))[0].log_identity == report.new_log, f"at {store.happened}"
        if store.happened == "look" and not behind:
            assert not [key for key in store.put_since if key.startswith(SNAPSHOTS)], "it looked before"
        await all_is_there(lost, second)
        for each in (*first.opened, *second.opened):
            await each.close()
    assert {each.partition("/")[0] for each in seen} == {
        "look",
        "put cluster.json",
        "put chunks",
        "put snapshots",
    }


async def test_what_one_that_died_left_above_the_others_base_has_it_run_again(
    lost: Lost, target: Target, etcd: Etcd
) -> None:
    """It died behind its snapshot, and the other one, which began before that, has a lower base."""
    assert isinstance(lost.store, MemoryStore)
    elsewhere = Target(etcd)

    async def dies() -> None:
        bucket = MemoryStore()
        bucket._objects = dict(lost.store._objects)  # type: ignore[attr-defined]  # a MemoryStore
        await restored(replace(lost, store=bucket), elsewhere)
        async for page in bucket.list(SNAPSHOTS):
            for meta in page:
                await lost.store.put(meta.key, [await bucket.get(meta.key)])
        async for page in bucket.list(CHUNKS):
            for meta in page:
                await lost.store.put(meta.key, [await bucket.get(meta.key)])

    with pytest.raises(CannotRestore, match="run it again"):
        await restore(lost.store, target.log(), Waiting(dies), WAITING)
    await restored(lost, target)
    await all_is_there(lost, target)
    for each in elsewhere.opened:
        await each.close()
