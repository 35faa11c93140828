"""The chain's rule alone: what may be concluded from which attempts (rules 2 and 3)."""

from __future__ import annotations

import asyncio
from collections import deque
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from coordination.backoff import Backoff
from coordination.chain import AppendChain, AttemptFailed, KeyState
from coordination.clock import ManualClock
from coordination.etcd.errors import EtcdError
from coordination.etcd.log import EtcdChain
from coordination.log import Fenced, Full, LogRegressed, Unavailable
from coordination.sqlite_log import SqliteChain

OURS, THEIRS = 1, 2
LOST = AttemptFailed("no answer", ambiguous=True)
NO_ROOM = AttemptFailed("etcd NOSPACE", ambiguous=False, full=True)
REFUSED = AttemptFailed("refused", ambiguous=False)


class ScriptedChain(AppendChain):
    """Attempts end as the script says."""

    def __init__(self, *outcomes: int | KeyState | AttemptFailed | None) -> None:
        super().__init__(7, OURS, 10, 100, Backoff(ManualClock(), first_s=0.0, max_s=0.0))
        self.outcomes = deque(outcomes)
        self.attempts: list[tuple[int, bytes, int]] = []
        self.abandoned = False
        self.keys: deque[KeyState | Unavailable | None] = deque()

    async def _attempt(self, sequence: int, payload: bytes, expected: int) -> int | KeyState | None:
        self.attempts.append((sequence, payload, expected))
        outcome = self.outcomes.popleft()
        if isinstance(outcome, AttemptFailed):
            raise outcome
        return outcome

    async def _key(self) -> KeyState | None:
        found = self.keys.popleft()
        if isinstance(found, Unavailable):
            raise found
        return found

    def abandon(self) -> None:
        self.abandoned = True

    async def close(self) -> None:
        """Nothing is held."""


async def test_each_append_compares_with_what_the_last_one_left() -> None:
    chain = ScriptedChain(11, 15)
    assert [await chain.append(b"a"), await chain.append(b"b")] == [11, 15]
    assert chain.attempts == [(1, b"a", 10), (2, b"b", 11)]


async def test_a_lost_try_that_landed_is_found_in_the_key() -> None:
    chain = ScriptedChain(LOST, REFUSED, KeyState(OURS, 1, 12), 13)
    assert await chain.append(b"a") == 12
    assert await chain.append(b"b") == 13
    assert chain.attempts[-1] == (2, b"b", 12)


async def test_a_lost_try_that_did_not_land_is_made_again() -> None:
    chain = ScriptedChain(LOST, LOST, 14)
    assert await chain.append(b"a") == 14
    assert len(chain.attempts) == 3


@pytest.mark.parametrize(
    ("outcomes", "maybe"),
    [
        ((None,), False),
        ((REFUSED, None), False),
        ((LOST, None), True),
        ((LOST, REFUSED, None), True),
        ((KeyState(THEIRS, 0, 20),), False),
        ((LOST, KeyState(THEIRS, 1, 20)), True),
    ],
)
async def test_fenced_says_whether_the_entry_may_have_landed(
    outcomes: tuple[KeyState | AttemptFailed | None, ...], maybe: bool
) -> None:
    chain = ScriptedChain(*outcomes)
    with pytest.raises(Fenced) as fenced:
        await chain.append(b"a")
    assert fenced.value.maybe_appended is maybe
    assert chain.abandoned, "nobody renews the lease of a chain that has ended"
    with pytest.raises(Fenced) as again:
        await chain.append(b"b")
    assert not again.value.maybe_appended, "the second entry was never sent"


@pytest.mark.parametrize(
    "outcomes", [(KeyState(OURS, 1, 12),), (KeyState(OURS, 0, 9),), (LOST, KeyState(OURS, 0, 9))]
)
async def test_a_key_that_went_back_in_time_is_no_fence(
    outcomes: tuple[KeyState | AttemptFailed, ...],
) -> None:
    with pytest.raises(LogRegressed):
        await ScriptedChain(*outcomes).append(b"a")


