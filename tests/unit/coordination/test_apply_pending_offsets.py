"""Positions committed inside of transactions: they count from its end on, or never (KIP-98, KIP-447)."""

from __future__ import annotations

import pytest

from coordination.commands import (
    AbortTransaction,
    AssignClassicGeneration,
    ClassicMember,
    CommitOffsets,
    CommitTransactionOffsets,
    DeleteGroups,
    DeleteOffsets,
    DeleteTopic,
    ExpireOffsets,
    PutClassicGeneration,
)
from coordination.kafka_codes import Code
from coordination.state import Done, Refused, Result
from coordination.state.group_offsets import position_of
from coordination.state.pending_offsets import pending_of
from tests.unit.coordination.kit import A, B, Producer, Script, for_good


@pytest.fixture
def script(script: Script) -> Script:
    script.topic(A, "t", 3)
    return script


def begun(script: Script, name: str = "x", *, v2: bool = True) -> Producer:
    producer = Producer(script, A, name, v2=v2)
    producer.init()
    return producer


def position(script: Script, handle: int = 0) -> int | None:
    found = position_of(script.state, "g", handle)
    return None if found is None else found.offset


def code_of(result: Result) -> Code:
    assert isinstance(result, Refused), result
    return result.code


def plain(script: Script, offset: int, generation: int = -1, member: str = "") -> Result:
    message = CommitOffsets(
        group="g", generation=generation, member_id=member, partition=[0], offset=[offset]
    )
    return script.one(B, message)


def generation(script: Script) -> None:
    """Group g with member m in a stable generation 1."""
    members = [ClassicMember(member_id="m", protocols=[ClassicMember.Protocol(name="range")])]
    known = script.state.groups.get("g")
    at = known.revision if known is not None else 0
    put = PutClassicGeneration(
        group="g", expected_revision=at, protocol_type="consumer", protocol="range", leader="m",
        members=members,
    )  # fmt: skip
    assert isinstance(script.one(B, put), Done)
    at = script.state.groups["g"].revision
    assign = AssignClassicGeneration(group="g", expected_revision=at, member_id=["m"], assignment=[b""])
    assert isinstance(script.one(B, assign), Done)


def test_positions_count_from_the_commit_on(script: Script) -> None:
    producer = begun(script)
    assert producer.commit_offsets("g", (0, 7), (1, 8)) == Done()
    assert (position(script), (0 in pending_of(script.state, "g"))) == (None, True)
    assert 2 not in pending_of(script.state, "g")
    producer.end(commit=True)
    assert (position(script, 0), position(script, 1)) == (7, 8)
    assert not script.state.pending_offsets
    assert script.state.partitions[0].high_watermark == 0, "no partition, no marker"  # type: ignore[union-attr]  # it exists


def test_positions_of_an_aborted_transaction_never_count(script: Script) -> None:
    producer = begun(script)
    producer.commit_offsets("g", (0, 7))
    producer.end(commit=False)
    assert (position(script), script.state.pending_offsets) == (None, {})
    producer.commit_offsets("g", (0, 9))
    script.sleep(60_000)
    script.one(B, AbortTransaction(transactional_id="x", number=2))
    assert (position(script), script.state.pending_offsets) == (None, {})


def test_the_later_commit_counts_not_the_later_end(script: Script) -> None:
    """Kafka keeps the newest of a mix of commits inside and outside of transactions."""
    producer, other = begun(script), begun(script, "y")
    producer.commit_offsets("g", (0, 7), (1, 7))
    assert plain(script, 20) == Done()
    producer.end(commit=True)
    assert (position(script, 0), position(script, 1)) == (20, 7)
    producer.commit_offsets("g", (0, 30))
    other.commit_offsets("g", (0, 40))
    other.end(commit=True)
    producer.end(commit=True)
    assert position(script) == 40
    plain(script, 50)
    producer.commit_offsets("g", (0, 60))
    producer.end(commit=True)
    assert position(script) == 60


