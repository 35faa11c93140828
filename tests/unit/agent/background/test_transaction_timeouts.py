"""The job that ends transactions past their timeout and forgets ids: proposals, decided by the log."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.background.expiry import transactions
from agent.background.expiry.transactions import (
    EXPIRATION,
    EXPIRY_INTERVAL,
    TIMEOUT_INTERVAL,
    TransactionTimeouts,
)
from coordination.clock import ManualClock
from coordination.commands import AlterClusterConfigs, AlterTopicConfigs, ExpireTransactions
from coordination.log import Unavailable
from coordination.state.agreed_time import SKEW_MS
from coordination.state.types import ClaimHolder
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, fetch
from tests.unit.agent.kafka.transactions_rig import Txn
from tests.unit.agent.rig import Agent


@pytest.fixture
async def job(agent: Agent) -> tuple[TransactionTimeouts, ManualClock, ClaimHolder]:
    """A job whose clock the test moves, at the agent's own time at first."""
    clock = ManualClock(start_ms=agent.services.clock.now_ms())
    for name in (TIMEOUT_INTERVAL, EXPIRY_INTERVAL):
        change = AlterTopicConfigs.Change(name=name, value="1")
        await agent.services.replica.propose(AlterClusterConfigs(changes=[change]))
    made = TransactionTimeouts(agent.services.replica, clock)
    return made, clock, ClaimHolder(agent.services.replica.incarnation, 0)


async def until_after(agent: Agent, stamp_ms: int) -> None:
    """The agent's stamps decide: wait until the next one is later than that."""
    while agent.services.clock.now_ms() <= stamp_ms:  # noqa: ASYNC110 - nothing tells of a millisecond
        await asyncio.sleep(0.001)


async def test_only_what_is_past_its_time_is_aborted(
    agent: Agent, job: tuple[TransactionTimeouts, ManualClock, ClaimHolder]
) -> None:
    timeouts, clock, held = job
    await create(agent)
    short, long = Txn(agent, "short"), Txn(agent, "long")
    await short.init(timeout_ms=1)
    await long.init(timeout_ms=900_000)
    await short.send(b"a")
    await long.send(b"b", index=1)
    known = agent.services.replica.state.transactions
    await until_after(agent, known["short"].started_ms + 1)
    clock.advance(0.5)
    await timeouts.step(held)
    assert (known["short"].ongoing, known["long"].ongoing) == (False, True)
    assert known["short"].timed_out
    answer = await fetch(agent, 0, isolation_level=1)
    assert (answer.last_stable_offset, answer.high_watermark) == (2, 2)


@pytest.mark.parametrize("timeout_ms", [SKEW_MS - 5_000, 60_000])
async def test_a_clock_that_is_ahead_ends_nothing_early(
    agent: Agent, job: tuple[TransactionTimeouts, ManualClock, ClaimHolder], timeout_ms: int
) -> None:
    """The proposer's clock proposes; the stamp of the entry, made by the agent, decides."""
    timeouts, clock, held = job
    await create(agent)
    producer = Txn(agent)
    await producer.init(timeout_ms=timeout_ms)
    await producer.send(b"a")
    clock.advance(3_600)
    await timeouts.step(held)
    assert agent.services.replica.state.transactions["x"].ongoing


async def test_a_clock_that_is_behind_keeps_nothing_open(
    agent: Agent, job: tuple[TransactionTimeouts, ManualClock, ClaimHolder]
) -> None:
    """Seed 1 of the simulation: begun by an agent 95 s ahead of whoever looks, readers waited as long."""
    _, _, held = job
    await create(agent)
    producer = Txn(agent)
    await producer.init(timeout_ms=60_000)
    await producer.send(b"a")
    clock = ManualClock(start_ms=agent.services.clock.now_ms() - 3_600_000)
    timeouts = TransactionTimeouts(agent.services.replica, clock)
    await timeouts.step(held)
    clock.advance(59)
    await timeouts.step(held)
    assert agent.services.replica.state.transactions["x"].ongoing
    clock.advance(2)
    await timeouts.step(held)
    assert not agent.services.replica.state.transactions["x"].ongoing


