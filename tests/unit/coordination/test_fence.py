"""The connection fence of transactions v1 (KAFKA-17754), by stories; all orders: test_fence_explored.py."""

from __future__ import annotations

import pytest

from coordination.commands import Fence
from coordination.kafka_codes import Code
from coordination.state import Done, Refused, Result
from coordination.state.fence import CLOSE
from coordination.state.group_offsets import position_of
from tests.unit.coordination.kit import A, B, Producer, Script


@pytest.fixture
def script(script: Script) -> Script:
    script.topic(A, "t", 2)
    return script


def closed(result: Result) -> bool:
    return isinstance(result, Refused) and result.code is CLOSE


def code(result: Result) -> Code:
    assert isinstance(result, Refused), result
    return result.code


def connection(script: Script, number: int) -> Fence:
    """A connection whose ApiVersions is answered now."""
    return Fence(connection=number, stamp=script.state.revision)


def after_an_end(script: Script) -> tuple[Producer, Fence, Fence]:
    """A producer whose first transaction is committed, its coordinator's connection, and one that is older
    than the end. The next transaction has added group g."""
    producer = Producer(script, A, "x", v2=False)
    producer.init()
    main, old = connection(script, 1), connection(script, 2)
    producer.add(0, groups=["g"], fence=main)
    producer.end(commit=True, fence=main)
    assert producer.add(0, groups=["g"], fence=main) == Done()
    return producer, main, old


def position(script: Script, handle: int = 0) -> int | None:
    found = position_of(script.state, "g", handle)
    return None if found is None else found.offset


def test_an_end_held_back_does_not_end_the_next_transaction(script: Script) -> None:
    producer = Producer(script, A, "x", v2=False)
    producer.init()
    old = connection(script, 1)
    producer.add(0, fence=old)
    young = connection(script, 2)
    assert producer.end(commit=True, fence=young) == Done((0, 0)), "the client has sent it again"
    assert producer.add(0, fence=young) == Done()
    producer.send(0)
    assert closed(producer.end(commit=True, fence=old))
    assert closed(producer.add(1, fence=old))
    assert closed(producer.commit_offsets("g", (0, 1), fence=old))
    assert script.state.transactions["x"].ongoing
    assert list(script.state.transactions["x"].partitions) == [0]


def test_a_retry_that_was_told_of_the_end_counts_as_one(script: Script) -> None:
    """A second try of EndTxn may sit on a connection that is younger than the end."""
    producer = Producer(script, A, "x", v2=False)
    producer.init()
    first = connection(script, 1)
    producer.add(0, fence=first)
    producer.end(commit=True, fence=first)  # its answer is lost
    second = connection(script, 2)
    third = connection(script, 3)
    assert producer.end(commit=True, fence=third) == Done((0, 0))
    producer.add(0, fence=third)
    assert second.stamp >= 4
    assert closed(producer.end(commit=True, fence=second))
    assert script.state.transactions["x"].ongoing


def test_one_connection_goes_on_and_its_number_at_another_agent_does_not(script: Script) -> None:
    producer = Producer(script, A, "x", v2=False)
    producer.init()
    only = connection(script, 1)
    for _ in range(3):
        assert producer.add(0, fence=only) == Done()
        assert producer.end(commit=True, fence=only) == Done((0, 0))
    producer.add(0, fence=only)
    producer.author = B
    assert closed(producer.end(commit=True, fence=only)), "connection 1 of another agent"


def test_positions_need_no_new_connection_in_each_transaction(script: Script) -> None:
    """A group's coordinator has a connection of its own, which nothing proves to be alive."""
    producer, main, own = after_an_end(script)
    for number in range(3):
        assert producer.commit_offsets("g", (0, 10 + number), fence=own) == Done()
        assert producer.commit_offsets("g", (1, 20 + number), fence=own) == Done(), "again by the same"
        assert producer.end(commit=True, fence=main) == Done((0, 0))
        assert (position(script), position(script, 1)) == (10 + number, 20 + number)
        assert closed(producer.commit_offsets("g", (0, 99), fence=own)), "its group is not added"
        assert producer.add(0, groups=["g"], fence=main) == Done()