def test_a_commit_of_another_partition_leaves_what_waits(script: Script) -> None:
    producer = begun(script)
    producer.commit_offsets("g", (0, 7))
    message = CommitOffsets(group="g", generation=-1, partition=[1], offset=[5])
    assert script.one(B, message) == Done()
    assert [(handle in pending_of(script.state, "g")) for handle in (0, 1)] == [True, False]
    producer.end(commit=True)
    assert [position(script, handle) for handle in (0, 1)] == [7, 5]


def test_the_group_must_be_part_of_the_transaction(script: Script) -> None:
    """Before transactions v2 by AddOffsetsToTxn."""
    producer = begun(script, v2=False)
    assert code_of(producer.commit_offsets("g", (0, 1))) is Code.INVALID_TXN_STATE
    assert code_of(producer.commit_offsets("g", (0, 1), known=True)) is Code.TRANSACTION_ABORTABLE
    assert producer.add(groups=["g"]) == Done()
    assert producer.commit_offsets("g", (0, 1)) == Done()
    producer.end(commit=True)
    assert position(script) == 1
    assert code_of(producer.commit_offsets("g", (0, 2))) is Code.INVALID_TXN_STATE, "that one is over"


def test_positions_are_fenced_by_member_and_generation(script: Script) -> None:
    producer = begun(script)
    assert (
        code_of(producer.commit_offsets("g", (0, 1), generation=1, member_id="m")) is Code.ILLEGAL_GENERATION
    )
    generation(script)
    assert producer.commit_offsets("g", (0, 1), generation=1, member_id="m") == Done()
    assert (
        code_of(producer.commit_offsets("g", (0, 2), generation=2, member_id="m")) is Code.ILLEGAL_GENERATION
    )
    assert (
        code_of(producer.commit_offsets("g", (0, 2), generation=0, member_id="m")) is Code.ILLEGAL_GENERATION
    )
    assert (
        code_of(producer.commit_offsets("g", (0, 2), generation=1, member_id="n")) is Code.UNKNOWN_MEMBER_ID
    )
    stranger = producer.commit_offsets("g", (0, 2), generation=1, member_id="m", instance_id="nobody's")
    assert code_of(stranger) is Code.UNKNOWN_MEMBER_ID
    assert producer.commit_offsets("g", (1, 3)) == Done(), "a version without them is not asked for them"
    producer.end(commit=True)
    assert (position(script), position(script, 1)) == (1, 3)


def test_a_fenced_producer_commits_no_positions(script: Script) -> None:
    producer = begun(script)
    Producer(script, B, "x").init()
    assert code_of(producer.commit_offsets("g", (0, 1))) is Code.INVALID_PRODUCER_EPOCH
    producer.name = "nobody"
    assert code_of(producer.commit_offsets("g", (0, 1))) is Code.INVALID_PRODUCER_ID_MAPPING


def test_unknown_partitions_have_a_code_of_their_own(script: Script) -> None:
    script.topic(A, "gone")
    producer = begun(script)
    assert producer.commit_offsets("g", (0, 1), (99, 1), (3, 5)) == Done(
        (0, int(Code.UNKNOWN_TOPIC_OR_PARTITION), 0)
    )
    for_good(script)
    script.one(A, DeleteTopic(name="gone"))
    producer.end(commit=True)
    assert list(script.state.groups["g"].offsets) == [0]


def test_a_group_lives_as_long_as_positions_wait_for_it(script: Script) -> None:
    producer = begun(script)
    producer.commit_offsets("g", (0, 1))
    assert script.one(A, ExpireOffsets(retention_ms=0, group=["g"])) == Done((0, 0))
    producer.end(commit=True)
    assert position(script) == 1


