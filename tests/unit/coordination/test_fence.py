"""The connection fence of transactions v1 (KAFKA-17754), by stories; all orders: test_fence_explored.py."""

from __future__ import annotations

import pytest

from coordination.commands import Fence
from coordination.kafka_codes import Code
from coordination.state import Done, Refused, Result
from coordination.state.fence import CLOSE
from tests.unit.coordination.kit import A, B, Producer, Script

OTHER, JAVA, LIBRDKAFKA = Fence.OTHER, Fence.JAVA, Fence.LIBRDKAFKA


@pytest.fixture
def script(script: Script) -> Script:
    script.topic(A, "t", 2)
    return script


def closed(result: Result) -> bool:
    return isinstance(result, Refused) and result.code is CLOSE


def connection(script: Script, number: int, software: Fence.Software = OTHER) -> Fence:
    """A connection whose ApiVersions is answered now."""
    return Fence(connection=number, stamp=script.state.revision, software=software)


def sent(fence: Fence, correlation_id: int) -> Fence:
    made = Fence()
    made.CopyFrom(fence)
    made.correlation_id = correlation_id
    return made


def test_an_end_held_back_does_not_end_the_next_transaction(script: Script) -> None:
    producer = Producer(script, A, "x", v2=False)
    producer.init()
    old = connection(script, 1)
    producer.add(0, fence=sent(old, 1))
    held = sent(old, 2)
    young = connection(script, 2)
    assert producer.end(commit=True, fence=sent(young, 1)) == Done((0, 0)), "the client has sent it again"
    assert producer.add(0, fence=sent(young, 2)) == Done()
    producer.send(0)
    assert closed(producer.end(commit=True, fence=held))
    assert closed(producer.add(1, fence=held))
    assert closed(producer.commit_offsets("g", (0, 1), fence=held))
    assert script.state.transactions["x"].ongoing
    assert list(script.state.transactions["x"].partitions) == [0]


def test_a_retry_that_was_told_of_the_end_counts_as_one(script: Script) -> None:
    """The hole in the fence of KAFKA.md 5: a second try of EndTxn, on a connection younger than the end."""
    producer = Producer(script, A, "x", v2=False)
    producer.init()
    first = connection(script, 1)
    producer.add(0, fence=sent(first, 1))
    producer.end(commit=True, fence=sent(first, 2))  # its answer is lost
    second = connection(script, 2)
    held = sent(second, 1)
    third = connection(script, 3)
    assert producer.end(commit=True, fence=sent(third, 1)) == Done((0, 0))
    producer.add(0, fence=sent(third, 2))
    assert held.stamp >= 4
    assert closed(producer.end(commit=True, fence=held))
    assert script.state.transactions["x"].ongoing


def test_one_connection_goes_on_and_a_repeated_request_does_not(script: Script) -> None:
    producer = Producer(script, A, "x", v2=False)
    producer.init()
    only = connection(script, 1)
    for number in (1, 3, 5):
        assert producer.add(0, fence=sent(only, number)) == Done()
        assert producer.end(commit=True, fence=sent(only, number + 1)) == Done((0, 0))
    producer.add(0, fence=sent(only, 7))
    assert closed(producer.end(commit=True, fence=sent(only, 6)))
    producer.author = B
    assert closed(producer.end(commit=True, fence=sent(only, 8))), "connection 1 of another agent"


@pytest.mark.parametrize(("software", "other_agent"), [(JAVA, True), (LIBRDKAFKA, False), (OTHER, False)])
def test_clients_that_count_over_connections_need_no_new_one(
    script: Script, software: Fence.Software, other_agent: bool
) -> None:
    """Its group's coordinator has a connection of its own: TxnOffsetCommit comes by that."""
    producer = Producer(script, A, "x", v2=False)
    producer.init()
    one, two = connection(script, 1, software), connection(script, 2, software)
    producer.add(groups=["g"], fence=sent(one, 1))
    producer.end(commit=True, fence=sent(one, 2))
    producer.add(groups=["g"], fence=sent(one, 3))
    assert closed(producer.commit_offsets("g", (0, 1), fence=sent(two, 1)))
    producer.author = B
    assert closed(producer.commit_offsets("g", (0, 1), fence=sent(two, 4))) is not other_agent
    producer.author = A
    assert closed(producer.commit_offsets("g", (0, 1), fence=sent(two, 5))) is (software == OTHER)
    assert producer.commit_offsets("g", (0, 1), fence=sent(connection(script, 3), 1)) == Done()


def test_correlation_ids_begin_again_after_the_highest(script: Script) -> None:
    producer = Producer(script, A, "x", v2=False)
    producer.init()
    only = connection(script, 1)
    producer.add(0, fence=sent(only, (1 << 31) - 2))
    producer.end(commit=True, fence=sent(only, (1 << 31) - 1))
    assert producer.add(0, fence=sent(only, -(1 << 31))) == Done()


def test_a_new_epoch_needs_no_fence(script: Script) -> None:
    producer = Producer(script, A, "x", v2=False)
    first = producer.init()
    old = connection(script, 1)
    producer.add(0, fence=sent(old, 1))
    producer.end(commit=True, fence=sent(old, 2))
    other = Producer(script, B, "x", v2=False)
    other.init()
    assert other.add(0, fence=Fence(connection=9)) == Done()
    producer.pair = first
    refused = producer.end(commit=True, fence=sent(old, 3))
    assert isinstance(refused, Refused)
    assert refused.code is Code.PRODUCER_FENCED


def test_the_fence_survives_a_snapshot(script: Script) -> None:
    producer = Producer(script, A, "x", v2=False)
    producer.init()
    old, young = connection(script, 1), connection(script, 2, JAVA)
    producer.add(0, fence=sent(old, 1))
    producer.end(commit=True, fence=sent(young, 3))
    script.through_snapshot()
    assert closed(producer.add(0, fence=sent(old, 9)))
    assert producer.add(0, fence=sent(young, 4)) == Done()
