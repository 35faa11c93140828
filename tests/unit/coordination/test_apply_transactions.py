"""Transactions as apply decides them: KIP-98, 360, 588 and 890, and Kafka's own bugs."""

from __future__ import annotations

import itertools

import pytest

from coordination.commands import (
    AbortTransaction,
    CommitTable,
    DeleteTopic,
    ExpireProducers,
    ExpireTransactions,
    MoveLogStart,
    PutNamespace,
)
from coordination.kafka_codes import Code
from coordination.state import Done, Refused, Result
from coordination.state.transaction_owner import EPOCH_MAX
from coordination.state.transaction_types import Phase
from objectstore.naming import MarkerId
from objectstore.transactions import Aborted
from tests.unit.coordination.kit import DAY_MS, START_MS, A, B, Producer, Script, chunk, pair_of, swap, tiles


@pytest.fixture
def script(script: Script) -> Script:
    script.topic(A, "t", 3)
    return script


def code_of(result: Result) -> Code:
    assert isinstance(result, Refused), result
    return result.code


def phase(script: Script, name: str = "x") -> Phase:
    return script.state.transactions[name].phase


def ends(script: Script, handle: int = 0) -> tuple[int, int]:
    partition = script.state.partitions[handle]
    assert partition is not None
    return partition.last_stable, partition.high_watermark


def test_one_entry_ends_a_transaction_on_all_its_partitions(script: Script) -> None:
    producer = Producer(script, A, "x")
    assert producer.init() == (0, 0)
    assert [producer.send(0, 2), producer.send(1, 3)] == [(0, 0), (0, 0)]
    assert (ends(script, 0), ends(script, 1)) == ((0, 2), (0, 3))
    assert producer.end(commit=True) == Done((0, 1))
    assert (ends(script, 0), ends(script, 1), ends(script, 2)) == ((3, 3), (4, 4), (0, 0))
    first, marker = script.state.partitions[0].slices.plan(0, 1 << 30)  # type: ignore[union-attr]  # it exists
    assert (first.end_offset, marker[:3]) == (2, (2, 3, MarkerId(0, 1, True)))
    assert marker.max_timestamp_ms == START_MS
    tiles(script.state)


def test_an_aborted_transaction_is_listed_for_readers_of_its_offsets(script: Script) -> None:
    producer, other = Producer(script, A, "x"), Producer(script, B, "y")
    producer.init()
    other.init()
    producer.send(0, 2)
    other.send(0, 3)
    producer.send(0, 1)
    other.end(commit=True)
    assert ends(script) == (0, 7), "the older transaction holds it back"
    producer.end(commit=False)
    partition = script.state.partitions[0]
    assert partition is not None
    assert ends(script) == (8, 8)
    assert partition.aborted(0, 8) == [Aborted(0, 0, 7)]
    assert partition.aborted(7, 8) == [Aborted(0, 0, 7)], "its marker is there"
    assert partition.aborted(8, 9) == []


def test_the_list_of_aborted_transactions_goes_with_the_log_start_and_with_merging(script: Script) -> None:
    producer = Producer(script, A, "x")
    producer.init()
    for _ in range(4):
        producer.send(0, 2)
        producer.end(commit=False)
    partition = script.state.partitions[0]
    assert partition is not None
    assert [each.marker_offset for each in partition.aborted(0, 12)] == [2, 5, 8, 11]
    script.one(A, MoveLogStart(partition=[0], offset=[3]))
    assert [each.marker_offset for each in partition.aborted(0, 12)] == [5, 8, 11]
    assert isinstance(script.one(A, swap(script.state, 0, 1, 8)), Done)
    assert [each.marker_offset for each in partition.aborted(0, 12)] == [8, 11], "this one crosses the end"
    assert isinstance(script.one(A, swap(script.state, 0, 2, 9, segments=2)), Done)
    assert [each.marker_offset for each in partition.aborted(0, 12)] == [11]
    tiles(script.state)


