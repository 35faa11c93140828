"""The interval between chunks is what the real planner comes to, in virtual time."""

from __future__ import annotations

import heapq
import itertools
import random

import pytest

from agent.config.limits import ProduceConfig
from agent.costs.flushing import interval_s
from agent.kafka.assembly import flush_limits
from agent.kafka.produce.planner import FlushPlanner
from tests.unit.agent.costs.planned import config_of

MIB = 1024**2
CONNECTIONS = 2_000
FLUSHES = 200


def planned_interval_s(produce: ProduceConfig, write: float, request_bytes: int, flush_s: float) -> float:
    """Seconds between flushes of the real planner: requests at chance times, each flush takes `flush_s`."""
    planner, chance, order = (
        FlushPlanner(flush_limits(config_of(produce))),
        random.Random(7),
        itertools.count(),
    )
    events: list[tuple[float, int, str, list[int]]] = [(0.0, 0, "arrive", [])]
    waiting: list[tuple[int, float]] = []
    now, flushes, began, wake = 0.0, 0, 0.0, -1.0
    while flushes < FLUSHES:
        now, _, what, connections = heapq.heappop(events)
        if what == "arrive":
            connection = chance.randrange(CONNECTIONS)
            planner.arrived(connection, request_bytes, 1, now)
            waiting.append((connection, now))
            heapq.heappush(
                events, (now + chance.expovariate(write / request_bytes), next(order), "arrive", [])
            )
        elif what == "done":
            planner.completed(flush_s)
            for connection in connections:
                planner.answered(connection, now)
        decision = planner.decide(now)
        if decision.reason is not None:
            flushes, began = flushes + 1, began or now
            planner.flushed(request_bytes * len(waiting), len(waiting), now, None)
            done = [connection for connection, _ in waiting]
            waiting = []
            heapq.heappush(events, (now + flush_s, next(order), "done", done))
        elif decision.wake_at is not None and not now < wake <= decision.wake_at:
            wake = max(decision.wake_at, now)
            heapq.heappush(events, (wake, next(order), "wake", []))
    return (now - began) / (FLUSHES - 1)


@pytest.mark.parametrize("flush_ms", [3, 15, 45, 200])
@pytest.mark.parametrize("write", [0.02 * MIB, 0.2 * MIB, 20 * MIB])
def test_the_interval_is_what_the_planner_comes_to(write: float, flush_ms: int) -> None:
    produce = ProduceConfig()
    expected = planned_interval_s(produce, write, 16_384, flush_ms / 1000)
    assert interval_s(produce, write, 16_384, flush_ms / 1000) == pytest.approx(expected, rel=0.2)


def test_full_chunks_and_the_put_budget_bound_it() -> None:
    small = ProduceConfig(chunk_bytes_max=MIB)
    assert interval_s(small, 100 * MIB, 65_536, 0.02) == pytest.approx(1 / 100)
    assert interval_s(small, 100 * MIB, 65_536, 0.08) == pytest.approx(0.08 / 4)  # four PUTs side by side
    slow = ProduceConfig(puts_per_s_max=2.0)
    assert interval_s(slow, MIB, 1_024, 0.01) == 0.5


def test_rare_requests_are_flushed_one_by_one() -> None:
    assert interval_s(ProduceConfig(), 1_000, 10_000, 0.045) == pytest.approx(10, rel=0.01)
