"""Records below the log start: gone for readers, held for their grace, brought back, let go of in time."""

from __future__ import annotations

import pytest

from coordination.commands import (
    AlterClusterConfigs,
    AlterTopicConfigs,
    DeleteTopic,
    MoveLogStart,
    PurgeRecords,
    SkipDamaged,
    UndeleteRecords,
    UndeleteTopic,
)
from coordination.kafka_codes import Code
from coordination.snapshot import decode, encode
from coordination.state import held
from coordination.state.types import Done, Held, Partition, Refused
from tests.unit.coordination.kit import A, B, Producer, Script, swap, tiles
from tests.unit.coordination.reflect import plain

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
Set = AlterTopicConfigs.Change


def graceful(grace_ms: int = DAY_MS, level: int = 2) -> tuple[Script, Partition]:
    """Topic `t` of one partition, six records in six chunks, and its grace."""
    script = Script()
    script.register(A, level=level)
    script.register(B, level=level)
    (handle,) = script.topic(A, "t")
    if level > 1:
        change = Set(name=held.GRACE, value=str(grace_ms))
        assert script.one(A, AlterTopicConfigs(topic="t", changes=[change])) == Done()
    for sequence in range(6):
        script.commit(A, (handle, 1, 7, 0, sequence))
    partition = script.state.partitions[handle]
    assert partition is not None
    return script, partition


def move(script: Script, offset: int, handle: int = 0) -> None:
    done = script.one(A, MoveLogStart(partition=[handle], offset=[offset]))
    assert isinstance(done, Done)


def sound(script: Script) -> None:
    """What must hold does, a snapshot is the same, and another agent comes to the same."""
    tiles(script.state)
    assert plain(decode(encode(script.state))) == plain(script.state)
    assert plain(script.replayed()) == plain(script.state)


def test_records_are_gone_at_once_and_come_back_as_they_were() -> None:
    script, partition = graceful()
    rows, size = bytes(partition.slices.rows), partition.size_bytes
    move(script, 4)
    assert (partition.log_start, partition.held_start) == (4, 0)
    assert partition.size_bytes == size
    assert held.held_bytes(partition) == size * 4 // 6
    assert not script.state.chunks.garbage, "all of it is referred to still"
    sound(script)
    done = script.one(B, UndeleteRecords(partition=[0], offset=[1]))
    assert done == Done((1,))
    assert (partition.log_start, partition.held_start) == (1, 0)
    assert script.one(B, UndeleteRecords(partition=[0], offset=[held.ALL])) == Done((0,))
    assert (partition.log_start, partition.held, script.state.holding) == (0, (), {})
    assert bytes(partition.slices.rows) == rows
    sound(script)


def test_without_a_grace_they_are_gone_for_good() -> None:
    script, partition = graceful(0)
    move(script, 4)
    assert (partition.log_start, partition.held_start) == (4, 4)
    assert len(script.state.chunks.garbage) == 4
    refused = script.one(A, UndeleteRecords(partition=[0], offset=[0]))
    assert isinstance(refused, Refused)
    assert refused.code is Code.OFFSET_OUT_OF_RANGE
    assert script.one(A, UndeleteRecords(partition=[0], offset=[held.ALL])) == Done((4,)), "nothing is held"
    sound(script)


def test_below_its_level_nothing_is_held() -> None:
    script, partition = graceful(level=1)
    move(script, 4)
    assert partition.held_start == 4
    for message in (UndeleteRecords(partition=[0], offset=[0]), PurgeRecords(partition=[0], offset=[0])):
        refused = script.one(A, message)
        assert isinstance(refused, Refused)
        assert refused.code is Code.UNSUPPORTED_VERSION
    sound(script)


