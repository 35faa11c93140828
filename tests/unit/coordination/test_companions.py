"""Batches that go with another one of their chunk: there if and only if that one is."""

from __future__ import annotations

import random

import pytest

from coordination.commands import (
    AlterTopicConfigs,
    BindSchema,
    CommitChunk,
    CreateTopic,
    DeleteTopic,
    Quarantine,
)
from coordination.kafka_codes import Code
from coordination.snapshot import canonical_digest
from coordination.state import ChunkCommitted, Done, Refused
from coordination.state.bounds import OFFSET_MAX
from coordination.state.chunks import BOUND_ANEW
from coordination.state.companions import ALONE
from objectstore.transactions import Aborted
from tests.unit.coordination.kit import A, B, Producer, Script, chunk, tiles

P = 900
MAIN, SIDE, OTHER = 1, 0, 2
"""Handles. The companions' partition has the lower one: they stand before their leaders in a chunk."""


@pytest.fixture
def script(script: Script) -> Script:
    script.topic(A, "side")
    script.topic(A, "main")
    script.topic(A, "other")
    return script


def commit(
    script: Script,
    companion_of: list[int],
    *batches: tuple[int, ...],
    author: int = A,
    transaction: list[int] | None = None,
) -> ChunkCommitted | Refused:
    """A chunk of batches as the kit has them; `companion_of` and `transaction` as in CommitChunk."""
    script.chunks[author] = script.chunks.get(author, 0) + 1
    message = chunk(script.chunks[author], *batches)
    message.judged_revision = script.state.revision
    message.companion_of.extend(companion_of)
    message.transaction.extend(transaction or ())
    result = script.one(author, message)
    assert isinstance(result, ChunkCommitted | Refused)
    tiles(script.state)
    return result


def committed(
    script: Script, companion_of: list[int], *batches: tuple[int, ...], **more: object
) -> ChunkCommitted:
    result = commit(script, companion_of, *batches, **more)  # type: ignore[arg-type]  # handed on
    assert isinstance(result, ChunkCommitted), result
    return result


def ends(script: Script) -> tuple[int, ...]:
    return tuple(each.high_watermark for each in script.state.partitions if each is not None)


def test_a_companion_is_appended_with_its_leader_though_it_stands_before_it(script: Script) -> None:
    answer = committed(script, [2, 0], (SIDE, 1), (MAIN, 5, P, 0, 0))
    assert (answer.errors, answer.base_offsets) == ([0, 0], [0, 0])
    assert ends(script) == (1, 5, 0)
    side, main = (script.state.partitions[handle] for handle in (SIDE, MAIN))
    assert side is not None
    assert main is not None
    assert [(each.position, each.length) for each in side.slices.plan(0, 1000)] == [(64, 100)]
    assert [(each.position, each.length) for each in main.slices.plan(0, 1000)] == [(164, 100)]
    assert side.producers == {}, "it carries no sequence of its own"
    assert canonical_digest(script.replayed()) == canonical_digest(script.state)


def test_a_retry_through_another_agent_is_answered_as_ever_and_has_no_second_companion(
    script: Script,
) -> None:
    batches = (SIDE, 1), (MAIN, 5, P, 0, 0)
    committed(script, [2, 0], *batches)
    script.through_snapshot()
    again = committed(script, [2, 0], *batches, author=B)
    assert (again.errors, again.base_offsets) == ([ALONE, 0], [-1, 0])
    assert again.duplicates == [1]
    assert ends(script) == (1, 5, 0)


