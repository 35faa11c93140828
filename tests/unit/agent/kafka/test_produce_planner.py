"""When the produce buffer is flushed: full, old, or nothing more can arrive; never above the PUT budget."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.kafka.produce.planner import Decision, FlushLimits, FlushPlanner, Reason, lingers_s

LIMITS = FlushLimits(
    buffer_bytes_max=1000,
    batches_max=10,
    linger_s=0.1,
    quiet_s=0.002,
    in_flight_max=2,
    puts_per_s=10,
    puts_burst=3,
)


@pytest.fixture
def planner() -> FlushPlanner:
    return FlushPlanner(LIMITS)


def flush_all(planner: FlushPlanner, now: float) -> None:
    planner.flushed(planner.buffered_bytes, planner.buffered_batches, now, None)


def test_an_empty_buffer_is_never_flushed(planner: FlushPlanner) -> None:
    assert planner.decide(0).reason is None
    assert planner.decide(1e6).wake_at is None


def test_a_client_that_sends_one_at_a_time_is_flushed_at_once(planner: FlushPlanner) -> None:
    planner.arrived(1, 100, 1, 0.0)
    assert planner.decide(0.0).reason is Reason.IDLE


def test_a_pipelining_connection_is_waited_for_until_its_window_is_used_up(planner: FlushPlanner) -> None:
    for _ in range(3):  # it shows that it keeps three unanswered
        planner.arrived(1, 10, 1, 0.0)
    flush_all(planner, 0.0)
    for _ in range(3):
        planner.answered(1, 0.01)
    planner.completed()
    planner.arrived(1, 10, 1, 0.011)
    planner.arrived(1, 10, 1, 0.0111)
    waiting = planner.decide(0.0111)
    assert waiting.reason is None
    assert waiting.wake_at == pytest.approx(0.0131)
    planner.arrived(1, 10, 1, 0.0112)
    assert planner.decide(0.0112).reason is Reason.IDLE


def test_a_connection_that_stays_quiet_is_given_up_and_its_window_forgotten(planner: FlushPlanner) -> None:
    for _ in range(3):
        planner.arrived(1, 10, 1, 0.0)
    flush_all(planner, 0.0)
    for _ in range(3):
        planner.answered(1, 0.01)
    planner.completed()
    planner.arrived(1, 10, 1, 0.011)
    assert planner.decide(0.0131).reason is Reason.IDLE
    flush_all(planner, 0.0131)
    planner.answered(1, 0.02)
    planner.completed()
    planner.arrived(1, 10, 1, 0.03)
    assert planner.decide(0.03).reason is Reason.IDLE, "it now counts as one that sends one at a time"


def test_slow_clients_are_waited_for_as_long_as_they_take_but_never_above_linger(
    planner: FlushPlanner,
) -> None:
    now = 0.0
    for pause in [0.2] * 100 + [5.0] * 10:
        planner.arrived(1, 10, 1, now)
        planner.arrived(1, 10, 1, now)
        flush_all(planner, now)
        planner.answered(1, now)
        planner.answered(1, now)
        planner.completed()
        now += pause
    assert planner._turnaround == pytest.approx(0.2, rel=0.01), "idle times do not count"
    planner.arrived(1, 10, 1, now)
    waiting = planner.decide(now)
    assert waiting.reason is None
    assert waiting.wake_at == pytest.approx(now + 3 * LIMITS.linger_s)


def test_waiting_in_vain_is_unlearned() -> None:
    planner = FlushPlanner(replace(LIMITS, puts_burst=1000))
    planner._turnaround = 0.04
    now = 0.0
    while planner._turnaround > LIMITS.quiet_s:
        planner.arrived(1, 10, 1, now)
        planner.arrived(1, 10, 1, now)
        flush_all(planner, now)
        planner.answered(1, now)  # it has room again, but sends nothing more
        planner.completed()
        planner.arrived(2, 10, 1, now)
        later = now + LIMITS.linger_s * 0.9
        before = planner._turnaround
        assert planner.decide(later).reason is Reason.IDLE
        assert planner._turnaround == before / 2
        flush_all(planner, later)
        planner.completed()
        planner.answered(1, later)
        planner.answered(2, later)
        now += 10


def test_idle_waits_for_the_flush_under_way_but_not_for_ever(planner: FlushPlanner) -> None:
    planner.arrived(1, 10, 1, 0.0)
    flush_all(planner, 0.0)
    planner.arrived(2, 10, 1, 0.001)
    assert planner.decide(0.001).wake_at == pytest.approx(0.401)
    planner.completed()
    assert planner.decide(0.002).reason is Reason.IDLE
    planner.in_flight = 1
    assert planner.decide(0.4011).reason is Reason.LINGER


def test_a_slow_flush_is_waited_for_as_long_as_flushes_usually_take(planner: FlushPlanner) -> None:
    """Group commit while the store is as always, no standstill when one PUT is not."""
    for took_s in (0.2, 0.2, 0.2, 9.0):  # one that was slow does not change what is usual
        planner.arrived(1, 10, 1, 0.0)
        flush_all(planner, 0.0)
        planner.completed(took_s)
    planner.limits = replace(LIMITS, puts_per_s=1e9, in_flight_max=3)
    planner.arrived(1, 10, 1, 1.0)
    flush_all(planner, 1.0)
    planner.arrived(2, 10, 1, 1.0)
    assert planner.decide(1.0).wake_at == pytest.approx(1.2)
    assert planner.decide(1.2001).reason is Reason.LINGER
    flush_all(planner, 1.2001)
    planner.arrived(3, 10, 1, 1.3)
    assert planner.decide(1.3).wake_at == pytest.approx(1.7), "twice as long beside two"


@pytest.mark.parametrize(
    ("took_s", "agents", "linger_s"),
    [
        pytest.param(0.001, 1, 0.005, id="no less than is configured"),
        pytest.param(0.009, 1, 0.009, id="as long as flushes take"),
        pytest.param(0.03, 1, 0.015, id="three times what is configured at most"),
        pytest.param(0.001, 4, 0.008, id="longer where many follow each entry"),
        pytest.param(0.001, 300, 0.015, id="however many"),
    ],
)
def test_the_oldest_byte_lingers_as_long_as_flushes_take(took_s: float, agents: int, linger_s: float) -> None:
    assert lingers_s(0.005, took_s, agents) == linger_s
    assert lingers_s(0.25, took_s, agents) == 0.25, "who wants fewer PUTs has them"
    planner = FlushPlanner(replace(LIMITS, linger_s=0.005, quiet_s=1.0))
    for _ in range(3):
        planner.arrived(1, 10, 1, 0.0)
        flush_all(planner, 0.0)
        planner.completed(took_s)
    planner.agents, planner._tokens = agents, 9
    planner.arrived(2, 10, 1, 1.0)
    planner.arrived(2, 10, 1, 1.0)
    planner.answered(2, 1.0)  # it may send more: what is there is not flushed for want of company
    assert planner.decide(1.0).wake_at == pytest.approx(1.0 + linger_s)
    planner.in_flight = 1
    assert planner.decide(1.0).wake_at == pytest.approx(1.0 + max(linger_s, took_s))


def test_hedges_come_out_of_the_put_budget(planner: FlushPlanner) -> None:
    planner.arrived(1, 10, 1, 0.0)
    flush_all(planner, 0.0)
    planner.hedged(2)  # with the flush's own: the burst
    planner.completed(0.01)
    planner.arrived(1, 10, 1, 0.0)
    assert planner.decide(0.0) == Decision(None, pytest.approx(0.1))


def test_a_full_buffer_is_flushed_beside_another_flush(planner: FlushPlanner) -> None:
    planner.arrived(1, 10, 1, 0.0)
    flush_all(planner, 0.0)
    planner.arrived(2, 1000, 1, 0.0)
    assert planner.decide(0.0).reason is Reason.FULL


def test_many_small_batches_fill_the_buffer_too(planner: FlushPlanner) -> None:
    planner.arrived(1, 10, 1, 0.0)
    flush_all(planner, 0.0)
    planner.arrived(2, 20, 10, 0.0)
    assert planner.decide(0.0).reason is Reason.FULL


def test_no_more_flushes_than_allowed_run_at_once(planner: FlushPlanner) -> None:
    for _ in range(LIMITS.in_flight_max):
        planner.arrived(1, 1000, 1, 0.0)
        flush_all(planner, 0.0)
    planner.arrived(1, 5000, 1, 0.0)
    assert planner.decide(99.0).reason is None
    planner.completed()
    assert planner.decide(99.0).reason is Reason.FULL


def test_the_put_budget_delays_even_a_full_buffer(planner: FlushPlanner) -> None:
    for _ in range(3):  # the burst
        planner.arrived(1, 1000, 1, 0.0)
        assert planner.decide(0.0).reason is Reason.FULL
        flush_all(planner, 0.0)
        planner.completed()
    planner.arrived(1, 1000, 1, 0.0)
    delayed = planner.decide(0.0)
    assert delayed.reason is None
    assert delayed.wake_at == pytest.approx(0.1)
    assert planner.decide(0.1001).reason is Reason.FULL


def test_over_any_time_the_budget_holds(planner: FlushPlanner) -> None:
    flushes, now = 0, 0.0
    while now < 10:
        planner.arrived(1, 2000, 1, now)
        if planner.decide(now).reason:
            flush_all(planner, now)
            planner.completed()
            flushes += 1
        now += 0.001
    assert flushes <= LIMITS.puts_burst + LIMITS.puts_per_s * 10
    assert flushes >= LIMITS.puts_per_s * 10 - 1


def test_draining_flushes_what_is_there_whatever_the_budget(planner: FlushPlanner) -> None:
    for _ in range(3):
        planner.arrived(1, 1000, 1, 0.0)
        flush_all(planner, 0.0)
        planner.completed()
    planner.arrived(1, 10, 1, 0.0)
    planner.draining = True
    assert planner.decide(0.0).reason is Reason.DRAIN


def test_connections_that_went_away_are_forgotten(planner: FlushPlanner) -> None:
    for connection in range(100):
        planner.arrived(connection, 10, 1, 0.0)
        flush_all(planner, 0.0)
        planner.answered(connection, 0.0)
        planner.completed()
    assert len(planner._connections) == 100
    planner.arrived(1000, 10, 1, 5.0)
    planner.answered(1000, 5.0)
    assert len(planner._connections) == 1