async def test_a_pass_that_the_log_ended_forgets_nobody_s_time(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since when a transaction was seen open, also of those that the pass did not come to."""
    await create(agent)
    for name in ("a", "b"):
        producer = Txn(agent, name)
        await producer.init(timeout_ms=60_000)
        await producer.send(b"a")
    replica = agent.services.replica
    held = ClaimHolder(replica.incarnation, 0)
    clock = ManualClock(start_ms=agent.services.clock.now_ms() - 3_600_000)  # so only what it sees counts
    timeouts = TransactionTimeouts(replica, clock)
    monkeypatch.setattr(transactions, "LOOKS_PER_STEP", 1)
    await timeouts.step(held)
    clock.advance(61)

    async def away(*_: Any, **__: Any) -> Any:
        raise Unavailable("etcd is away")

    with monkeypatch.context() as patch:
        patch.setattr(replica, "submit", away)
        with pytest.raises(Unavailable):
            await timeouts.step(held)
    clock.advance(11)  # the next pass
    await timeouts.step(held)
    assert [replica.state.transactions[name].ongoing for name in ("a", "b")] == [False, False]


async def test_a_transaction_is_not_held_to_the_time_of_the_one_before_it(
    agent: Agent, job: tuple[TransactionTimeouts, ManualClock, ClaimHolder]
) -> None:
    """Two of one id, each open for two thirds of what it may take, as a clock sees it that is behind."""
    _, _, held = job
    await create(agent)
    producer = Txn(agent)
    await producer.init(timeout_ms=60_000)
    clock = ManualClock(start_ms=agent.services.clock.now_ms() - 3_600_000)
    timeouts = TransactionTimeouts(agent.services.replica, clock)
    for value in (b"a", b"b"):
        await producer.send(value)
        await timeouts.step(held)
        clock.advance(40)
        await timeouts.step(held)
        assert agent.services.replica.state.transactions["x"].ongoing
        assert await producer.end(commit=True) == 0


async def test_ids_that_nobody_uses_are_forgotten(
    agent: Agent, job: tuple[TransactionTimeouts, ManualClock, ClaimHolder]
) -> None:
    timeouts, clock, held = job
    await create(agent)
    idle, busy = Txn(agent, "idle"), Txn(agent, "busy")
    await idle.init()
    await busy.init(timeout_ms=900_000)
    await busy.send(b"a")
    await timeouts.step(held)
    assert list(agent.services.replica.state.transactions) == ["idle", "busy"]
    change = AlterTopicConfigs.Change(name=EXPIRATION, value="1")
    await agent.services.replica.propose(AlterClusterConfigs(changes=[change]))
    await until_after(agent, agent.services.replica.state.transactions["idle"].updated_ms + 1)
    clock.advance(60)
    await timeouts.step(held)
    assert list(agent.services.replica.state.transactions) == ["busy"], "one that is ongoing stays"


async def test_an_id_that_expired_and_is_made_anew_is_not_the_one_seen_open_before(
    agent: Agent, job: tuple[TransactionTimeouts, ManualClock, ClaimHolder]
) -> None:
    """While another agent had the claim; a new id counts its transactions from 1 again."""
    replica, (mine, clock, held) = agent.services.replica, job
    change = AlterTopicConfigs.Change(name=EXPIRATION, value="1")
    await replica.propose(AlterClusterConfigs(changes=[change]))
    await create(agent)
    first = Txn(agent)
    await first.init(timeout_ms=60_000)
    await first.send(b"a")
    await mine.step(held)
    assert await first.end(commit=True) == 0
    ended_ms = agent.services.clock.now_ms()
    await until_after(agent, ended_ms + 1)
    gone = ExpireTransactions(idle_since_ms=agent.services.clock.now_ms(), transactional_id=["x"])
    await replica.propose(gone)
    assert not replica.state.transactions
    clock.advance(86_400)
    second = Txn(agent)
    await second.init(timeout_ms=60_000)
    await second.send(b"b")
    await mine.step(held)
    assert replica.state.transactions["x"].ongoing, "it began this moment"
