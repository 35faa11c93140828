"""The workers that evaluate rules: real processes, which end when they take too long and are replaced."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from agent.config import RulesConfig
from agent.rules import pool as pools
from agent.rules.messages import Findings
from agent.rules.pool import Busy, RulesPool, Unusable
from objectstore.batch import NewRecord, build
from objectstore.compression import Compression
from schema.descriptors import MessageType
from schema.rules.apart import apart
from schema.rules.ruled import FEW, Ruled
from schema.validator import BAD_RECORDS_MAX
from tests.unit.schema import samples

FLIGHT = samples.message_type(samples.RULED_FLIGHTS, "nyc.Flight")
COSTLY = samples.message_type(samples.COSTLY, "costly.Costly")
GOOD = FLIGHT.message_class(month=1, origin="EWR", dest="JFK").SerializeToString()
BAD = FLIGHT.message_class(month=13, origin="EWR", dest="EWR").SerializeToString()
MINUTES = COSTLY.message_class(numbers=range(300_000)).SerializeToString()
START = Callable[..., RulesPool]
PATIENT_MS = 60_000
"""A machine that is crowded with other tests keeps nobody from being served."""


@pytest.fixture
async def start() -> AsyncIterator[START]:
    """Makes pools that are closed afterwards."""
    made: list[RulesPool] = []

    def begin(**settings: Any) -> RulesPool:
        made.append(RulesPool(RulesConfig(**settings)))
        return made[-1]

    yield begin
    for each in made:
        await each.close()
        assert each.pids == []


def check(
    pool: RulesPool, *values: bytes, kind: MessageType = FLIGHT, topic: str = "t", stop: bool = True
) -> Awaitable[Findings]:
    """Have a batch of these values evaluated."""
    ruled = Ruled(["value"])
    ruled.note("value", 0, kind, 0)
    raw = build([NewRecord(1, None, value) for value in values], compression=Compression.ZSTD)
    return pool.check(topic, memoryview(raw), ruled, len(values), stop=stop)


async def test_bad_records_are_named_and_rules_counted(start: START) -> None:
    pool = start()
    assert pool.pids == [], "nothing runs before there is something to evaluate"
    found = await check(pool, GOOD, BAD, GOOD, BAD)
    assert (found.records, found.bad_records) == (4, 2)
    assert [(each.index, each.role) for each in found.bad] == [(1, "value"), (3, "value")]
    assert found.bad[0].reason == (
        "value: origin and dest must differ (rule flight.route); value.month: must be greater than or equal "
        "to 1 and less than or equal to 12 (rule int32.gte_lte)"
    )
    assert found.broken == {("value", "flight.route"): 2, ("value", "int32.gte_lte"): 2}
    assert len(pool.pids) == 1


async def test_a_large_batch_is_shared_by_workers_and_told_as_one(start: START) -> None:
    pool = start(workers=3)
    values = [GOOD] * 4_000
    for index in (0, 1_999, 2_000, 3_999):
        values[index] = BAD
    found = await check(pool, *values, stop=False)
    assert [each.index for each in found.bad] == [0, 1_999, 2_000, 3_999]
    assert (found.records, found.broken["value", "flight.route"]) == (4_000, 4)
    assert len(pool.pids) == 2, "one is left for other topics"


async def test_what_is_told_of_a_bad_batch_is_bounded(start: START) -> None:
    pool = start(workers=1)
    found = await check(pool, *[BAD] * 10_000, stop=True)
    assert len(found.bad) == BAD_RECORDS_MAX
    assert found.records < 10_000, "it is refused anyhow"
    found = await check(pool, *[BAD] * 10_000, stop=False)
    assert len(found.bad) == BAD_RECORDS_MAX
    assert (found.records, found.bad_records) == (10_000, 10_000)


async def test_rules_that_take_too_long_end_their_worker_and_no_others(start: START) -> None:
    pool = start(workers=2, batch_s_max=2.0, wait_ms_max=PATIENT_MS)
    await asyncio.gather(check(pool, GOOD, topic="good"), check(pool, b"", kind=COSTLY, topic="poisoned"))
    poisoned = [asyncio.ensure_future(check(pool, MINUTES, kind=COSTLY, topic="poisoned")) for _ in range(2)]
    await asyncio.sleep(0.1)
    good = [await check(pool, GOOD, topic="good") for _ in range(5)]
    assert {each.bad_records for each in good} == {0}
    assert not all(each.done() for each in poisoned), "all this while it goes on"
    for each in await asyncio.gather(*poisoned, return_exceptions=True):
        assert isinstance(each, Unusable | Busy), "Busy: its worker got no processor"
        if isinstance(each, Unusable):
            assert str(each).startswith("the rules were not evaluated within 2 s (rules.batch_s_max)")
    small = COSTLY.message_class(numbers=[1]).SerializeToString()
    assert (await check(pool, small, kind=COSTLY, topic="poisoned")).records == 1, "the next one works"


async def test_a_worker_without_a_processor_refuses_nobody(start: START) -> None:
    """A clock does not say that rules take long: a crowded machine may have given it no time."""
    pool = start(workers=1, batch_s_max=0.3)
    await check(pool, GOOD)
    (worker,) = pool.pids
    os.kill(worker, signal.SIGSTOP)
    late = asyncio.ensure_future(check(pool, BAD))
    await asyncio.sleep(0.8)
    assert not late.done()
    os.kill(worker, signal.SIGCONT)
    assert (await late).bad_records == 1
    assert pool.pids == [worker]
    os.kill(worker, signal.SIGSTOP)
    with pytest.raises(Busy, match=r"no 0\.3 s of a processor .* in 6 times as long: send again"):
        await check(pool, BAD)
    assert (await check(pool, BAD)).bad_records == 1, "by another one"


async def test_the_only_worker_goes_round(start: START) -> None:
    pool = start(workers=1, batch_s_max=0.5, wait_ms_max=PATIENT_MS)
    poisoned = [asyncio.ensure_future(check(pool, MINUTES, kind=COSTLY, topic="poisoned")) for _ in range(3)]
    await asyncio.sleep(0.1)
    assert (await check(pool, GOOD, topic="good")).bad_records == 0
    over = [each for each in poisoned if each.done() and isinstance(each.exception(), Unusable)]
    assert len(over) < 3, "it did not wait for all of them"
    await asyncio.gather(*poisoned, return_exceptions=True)


async def test_a_worker_that_was_killed_is_replaced(start: START) -> None:
    pool = start(workers=1)
    await check(pool, GOOD)
    (before,) = pool.pids
    os.kill(before, signal.SIGKILL)
    assert (await check(pool, BAD)).bad_records == 1
    (after,) = pool.pids
    assert after != before


async def test_a_batch_that_ends_each_worker_is_given_up(
    start: START, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "MODULE", "no_such_module")  # ends at once
    pool = start(workers=1)
    with pytest.raises(Unusable, match=r"ended 2 times over this .*rules.worker_bytes_max"):
        await check(pool, GOOD)


async def test_a_worker_has_so_much_memory_and_no_more(start: START) -> None:
    pool = start(workers=1, worker_bytes_max=256 << 20)
    await check(pool, GOOD)
    bomb = FLIGHT.message_class(month=1, origin="EWR", dest="x" * (60 << 20)).SerializeToString()
    with pytest.raises(Unusable, match=r"rules.worker_bytes_max"):
        await check(pool, bomb, bomb)
    assert (await check(pool, GOOD)).bad_records == 0


async def test_too_much_under_way_is_sent_again(start: START) -> None:
    pool = start(workers=2, batch_s_max=0.5, bytes_in_flight_max=1024)
    first = asyncio.ensure_future(check(pool, MINUTES, kind=COSTLY, topic="a"))  # half a KiB, compressed
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(Busy, match=r"rules.bytes_in_flight_max=1024, half of it for a topic\): send again"):
        await check(pool, *[GOOD + bytes([0x98, 1]) + b"\x01"] * 300, topic="a")
    await asyncio.gather(first, return_exceptions=True)
    assert pool.sizes["rules_bytes"] == 0
    assert (await check(pool, GOOD, topic="a")).records == 1


async def test_who_waits_too_long_sends_again(start: START) -> None:
    pool = start(workers=1, wait_ms_max=200, batch_s_max=2.0)
    first = asyncio.ensure_future(check(pool, MINUTES, kind=COSTLY, topic="a"))
    await asyncio.sleep(0.1)
    with pytest.raises(Busy, match="no worker had time for rules of topic b within 200 ms"):
        await check(pool, GOOD, topic="b")
    await asyncio.gather(first, return_exceptions=True)


async def test_a_client_that_leaves_does_not_end_a_worker(start: START) -> None:
    pool = start(workers=1, wait_ms_max=PATIENT_MS)
    await check(pool, GOOD)
    before = pool.pids
    leaving = asyncio.ensure_future(check(pool, *[GOOD] * 1_900))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert (await check(pool, GOOD)).records == 1
    assert pool.pids == before


async def test_rules_of_a_binding_are_tried(start: START) -> None:
    pool = start(batch_s_max=5.0)
    assert await pool.trial(FLIGHT.descriptor_set, ["nyc.Flight"]) == []
    cel = '[(buf.validate.field).cel = { id: "c.id", expression: "this >>> 1" }]'
    kind = samples.ruled(f"message M {{ int32 a = 1 {cel}; }}")
    (found,) = await pool.trial(kind.descriptor_set, ["t.M"])
    assert (found.message, found.field, found.rule) == ("t.M", "a", "c.id")
    with pytest.raises(Unusable, match=r"no message 't\.Q'"):
        await pool.trial(kind.descriptor_set, ["t.Q"])


async def test_rules_that_do_not_compile_are_told_at_a_batch(start: START) -> None:
    kind = samples.ruled(
        'message M { int32 a = 1 [(buf.validate.field).cel = { id: "c.id", expression: "this >>> 1" }]; }'
    )
    with pytest.raises(Unusable, match=r"the rules of t\.M do not compile: .*c.id"):
        await check(start(), b"", kind=kind)


def doubted(*values: bytes, role: str = "value", kind: MessageType = FLIGHT) -> tuple[memoryview, Ruled]:
    """A batch of these values among many good ones, and what is known of it when it was parted for them."""
    every = [value for each in values for value in (each, *([GOOD] * FEW))]
    batch = memoryview(
        build([NewRecord(1, *((value, None) if role == "key" else (None, value))) for value in every])
    )
    ruled = Ruled([role])
    for place, value in enumerate(every):
        if value in values:
            ruled.note(role, place, kind, 0)
        else:
            ruled.pass_over(role, place)
    ruled.apart = apart(batch, ruled, 1 << 20, parted=True)
    assert ruled.apart is not None
    return batch, ruled


async def looked_at(pool: RulesPool, *values: bytes, bad_max: int = 100, role: str = "value") -> Findings:
    batch, ruled = doubted(*values, role=role)
    count = len(values) * (FEW + 1)
    return await pool.check("t", batch, ruled, count, stop=False, bad_max=bad_max, violations_max=16)


def flight(**fields: Any) -> bytes:
    return FLIGHT.message_class(**{"month": 1, "origin": "EWR", "dest": "JFK"} | fields).SerializeToString()


async def test_what_breaks_the_same_rules_as_another_needs_no_worker_and_is_told_in_its_words(
    start: START,
) -> None:
    pool = start(workers=1)
    first = await looked_at(pool, flight(month=13), flight(dest="EWR"))
    ended = pool.pids[0]
    os.kill(ended, signal.SIGSTOP)  # who asks it now waits
    try:
        again = await asyncio.wait_for(looked_at(pool, flight(dest="EWR"), flight(month=99, dest="LGA")), 30)
    finally:
        os.kill(ended, signal.SIGCONT)
    assert [(each.index, each.reason) for each in again.bad] == [
        (0, first.bad[1].reason),
        (FEW + 1, first.bad[0].reason),
    ]
    assert [each.violations for each in again.bad] == [first.bad[1].violations, first.bad[0].violations]
    assert (again.records, again.bad_records, again.broken) == (2 * (FEW + 1), 2, first.broken)


async def test_as_many_are_told_as_are_asked_for_and_counted_all(start: START) -> None:
    pool = start(workers=1)
    await looked_at(pool, flight(month=13))
    found = await looked_at(pool, *[flight(month=month) for month in range(20, 30)], bad_max=3)
    assert ([each.index // (FEW + 1) for each in found.bad], found.bad_records) == ([0, 1, 2], 10)
    assert found.broken == {("value", "int32.gte_lte"): 10}


async def test_another_role_type_or_other_broken_rules_are_asked_for(start: START) -> None:
    pool = start(workers=1)
    await looked_at(pool, flight(month=13))
    as_key = await looked_at(pool, flight(month=13), role="key")
    assert as_key.bad[0].reason.startswith("key.month: ")
    both = await looked_at(pool, flight(month=13, dest="EWR"))
    assert [rule for _, rule, _ in both.bad[0].violations] == ["flight.route", "int32.gte_lte"]
