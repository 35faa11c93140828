"""Jobs: one holder at a time, taken over when the holder's incarnation ends."""

from __future__ import annotations

import logging

import pytest

from coordination.clock import ManualClock
from coordination.commands import AlterClusterConfigs, AlterTopicConfigs, DeleteTopic
from coordination.jobs import Job, ProducerExpiry
from coordination.state import ClaimHolder
from tests.unit.coordination.conftest import Agents, until
from tests.unit.coordination.kit import chunk
from tests.unit.coordination.test_replica import crash, topic

Change = AlterTopicConfigs.Change


async def test_idle_producers_are_forgotten_by_whoever_holds_the_job(agents: Agents) -> None:
    a, b = await agents.start("a"), await agents.start("b")
    await a.propose(topic("t", 3))
    await a.propose(chunk(1, (0, 1, 7, 0, 0), (2, 1, 8, 0, 0)))
    await a.propose(AlterClusterConfigs(changes=[Change(name="producer.id.expiration.ms", value="1000")]))
    clock = ManualClock()
    clock.advance(3600)
    jobs = [ProducerExpiry(one, clock, poll_s=0.01) for one in (a, b)]
    for job in jobs:
        job.start()
    await until(lambda: not any(p.producers for p in a.state.partitions if p is not None))
    await until(lambda: a.state.claims and b.state.claims)
    holder = a.state.claims["producer-expiry"].incarnation
    assert [job.held() is not None for job in jobs].count(True) == 1
    dead = a if holder == a.incarnation else b
    await jobs[0 if dead is a else 1].stop()
    await crash(dead)
    agents.server.expire(holder)
    survivor = jobs[1 if dead is a else 0]
    await until(survivor.held)
    for job in jobs:
        await job.stop()


class Stuck(Job):
    """Passes over an item that it cannot work on."""

    claim = "stuck"

    async def step(self, held: ClaimHolder) -> None:
        with self.item("x"):
            raise ValueError("a defect")


async def test_an_agent_that_lost_a_job_does_not_tell_what_failed_in_it(agents: Agents) -> None:
    """Whoever holds it does; an alert would stand for two hours at an agent that does nothing there."""
    a, b = await agents.start("a"), await agents.start("b")
    first, second = Stuck(a, 0.01), Stuck(b, 0.01)
    first.start()
    await until(lambda: list(first.failing_items(0)))
    second.start()
    await until(lambda: "stuck" in b.state.claims)
    assert not list(second.failing_items(0))
    await first.stop()
    agents.server.expire(a.incarnation)
    await until(lambda: list(second.failing_items(0)))
    first.start()
    await until(lambda: not list(first.failing_items(0)))
    for job in (first, second):
        await job.stop()


async def test_what_was_deleted_is_not_said_to_work_again(
    agents: Agents, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever reads that an item fails no more looks for nothing any longer."""
    caplog.set_level(logging.INFO)
    a = await agents.start("a")
    await a.propose(topic("t", 1))
    job = Stuck(a, 0.01)
    gone = job.without_partition(0)
    job.item_failed("mended", ValueError("odd"), gone)
    job.item_worked("mended")
    for item in ("seen by the job", "seen by readiness"):
        job.item_failed(item, ValueError("odd"), gone)
    await a.propose(DeleteTopic(name="t"))
    job.item_worked("seen by the job")
    assert list(job.failing_items(0)) == []
    told = {fields["item"]: each.message for each in caplog.records if (fields := vars(each).get("fields"))}
    no_more = "an item that failed is there no more"
    assert told == {
        "mended": "an item fails no more", "seen by the job": no_more, "seen by readiness": no_more,
    }  # fmt: skip


class Stumbling(Job):
    """Fails by a defect of its own at first."""

    claim = "stumbling"
    steps = 0

    async def step(self, held: ClaimHolder) -> None:
        self.steps += 1
        if self.steps == 1:
            raise ValueError("a defect")


async def test_a_defect_is_told_and_does_not_end_a_job_in_silence(
    agents: Agents, caplog: pytest.LogCaptureFixture
) -> None:
    job = Stumbling(await agents.start("a"), 0.01)
    job.start()
    await until(lambda: job.steps > 1)
    await job.stop()
    assert "a defect" in caplog.text