def test_rows_of_an_open_transaction_are_not_merged(script: Script) -> None:
    producer = Producer(script, A, "x")
    producer.init()
    script.commit(A, (0, 5))
    producer.send(0)
    script.commit(A, (0, 5))
    assert code_of(script.one(A, swap(script.state, 0, 1, 6))) is Code.OFFSET_OUT_OF_RANGE
    assert isinstance(script.one(A, swap(script.state, 0, 1, 5)), Done)


def test_log_start_beyond_an_open_transaction_moves_the_last_stable_offset_along(script: Script) -> None:
    producer = Producer(script, A, "x")
    producer.init()
    producer.send(0, 4)
    script.one(A, MoveLogStart(partition=[0], offset=[3]))
    assert ends(script) == (3, 4)
    producer.end(commit=False)
    assert ends(script) == (5, 5)


@pytest.mark.parametrize("state", ["Empty", "CompleteAbort", "CompleteCommit", "Ongoing"])
def test_the_table_of_end_txn_in_v2(script: Script, state: str) -> None:
    """EndTxn in docs/transactions.md, by state: abort by a retry and the current pair, likewise commit."""
    nothing, fenced, invalid = None, Code.PRODUCER_FENCED, Code.INVALID_TXN_STATE
    expected = {
        "Empty": (fenced, "bump", fenced, invalid),
        "CompleteAbort": (nothing, "bump", fenced, invalid),
        "CompleteCommit": (invalid, "bump", nothing, invalid),
        "Ongoing": (fenced, "bump", fenced, "bump"),
    }[state]
    for commit, retried, wanted in zip(
        (False, False, True, True), (True, False, True, False), expected, strict=True
    ):
        name = f"{commit} {retried}"
        producer = Producer(script, A, name)
        old = producer.init()
        if state == "Empty":
            producer.init(given=old)
        else:
            producer.send(0)
            producer.end(commit=state == "CompleteCommit")
        if state == "Ongoing":
            producer.send(0)
        before, current = ends(script), producer.pair
        result = producer.end(commit=commit, pair=old if retried else current)
        if wanted is nothing:
            assert result == Done(current), name
        elif wanted == "bump":
            assert pair_of(result) == (current[0], current[1] + 1), name
        else:
            assert code_of(result) is wanted, name
        ended = state == "Ongoing" and wanted == "bump"
        assert ends(script)[1] - before[1] == int(ended), name


def test_the_producer_id_after_an_exhausted_epoch_is_given_to_nobody_else(script: Script) -> None:
    producer = Producer(script, A, "x")
    producer.init()
    script.state.transactions["x"].epoch = EPOCH_MAX
    producer.pair = (0, EPOCH_MAX)
    producer.send(0)
    assert producer.end(commit=True) == Done((1, 0))
    others = [Producer(script, A, name) for name in ("y", "z")]
    for each in others:
        each.init()
    assert [each.pair for each in others] == [(2, 0), (3, 0)]


def test_an_exhausted_epoch_gives_a_new_producer_id_also_to_a_retry(script: Script) -> None:
    """KAFKA-18660; FLINK-40689 resumes such a commit by requests of v1."""
    producer = Producer(script, A, "x")
    producer.init()
    script.state.transactions["x"].epoch = EPOCH_MAX
    producer.pair = old = (0, EPOCH_MAX)
    producer.send(0)
    assert producer.end(commit=True) == Done((1, 0))
    row = script.state.partitions[0].slices.plan(1, 1)[0]  # type: ignore[union-attr]  # it exists
    assert row.chunk == MarkerId(0, EPOCH_MAX + 1, True), "it fences the old id for ever"
    assert producer.end(commit=True, pair=old) == Done((1, 0))
    producer.v2 = False
    assert producer.end(commit=True, pair=old) == Done((1, 0)), "a resumed commit, in v1"
    producer.v2 = True
    assert producer.send(0, pair=old)[0] == Code.INVALID_PRODUCER_ID_MAPPING
    assert producer.send(0) == (0, 2)
    assert producer.init() == (1, 1)


