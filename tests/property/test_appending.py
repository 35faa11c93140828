"""Batches appended natively and by chunks.py alone, its oracle: the same entries, the same state and hash."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from hypothesis import given, settings
from hypothesis import strategies as st

from coordination.commands import (
    AddToTransaction,
    BindSchema,
    CommitChunk,
    DeleteTopic,
    EndTransaction,
    FenceIncarnation,
    InitTransactions,
    MoveLogStart,
)
from coordination.log import LogEntry
from coordination.snapshot import encode
from coordination.state import Applied, State
from coordination.state.bounds import OFFSET_MAX
from tests.equipment.appending import WALKS, appending
from tests.property.malformed import Spoiler
from tests.unit.coordination.kit import A, B, Script
from tests.unit.coordination.reflect import plain

natively = pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)

HIGH, LONG, MAX = (1 << 63) - 1, (1 << 32) - 1, 1 << 31
SCHEMA = FileDescriptorSet(
    file=[FileDescriptorProto(name="m.proto", message_type=[DescriptorProto(name="M")], syntax="proto3")]
).SerializeToString()
HANDLES = st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4])  # 4: of a topic that may go
COUNTS = st.sampled_from([1, 1, 2, 10, LONG])
LENGTHS = st.sampled_from([0, 1, 100, 100, 1000, 1 << 28])
STAMPS = st.sampled_from([0, 5, 5, 7, -1, HIGH, -HIGH - 1])
PRODUCERS = st.sampled_from([-1, -1, 0, 0, 0, 1, 1, -5, HIGH])
EPOCHS = st.sampled_from([0, 0, 0, 0, 1, -1, MAX - 1])
STEPS = st.sampled_from(["next", "next", "next", "next", "again", "gap", "end"])
PARTS = st.sampled_from([0, 0, 0, 0, 1, 2, 2])
ROW = st.tuples(HANDLES, COUNTS, LENGTHS, STAMPS, PRODUCERS, EPOCHS, STEPS, PARTS)
CHUNK = st.tuples(
    st.lists(ROW, min_size=1, max_size=12), st.sampled_from(["sorted", "as they come"]),
    st.sampled_from(["", "", "", "", "", "plain", "parts", "short", "beyond", "judged", "unknown", "long"]),
)  # fmt: skip
OTHER = st.sampled_from(
    ["snapshot", "bind", "delete", "start", "init", "end", "fence", "add", "near the end"]
)
HISTORY = st.lists(st.one_of(CHUNK, CHUNK, CHUNK, OTHER), min_size=1, max_size=25)


class Both(Script):
    """A log whose entries are applied both ways, and compared after each."""

    def __init__(self, walk: Any) -> None:
        super().__init__()
        self.walk, self.native = walk, State()
        self.next: dict[tuple[int, int], int] = {}  # sequence, by handle and producer
        for author in (A, B):
            self.register(author)
        self.topic(A, "t", 4)
        self.topic(A, "u", 1)
        self.other_than_chunks("init")

    def entry(self, author: int, messages: Any, applied: int = 0) -> LogEntry:
        """The author's next entry, applied natively."""
        made = super().entry(author, messages, applied)
        with appending(self.walk):
            self.other = self.native.apply(made)
        return made

    def apply(self, author: int, *messages: Any, applied: int = 0) -> Applied:
        """Append an entry and apply it both ways."""
        with appending(None):
            oracle = super().apply(author, *messages, applied=applied)
        assert self.other == oracle
        assert self.native.digest == self.state.digest
        return oracle

    def chunk(self, rows: list[tuple[Any, ...]], order: str, kind: str) -> None:
        """Apply a chunk of these batches, with what its kind says is odd about it."""
        self.chunks[A] = self.chunks.get(A, 0) + 1
        judged = 0 if kind == "judged" else self.state.revision
        message = CommitChunk(number=self.chunks[A], size=1 << 40, first_position=64, judged_revision=judged)
        for handle, count, length, stamp, producer, epoch, step, part in (
            sorted(rows) if order == "sorted" else rows
        ):
            message.partition.append(handle)
            message.offsets.append(count)
            message.length.append(length)
            message.max_timestamp_ms.append(stamp)
            if kind != "plain":
                message.producer_id.append(producer)
                message.producer_epoch.append(epoch)
                message.base_sequence.append(self._sequence(handle, producer, count, step))
            if kind == "parts":
                message.transaction.append(part)
        if kind == "short":
            del message.offsets[-1:]
        if kind == "unknown":
            message.partition[-1] = (len(self.state.partitions), LONG)[len(rows) % 2]
        if kind == "long":
            message.length[-1] = LONG
        if kind == "beyond":
            message.size = 64
        self.apply(A, message)

    def _sequence(self, handle: int, producer: int, count: int, step: str) -> int:
        expected = self.next.get((handle, producer), 0)
        if step == "end":
            self.next[handle, producer] = MAX - 2
            return MAX - 3
        if step == "next":
            self.next[handle, producer] = (expected + count) % MAX
        return (expected - {"again": count, "gap": -7}.get(step, 0)) % MAX

    def other_than_chunks(self, what: str) -> None:
        """Apply something that changes what the next batches find."""
        match what:
            case "snapshot":
                for one in (self.state, self.native):
                    encode(one)
            case "bind":
                bound = len(self.entries) % 2
                self.apply(A, BindSchema(topic="t", descriptor_set=SCHEMA, message="M", unbind=not bound))
            case "delete":
                self.apply(A, DeleteTopic(name="u"))
            case "start":
                self.apply(A, MoveLogStart(partition=[0], offset=[1]))
            case "init":
                self.apply(
                    B,
                    InitTransactions(
                        transactional_id="x", timeout_ms=9_000, producer_id=-1, producer_epoch=-1
                    ),
                )
            case "end":
                self.apply(
                    B, EndTransaction(transactional_id="x", producer_id=0, producer_epoch=0, commit=True)
                )
            case "add":
                self.apply(
                    B,
                    AddToTransaction(transactional_id="x", producer_id=0, producer_epoch=0, partition=[0, 1]),
                )
            case "near the end":  # as nobody's partition ever is, but apply has to know
                for one in (self.state, self.native):
                    for partition in one.partitions[:2]:
                        if partition is not None:
                            partition.high_watermark = max(partition.high_watermark, OFFSET_MAX - 12)
            case _:
                self.apply(B, FenceIncarnation(incarnation=B if len(self.entries) % 2 else 99))


