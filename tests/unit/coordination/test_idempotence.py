"""Idempotent producers as Kafka decides them (ProducerAppendInfo, ProducerStateEntry): rules 3 and 4."""

from __future__ import annotations

import pytest

from coordination.commands import AllocateProducerIds, ExpireProducers
from coordination.kafka_codes import Code
from coordination.state import Done, Refused
from tests.unit.coordination.kit import DAY_MS, START_MS, A, B, Script, tiles

P = 7  # a producer id
MAX = (1 << 31) - 1


@pytest.fixture
def script(script: Script) -> Script:
    script.topic(A, "t", partitions=2)
    return script


def answer(script: Script, author: int, *batch: int) -> tuple[int, int]:
    result = script.commit(author, batch)
    tiles(script.state)
    return result.errors[0], result.base_offsets[0]


def test_a_retry_through_another_agent_gets_its_first_offset(script: Script) -> None:
    assert answer(script, A, 0, 10, P, 0, 0) == (0, 0)
    assert answer(script, A, 0, 5, P, 0, 10) == (0, 10)
    script.through_snapshot()
    assert answer(script, B, 0, 10, P, 0, 0) == (0, 0)
    assert script.state.partitions[0].high_watermark == 15


@pytest.mark.parametrize("count", range(6, 14))
def test_five_batches_are_remembered_and_older_ones_are_known_to_be_written(
    script: Script, count: int
) -> None:
    """However many there were."""
    for number in range(count):
        assert answer(script, A, 0, 2, P, 0, 2 * number) == (0, 2 * number)
    for number in range(count - 5, count):
        assert answer(script, B, 0, 2, P, 0, 2 * number) == (0, 2 * number)
    for number in range(count - 5):
        assert answer(script, B, 0, 2, P, 0, 2 * number) == (Code.DUPLICATE_SEQUENCE_NUMBER, -1)


def test_a_gap_is_out_of_order_and_changes_nothing(script: Script) -> None:
    answer(script, A, 0, 2, P, 0, 0)
    assert answer(script, A, 0, 2, P, 0, 3) == (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert answer(script, A, 0, 2, P, 0, 2) == (0, 2)


def test_a_batch_with_other_ends_than_a_remembered_one_is_no_duplicate(script: Script) -> None:
    answer(script, A, 0, 4, P, 0, 0)
    answer(script, A, 0, 4, P, 0, 4)
    assert answer(script, A, 0, 3, P, 0, 4) == (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert answer(script, A, 0, 5, P, 0, 4) == (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert answer(script, A, 0, 8, P, 0, 0) == (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_a_sequence_before_the_state_began_was_never_seen_written(script: Script) -> None:
    """With no state any sequence begins (Kafka 2.5); what lies before it may be lost: no success for it."""
    assert answer(script, A, 0, 1, P, 0, 100) == (0, 0)
    assert answer(script, A, 0, 1, P, 0, 99) == (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert answer(script, A, 0, 1, P, 0, 101) == (0, 1)


def test_epochs(script: Script) -> None:
    answer(script, A, 0, 1, P, 3, 0)
    assert answer(script, A, 0, 1, P, 2, 1) == (Code.INVALID_PRODUCER_EPOCH, -1)
    assert answer(script, A, 0, 1, P, 4, 1) == (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert answer(script, A, 0, 1, P, 4, 0) == (0, 1)
    assert answer(script, A, 0, 1, P, 3, 1) == (Code.INVALID_PRODUCER_EPOCH, -1)
    assert answer(script, A, 0, 1, P, 4, 0) == (0, 1), "a duplicate in the new epoch"
    assert answer(script, A, 0, 1, P, 4, 1) == (0, 2)


def test_sequences_wrap_from_the_largest_int_to_zero(script: Script) -> None:
    assert answer(script, A, 0, 4, P, 0, MAX - 5) == (0, 0)
    assert answer(script, A, 0, 4, P, 0, MAX - 1) == (0, 4), "its last sequence is 1: it wraps inside"
    assert answer(script, A, 0, 4, P, 0, MAX - 1) == (0, 4)
    assert answer(script, A, 0, 3, P, 0, 2) == (0, 8)
    assert answer(script, A, 0, 4, P, 0, MAX - 5) == (0, 0)
    assert answer(script, A, 0, 1, P, 0, 6) == (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_a_batch_that_ends_at_the_largest_int_is_followed_by_zero(script: Script) -> None:
    assert answer(script, A, 0, 2, P, 0, MAX - 1) == (0, 0)
    assert script.state.partitions[0].producers[P].last_sequence == MAX
    assert answer(script, A, 0, 1, P, 0, 0) == (0, 2)


def test_batches_of_one_chunk_see_each_other(script: Script) -> None:
    result = script.commit(A, (0, 2, P, 0, 0), (0, 2, P, 0, 0), (0, 2, P, 0, 2), (0, 9), (1, 1, P, 0, 0))
    assert result.errors == [0, 0, 0, 0, 0]
    assert result.base_offsets == [0, 0, 2, 4, 0]
    slices = script.state.partitions[0].slices.plan(0, 1 << 40)
    assert [(s.base_offset, s.end_offset, s.position, s.length) for s in slices] == [
        (0, 2, 64, 100),
        (2, 13, 264, 200),
    ], "the duplicate's bytes between them are not referenced"


def test_expiry_by_command_forgets_idle_producers_only(script: Script) -> None:
    answer(script, A, 0, 1, P, 0, 0)
    script.sleep(1000)
    answer(script, A, 1, 1, P + 1, 0, 0)
    script.sleep(DAY_MS)
    since = START_MS + 500
    assert script.one(A, ExpireProducers(idle_since_ms=since, first_partition=1)) == Done(0)
    assert script.one(A, ExpireProducers(idle_since_ms=since)) == Done(1)
    assert list(script.state.partitions[0].producers) == []
    assert list(script.state.partitions[1].producers) == [P + 1]
    assert answer(script, A, 0, 1, P, 0, 55) == (0, 1), "no state: any sequence begins"


def test_what_describe_producers_shows(script: Script) -> None:
    answer(script, A, 0, 10, P, 2, 0)
    answer(script, A, 0, 3, P, 2, 10)
    entry = script.state.partitions[0].producers[P]
    assert (entry.epoch, entry.last_sequence, entry.last_offset, entry.last_timestamp) == (
        2,
        12,
        12,
        START_MS,
    )


def test_producer_ids_are_given_once(script: Script) -> None:
    assert script.one(A, AllocateProducerIds(count=100)) == Done(0)
    script.through_snapshot()
    assert script.one(B, AllocateProducerIds(count=1)) == Done(100)
    assert isinstance(script.one(B, AllocateProducerIds(count=0)), Refused)
