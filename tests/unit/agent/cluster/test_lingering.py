"""Which brokers Metadata lists a moment longer than they serve."""

from __future__ import annotations

from agent.cluster.lingering import GONE_MAX, Lingering
from coordination.state.types import Broker, Endpoint

LINGER_S = 15.0


class _Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _broker(node: int, port: int = 9092) -> Broker:
    return Broker(node, f"a{node}", node, (Endpoint("PLAIN", "h", port),), "", "", "")


def _ids(found: list[Broker]) -> list[int]:
    return [broker.node_id for broker in found]


def test_one_that_has_gone_is_listed_from_the_first_answer_without_it() -> None:
    clock = _Time()
    lingering = Lingering(LINGER_S, clock)
    assert _ids(lingering.listed([_broker(2), _broker(1)])) == [1, 2]
    clock.now += 1000  # nobody asked meanwhile
    assert _ids(lingering.listed([_broker(1)])) == [1, 2]
    clock.now += LINGER_S - 0.1
    assert _ids(lingering.listed([_broker(1)])) == [1, 2]
    clock.now += 0.2
    assert _ids(lingering.listed([_broker(1)])) == [1]
    assert _ids(lingering.listed([_broker(1)])) == [1]


def test_one_that_comes_back_is_listed_as_it_is_and_lingers_anew() -> None:
    clock = _Time()
    lingering = Lingering(LINGER_S, clock)
    lingering.listed([_broker(1), _broker(2, 9)])
    lingering.listed([_broker(1)])
    clock.now += LINGER_S - 1
    assert [e.listeners[0].port for e in lingering.listed([_broker(1), _broker(2, 10)])] == [9092, 10]
    clock.now += 2
    assert [e.listeners[0].port for e in lingering.listed([_broker(1)])] == [9092, 10]
    clock.now += LINGER_S - 1
    assert _ids(lingering.listed([_broker(1)])) == [1, 2]


def test_only_so_many_linger_and_none_where_it_is_switched_off() -> None:
    clock = _Time()
    lingering = Lingering(LINGER_S, clock)
    lingering.listed([_broker(node) for node in range(1, 3 * GONE_MAX)])
    assert len(lingering.listed([])) == GONE_MAX
    at_once = Lingering(0, clock)
    at_once.listed([_broker(1), _broker(2)])
    assert _ids(at_once.listed([_broker(2)])) == [2]


def test_while_nobody_serves_the_last_ones_are_listed_for_as_long_as_it_takes() -> None:
    """A client that is told of nobody has nobody to ask again: aiokafka stays so for ever."""
    clock = _Time()
    lingering = Lingering(0, clock)
    assert lingering.listed([]) == []
    lingering.listed([_broker(1), _broker(2)])
    lingering.listed([_broker(2)])
    for _ in range(2):
        clock.now += 1000
        assert _ids(lingering.listed([])) == [2]
    assert _ids(lingering.listed([_broker(3)])) == [3]