def test_they_are_let_go_of_when_their_time_is_over_and_not_before() -> None:
    script, partition = graceful()
    move(script, 2)
    until_ms = partition.held[0].until_ms
    assert DAY_MS <= until_ms - script.state.clock_ms <= DAY_MS + DAY_MS // held.ROUNDED_TO
    early = script.one(A, PurgeRecords(partition=[0], judged_ms=until_ms))
    assert isinstance(early, Refused), "a clock that is ahead"
    assert script.one(A, PurgeRecords(partition=[0], judged_ms=script.state.clock_ms)) == Done(0)
    script.sleep(DAY_MS // 2)
    move(script, 5)
    assert len(partition.held) == 2
    script.sleep(DAY_MS // 2 + DAY_MS // 8)
    assert script.state.clock_ms >= until_ms
    assert script.one(B, PurgeRecords(partition=[0], judged_ms=until_ms)) == Done(2), "the first move's only"
    assert (partition.held_start, partition.log_start) == (2, 5)
    assert len(script.state.chunks.garbage) == 2
    refused = script.one(A, UndeleteRecords(partition=[0], offset=[1]))
    assert isinstance(refused, Refused)
    assert "t-0: to 1: held are the offsets 2 to 5" in refused.message
    assert script.one(A, UndeleteRecords(partition=[0], offset=[2])) == Done((2,))
    sound(script)


def test_who_promised_to_erase_ends_the_grace_at_once() -> None:
    script, partition = graceful()
    move(script, 5)
    assert script.one(A, PurgeRecords(partition=[0], offset=[3])) == Done(3)
    assert (partition.held_start, partition.log_start) == (3, 5)
    assert len(script.state.chunks.garbage) == 3
    sound(script)
    assert script.one(A, PurgeRecords(partition=[0], offset=[6])) == Done(2), "never what can be read"
    assert (partition.held_start, partition.log_start, script.state.holding) == (5, 5, {})
    assert script.one(A, PurgeRecords(partition=[0], offset=[held.ALL])) == Done(0)
    sound(script)


def test_moves_of_one_while_are_one_range_and_there_are_never_more_than_the_bound() -> None:
    script, partition = graceful(8 * HOUR_MS)
    for offset in (1, 2, 3):
        move(script, offset)
    assert len(partition.held) == 1
    script.sleep(HOUR_MS)
    move(script, 4)
    assert [each[:2] for each in partition.held] == [(0, 3), (3, 4)]
    first = partition.held[0].until_ms
    off = Set(name=held.GRACE, value="0")
    script.one(A, AlterTopicConfigs(topic="t", changes=[off]))
    move(script, 5)
    assert [each[:2] for each in partition.held] == [(0, 3), (3, 5)], "what is earlier is held, so it waits"
    assert partition.held[0].until_ms == first
    sound(script)


def test_what_the_bound_leaves_no_room_for_is_held_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "HELD_MAX", 2)
    script, partition = graceful(8 * HOUR_MS)
    for offset in (1, 2, 3, 4):
        move(script, offset)
        script.sleep(HOUR_MS)
    assert [each[:2] for each in partition.held] == [(0, 1), (1, 4)]
    sound(script)


def test_merging_goes_on_over_what_is_held_and_a_swap_keeps_it() -> None:
    script, partition = graceful()
    move(script, 4)
    assert script.one(A, swap(script.state, 0, 1, 3)) == Done()
    merged = partition.merged
    assert merged is not None
    assert (merged.start_offset, merged.end_offset) == (0, 3), "all of it lies below the log start"
    sound(script)
    short = script.one(A, swap(script.state, 0, 2, 5, start_offset=1))
    assert isinstance(short, Refused), "it would lose the record at 0, which is held"
    assert script.one(A, swap(script.state, 0, 2, 5)) == Done()
    assert held.held_bytes(partition) == 40
    assert script.one(A, PurgeRecords(partition=[0], offset=[2])) == Done(2)
    late = script.one(A, swap(script.state, 0, 3, 6, start_offset=2))
    assert late == Done(), "below what is held nothing has to stay"
    move(script, 6)
    garbage = len(script.state.manifest_garbage)
    assert script.one(A, PurgeRecords(partition=[0], offset=[held.ALL])) == Done(4)
    assert partition.merged is None
    assert len(script.state.manifest_garbage) == garbage + 1
    sound(script)


def test_records_of_an_open_transaction_are_not_merged_and_come_back_when_it_has_ended() -> None:
    script, partition = graceful()
    producer = Producer(script, A, "x")
    producer.init()
    assert [producer.send(0), producer.send(0)] == [(0, 6), (0, 7)]
    move(script, 7)
    assert (partition.last_stable, partition.settled) == (7, 6)
    refused = script.one(A, swap(script.state, 0, 1, 7))
    assert isinstance(refused, Refused), "it may be aborted, and merged ranges have nothing of that"
    assert script.one(A, swap(script.state, 0, 1, 6)) == Done()
    back = script.one(A, UndeleteRecords(partition=[0], offset=[6]))
    assert isinstance(back, Refused), "the last stable offset never goes back"
    assert back.code is Code.CONCURRENT_TRANSACTIONS
    assert isinstance(producer.end(commit=False), Done)
    assert script.one(A, UndeleteRecords(partition=[0], offset=[6])) == Done((6,))
    (aborted,) = partition.aborted(0, 9)
    assert (aborted.first_offset, aborted.marker_offset) == (6, 8), "its readers are told"
    sound(script)


def test_damage_that_is_held_can_be_passed_over() -> None:
    script, partition = graceful()
    move(script, 4)
    assert script.one(A, SkipDamaged(partition=0, start=[1], end=[2], by="u")) == Done(1)
    assert [each[:2] for each in partition.skipped] == [(1, 2)]
    script.one(A, PurgeRecords(partition=[0], offset=[2]))
    assert not partition.skipped
    sound(script)


def test_a_deleted_topic_keeps_what_it_holds() -> None:
    script, partition = graceful()
    move(script, 4)
    script.one(A, DeleteTopic(name="t"))
    assert not script.state.holding
    gone = script.one(A, UndeleteRecords(partition=[0], offset=[0]))
    assert isinstance(gone, Refused)
    assert gone.code is Code.UNKNOWN_TOPIC_OR_PARTITION
    assert script.one(A, PurgeRecords(partition=[0], offset=[held.ALL])) == Done(0)
    sound(script)
    script.one(A, UndeleteTopic(topic_id=partition.topic.topic_id))
    assert script.state.holding == {0: partition}
    assert script.one(A, UndeleteRecords(partition=[0], offset=[0])) == Done((0,))
    sound(script)


def test_of_several_partitions_all_come_back_or_none() -> None:
    script, _ = graceful()
    (other,) = script.topic(A, "u")
    move(script, 4)
    refused = script.one(A, UndeleteRecords(partition=[0, other], offset=[0, 3]))
    assert isinstance(refused, Refused)
    assert script.state.topics["t"].partitions[0].log_start == 4
    for odd in (UndeleteRecords(), UndeleteRecords(partition=[0]), PurgeRecords(partition=[0])):
        malformed = script.one(A, odd)
        assert isinstance(malformed, Refused)
        assert malformed.code is Code.INVALID_REQUEST
    many = [0] * (held.PARTITIONS_AT_ONCE_MAX + 1)
    assert isinstance(script.one(A, UndeleteRecords(partition=many, offset=many)), Refused)


def test_the_cluster_says_it_for_all_topics_and_a_topic_for_itself() -> None:
    script, partition = graceful()
    own = Set(name=held.GRACE, operation=Set.DELETE)
    script.one(A, AlterTopicConfigs(topic="t", changes=[own]))
    script.one(A, AlterClusterConfigs(changes=[Set(name=held.GRACE, value=str(HOUR_MS))]))
    move(script, 1)
    assert partition.held == (Held(0, 1, partition.held[0].until_ms),)
    assert HOUR_MS <= partition.held[0].until_ms - script.state.clock_ms <= HOUR_MS + HOUR_MS // 8