@natively
@settings(max_examples=200, deadline=None)
@given(history=HISTORY)
def test_the_same_chunks_make_the_same_state(walk: Any, history: list[Any]) -> None:
    both = Both(walk)
    for each in history:
        if isinstance(each, str):
            both.other_than_chunks(each)
        else:
            both.chunk(*each)
        assert plain(both.native) == plain(both.state)


@natively
@pytest.mark.parametrize("seed", range(1, 9))
def test_spoilt_entries_make_the_same_state(walk: Any, seed: int) -> None:
    """Of all commands, of which half are malformed."""
    with appending(None):
        spoiler = Spoiler(seed, level=2)
        spoiler.write(60)
        hashes = []
        for _ in range(150):
            spoiler.spoilt()
            hashes.append(spoiler.state.digest)
    native = State()
    with appending(walk):
        for entry in spoiler.entries[: -len(hashes)]:
            native.apply(entry)
        for entry, digest in zip(spoiler.entries[-len(hashes) :], hashes, strict=True):
            native.apply(entry)
            assert native.digest == digest
    assert plain(native) == plain(spoiler.state)


@natively
def test_most_batches_of_a_usual_load_are_taken_natively(walk: Any) -> None:
    """Or the comparisons above would compare Python with itself."""
    both, calls = Both(walk), []

    def counted(partitions: Any, columns: Any, place: int, *rest: Any) -> Any:
        told = walk(partitions, columns, place, *rest)
        calls.append(told[0] - place)
        return told

    both.walk = counted
    for number in range(40):
        rows = [(handle, 10, 100, number, producer) for handle in range(4) for producer in (-1, 0, 1)]
        both.chunk([(*row, 0, "next", 0) for row in rows], "as they come", "")
    assert sum(calls) == 1 + 39 * 12, calls  # in the first chunk two producers of four partitions are new
    assert plain(both.native) == plain(both.state)
