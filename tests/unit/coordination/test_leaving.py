"""Deleted topics that hold very much: gone at once, let go of entry by entry, the same through snapshots."""

from __future__ import annotations

import pytest

from coordination.commands import CreateTopic, DeleteTopic, Heartbeat
from coordination.kafka_codes import Code
from coordination.proto import snapshot_pb2 as pb
from coordination.snapshot import decode, encode
from coordination.state import freeze as notes
from coordination.state import freeze_partitions, leaving
from coordination.state.freeze import freeze, freeze_now, sections
from coordination.state.slices import ROW_BYTES
from coordination.state.thaw import Thaw
from coordination.state.types import Done, Refused
from tests.unit.coordination.kit import A, B, Producer, Script, for_good, swap, tiles
from tests.unit.coordination.reflect import plain

ROWS = 4  # at once
FULL = 6  # rows of each partition of `held`


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "ROWS_AT_ONCE_MAX", ROWS)


def held(level: int = 2) -> tuple[Script, list[int]]:
    """Topic `t` of two partitions: six rows each, one of them merged in the first; and `other` with a row."""
    script = Script()
    script.register(A, level=level)
    script.register(B, level=level)
    if level > 1:
        for_good(script)
    handles = script.topic(A, "t", 2)
    script.topic(A, "other")
    for sequence in range(FULL):
        script.commit(A, *((handle, 1, 7, 0, sequence) for handle in handles))
    assert isinstance(script.one(A, swap(script.state, handles[0], 1, 1)), Done)
    script.commit(B, (handles[-1] + 1, 1))
    return script, handles


def gone_after(script: Script) -> int:
    """How many entries it takes until nothing waits; after each, what must hold does."""
    entries = 0
    while script.state.leaving:
        script.apply(B, Heartbeat())
        entries += 1
        tiles(script.state)
        assert plain(decode(encode(script.state))) == plain(script.state)
    return entries


def test_a_large_topic_is_gone_at_once_and_what_it_held_goes_over_entries() -> None:
    script, handles = held()
    merged = script.state.topics["t"].partitions[0].merged
    assert merged is not None
    assert isinstance(script.one(A, DeleteTopic(name="t")), Done)
    state = script.state
    assert "t" not in state.topics
    assert [state.partitions[handle] for handle in handles] == [None, None]
    assert (state.partition_count, state.producer_count, state.live_in_range[0]) == (1, 0, 1)
    assert len(state.chunks.by_serial) == 1 + FULL, "each of its chunks is in the other partition too"
    rows = {handle: len(each.slices) for handle, each in state.leaving.items()}
    assert rows == {handles[0]: FULL - 1 - ROWS, handles[1]: FULL}, "the entry itself let go of the first"
    assert state.leaving[handles[0]].merged == merged
    assert not state.manifest_garbage
    tiles(state)
    assert plain(decode(encode(state))) == plain(state)
    script.apply(B, Heartbeat())
    assert handles[0] not in state.leaving
    assert merged.manifest in state.manifest_garbage
    assert state.manifest_garbage[merged.manifest] == (script.now_ms, True)
    assert gone_after(script) == 1
    assert len(state.chunks.by_serial) == 1
    assert len(state.chunks.garbage) == FULL
    assert plain(script.replayed()) == plain(state)


