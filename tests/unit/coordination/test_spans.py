"""Which schemas a partition's records were judged by (coordination/state/spans.py, `spans_between`)."""

from __future__ import annotations

import pytest

from coordination.commands import BindSchema, CreatePartitions, MoveLogStart, SetFeatureLevel
from coordination.kafka_codes import Code
from coordination.snapshot import canonical_digest
from coordination.state import ChunkCommitted, Done, Partition, Refused, Result, Span, spans
from coordination.state.chunks import BOUND_ANEW
from coordination.state.freeze_partitions import encode_spans, thaw_spans
from coordination.state.schemas import spans_between
from tests.unit.coordination.kit import A, B, Producer, Script, chunk, swap, tiles
from tests.unit.coordination.reflect import plain

P = 900
KEY, VALUE = BindSchema.KEY, BindSchema.VALUE
END = 1 << 62


def ask(script: Script, message: str = "", role: int = VALUE) -> Result:
    """Bind the topic t to a message, to none without a name."""
    unbind = not message
    return script.one(
        B, BindSchema(topic="t", role=role, descriptor_set=b"set", message=message, unbind=unbind)
    )


def bind(script: Script, message: str = "", role: int = VALUE) -> None:
    assert isinstance(ask(script, message, role), Done)


def commit(script: Script, *batches: tuple[int, ...], judged: int | None = None) -> ChunkCommitted:
    """A chunk that was judged by the state of now, unless told otherwise."""
    script.chunks[A] = script.chunks.get(A, 0) + 1
    message = chunk(script.chunks[A], *batches)
    message.judged_revision = script.state.revision if judged is None else judged
    result = script.one(A, message)
    assert isinstance(result, ChunkCommitted)
    tiles(script.state)
    return result


def partition(script: Script, index: int = 0) -> Partition:
    return script.state.topics["t"].partitions[index]


def noted(script: Script, index: int = 0) -> list[tuple[int, ...]]:
    return [tuple(span) for span in partition(script, index).spans]


def between(script: Script, start: int, end: int) -> list[tuple[int, ...]]:
    return [tuple(span) for span in spans_between(script.state, partition(script), start, end)]


@pytest.fixture
def topic(script: Script) -> Script:
    """The topic t with two partitions; before any binding the first has two records."""
    script.topic(A, "t", 2)
    commit(script, (0, 2))
    return script


def test_the_first_record_behind_a_change_begins_a_span(topic: Script) -> None:
    """Not the change: a partition that is not written to has none, and changes without records leave none."""
    bind(topic, "a")
    bind(topic, "k", KEY)
    assert noted(topic) == []
    commit(topic, (0, 3), (0, 1))
    bind(topic, "b")
    bind(topic, "c")
    bind(topic)
    topic.through_snapshot()
    commit(topic, (0, 1), (1, 1))
    commit(topic, (0, 5))
    assert noted(topic) == [(2, 2, 1), (6, 2, 0)]
    assert noted(topic, 1) == [(0, 2, 0)]
    assert canonical_digest(topic.replayed()) == canonical_digest(topic.state)


def test_a_topic_that_was_never_bound_has_none(topic: Script) -> None:
    bind(topic)
    commit(topic, (0, 3), (1, 1))
    assert [noted(topic), noted(topic, 1)] == [[], []]
    assert between(topic, 0, 5) == [(0, 0, 0)]


def test_a_binding_that_is_back_before_the_next_record_begins_none(topic: Script) -> None:
    bind(topic, "a")
    commit(topic, (0, 1))
    bind(topic, "k", KEY)
    bind(topic, "", KEY)
    commit(topic, (0, 1))
    assert noted(topic) == [(2, 0, 1)]


def test_only_what_is_stored_begins_one(topic: Script) -> None:
    """Neither a batch that was judged by another binding, nor a repeated one, nor one out of sequence."""
    before = topic.state.revision
    commit(topic, (0, 1, P, 0, 0))
    bind(topic, "a")
    assert commit(topic, (0, 1), judged=before).errors == [BOUND_ANEW]
    assert commit(topic, (0, 1, P, 0, 0)).base_offsets == [2]
    assert commit(topic, (0, 1, P, 0, 7)).errors == [int(Code.OUT_OF_ORDER_SEQUENCE_NUMBER)]
    assert noted(topic) == []
    assert commit(topic, (0, 1, P, 0, 7), (0, 1, P, 0, 1)).base_offsets == [-1, 3]
    assert noted(topic) == [(3, 0, 1)]


def test_the_end_of_a_transaction_has_no_schema(topic: Script) -> None:
    producer = Producer(topic, A, "x")
    producer.init()
    producer.send(0)
    bind(topic, "a")
    producer.end(commit=True)
    assert (partition(topic).high_watermark, noted(topic)) == (4, [])
    commit(topic, (0, 1))
    assert noted(topic) == [(4, 0, 1)]


def test_new_partitions_of_a_bound_topic_are_bound(topic: Script) -> None:
    bind(topic, "a")
    topic.one(A, CreatePartitions(topic="t", total=3))
    commit(topic, (2, 1))
    assert noted(topic, 2) == [(0, 0, 1)]


def changed(script: Script, times: int) -> None:
    """One record by each of so many bindings, from the one of now on."""
    for number in range(times):
        bind(script, f"m{number}")
        commit(script, (0, 1))