def test_a_group_that_is_deleted_stays_deleted(script: Script) -> None:
    """Kafka's deleteAllOffsets takes the pending positions of every transaction along."""
    producer, other = begun(script), begun(script, "y")
    producer.commit_offsets("g", (0, 1))
    producer.commit_offsets("h", (0, 2))
    other.commit_offsets("g", (1, 3))
    assert script.one(A, DeleteGroups(group=["g"])) == Done((0,))
    assert 0 not in pending_of(script.state, "g")
    assert 0 in pending_of(script.state, "h")
    other.commit_offsets("g", (2, 4))
    producer.end(commit=True)
    other.end(commit=True)
    assert [position(script, handle) for handle in range(3)] == [None, None, 4], "what came after it counts"
    assert list(script.state.groups) == ["h", "g"]
    assert script.state.pending_offsets == {}


def test_positions_that_are_deleted_stay_deleted(script: Script) -> None:
    """Kafka writes a tombstone for a position that only waits, too."""
    producer, other = begun(script), begun(script, "y")
    producer.commit_offsets("g", (0, 1), (1, 2))
    other.commit_offsets("g", (0, 3))
    assert script.one(A, DeleteOffsets(group="g", partition=[0])) == Done((0,))
    assert [(handle in pending_of(script.state, "g")) for handle in (0, 1)] == [False, True]
    other.end(commit=True)
    producer.end(commit=True)
    assert (position(script, 0), position(script, 1)) == (None, 2)


def test_positions_of_a_topic_that_is_consumed_still_wait(script: Script) -> None:
    producer = begun(script)
    metadata = b"\0\0" + (1).to_bytes(4) + b"\0\1t"
    members = [
        ClassicMember(member_id="m", protocols=[ClassicMember.Protocol(name="range", metadata=metadata)])
    ]
    put = PutClassicGeneration(
        group="g", protocol_type="consumer", protocol="range", leader="m", members=members
    )
    assert isinstance(script.one(B, put), Done)
    producer.commit_offsets("g", (0, 1), generation=1, member_id="m")
    refused = (int(Code.GROUP_SUBSCRIBED_TO_TOPIC),)
    assert script.one(A, DeleteOffsets(group="g", partition=[0])) == Done(refused)
    assert script.one(A, DeleteGroups(group=["g"])) == Done((int(Code.NON_EMPTY_GROUP),))
    producer.end(commit=True)
    assert position(script) == 1


def test_a_commit_outside_counts_over_one_of_its_own_entry(script: Script) -> None:
    """Of two in one entry the later command counts: here the plain one."""
    producer = begun(script)
    inside = CommitTransactionOffsets(
        transactional_id="x",
        producer_id=producer.pair[0],
        producer_epoch=producer.pair[1],
        group="g",
        generation=-1,
        partition=[0],
        offset=[7],
        adds_group=True,
    )
    outside = CommitOffsets(group="g", generation=-1, partition=[0], offset=[20])
    assert script.apply(A, inside, outside).results == (Done(), Done())
    assert 0 not in pending_of(script.state, "g")
    producer.end(commit=True)
    assert position(script) == 20


@pytest.mark.parametrize("columns", [{"offset": [7]}, {"leader_epoch": [1]}, {"metadata": ["m"]}])
def test_columns_that_do_not_fit_are_refused_and_leave_nothing(
    script: Script, columns: dict[str, list[int] | list[str]]
) -> None:
    """Apply must not raise: every agent would stop for ever."""
    producer = begun(script)
    wrong = CommitTransactionOffsets(
        transactional_id="x",
        producer_id=producer.pair[0],
        producer_epoch=producer.pair[1],
        group="g",
        generation=-1,
        adds_group=True,
        **({"partition": [0, 1], "offset": [7, 8]} | columns),  # type: ignore[arg-type]  # columns of either kind
    )
    refused = script.one(A, wrong)
    assert isinstance(refused, Refused)
    assert refused.code is Code.INVALID_REQUEST
    assert 0 not in pending_of(script.state, "g")
