"""Positions committed inside of transactions: they count from its end on, or never (KIP-98, KIP-447)."""

from __future__ import annotations

import pytest

from coordination.commands import (
    AbortTransaction,
    AssignClassicGeneration,
    ClassicMember,
    CommitOffsets,
    DeleteGroups,
    DeleteTopic,
    ExpireOffsets,
    PutClassicGeneration,
)
from coordination.kafka_codes import Code
from coordination.state import Done, Refused, Result
from coordination.state.group_offsets import position_of
from coordination.state.pending_offsets import is_pending
from tests.unit.coordination.kit import A, B, Producer, Script


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
    assert (position(script), is_pending(script.state, "g", 0)) == (None, True)
    assert not is_pending(script.state, "g", 2)
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


def test_the_group_must_be_part_of_the_transaction(script: Script) -> None:
    """Before transactions v2 by AddOffsetsToTxn: KAFKA.md 7."""
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
    script.one(A, DeleteTopic(name="gone"))
    producer.end(commit=True)
    assert list(script.state.groups["g"].offsets) == [0]


def test_a_group_lives_as_long_as_positions_wait_for_it(script: Script) -> None:
    producer = begun(script)
    producer.commit_offsets("g", (0, 1))
    assert script.one(A, ExpireOffsets(retention_ms=0, group=["g"])) == Done((0, 0))
    assert script.one(A, DeleteGroups(group=["g"])) == Done((0,))
    producer.end(commit=True)
    assert position(script) == 1, "Kafka makes it anew as well"
