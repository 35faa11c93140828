"""Objects that the store is asked to copy by itself: what it makes of them is looked at, and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from objectstore.adapters.memory import MemoryStore
from objectstore.copying import Copier, CopyOptions, Refused, Verify
from objectstore.store import NotFound, ObjectMeta

SIZES = [100] * 12


class Within:
    """Copies from one memory to another, as `made` says of the bytes; refuses where `served` ends."""

    def __init__(self, source: MemoryStore, target: MemoryStore, served: int = 1_000) -> None:
        self._source, self._target, self.left = source, target, served
        self.made: dict[bytes, bytes] = {}
        self.now = self.most = 0

    async def copy(self, key: str, size: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise Refused("not here")
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(5):
            await asyncio.sleep(0)
        content = await self._source.get(key)
        await self._target.put(key, [self.made.get(content, content)])
        self.now -= 1


class Reads(MemoryStore):
    """Counts bytes that are read and not written yet."""

    def __init__(self) -> None:
        super().__init__()
        self.held = self.most = 0

    async def get(self, key: str) -> bytes:
        content = await super().get(key)
        self.held += len(content)
        self.most = max(self.most, self.held)
        for _ in range(3):
            await asyncio.sleep(0)
        self.held -= len(content)
        return content


async def filled() -> tuple[Reads, MemoryStore, list[ObjectMeta]]:
    source, target = Reads(), MemoryStore()
    for number, size in enumerate(SIZES):
        await source.put(f"k/{number:02}", [bytes([number]) * size])
    return source, target, [meta async for meta in metas(source)]


async def metas(store: MemoryStore) -> AsyncIterator[ObjectMeta]:
    async for page in store.list(""):
        for meta in page:
            yield meta


async def run(copier: Copier, due: list[ObjectMeta]) -> None:
    for meta in due:
        await copier.begin(meta)
    await copier.end()


async def same(source: MemoryStore, target: MemoryStore) -> None:
    for number in range(len(SIZES)):
        assert await source.get(f"k/{number:02}") == await target.get(f"k/{number:02}")


async def test_copies_of_the_store_need_no_memory_and_are_bounded_in_number() -> None:
    source, target, due = await filled()
    within = Within(source, target)
    copier = Copier(source, target, CopyOptions(objects_max=4, bytes_max=150), within)
    await run(copier, due)
    assert (within.most, copier.counts.by_store, copier.counts.objects) == (4, len(SIZES), len(SIZES))
    await same(source, target)


async def test_refused_in_the_middle_the_rest_is_read_within_the_bound() -> None:
    source, target, due = await filled()
    copier = Copier(
        source, target, CopyOptions(objects_max=8, bytes_max=250), Within(source, target, served=3)
    )
    await run(copier, due)
    assert (copier.counts.by_store, copier.counts.objects) == (3, len(SIZES))
    assert copier.counts.refused == "not here"
    assert source.most <= 300, "two of them at a time, and one that the store copies"
    await same(source, target)


async def test_a_copy_of_another_length_or_content_is_made_anew_and_the_store_not_asked_again() -> None:
    """As of a store that does not know the header: it stores an empty object."""
    for verify, wrong in [
        (Verify.LENGTH, b""),
        (Verify.ETAG, bytes([9]) * 100),
        (Verify.READ, b"\xff" * 100),
    ]:
        source, target, due = await filled()
        await target.put("etags differ", [b""])
        within = Within(source, target)
        within.made[bytes([2]) * 100] = wrong
        copier = Copier(source, target, CopyOptions(objects_max=1, verify=verify), within)
        await run(copier, due)
        assert (copier.counts.by_store, copier.counts.objects) == (2, len(SIZES))
        assert "k/02" in copier.counts.refused
        await same(source, target)


async def test_the_length_alone_may_be_enough_for_what_the_store_copied() -> None:
    source, target, due = await filled()
    await target.put("etags differ", [b""])
    copier = Copier(source, target, CopyOptions(verify=Verify.LENGTH), Within(source, target))
    await run(copier, due)
    assert (copier.counts.by_store, copier.counts.read_back) == (len(SIZES), 0)


async def test_what_is_to_be_read_back_is_though_etags_agree() -> None:
    source, target, due = await filled()
    copier = Copier(source, target, CopyOptions(objects_max=1, verify=Verify.READ))
    await run(copier, due)
    assert copier.counts.read_back == len(SIZES)


async def test_a_rate_is_kept() -> None:
    """By a clock that goes on only while somebody waits."""

    class Waiting:
        slept = 0.0

        def monotonic(self) -> float:
            return self.slept

        def random(self) -> float:
            return 0.5

        async def sleep(self, seconds: float) -> None:
            self.slept += seconds
            await asyncio.sleep(0)

    source, target, due = await filled()
    clock = Waiting()
    copier = Copier(source, target, CopyOptions(bytes_per_s=10.0), None, clock)
    await run(copier, due)
    assert clock.slept == sum(SIZES[1:]) / 10.0, "the first need not wait"


async def test_one_that_is_gone_at_the_store_is_gone_for_the_copy() -> None:
    source, target, due = await filled()
    await source.delete([due[0].key])
    copier = Copier(source, target, None, Within(source, target))
    try:
        await copier.one(due[0])
    except NotFound:
        return
    raise AssertionError("it was copied")
