"""Retries: bounded, spread, and truthful about what a conditional put did."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from objectstore.adapters.memory import MemoryStore
from objectstore.faulty import Dice, Fault, FaultRates, FaultyStore
from objectstore.retry import RetryingStore, RetryPolicy
from objectstore.store import (
    CREATE,
    PLAIN,
    Ambiguous,
    Buffer,
    Denied,
    NotFound,
    ObjectMeta,
    Precondition,
    PutMode,
    Replace,
    Retryable,
)

POLICY = RetryPolicy(tries_max=4, total_s_max=100.0, wait_s_first=0.1, wait_s_max=1.0)


class Pace:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self._dice = Dice(1)

    def monotonic(self) -> float:
        return sum(self.waits)

    def random(self) -> float:
        return self._dice.random()

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


class Stage:
    """A retrying store over a faulty one over memory, each within reach."""

    def __init__(self, policy: RetryPolicy = POLICY) -> None:
        self.memory = MemoryStore()
        self.faulty = FaultyStore(self.memory)
        self.pace = Pace()
        self.store = RetryingStore(self.faulty, policy, self.pace)


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def test_a_refused_request_is_repeated(stage: Stage) -> None:
    stage.faulty.order("put", Fault.REFUSED, Fault.REFUSED)
    await stage.store.put("a", [b"x"], CREATE)
    stage.faulty.order("get", Fault.REFUSED, Fault.TRUNCATED, Fault.LOST_ANSWER)
    assert await stage.store.get("a") == b"x"
    assert stage.faulty.calls == {"put": 3, "get": 4}


async def test_waits_grow_with_jitter_and_end(stage: Stage) -> None:
    stage.faulty.order("get", *[Fault.REFUSED] * 10)
    with pytest.raises(Retryable):
        await stage.store.get("a")
    assert stage.faulty.calls["get"] == POLICY.tries_max
    assert len(stage.pace.waits) == POLICY.tries_max - 1
    for tries, wait in enumerate(stage.pace.waits):
        ceiling = 0.1 * 2**tries
        assert ceiling * 0.1 <= wait <= ceiling
    assert POLICY.wait(50, 0.999) <= POLICY.wait_s_max


async def test_the_total_time_is_bounded_too() -> None:
    stage = Stage(RetryPolicy(tries_max=1000, total_s_max=5.0, wait_s_first=1.0, wait_s_max=1.0))
    stage.faulty.order("get", *[Fault.REFUSED] * 1000)
    with pytest.raises(Retryable):
        await stage.store.get("a")
    assert stage.pace.monotonic() <= 5.0


async def test_definite_answers_are_not_repeated(stage: Stage) -> None:
    with pytest.raises(NotFound):
        await stage.store.get("nothing")
    await stage.memory.put("a", [b"theirs"])
    with pytest.raises(Precondition):
        await stage.store.put("a", [b"ours"], CREATE)
    assert stage.faulty.calls == {"get": 1, "put": 1}


async def test_the_same_bytes_of_another_are_still_refused_at_the_first_try(stage: Stage) -> None:
    await stage.memory.put("a", [b"same"])
    with pytest.raises(Precondition):
        await stage.store.put("a", [b"same"], CREATE)


async def test_a_create_whose_answer_was_lost_succeeds(stage: Stage) -> None:
    stage.faulty.order("put", Fault.LOST_ANSWER)
    etag = await stage.store.put("a", [b"our ", b"bytes"], CREATE)
    assert etag == (await stage.memory.head("a")).etag
    assert await stage.memory.get("a") == b"our bytes"


async def test_a_create_that_never_arrived_lands_at_the_second_try(stage: Stage) -> None:
    stage.faulty.order("put", Fault.LOST_REQUEST, Fault.REFUSED)
    await stage.store.put("a", [b"x"], CREATE)
    assert await stage.memory.get("a") == b"x"


async def test_a_create_lost_to_another_is_refused(stage: Stage) -> None:
    """The first try did not land; meanwhile somebody else took the name, with bytes of the same size."""
    stage.faulty.order("put", Fault.LOST_REQUEST)
    await stage.memory.put("a", [b"theirs"])
    with pytest.raises(Precondition):
        await stage.store.put("a", [b"oursss"], CREATE)
    assert await stage.memory.get("a") == b"theirs"


async def test_a_refusal_that_cannot_be_looked_into_is_ambiguous(stage: Stage) -> None:
    stage.faulty.order("put", Fault.LOST_ANSWER)
    stage.faulty.order("head", *[Fault.REFUSED] * 20)
    with pytest.raises(Ambiguous, match="not readable"):
        await stage.store.put("a", [b"x"], CREATE)


async def test_giving_up_after_an_unknown_try_is_ambiguous_whatever_came_last(stage: Stage) -> None:
    stage.faulty.order("put", Fault.LOST_REQUEST, *[Fault.REFUSED] * 20)
    with pytest.raises(Ambiguous, match="earlier try may have landed"):
        await stage.store.put("a", [b"x"], CREATE)


async def test_giving_up_without_an_unknown_try_is_definite(stage: Stage) -> None:
    stage.faulty.order("put", *[Fault.REFUSED] * 20)
    with pytest.raises(Retryable):
        await stage.store.put("a", [b"x"], CREATE)


async def test_a_replace_whose_answer_was_lost_succeeds(stage: Stage) -> None:
    first = await stage.memory.put("a", [b"one"])
    stage.faulty.order("put", Fault.LOST_ANSWER)
    etag = await stage.store.put("a", [b"two"], Replace(first))
    assert etag == (await stage.memory.head("a")).etag
    await stage.store.put("a", [b"three"], Replace(etag))


async def test_a_replace_that_another_may_have_replaced_is_ambiguous(stage: Stage) -> None:
    first = await stage.memory.put("a", [b"one"])
    stage.faulty.order("put", Fault.LOST_REQUEST)
    await stage.memory.put("a", [b"theirs"])
    with pytest.raises(Ambiguous, match="replaced since"):
        await stage.store.put("a", [b"ours"], Replace(first))
    assert stage.faulty.calls["put"] == 2  # more tries would learn nothing


async def test_an_object_gone_after_an_unknown_try_is_ambiguous(stage: Stage) -> None:
    first = await stage.memory.put("a", [b"one"])
    stage.faulty.order("put", Fault.LOST_REQUEST)
    await stage.memory.delete(["a"])
    with pytest.raises(Ambiguous, match="gone"):
        await stage.store.put("a", [b"two"], Replace(first))


async def test_denied_is_not_repeated() -> None:
    class Closed(MemoryStore):
        calls = 0

        async def get(self, key: str) -> bytes:
            self.calls += 1
            raise Denied(key)

    store = Closed()
    with pytest.raises(Denied):
        await RetryingStore(store, POLICY, Pace()).get("a")
    assert store.calls == 1


class Panic(BaseException):
    """What native code raises: no Exception."""


class Odd(MemoryStore):
    """Fails as no store should: `before` or behind the effect."""

    def __init__(self, error: BaseException, times: int, *, before: bool) -> None:
        super().__init__()
        self.error, self.times, self.before = error, times, before

    def fail(self, *, before: bool) -> None:
        if self.times and before == self.before:
            self.times -= 1
            raise self.error

    async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
        self.fail(before=True)
        etag = await super().put(key, parts, mode)
        self.fail(before=False)
        return etag

    async def get(self, key: str) -> bytes:
        self.fail(before=True)
        return await super().get(key)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        async for page in super().list(prefix, start_after):
            yield page
            self.fail(before=True)


UNEXPECTED = [RuntimeError("odd"), MemoryError("full"), Panic("native")]


@pytest.mark.parametrize("error", UNEXPECTED, ids=repr)
@pytest.mark.parametrize("before", [True, False])
async def test_what_no_store_should_raise_is_repeated_and_told_as_what_it_may_mean(
    error: BaseException, before: bool
) -> None:
    store = RetryingStore(Odd(error, 1, before=before), POLICY, Pace())
    await store.put("a", [b"x"], CREATE)
    assert await store.get("a") == b"x"
    if before:
        with pytest.raises(Ambiguous, match="client failed"):
            await RetryingStore(Odd(error, 99, before=before), POLICY, Pace()).put("a", [b"x"], CREATE)


@pytest.mark.parametrize("error", UNEXPECTED, ids=repr)
async def test_a_read_that_fails_as_none_should_is_repeated_and_then_refused(error: BaseException) -> None:
    with pytest.raises(Retryable, match="client failed"):
        await RetryingStore(Odd(error, 99, before=True), POLICY, Pace()).get("a")
    odd = Odd(error, 0, before=True)
    names = [f"n/{number:04d}" for number in range(2_500)]
    for name in names:
        await odd.put(name, [b""])
    odd.times = 2
    assert [
        meta.key async for page in RetryingStore(odd, POLICY, Pace()).list("n/") for meta in page
    ] == names


async def test_a_listing_goes_on_where_it_failed(stage: Stage) -> None:
    names = [f"n/{number:04d}" for number in range(2_500)]
    for name in names:
        await stage.memory.put(name, [b""])

    class Breaking(MemoryStore):
        breaks = 3

        async def list(self, prefix: str, start_after: str = ""):
            async for page in stage.memory.list(prefix, start_after):
                yield page
                if self.breaks:
                    self.breaks -= 1
                    raise Retryable("broken in the middle")

    store = RetryingStore(Breaking(), POLICY, Pace())
    assert [meta.key async for page in store.list("n/") for meta in page] == names


@pytest.mark.parametrize("seed", range(20))
async def test_under_random_faults_every_told_outcome_is_true(seed: int) -> None:
    """What is told as success is there; what is told as refused has no bytes of ours."""
    rates = FaultRates(refused=0.15, lost_request=0.15, lost_answer=0.15, truncated=0.05)
    stage = Stage()
    stage.faulty = FaultyStore(stage.memory, seed, rates)
    store = RetryingStore(stage.faulty, POLICY, Pace())
    told = dict.fromkeys(("ok", "refused", "unknown", "failed"), 0)
    for number in range(60):
        key = f"k/{number // 2}"  # every second put meets the first one's object, if that landed
        ours = b"%d" % number
        try:
            await store.put(key, [ours], CREATE)
        except Precondition:
            assert await stage.memory.get(key) != ours
            told["refused"] += 1
        except Ambiguous:
            told["unknown"] += 1
        except Retryable:
            assert not await holds(stage.memory, key, ours)
            told["failed"] += 1
        else:
            assert await stage.memory.get(key) == ours
            told["ok"] += 1
    assert told["ok"] > 15
    assert told["refused"] > 10


async def holds(store: MemoryStore, key: str, data: bytes) -> bool:
    try:
        return await store.get(key) == data
    except NotFound:
        return False