def test_what_ends_below_the_log_start_goes(topic: Script) -> None:
    changed(topic, 4)
    assert noted(topic) == [(2, 0, 1), (3, 0, 2), (4, 0, 3), (5, 0, 4)]
    for offset, left in ((1, 4), (2, 4), (3, 3), (5, 1), (6, 1)):
        topic.one(A, MoveLogStart(partition=[0], offset=[offset]))
        assert len(noted(topic)) == left, f"log start {offset}"
    commit(topic, (0, 1))
    assert noted(topic) == [(5, 0, 4)], "the newest stays, also where nothing is left of its records"


def test_merging_changes_nothing(topic: Script) -> None:
    changed(topic, 3)
    before = noted(topic)
    assert topic.one(A, swap(topic.state, 0, 1, 4)) == Done()
    assert noted(topic) == before


def test_no_partition_has_more_than_the_most(topic: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused is the change, for what was judged by a span that is forgotten would be read by another."""
    monkeypatch.setattr(spans, "SPANS_MAX", 3)
    changed(topic, 3)
    state = plain(topic.state)
    for message, role in (("more", VALUE), ("", VALUE), ("k", KEY)):
        refused = ask(topic, message, role)
        assert isinstance(refused, Refused)
        assert refused.code is Code.POLICY_VIOLATION
        assert "topic 't': the binding changed 3 times" in refused.message
        assert "partition 0" in refused.message
        assert "below offset 3 " in refused.message
    assert plain(topic.state.topics) == dict_of(state)["topics"]
    assert ask(topic, "m2") == Done(3), "what changes nothing is taken"
    assert ask(topic, "", KEY) == Done()
    topic.one(A, MoveLogStart(partition=[0], offset=[3]))
    bind(topic, "more")
    commit(topic, (0, 1))
    assert len(noted(topic)) == 3
    assert isinstance(ask(topic), Refused)


def dict_of(shown: object) -> dict[str, object]:
    """The attributes of an object that `plain` has shown."""
    assert isinstance(shown, tuple)
    return dict(shown[1])


def test_on_entering_the_level_all_counts_as_of_the_binding_that_was_believed() -> None:
    script = Script()
    for author in (A, B):
        script.register(author, level=1)
    script.topic(A, "t", 3)
    script.topic(A, "u")
    handles = [one.handle for one in script.state.topics["t"].partitions]
    commit(script, *((handle, 4) for handle in (*handles[:2], 3)))
    bind(script, "a")
    commit(script, (0, 1))
    script.one(A, MoveLogStart(partition=[0, 1], offset=[2, 4]))
    assert [noted(script, index) for index in range(3)] == [[], [], []]
    assert between(script, 2, 5) == [(2, 0, 1)]
    script.through_snapshot()
    assert not partition(script, 2).begins_span
    for author, run in ((A, 21), (B, 22)):
        script.register(run, f"agent-{author}", level=2)
    assert script.one(21, SetFeatureLevel(level=2)) == Done(2)
    assert [noted(script, index) for index in range(3)] == [[(2, 0, 1)], [], []]
    assert script.state.topics["u"].partitions[0].spans == ()
    script.through_snapshot()
    script.commit(21, *((handle, 1) for handle in (*handles, 3)))
    assert [noted(script, index) for index in range(3)] == [[(2, 0, 1)], [(4, 0, 1)], [(0, 0, 1)]]
    assert script.state.topics["u"].partitions[0].spans == ()
    assert canonical_digest(script.replayed()) == canonical_digest(script.state)


def test_what_readers_are_told(topic: Script) -> None:
    """2 records of nothing, 2 of schema 1, 1 of 2 and of keys of 3, 1 of nothing."""
    bind(topic, "a")
    commit(topic, (0, 2))
    bind(topic, "b")
    bind(topic, "k", KEY)
    commit(topic, (0, 1))
    bind(topic)
    bind(topic, "", KEY)
    commit(topic, (0, 1))
    assert between(topic, 0, 6) == [(0, 0, 0), (2, 0, 1), (4, 3, 2), (5, 0, 0)]
    assert between(topic, 1, 4) == [(1, 0, 0), (2, 0, 1)]
    assert between(topic, 2, 3) == [(2, 0, 1)]
    assert between(topic, 3, END) == [(3, 0, 1), (4, 3, 2), (5, 0, 0)]
    assert between(topic, 5, 6) == [(5, 0, 0)]
    assert (between(topic, 4, 4), between(topic, 4, 3)) == ([], [])
    assert {1, 2, 3} <= topic.state.schemas.keys()


def test_neighbours_of_one_binding_are_one(topic: Script) -> None:
    """Where the log start has taken what was before, the first span may be of nothing."""
    bind(topic, "a")
    commit(topic, (0, 1))
    bind(topic)
    commit(topic, (0, 1))
    topic.one(A, MoveLogStart(partition=[0], offset=[3]))
    assert noted(topic) == [(3, 0, 0)]
    assert between(topic, 1, 4) == [(1, 0, 0)]


@pytest.mark.parametrize(
    "held",
    [
        [Span(0, 0, 1)],
        [Span(0, 0, 0), Span((1 << 63) - 1, (1 << 31) - 1, (1 << 31) - 1)],
        [Span((1 << 63) - 2, 7, 0), Span((1 << 63) - 1, 0, 0)],
        [Span(number, 1, number % 2) for number in range(spans.SPANS_MAX)],
    ],
    ids=["one", "far apart", "at the end", "the most"],
)
def test_every_span_that_there_may_be_can_be_kept(held: list[Span]) -> None:
    message = encode_spans(held)
    again = type(message).FromString(message.SerializeToString())
    assert list(thaw_spans(again)) == held
