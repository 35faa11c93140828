"""An agent whose clock is off learns it from the log, says so once, and leaves deleting to the others."""

from __future__ import annotations

import logging

import pytest

from coordination.clock import ManualClock
from coordination.commands import Heartbeat, RegisterAgent
from coordination.jobs import ProducerExpiry
from coordination.replica.clock_watch import ClockWatch, deletion_ms
from tests.unit.coordination.conftest import Agents, until
from tests.unit.coordination.kit import DAY_MS, A, B, Script

PATIENCE_S = 10.0


def test_an_agent_that_is_ahead_says_so_once_and_comes_back(
    script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    watch, right = ClockWatch(PATIENCE_S), ClockWatch(PATIENCE_S)
    with caplog.at_level(logging.WARNING):
        for second in range(60):
            for author, off in ((A, 0), (B, 8 * DAY_MS if second < 30 else 0)):
                script.now_ms += off
                script.apply(author, Heartbeat())
                script.now_ms -= off
            script.now_ms += 1000
            watch.look(script.state, B, float(second))
            right.look(script.state, A, float(second))
            assert watch.off == (PATIENCE_S <= second < 30), second
            assert not right.off
            assert not right.reason
            if second == 20:
                assert abs(watch.skew_ms - 8 * DAY_MS) <= 15_000
                assert "ahead of what most agents say" in watch.reason
    assert len(caplog.records) == 2, "once when it is off, once when it is right"


def test_nobody_is_off_by_the_word_of_one_who_says_nothing(script: Script) -> None:
    """Its last stamp is old, not its clock wrong: it hangs, and will be fenced."""
    watch = ClockWatch(PATIENCE_S)
    for second in range(600):
        script.now_ms += 1000
        script.apply(A, Heartbeat())
        watch.look(script.state, A, float(second))
        assert not watch.off


def test_nothing_is_deleted_by_a_later_time_than_most_agents_say(script: Script) -> None:
    script.apply(A, Heartbeat())
    assert deletion_ms(script.state, script.now_ms + DAY_MS) == script.state.clock_ms
    assert deletion_ms(script.state, script.now_ms - DAY_MS) == script.now_ms - DAY_MS


async def test_an_agent_whose_clock_is_off_gives_its_jobs_to_others(agents: Agents) -> None:
    wrong, right = agents.make("a"), agents.make("b")
    clock = wrong._clock
    assert isinstance(clock, ManualClock)
    for each, name in ((wrong, "a"), (right, "b")):
        await each.start(RegisterAgent(name=name, node_id=-1, feature_min=1, feature_max=2))
    jobs = [ProducerExpiry(one, ManualClock(), poll_s=0.01) for one in (wrong, right)]
    jobs[0].start()
    await until(lambda: jobs[0].held() is not None)
    jobs[1].start()
    clock.advance(8 * DAY_MS / 1000)
    await until(lambda: wrong.clock_watch.off and jobs[1].held() is not None)
    assert not right.clock_watch.off
    assert wrong.wall_ms() < clock.now_ms() - DAY_MS, "what it stamps for clients is the others' time"
    clock.advance(-8 * DAY_MS / 1000)
    await until(lambda: not wrong.clock_watch.off)
    assert wrong.wall_ms() == clock.now_ms()
    for job in jobs:
        await job.stop()