def test_the_same_batch_twice_in_one_chunk_has_one_companion(script: Script) -> None:
    answer = committed(script, [3, 4, 0, 0], (SIDE, 1), (SIDE, 1), (MAIN, 5, P, 0, 0), (MAIN, 5, P, 0, 0))
    assert answer.errors == [0, ALONE, 0, 0]
    assert ends(script) == (1, 5, 0)


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        ((MAIN, 5, P, 0, 7), Code.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ((MAIN, 5, P, -1, 5), Code.INVALID_PRODUCER_EPOCH),
        ((MAIN, 5, P, 1, 5), Code.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
def test_the_companion_of_a_refused_batch_is_not_appended(
    script: Script, batch: tuple[int, ...], code: Code
) -> None:
    script.commit(A, (MAIN, 5, P, 0, 0))
    answer = committed(script, [2, 0], (SIDE, 1), batch)
    assert answer.errors == [ALONE, code]
    assert ends(script) == (0, 5, 0)


def test_neighbours_of_a_partition_share_a_row(script: Script) -> None:
    answer = committed(
        script, [4, 5, 6, 0, 0, 0], (SIDE, 1), (SIDE, 2), (SIDE, 3), (MAIN, 5), (MAIN, 5), (OTHER, 1)
    )
    assert answer.base_offsets == [0, 1, 3, 0, 5, 0]
    side = script.state.partitions[SIDE]
    assert side is not None
    assert [(each.end_offset, each.length) for each in side.slices.plan(0, 1000)] == [(6, 300)]
    # The second one's leader is a duplicate: what stands on both sides of it is not side by side.
    script.commit(A, (MAIN, 1, P, 0, 0))
    batches = (SIDE, 1), (SIDE, 2), (SIDE, 3), (MAIN, 5), (MAIN, 1, P, 0, 0), (OTHER, 1)
    answer = committed(script, [4, 5, 6, 0, 0, 0], *batches)
    assert answer.base_offsets[:3] == [6, -1, 7]
    assert [(each.end_offset, each.position) for each in side.slices.plan(6, 1000)] == [(7, 64), (10, 264)]


def test_where_the_companion_has_no_place_its_leader_is_sent_again_and_nothing_overtakes_it(
    script: Script,
) -> None:
    batches = (SIDE, 1), (MAIN, 5, P, 0, 0), (MAIN, 2, P, 0, 5), (OTHER, 3)
    assert isinstance(script.one(B, DeleteTopic(name="side")), Done)
    answer = committed(script, [2, 0, 0, 0], *batches)
    assert answer.errors == [ALONE, BOUND_ANEW, BOUND_ANEW, 0]
    main = script.state.partitions[MAIN]
    assert main is not None
    assert (main.high_watermark, main.producers) == (0, {}), "its sequence can be sent again"


@pytest.mark.parametrize("change", ["delete", "bind"])
def test_nothing_that_was_judged_with_it_overtakes_what_a_quarantine_that_is_gone_holds_up(
    script: Script, change: str
) -> None:
    made = Quarantine(topic_id=b"q" * 16, descriptor_set=b"d")
    rules = AlterTopicConfigs.Change(name="floe.value.rules", value="quarantine")
    alter = AlterTopicConfigs(topic="main", changes=[rules], quarantine=made)
    assert isinstance(script.one(A, alter), Done)
    aside = script.state.topics["main.quarantine"].partitions[0].handle
    judged = script.state.revision
    if change == "delete":
        assert isinstance(script.one(B, DeleteTopic(name="main.quarantine")), Done)
    else:
        bind = BindSchema(topic="main.quarantine", descriptor_set=b"e", message="m")
        assert isinstance(script.one(B, bind), Done)
    for number, (batches, column) in enumerate(
        [(((MAIN, 5, P, 0, 0), (aside, 1)), [0, 1]), (((MAIN, 5, P, 0, 5),), []), (((OTHER, 1),), [])], 1
    ):
        message = chunk(number, *batches)
        message.judged_revision = judged
        message.companion_of.extend(column)
        answer = script.one(A, message)
        assert isinstance(answer, ChunkCommitted)
        assert answer.errors[0] == (BOUND_ANEW if number < 3 else 0)
    assert ends(script)[:3] == (0, 0, 1)
    assert canonical_digest(script.replayed()) == canonical_digest(script.state)


def test_a_full_or_newly_bound_partition_of_companions_holds_up_their_leaders(script: Script) -> None:
    side = script.state.partitions[SIDE]
    assert side is not None
    before = script.state.revision
    assert isinstance(script.one(B, BindSchema(topic="side", descriptor_set=b"d", message="m")), Done)
    script.chunks[A] = script.chunks.get(A, 0) + 1
    late = chunk(script.chunks[A], (SIDE, 1), (MAIN, 5, P, 0, 0))
    late.judged_revision = before
    late.companion_of.extend([2, 0])
    answer = script.one(A, late)
    assert isinstance(answer, ChunkCommitted)
    assert answer.errors == [BOUND_ANEW, BOUND_ANEW]
    assert ends(script) == (0, 0, 0)
    side.high_watermark = side.log_start = side.slices.first_offset = OFFSET_MAX - 1
    assert committed(script, [2, 0], (SIDE, 2), (MAIN, 5, P, 0, 0)).errors == [ALONE, BOUND_ANEW]
    assert committed(script, [2, 0], (SIDE, 1), (MAIN, 5, P, 0, 0)).errors == [0, 0]


@pytest.mark.parametrize("v2", [True, False])
@pytest.mark.parametrize("commit_it", [True, False])
def test_it_is_in_its_leader_s_transaction(script: Script, *, v2: bool, commit_it: bool) -> None:
    producer = Producer(script, A, "x", v2=v2)
    pair = producer.init()
    if not v2:
        assert isinstance(producer.add(MAIN), Done)
    answer = committed(
        script, [2, 0], (SIDE, 2), (MAIN, 5, *pair, 0), transaction=[0, 2 if v2 else 1], author=B
    )
    assert answer.errors == [0, 0]
    side, main = (script.state.partitions[handle] for handle in (SIDE, MAIN))
    assert side is not None
    assert main is not None
    assert (side.last_stable, main.last_stable) == (0, 0), "nobody who reads committed records sees it"
    script.through_snapshot()
    producer.end(commit=commit_it)
    side, main = (script.state.partitions[handle] for handle in (SIDE, MAIN))
    assert side is not None
    assert main is not None
    assert (side.last_stable, main.last_stable) == (3, 6)
    aborted = [] if commit_it else [Aborted(pair[0], 0, 2)]
    assert side.aborted(0, 3) == aborted
    tiles(script.state)


def test_a_batch_that_its_transaction_refuses_adds_no_partition(script: Script) -> None:
    producer = Producer(script, A, "x", v2=False)
    pair = producer.init()
    answer = committed(script, [2, 0], (SIDE, 1), (MAIN, 5, *pair, 0), transaction=[0, 1])
    assert answer.errors == [ALONE, Code.TRANSACTION_ABORTABLE]
    assert list(script.state.transactions["x"].partitions) == []


@pytest.mark.parametrize(
    ("companion_of", "batches"),
    [
        ([2], ((SIDE, 1), (MAIN, 1))),  # too short
        ([3, 0], ((SIDE, 1), (MAIN, 1))),  # no such batch
        ([1, 0], ((SIDE, 1), (MAIN, 1))),  # itself
        ([2, 1], ((SIDE, 1), (MAIN, 1))),  # in a circle
        ([2, 0], ((MAIN, 1), (MAIN, 1))),  # of one partition
        ([3, 3, 0], ((SIDE, 1), (SIDE, 1), (MAIN, 1))),  # two of one batch
        ([2, 0], ((SIDE, 1, P, 0, 0), (MAIN, 1, P, 0, 0))),  # with a sequence of its own
        ([3, 0, 0], ((SIDE, 1), (SIDE, 1), (MAIN, 1))),  # before another batch of its partition
        ([2, 0], ((SIDE, 0), (MAIN, 1))),  # nothing
    ],
)
def test_what_cannot_be_meant_is_refused_whole(
    script: Script, companion_of: list[int], batches: tuple[tuple[int, ...], ...]
) -> None:
    script.chunks[A] = script.chunks.get(A, 0) + 1
    message = chunk(script.chunks[A], *batches)
    message.companion_of.extend(companion_of)
    result = script.one(A, message)
    assert isinstance(result, Refused)
    assert result.code is Code.INVALID_REQUEST
    assert ends(script) == (0, 0, 0)


def test_below_its_level_nobody_looks() -> None:
    script = Script()
    for author in (A, B):
        script.register(author, level=1)
    script.topic(A, "side")
    script.topic(A, "main")
    message: CommitChunk = chunk(1, (0, 1), (1, 1))
    message.companion_of.extend([9])
    answer = script.one(A, message)
    assert isinstance(answer, ChunkCommitted)
    assert answer.errors == [0, 0]


class Story:
    """Retries, gaps, new epochs, transactions and deletions at random, through snapshots and two agents.

    A leader has five offsets and its companion one. Topics `side` are deleted and made again, behind `main`.
    """

    def __init__(self, script: Script, seed: int) -> None:
        self.script, self.draw = script, random.Random(seed)
        self.producer = Producer(script, A, "x")
        self.producer.init()
        self.sent = {P: 0, P + 1: 0}
        self.lives = 0

    def main_end(self) -> int:
        """The high watermark of the leaders' partition."""
        return self.script.state.topics["main"].partitions[0].high_watermark

    def delete(self) -> None:
        """The companions' topic is deleted."""
        assert isinstance(self.script.one(B, DeleteTopic(name="side")), Done)

    def make_again(self) -> None:
        """It is there again, under another handle."""
        self.lives += 1
        topic_id = bytes([self.lives]) * 16
        assert isinstance(self.script.one(A, CreateTopic(name="side", topic_id=topic_id, partitions=1)), Done)

    def leader(self) -> tuple[tuple[int, ...], int]:
        """A batch that is due, was there or is not due yet, and its transaction."""
        off = self.draw.choice((0, 0, 0, -5, 5))
        if self.draw.random() < 0.3:
            return (MAIN, 5, *self.producer.pair, max(0, self.producer.sequences.get(MAIN, 0) + off)), 2
        who = self.draw.choice(list(self.sent))
        return (MAIN, 5, who, 0, max(0, self.sent[who] + off)), 0

    def step(self, side: int, *, gone: bool) -> int:
        """A chunk of some leaders with their companions; how many of them were appended."""
        made = [self.leader() for _ in range(self.draw.randrange(1, 4))]
        leaders, kinds = [one for one, _ in made], [kind for _, kind in made]
        count, none = len(made), [0] * len(made)
        sides = [(side, 1)] * count
        before, author = self.main_end(), self.draw.choice((A, B))
        if side < MAIN:  # they stand first in the chunk
            column, batches, parts = [*range(count + 1, 2 * count + 1)], (*sides, *leaders), none + kinds
            answer = committed(self.script, column + none, *batches, author=author, transaction=parts)
            mine, theirs = slice(count, None), slice(0, count)
        else:
            column, batches, parts = [*range(1, count + 1)], (*leaders, *sides), kinds + none
            answer = committed(self.script, none + column, *batches, author=author, transaction=parts)
            mine, theirs = slice(0, count), slice(count, None)
        grown = (self.main_end() - before) // 5
        assert [not error for error in answer.errors[theirs]].count(True) == grown, (
            "one with each, and no other"
        )
        assert not (gone and grown)
        for (batch, kind), error, base in zip(
            made, answer.errors[mine], answer.base_offsets[mine], strict=True
        ):
            if not error and base >= before:
                self.note(batch, kind)
        return grown

    def note(self, batch: tuple[int, ...], kind: int) -> None:
        """It was appended: what its producer sends next."""
        if kind:
            self.producer.sequences[MAIN] = batch[4] + 5
        else:
            self.sent[batch[2]] = batch[4] + 5


@pytest.mark.parametrize("seed", range(12))
def test_companions_are_there_exactly_as_often_as_what_they_go_with(script: Script, seed: int) -> None:
    story = Story(script, seed)
    appended = 0
    for _ in range(60):
        if story.draw.random() < 0.3:
            script.through_snapshot()
        side, gone = script.state.topics["side"].partitions[0].handle, story.draw.random() < 0.15
        if gone:
            story.delete()
        appended += story.step(side, gone=gone)
        if gone:
            story.make_again()
        if story.draw.random() < 0.2:
            story.producer.end(commit=story.draw.random() < 0.5)
    assert appended > 20
    assert canonical_digest(script.replayed()) == canonical_digest(script.state)


def test_a_leader_without_a_producer_is_in_no_transaction_whatever_its_column_says(script: Script) -> None:
    """No agent writes it; apply of everybody would have ended by it."""
    answer = commit(script, [2, 0, 0], (0, 1), (1, 1), (1, 1, 7, 0, 0), transaction=[0, 1, 0])
    assert answer.errors[:2] == [0, 0]