async def test_a_payload_that_is_too_large_is_refused_and_the_chain_goes_on() -> None:
    chain = ScriptedChain(11)
    with pytest.raises(ValueError, match="entry_bytes_max 100"):
        await chain.append(b"x" * 101)
    assert await chain.append(b"x" * 100) == 11


async def test_a_chain_whose_append_was_cancelled_appends_no_more() -> None:
    chain = ScriptedChain(*[LOST] * 100_000)
    append = asyncio.create_task(chain.append(b"a"))
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="in flight"):
        await chain.append(b"b")
    append.cancel()
    with pytest.raises(asyncio.CancelledError):
        await append
    with pytest.raises(Fenced):
        await chain.append(b"b")


async def test_a_full_log_is_told_at_once_and_the_chain_goes_on_where_it_was() -> None:
    """Nothing of the entry was written, so the next one takes its place."""
    chain = ScriptedChain(REFUSED, NO_ROOM, 12, LOST, NO_ROOM, 13)
    chain.keys.extend([KeyState(OURS, 0, 10), KeyState(OURS, 1, 12)])
    with pytest.raises(Full, match="NOSPACE"):
        await chain.append(b"a")
    assert await chain.append(b"b") == 12
    assert chain.attempts == [(1, b"a", 10), (1, b"a", 10), (1, b"b", 10)]
    assert not chain.abandoned
    assert await chain.append(b"c") == 13, "an earlier try may have landed: it is tried until that is known"


async def test_no_room_may_be_said_of_what_was_written_and_the_key_is_asked_until_it_answers() -> None:
    chain = ScriptedChain(NO_ROOM, LOST, NO_ROOM, 15)
    chain.keys.extend([Unavailable("no leader"), KeyState(OURS, 1, 12), KeyState(OURS, 2, 14)])
    assert [await chain.append(b"a"), await chain.append(b"b"), await chain.append(b"c")] == [12, 14, 15]
    assert chain.attempts[-1] == (3, b"c", 14)
    assert (chain.failures, list(chain.keys)) == (0, [])


@pytest.mark.parametrize("found", [None, KeyState(THEIRS, 0, 20)])
async def test_no_room_and_a_key_that_is_gone_tell_nobody_whether_it_was_written(
    found: KeyState | None,
) -> None:
    chain = ScriptedChain(NO_ROOM)
    chain.keys.append(found)
    with pytest.raises(Fenced) as fenced:
        await chain.append(b"a")
    assert fenced.value.maybe_appended
    assert chain.abandoned


def _of_etcd(renew: Any, ttl_s: float) -> EtcdChain:
    client = SimpleNamespace(lease_keep_alive=renew)
    log: Any = SimpleNamespace(clock=ManualClock(), client=client)
    return EtcdChain(log, 7, OURS, 10, b"", ttl_s)


def _of_sqlite(renew: Any, ttl_s: float) -> SqliteChain:
    log: Any = SimpleNamespace(renew=renew)
    return SqliteChain(log, 7, OURS, 10, ttl_s, Backoff(ManualClock()))


GONE_FOR_NOW = EtcdError("no answer", code=grpc.StatusCode.DEADLINE_EXCEEDED, ambiguous=True)


@pytest.mark.parametrize(("chain", "fails"), [(_of_etcd, GONE_FOR_NOW), (_of_sqlite, LOST)])
@pytest.mark.parametrize(("ttl_s", "again_s"), [(30.0, 0.5), (0.75, 0.25)])
async def test_a_renewal_that_failed_is_tried_again_before_the_lease_ends(
    monkeypatch: pytest.MonkeyPatch, chain: Any, fails: Exception, ttl_s: float, again_s: float
) -> None:
    """The log may be back long before a third of the lease has passed once more."""
    pauses: list[float] = []
    answers: deque[Exception | int] = deque([fails, fails, 10, fails, 10, 0])
    sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    async def renew(*_: object) -> int:
        answer = answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(asyncio, "sleep", pause)
    made = chain(renew, ttl_s)
    await asyncio.wait([made._renewal])
    assert (made._renewal.exception(), len(answers)) == (None, 0)
    usual_s = ttl_s / 3
    assert pauses == [usual_s, again_s, again_s, usual_s, again_s, usual_s]