def test_until_then_nobody_can_use_it_and_its_name_is_free() -> None:
    script, handles = held()
    merging = swap(script.state, handles[0], 2, 2)
    script.one(A, DeleteTopic(name="t"))
    assert script.state.leaving
    late = script.commit(A, (handles[1], 1))
    assert late.errors == [Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert isinstance(script.one(A, merging), Refused), "a merge that was on its way"
    again = script.one(A, CreateTopic(name="t", topic_id=b"2" * 16, partitions=1))
    assert isinstance(again, Done)
    (fresh,) = script.state.topics["t"].partitions
    assert fresh.handle not in handles
    assert not len(fresh.slices)
    script.commit(A, (fresh.handle, 1))
    gone_after(script)
    tiles(script.state)
    assert fresh.high_watermark == 1


def test_a_small_topic_goes_with_its_entry_and_so_does_any_at_level_1() -> None:
    script, _ = held()
    assert isinstance(script.one(A, DeleteTopic(name="other")), Done)
    assert not script.state.leaving
    tiles(script.state)
    script, _ = held(level=1)
    assert isinstance(script.one(A, DeleteTopic(name="t")), Done)
    assert not script.state.leaving
    assert len(script.state.chunks.by_serial) == 1
    assert [found[1] for found in script.state.manifest_garbage.values()] == [True]
    tiles(script.state)


def test_an_agent_that_began_with_a_snapshot_decides_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that were merged stay as dead bytes where they were applied, and are not in a snapshot."""
    script, handles = held()
    most = len(handles) + 2 * FULL - 1  # what `t` holds
    (first,) = script.topic(A, "first")
    for _ in range(2 * most):
        script.commit(B, (first, 1))
    other = decode(encode(script.state))
    assert script.state.topics["t"].partitions[0].slices.head > 0
    monkeypatch.setattr(leaving, "ROWS_AT_ONCE_MAX", most)
    entry = script.entry(A, [DeleteTopic(name="first"), DeleteTopic(name="t")])
    script.state.apply(entry)
    other.apply(entry)
    assert list(script.state.leaving) == [first]
    assert plain(other) == plain(script.state)


def test_many_partitions_that_hold_nothing_leave_in_portions_too() -> None:
    script = Script()
    script.register(A)
    script.register(B)
    for_good(script)
    script.topic(A, "wide", 3 * ROWS)
    script.one(A, DeleteTopic(name="wide"))
    assert len(script.state.leaving) == 2 * ROWS
    assert gone_after(script) == 2


def test_topics_leave_one_after_the_other() -> None:
    script, handles = held()
    (other,) = script.topic(A, "later")
    for _ in range(FULL):
        script.commit(B, (other, 1))
    script.apply(A, DeleteTopic(name="t"), DeleteTopic(name="later"))
    assert list(script.state.leaving) == [*handles, other]
    assert gone_after(script) == 4
    assert len(script.state.chunks.by_serial) == 1
    assert plain(script.replayed()) == plain(script.state)


def test_a_transaction_that_was_on_it_ends_without_it() -> None:
    script, handles = held()
    producer = Producer(script, A, "tx")
    producer.init()
    producer.send(handles[0])
    script.one(A, DeleteTopic(name="t"))
    assert script.state.leaving
    assert isinstance(producer.end(commit=True), Done)
    gone_after(script)
    assert plain(script.replayed()) == plain(script.state)


def test_a_snapshot_keeps_them_in_pieces_and_every_entry_after_it_does_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(freeze_partitions, "SECTION_BYTES", 2 * ROW_BYTES)
    monkeypatch.setattr(notes, "PARTITIONS_PER_STEP", 1)
    script, _ = held()
    script.one(A, DeleteTopic(name="t"))
    made = list(sections(freeze_now(script.state)))
    kinds = [section.WhichOneof("kind") for section in made]
    assert kinds.count("leaving") == 1
    after = kinds[kinds.index("leaving") :]
    assert after[:7] == ["leaving", "partitions", "partitions", *["partition_rest"] * 3, "chunks"]
    other = decode(encode(script.state))
    assert plain(other) == plain(script.state)
    while script.state.leaving:
        entry = script.entry(B, [Heartbeat()])
        assert script.state.apply(entry).results == other.apply(entry).results
        assert plain(other) == plain(script.state)


def test_what_was_noted_stays_while_entries_let_go_of_it() -> None:
    """Sections are made while entries are applied again (coordination/state/freeze.py)."""
    script, _ = held()
    script.one(A, DeleteTopic(name="t"))
    then = plain(decode(encode(script.state)))
    *_, frozen = freeze(script.state)
    gone_after(script)
    thaw = notes_to_state(list(sections(frozen)))
    assert thaw == then
    assert then != plain(script.state)


def notes_to_state(made: list[pb.Section]) -> object:
    thaw = Thaw()
    for section in made:
        thaw.take(section)
    return plain(thaw.state)