def test_an_empty_abort_does_not_fence_its_own_producer(script: Script) -> None:
    """KAFKA-18464."""
    producer = Producer(script, A, "x")
    producer.init()
    producer.send(0)
    producer.end(commit=True)
    assert producer.end(commit=False) == Done((0, 2))
    assert producer.send(0) == (0, 2)
    assert producer.end(commit=True) == Done((0, 3))


def test_init_on_an_ongoing_transaction_aborts_it_and_bumps_once(script: Script) -> None:
    """KAFKA-19367: twice would overflow at the last epoch."""
    producer = Producer(script, A, "x")
    producer.init()
    producer.send(0)
    assert Producer(script, B, "x").init() == (0, 1)
    assert (ends(script), phase(script)) == ((2, 2), Phase.EMPTY)
    assert producer.send(0)[0] == Code.INVALID_PRODUCER_EPOCH
    assert code_of(producer.end(commit=True)) is Code.PRODUCER_FENCED
    script.state.transactions["x"].epoch = EPOCH_MAX
    producer.pair, producer.sequences = (0, EPOCH_MAX), {}
    assert producer.send(1)[0] == 0
    assert producer.init() == (1, 0), "one bump from the last epoch: a new id"


def test_a_commit_retried_after_an_abort_is_fenced(script: Script) -> None:
    """KAFKA-20785: Kafka 4.3.1 says INVALID_TXN_STATE."""
    producer = Producer(script, A, "x")
    old = producer.init()
    producer.send(0)
    producer.end(commit=False)
    assert code_of(producer.end(commit=True, pair=old)) is Code.PRODUCER_FENCED


def test_init_with_a_pair_serves_the_last_owner_and_no_other(script: Script) -> None:
    """KIP-360."""
    producer = Producer(script, A, "x")
    first = producer.init()
    assert producer.init(given=first) == (0, 1)
    assert producer.init(given=first) == (0, 1), "a retry whose answer was lost"
    assert Producer(script, B, "x").init() == (0, 2)
    for given in (first, (0, 1), (0, 3), (99, 0)):
        message = Producer(script, A, "x")
        with pytest.raises(AssertionError, match="PRODUCER_FENCED"):
            message.init(given=given)


def test_init_with_the_previous_pair_does_not_touch_what_went_on_since(script: Script) -> None:
    producer = Producer(script, A, "x")
    old = producer.init()
    producer.send(0)
    producer.end(commit=True)
    producer.send(0)
    with pytest.raises(AssertionError, match="PRODUCER_FENCED"):
        Producer(script, B, "x").init(given=old)
    assert phase(script) is Phase.ONGOING


def test_v1_asks_for_partitions_to_be_added(script: Script) -> None:
    producer = Producer(script, A, "x", v2=False)
    producer.init()
    assert producer.send(0)[0] == Code.TRANSACTION_ABORTABLE
    assert producer.add(0, 1) == Done()
    assert producer.send(0) == (0, 0)
    assert producer.send(2)[0] == Code.TRANSACTION_ABORTABLE
    assert producer.end(commit=True) == Done((0, 0))
    assert [ends(script, handle)[1] for handle in range(3)] == [2, 1, 0], "added ones get a marker"
    assert producer.send(0)[0] == Code.TRANSACTION_ABORTABLE, "that transaction is over"


