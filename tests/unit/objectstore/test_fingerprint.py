"""Two clusters never share a prefix (rule 11)."""

from __future__ import annotations

import asyncio

import pytest

from objectstore.adapters.memory import MemoryStore
from objectstore.faulty import Fault, FaultyStore
from objectstore.fingerprint import (
    BrokenFingerprint,
    Fingerprint,
    ForeignBucket,
    claim,
    claim_when_reachable,
    decode,
)
from objectstore.naming import FINGERPRINT_KEY
from objectstore.retry import RetryingStore, RetryPolicy
from objectstore.store import StoreError

OURS = Fingerprint("prod", bytes(range(16)), "etcd 8e9e05c52164694d /prod")


async def test_the_first_agent_creates_it_and_all_agree_on_the_id() -> None:
    store = MemoryStore()
    agents = [Fingerprint("prod", bytes([n]) * 16, OURS.log_identity) for n in range(5)]
    found = await asyncio.gather(*(claim(store, agent) for agent in agents))
    assert len({each.cluster_id for each in found}) == 1
    assert decode(await store.get(FINGERPRINT_KEY)) == found[0]


def test_it_reads_as_json_with_kafkas_form_of_the_id() -> None:
    assert decode(OURS.encode()) == OURS
    assert b'"cluster_id": "AAECAwQFBgcICQoLDA0ODw"' in OURS.encode()


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
