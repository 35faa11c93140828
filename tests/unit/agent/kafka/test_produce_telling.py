"""Who has been stored is told by turns, a few in each round of the event loop; who failed, at once."""

from __future__ import annotations

import asyncio

from agent.kafka.produce.buffer import Outcome, Request
from agent.kafka.produce.telling import TOLD_MAX, Telling
from coordination.kafka_codes import Code


def request(connection: int) -> Request:
    future: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
    return Request(connection, 0.0, 1, future, [Outcome(Code.NONE, 7)], 0)


def told(requests: list[Request]) -> list[int]:
    return [each.connection for each in requests if each.done.done()]


async def test_a_round_tells_so_many_in_their_order() -> None:
    telling, requests = Telling(), [request(number) for number in range(2 * TOLD_MAX + 3)]
    for each in requests:
        telling.tell(each)
    assert told(requests) == list(range(TOLD_MAX))
    await asyncio.sleep(0)
    assert told(requests) == list(range(2 * TOLD_MAX))
    late = request(1_000_000)
    telling.tell(late)
    assert not late.done.done(), "it does not pass those that wait"
    await asyncio.sleep(0)
    assert told([*requests, late]) == [each.connection for each in [*requests, late]]
    assert requests[0].done.result() == [Outcome(Code.NONE, 7)]


async def test_who_does_not_wait_any_more_is_passed_over() -> None:
    telling, requests = Telling(), [request(number) for number in range(TOLD_MAX + 2)]
    requests[0].done.cancel()
    for each in requests:
        telling.tell(each)
    requests[TOLD_MAX].done.set_result([])  # its deadline is over
    await asyncio.sleep(0)
    assert requests[TOLD_MAX].done.result() == []
    assert requests[TOLD_MAX + 1].done.result() == [Outcome(Code.NONE, 7)]


async def test_what_failed_is_told_at_once() -> None:
    telling, requests = Telling(), [request(number) for number in range(TOLD_MAX + 3)]
    requests[-1].outcomes.append(Outcome(Code.NOT_ENOUGH_REPLICAS))
    for each in requests:
        telling.tell(each)
    assert told(requests) == [*range(TOLD_MAX), TOLD_MAX + 2]
    await asyncio.sleep(0)
    assert told(requests) == list(range(TOLD_MAX + 3))


async def test_at_the_end_all_are_told() -> None:
    telling, requests = Telling(), [request(number) for number in range(3 * TOLD_MAX)]
    for each in requests:
        telling.tell(each)
    telling.all()
    assert told(requests) == list(range(3 * TOLD_MAX))
    await asyncio.sleep(0)