def test_end_txn_in_v1(script: Script) -> None:
    producer = Producer(script, A, "x", v2=False)
    producer.init()
    assert code_of(producer.end(commit=True)) is Code.INVALID_TXN_STATE
    assert code_of(producer.end(commit=False)) is Code.INVALID_TXN_STATE
    producer.add(0)
    assert producer.end(commit=True) == producer.end(commit=True) == Done((0, 0))
    assert code_of(producer.end(commit=False)) is Code.INVALID_TXN_STATE
    producer.add(0)
    producer.end(commit=False)
    assert producer.end(commit=False) == Done((0, 0))
    assert code_of(producer.end(commit=True)) is Code.INVALID_TXN_STATE
    assert code_of(producer.end(commit=True, pair=(0, 1))) is Code.PRODUCER_FENCED
    assert code_of(producer.end(commit=True, pair=(5, 0))) is Code.INVALID_PRODUCER_ID_MAPPING
    producer.name = "nobody"
    assert code_of(producer.end(commit=True)) is Code.INVALID_PRODUCER_ID_MAPPING


def test_partitions_that_do_not_exist_are_not_added_and_neither_are_the_others(script: Script) -> None:
    producer = Producer(script, A, "x", v2=False)
    producer.init()
    assert producer.add(0, 77) == Done(
        (int(Code.OPERATION_NOT_ATTEMPTED), int(Code.UNKNOWN_TOPIC_OR_PARTITION))
    )
    assert phase(script) is Phase.EMPTY


def test_a_batch_outside_of_the_transaction_is_refused_while_it_is_open(script: Script) -> None:
    producer = Producer(script, A, "x")
    producer.init()
    producer.send(0)
    assert script.commit(B, (0, 1, 0, 0, 1)).errors == [Code.INVALID_TXN_STATE]
    assert script.commit(B, (1, 1, 0, 0, 0), (0, 1)).errors == [0, 0], "elsewhere, and by others"


def test_a_duplicate_inside_of_a_transaction_keeps_its_offset(script: Script) -> None:
    producer = Producer(script, A, "x")
    producer.init()
    producer.send(0, 2)
    producer.sequences[0] = 0
    producer.author = B
    assert producer.send(0, 2) == (0, 0)
    assert ends(script) == (0, 2)


def test_a_timeout_aborts_only_the_transaction_it_was_meant_for(script: Script) -> None:
    producer = Producer(script, A, "x")
    producer.init(timeout_ms=1000)
    producer.send(0)
    late = AbortTransaction(transactional_id="x", number=1)
    assert code_of(script.one(B, late)) is Code.INVALID_REQUEST, "its time is not over"
    script.now_ms += 1000
    assert script.one(B, AbortTransaction(transactional_id="x", number=2)) != Done((0, 1))
    assert script.one(B, late) == Done((0, 1))
    assert ends(script) == (2, 2)
    assert code_of(script.one(B, late)) is Code.INVALID_TXN_STATE
    assert code_of(script.one(B, AbortTransaction(transactional_id="y", number=1))) is (
        Code.TRANSACTIONAL_ID_NOT_FOUND
    )


@pytest.mark.parametrize("v2", [True, False])
def test_whoever_timed_out_recovers_and_is_told_of_no_other_producer(script: Script, v2: bool) -> None:
    """KIP-588. Kafka answers PRODUCER_FENCED (v1) and INVALID_TXN_STATE (v2), both fatal for clients."""
    producer = Producer(script, A, "x", v2=v2)
    old = producer.init(timeout_ms=1000)
    producer.add(0)
    producer.send(0)
    script.now_ms += 1000
    script.one(B, AbortTransaction(transactional_id="x", number=1))
    assert producer.send(0)[0] == Code.INVALID_PRODUCER_EPOCH
    told = Code.TRANSACTION_ABORTABLE if v2 else Code.INVALID_PRODUCER_ID_MAPPING
    assert code_of(producer.add(1, known=v2)) is told
    assert code_of(producer.end(commit=True)) is told
    abortable = Code.TRANSACTION_ABORTABLE  # handlers know what versions that do not know it abort for
    assert code_of(producer.commit_offsets("g", (0, 1), known=v2)) is abortable
    assert producer.end(commit=False, pair=old) == Done((0, 1)), "it is aborted, as was asked for"
    assert producer.init(given=old) == (0, 1)
    assert producer.add(0) == Done()
    assert producer.send(0) == (0, 2)
    assert code_of(producer.end(commit=True, pair=old)) is Code.PRODUCER_FENCED