@pytest.mark.parametrize("late_first", [True, False])
def test_late_positions_do_not_count_in_the_next_transaction(script: Script, late_first: bool) -> None:
    """A TxnOffsetCommit of transaction 1 that arrives in transaction 2, in front of its own or behind it."""
    producer, main, held = after_an_end(script)
    own = connection(script, 3)
    producer.end(commit=True, fence=main)
    assert producer.add(0, groups=["g"], fence=main) == Done()
    if late_first:
        assert producer.commit_offsets("g", (0, 100), fence=held) == Done(), "it may be the client's own"
        assert closed(producer.commit_offsets("g", (0, 200), fence=own))
        own = connection(script, 4)
    assert producer.commit_offsets("g", (0, 200), fence=own) == Done()
    assert closed(producer.commit_offsets("g", (0, 100), fence=held))
    producer.end(commit=True, fence=main)
    assert position(script) == 200


def test_what_nobody_replaces_can_only_be_aborted(script: Script) -> None:
    producer, main, held = after_an_end(script)
    assert producer.commit_offsets("g", (0, 100), (1, 101), fence=held) == Done()
    own = connection(script, 3)
    for fence in (own, own, connection(script, 4)):
        assert code(producer.commit_offsets("g", (0, 200), fence=fence)) is Code.TRANSACTION_ABORTABLE
    script.through_snapshot()
    both = producer.commit_offsets("g", (0, 200), (1, 201), fence=own)
    assert code(both) is Code.TRANSACTION_ABORTABLE, "its client has been told"
    assert code(producer.end(commit=True, fence=main)) is Code.TRANSACTION_ABORTABLE
    assert producer.end(commit=False, fence=main) == Done((0, 0))
    assert (position(script), position(script, 1)) == (None, None)
    assert producer.add(0, groups=["g"], fence=main) == Done()
    assert producer.commit_offsets("g", (0, 200), fence=own) == Done()
    assert producer.end(commit=True, fence=main) == Done((0, 0))
    assert (position(script), position(script, 1)) == (200, None)


def test_a_request_that_names_no_partition_replaces_nothing(script: Script) -> None:
    producer, _, held = after_an_end(script)
    assert producer.commit_offsets("g", (0, 100), fence=held) == Done()
    assert closed(producer.commit_offsets("g", fence=Fence(connection=3)))
    assert code(producer.commit_offsets("g", fence=connection(script, 4))) is Code.TRANSACTION_ABORTABLE


def test_positions_that_are_proven_need_not_be_named_again(script: Script) -> None:
    """A client that comes back by another connection commits other partitions by it."""
    producer, main, _ = after_an_end(script)
    assert producer.commit_offsets("g", (0, 100), fence=connection(script, 3)) == Done()
    assert producer.commit_offsets("g", (1, 101), fence=connection(script, 4)) == Done()
    producer.end(commit=True, fence=main)
    assert (position(script), position(script, 1)) == (100, 101)


def test_a_try_given_up_does_not_replace_what_was_sent_behind_it(script: Script) -> None:
    """Within one transaction: two positions of a partition, and the first one's first try arrives last."""
    producer, main, _ = after_an_end(script)
    held, own = connection(script, 3), connection(script, 4)
    assert producer.commit_offsets("g", (0, 100), fence=own) == Done()
    assert producer.commit_offsets("g", (0, 200), fence=own) == Done()
    assert closed(producer.commit_offsets("g", (0, 100), fence=held))
    assert producer.add(groups=["g"], fence=main) == Done(), "AddOffsetsToTxn again"
    assert closed(producer.commit_offsets("g", (0, 100), fence=held))
    producer.end(commit=True, fence=main)
    assert position(script) == 200


def test_a_new_epoch_needs_no_fence(script: Script) -> None:
    producer = Producer(script, A, "x", v2=False)
    first = producer.init()
    old = connection(script, 1)
    producer.add(0, fence=old)
    producer.end(commit=True, fence=old)
    other = Producer(script, B, "x", v2=False)
    other.init()
    assert other.add(0, fence=Fence(connection=9)) == Done()
    producer.pair = first
    assert code(producer.end(commit=True, fence=old)) is Code.PRODUCER_FENCED


def test_the_fence_survives_a_snapshot(script: Script) -> None:
    producer = Producer(script, A, "x", v2=False)
    producer.init()
    old, young = connection(script, 1), connection(script, 2)
    producer.add(0, fence=old)
    producer.end(commit=True, fence=young)
    script.through_snapshot()
    assert closed(producer.add(0, fence=old))
    assert producer.add(0, groups=["f", "g"], fence=young) == Done()
    assert producer.commit_offsets("g", (0, 1), (1, 1), fence=old) == Done()
    script.through_snapshot()
    assert script.state.transactions["x"].groups["f"] is None
    assert producer.commit_offsets("g", (0, 2), fence=old) == Done(), "by the same connection"
    again = connection(script, 3)
    assert code(producer.commit_offsets("g", (0, 3), fence=again)) is Code.TRANSACTION_ABORTABLE
