"""Two clusters never share a prefix (rule 11)."""

from __future__ import annotations

import asyncio

import pytest

from objectstore.adapters.memory import MemoryStore
from objectstore.batch import NewRecord, build
from objectstore.chunk import PartitionBatches, encode
from objectstore.faulty import Fault, FaultyStore
from objectstore.fingerprint import (
    BrokenFingerprint,
    Fingerprint,
    ForeignBucket,
    claim,
    claim_when_reachable,
    decode,
    stored,
)
from objectstore.naming import FINGERPRINT_KEY, ChunkId, SegmentId, chunk_key, segment_key
from objectstore.retry import RetryingStore, RetryPolicy
from objectstore.segment import SegmentWriter
from objectstore.store import StoreError

RAW = build([NewRecord(1, None, b"value")])
OURS = Fingerprint("prod", bytes(range(16)), "etcd 8e9e05c52164694d /prod")


async def test_the_first_agent_creates_it_and_all_agree_on_the_id() -> None:
    store = MemoryStore()
    agents = [Fingerprint("prod", bytes([n]) * 16, OURS.log_identity) for n in range(5)]
    found = await asyncio.gather(*(claim(store, agent) for agent in agents))
    assert len({each.cluster_id for each in found}) == 1
    assert decode(await store.get(FINGERPRINT_KEY)) == found[0]


async def test_where_it_is_lost_the_id_is_the_one_that_other_objects_name() -> None:
    """Else chunks of two ids lie in one bucket: scrubbers undo each other, a restore leaves some out."""
    store = MemoryStore()
    ours = await claim(store, OURS)
    chunk = encode(ours.cluster_id, ChunkId(7, 1), [PartitionBatches(0, [RAW])])
    await store.put(chunk_key(ChunkId(7, 0)), [b"damaged"])
    await store.put(chunk_key(ChunkId(7, 1)), chunk.parts)
    for kept in (True, False):
        await store.delete([FINGERPRINT_KEY])
        found = await claim(store, Fingerprint("prod", bytes(16), OURS.log_identity))
        assert (found.cluster_id == OURS.cluster_id) is kept
        assert decode(await store.get(FINGERPRINT_KEY)) == found
        await store.delete([chunk_key(ChunkId(7, 1))])


async def test_a_segment_names_it_too_and_a_store_that_is_away_draws_no_id() -> None:
    store = MemoryStore()
    writer = SegmentWriter(OURS.cluster_id, SegmentId(7, 0, 1))
    writer.add(memoryview(RAW))
    await store.put(segment_key(SegmentId(7, 0, 1)), writer.finish().parts)
    faulty = FaultyStore(store)
    faulty.order("list", Fault.REFUSED)
    other = Fingerprint("prod", bytes(16), OURS.log_identity)
    with pytest.raises(StoreError):
        await claim(faulty, other)
    assert (await claim(store, other)).cluster_id == OURS.cluster_id


def test_it_reads_as_json_with_kafkas_form_of_the_id() -> None:
    assert decode(OURS.encode()) == OURS
    assert b'"cluster_id": "AAECAwQFBgcICQoLDA0ODw"' in OURS.encode()


def test_a_flipped_bit_is_no_other_cluster_and_no_other_log() -> None:
    """Else damage would be told as a foreign bucket, and end every agent."""
    for restored in ("", "etcd 1 /prod"):
        told = Fingerprint("prod", bytes(range(16)), "etcd 2 /prod", restored)
        for bit in range(len(told.encode()) * 8):
            content = bytearray(told.encode())
            content[bit // 8] ^= 1 << bit % 8
            try:
                found = decode(bytes(content))
            except BrokenFingerprint:
                continue
            assert found == told, content


def test_one_of_a_version_without_a_checksum_is_read() -> None:
    assert b"crc32c" not in OURS.encode(summed=False)
    assert decode(OURS.encode(summed=False)) == OURS


async def test_another_cluster_is_refused_naming_both() -> None:
    store = MemoryStore()
    await claim(store, OURS)
    with pytest.raises(ForeignBucket, match=r"'prod'.*'staging'.*prefix of its own"):
        await claim(store, Fingerprint("staging", bytes(16), OURS.log_identity))


async def test_another_log_is_refused_naming_both() -> None:
    store = MemoryStore()
    await claim(store, OURS)
    with pytest.raises(ForeignBucket, match=r"'etcd 8e9e05c52164694d /prod'.*'etcd 1 /prod'.*log\.url"):
        await claim(store, Fingerprint("prod", bytes(16), "etcd 1 /prod"))
    assert decode(await store.get(FINGERPRINT_KEY)) == OURS


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"[]",
        b"{}",
        b'{"format":1,"cluster":"a","cluster_id":5,"log":"x"}',
        OURS.encode().replace(b" 1,", b" 9,"),
    ],
)
async def test_a_stranger_in_its_place_is_refused(content: bytes) -> None:
    store = MemoryStore()
    await store.put(FINGERPRINT_KEY, [content])
    with pytest.raises(BrokenFingerprint, match=FINGERPRINT_KEY):
        await claim(store, OURS)


async def test_a_lost_answer_does_not_make_us_strangers() -> None:
    faulty = FaultyStore(MemoryStore())
    faulty.order("put", Fault.LOST_ANSWER)
    assert await claim(RetryingStore(faulty, RetryPolicy(wait_s_first=0.001)), OURS) == OURS


class Pace:
    def __init__(self) -> None:
        self.waits: list[float] = []

    def monotonic(self) -> float:
        return 0.0

    def random(self) -> float:
        return 0.5

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


async def test_an_unreachable_store_is_waited_for_and_a_foreign_one_is_not() -> None:
    faulty, pace = FaultyStore(MemoryStore()), Pace()
    faulty.order("put", *[Fault.REFUSED] * 8, Fault.LOST_REQUEST)
    told: list[StoreError] = []
    found = await claim_when_reachable(faulty, OURS, pace, lambda error, _: told.append(error))
    assert found == OURS
    assert len(told) == 9
    assert pace.waits == sorted(pace.waits)
    assert pace.waits[-1] <= 10
    with pytest.raises(ForeignBucket):
        await claim_when_reachable(faulty, Fingerprint("other", bytes(16), "x"), pace)


async def test_what_is_damaged_on_its_way_is_read_again() -> None:
    """A copy ended by it, and an agent that started."""
    faulty = FaultyStore(MemoryStore())
    await claim(faulty, OURS)
    for ask in (lambda: stored(faulty), lambda: claim(faulty, OURS)):
        faulty.order("get", Fault.CORRUPT)
        await ask()
        faulty.order("get", Fault.CORRUPT, Fault.CORRUPT)
        with pytest.raises(BrokenFingerprint):
            await ask()