def test_a_deleted_topic_does_not_hold_up_its_transactions(script: Script) -> None:
    script.topic(A, "u")
    producer = Producer(script, A, "x")
    producer.init()
    producer.send(0)
    producer.send(3)
    script.one(A, DeleteTopic(name="u"))
    assert producer.end(commit=True) == Done((0, 1))
    assert ends(script) == (2, 2)


def test_ids_expire_only_when_nobody_uses_them(script: Script) -> None:
    for name in ("idle", "open", "fresh"):
        producer = Producer(script, A, name)
        producer.init()
        if name == "open":
            producer.send(0)
        script.now_ms += 10
    script.sleep(7 * DAY_MS)
    since = START_MS + 20
    expire = ExpireTransactions(idle_since_ms=since, transactional_id=["idle", "open", "fresh", "no"])
    assert script.one(A, expire) == Done(1)
    assert list(script.state.transactions) == ["open", "fresh"]
    assert list(script.state.transactions_by_producer) == [1, 2]
    producer = Producer(script, A, "idle")
    assert producer.init(given=(0, 0)) == (3, 0), "it comes back under a new producer id"


def test_a_producer_with_an_open_transaction_does_not_expire(script: Script) -> None:
    producer = Producer(script, A, "x")
    producer.init()
    producer.send(0)
    producer.send(1)
    script.sleep(DAY_MS + 1)
    expire = ExpireProducers(idle_since_ms=START_MS + 1)
    assert script.one(A, expire) == Done(0)
    producer.end(commit=True)
    script.sleep(DAY_MS + 1)
    expire = ExpireProducers(idle_since_ms=script.now_ms - DAY_MS)
    assert script.one(A, expire) == Done(2)


def test_ids_are_bounded(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordination.state.transactions.TRANSACTIONAL_IDS_MAX", 1)
    Producer(script, A, "x").init()
    for name, code in (("y", "POLICY_VIOLATION"), ("", "INVALID_REQUEST"), ("z" * 40_000, "INVALID_REQUEST")):
        with pytest.raises(AssertionError, match=code):
            Producer(script, A, name).init()


def test_groups_of_a_transaction_are_bounded(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot has them in one section, which has a bound too."""
    monkeypatch.setattr("coordination.state.transaction_owner.GROUPS_MAX", 2)
    producer = Producer(script, A, "x")
    producer.init()
    for groups in (["a"], ["a", "b"], ["b"]):
        assert producer.add(groups=groups) == Done()
    assert code_of(producer.add(groups=["c"])) is Code.POLICY_VIOLATION
    assert code_of(producer.commit_offsets("c", (0, 1))) is Code.POLICY_VIOLATION
    assert "c" not in script.state.groups
    assert producer.commit_offsets("b", (0, 1)) == Done()


@pytest.mark.parametrize("v2", [False, True])
def test_an_end_without_a_pair_is_no_retry_of_anything(script: Script, v2: bool) -> None:
    producer = Producer(script, A, "x", v2=v2)
    producer.init()
    assert code_of(producer.end(commit=True, pair=(-1, -1))) is Code.INVALID_PRODUCER_ID_MAPPING
    producer.add(0)
    producer.end(commit=True)
    for commit in (True, False):
        assert code_of(producer.end(commit=commit, pair=(-1, -1))) is Code.INVALID_PRODUCER_ID_MAPPING


def test_a_chunk_with_a_transaction_column_that_does_not_fit_is_malformed(script: Script) -> None:
    for column, batch in (([1, 1], (0, 1, 0, 0, 0)), ([3], (0, 1, 0, 0, 0)), ([1], (0, 1))):
        message = chunk(1, batch)
        message.transaction.extend(column)
        assert code_of(script.one(A, message)) is Code.INVALID_REQUEST


def test_transactions_survive_a_snapshot(script: Script) -> None:
    for number in range(3):
        producer = Producer(script, A, f"x{number}", v2=number != 1)
        producer.init()
        producer.add(0, 1, groups=["g"])
        producer.send(0, 2)
        producer.commit_offsets("g", (0, 5 + number), (1, 6))
    producer.end(commit=False)
    before = script.state.partitions[0]
    assert before is not None
    listed, stable = before.aborted(0, 99), before.last_stable
    transactions, pending = script.state.transactions, script.state.pending_offsets
    script.through_snapshot()
    after = script.state.partitions[0]
    assert after is not None
    assert (after.aborted(0, 99), after.last_stable) == (listed, stable)
    assert script.state.transactions == transactions
    assert script.state.transactions_by_producer == {t.producer_id: t for t in transactions.values()}
    assert script.state.pending_offsets == pending
    assert script.state.topics["t"].extents == []
    assert script.replayed().hash == script.state.hash


def test_where_committed_transactions_are_is_kept_until_the_table_has_them(script: Script) -> None:
    producer = Producer(script, A, "x")
    producer.init()
    for _ in range(3):
        producer.send(0, 2)
        producer.send(1, 1)
        producer.end(commit=True)
    producer.send(0)
    producer.end(commit=False)
    topic = script.state.topics["t"]
    assert topic.extents == [{0: (0, 2), 1: (0, 1)}, {0: (3, 5), 1: (2, 3)}, {0: (6, 8), 1: (4, 5)}]
    script.through_snapshot()
    topic = script.state.topics["t"]
    assert len(topic.extents) == 3
    script.one(A, PutNamespace(name="floe"))
    commit = CommitTable(namespace="floe", name="t", metadata_location="m", topic="t", next_offsets=[6, 3, 0])
    assert isinstance(script.one(A, commit), Done)
    assert topic.extents == [{0: (3, 5), 1: (2, 3)}, {0: (6, 8), 1: (4, 5)}], "it lacks a part of the second"


def test_a_commit_to_the_table_of_an_older_topic_forgets_nothing_of_the_new_one(script: Script) -> None:
    """The committer of a deleted topic was under way when a topic of that name was made again."""
    old = script.state.topics["t"].topic_id
    script.one(A, PutNamespace(name="floe"))
    script.one(A, DeleteTopic(name="t"))
    handle, _ = script.topic(A, "t", 2, b"+")
    producer = Producer(script, A, "x")
    producer.init()
    producer.send(handle, 2)
    producer.end(commit=True)
    commit = CommitTable(namespace="floe", name="t", metadata_location="m", topic="t", next_offsets=[9])
    commit.topic_id = old
    assert isinstance(script.one(A, commit), Done)
    assert script.state.topics["t"].extents == [{0: (0, 2)}]
    again = CommitTable(namespace="floe", name="t", expected="m", metadata_location="n", topic="t")
    again.topic_id = script.state.topics["t"].topic_id
    again.next_offsets.append(9)
    refusal = script.one(A, again)
    assert isinstance(refusal, Refused)
    assert refusal.code is Code.INVALID_REQUEST, "rows of two topics never meet in one table"


def test_transactions_that_a_table_never_takes_are_joined(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordination.state.extents.SPANS_MAX", 100)
    producer = Producer(script, A, "x")
    producer.init()
    for _ in range(256):
        producer.send(0)
        producer.send(1)
        producer.end(commit=True)
    extents = script.state.topics["t"].extents
    assert len(extents) < 120
    assert [extents[0][0][0], extents[-1][0][1]] == [0, 511], "all of them are still there"
    assert all(one[0][1] < other[0][0] for one, other in itertools.pairwise(extents))
