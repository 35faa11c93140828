"""The walk over a partition's batches lets pass what must be so, and finds each thing that must not."""

from __future__ import annotations

import pytest

from objectstore.batch import BatchHeader
from objectstore.transactions import Aborted
from tests.torture.walk import Walk

PLAIN, TRANSACTIONAL, CONTROL = 0, 0x10, 0x30


def data(base: int, count: int = 1, producer: int = -1, sequence: int = -1, epoch: int = 0) -> BatchHeader:
    """A plain batch."""
    return BatchHeader(base, 0, 0, 2, 0, PLAIN, count - 1, 0, 0, producer, epoch, sequence, count)


def part(base: int, producer: int, sequence: int = 0, epoch: int = 0) -> BatchHeader:
    """One record of a transaction."""
    return data(base, 1, producer, sequence, epoch)._replace(attributes=TRANSACTIONAL)


def marker(base: int, producer: int) -> BatchHeader:
    """The end of a transaction."""
    return data(base, 1, producer)._replace(attributes=CONTROL)


ABORT = object()  # in front of a marker
Story = list[object]


def walked(
    story: Story,
    high_watermark: int,
    *,
    start: int = 0,
    merged_end: int = 0,
    compacted_to: int = 0,
    aborted: tuple[Aborted, ...] = (),
) -> str | None:
    """What is wrong with these batches."""

    def listed(producer: int, at: int) -> bool:
        return any(a.producer_id == producer and a.first_offset <= at < a.marker_offset for a in aborted)

    walk = Walk(start, merged_end, compacted_to, listed)
    aborts = False
    for each in story:
        if each is ABORT:
            aborts = True
            continue
        assert isinstance(each, BatchHeader)
        wrong = walk.batch(each, aborts)
        aborts = False
        if wrong is not None:
            return wrong
    return walk.end(high_watermark)


def test_what_is_whole_passes() -> None:
    assert walked([data(0, 3), data(3), marker(4, 7)], 5) is None
    assert walked([data(0, 3), data(3)], 4, start=2) is None, "the log starts inside of a batch"
    assert walked([], 4, start=4) is None


@pytest.mark.parametrize(
    ("story", "start"),
    [
        ([data(0), data(2)], 0),
        ([data(1)], 0),
        ([data(0, 3), data(2)], 0),
        ([data(0, 3)], 3),
        ([data(0)], 0),
    ],
    ids=["gap", "gap in front", "overlap", "below the log start", "end missing"],
)
def test_what_does_not_tile_is_found(story: Story, start: int) -> None:
    assert walked(story, 3 + 3 * (start > 0), start=start) is not None


def test_batches_of_a_quarantine_have_their_transaction_and_no_sequence() -> None:
    aside = [part(0, 7, -1), part(1, 7, -1)]
    assert walked([*aside, marker(2, 7)], 3) is None
    assert walked([*aside, ABORT, marker(2, 7)], 3, aborted=(Aborted(7, 0, 2),)) is None
    assert "aborted and not listed" in str(walked([*aside, ABORT, marker(2, 7)], 3))
    assert "sequence" in str(walked([data(0, 1, 7, 0), data(1, 1, 7, -1)], 2)), "of no transaction"


def test_aborted_records_may_be_gone_where_merging_was() -> None:
    story: Story = [data(0), ABORT, marker(3, 7), data(4)]
    assert walked(story, 5, merged_end=4) is None
    assert walked(story, 5, merged_end=3) is None, "the marker is in the tail still"
    assert walked(story, 5, merged_end=2) == "batch at 3 where 1 was due"


def test_the_rest_of_an_aborted_transaction_may_be_in_the_tail() -> None:
    """Seed 1001 of the simulation: merging came to the midst of it."""
    story: Story = [data(0), part(3, 7, 1), ABORT, marker(4, 7)]
    assert walked(story, 5, merged_end=3, aborted=(Aborted(7, 1, 4),)) is None
    assert walked(story, 5, merged_end=4, aborted=(Aborted(7, 3, 4),)) is not None, "a merged one is none"
    committed: Story = [data(0), part(3, 7, 1), marker(4, 7)]
    assert "gaps" in str(walked(committed, 5, merged_end=3))
    ended: Story = [data(0), part(3, 7, 1), marker(4, 7), part(5, 7, 2), ABORT, marker(6, 7)]
    assert "gaps" in str(walked(ended, 7, merged_end=3, aborted=(Aborted(7, 5, 6),)))


@pytest.mark.parametrize(
    "story",
    [
        [data(0), marker(3, 7), data(4)],
        [data(0), data(3), data(4)],
        [data(0), part(3, 7), ABORT, marker(4, 7)],
        [ABORT, marker(0, 7), data(3), data(4)],
    ],
    ids=["committed", "no marker", "begun behind the gap", "ended before the gap"],
)
def test_a_gap_that_no_aborted_transaction_explains_is_found(story: Story) -> None:
    assert "gap" in str(walked(story, 5, merged_end=5)) or "aborted records" in str(
        walked(story, 5, merged_end=5)
    )


def test_compaction_may_take_anything_where_it_has_been_and_nothing_behind() -> None:
    story: Story = [data(2), data(5)]
    assert walked(story, 6, merged_end=6, compacted_to=5) is None
    assert (
        walked(story, 6, merged_end=6, compacted_to=4)
        == "no aborted transaction explains the gaps that begin at [4]"
    )


def test_merged_ranges_hold_no_aborted_records() -> None:
    story: Story = [part(0, 7), ABORT, marker(1, 7)]
    listed = (Aborted(7, 0, 1),)
    assert walked(story, 2, aborted=listed) is None
    assert walked(story, 2, merged_end=1, aborted=listed) is not None


def test_the_tail_lists_exactly_what_was_aborted() -> None:
    story: Story = [part(0, 7), marker(1, 7), part(2, 7, 1), ABORT, marker(3, 7), part(4, 7, 2)]
    assert walked(story, 5, aborted=(Aborted(7, 2, 3),)) is None
    assert walked(story, 5) == "records of producer 7 at 2 are aborted and not listed"
    assert (
        walked(story, 5, aborted=(Aborted(7, 0, 3),))
        == "records of producer 7 at 0 are committed and listed as aborted"
    )


def test_sequences_have_no_gap_but_where_an_aborted_transaction_was() -> None:
    assert walked([data(0, 2, 7, 0), data(2, 1, 7, 2), data(3, 1, 7, 0, epoch=1)], 4) is None
    assert walked([data(0, 2, 7, 0), data(2, 1, 7, 3)], 3) == "offset 2: producer (7, 0) sequence 3, due 2"
    assert walked([part(0, 7, 0), part(1, 7, 2)], 2) is not None, "of transactions likewise"
    story: Story = [part(0, 7, 0), marker(1, 7), ABORT, marker(4, 7), part(5, 7, 3)]
    assert walked(story, 6, merged_end=5) is None
    assert walked([part(0, 7, 0), marker(1, 7), part(2, 7, 3)], 3, merged_end=3) is not None


def test_sequences_jump_where_the_first_part_of_an_aborted_transaction_is_gone() -> None:
    """Seed 1359 of the simulation: merging took the record at 2, the tail has the next of its transaction."""
    begun: Story = [part(0, 7, 0), marker(1, 7)]
    listed = (Aborted(7, 2, 5),)
    rest: Story = [part(3, 7, 2), part(4, 7, 3)]
    jump = "offset 3: producer (7, 0) sequence 2, due 1"
    assert walked([*begun, *rest, ABORT, marker(5, 7)], 6, merged_end=3, aborted=listed) is None
    assert (
        walked([*begun, *rest, ABORT, marker(5, 7), part(6, 7, 4)], 7, merged_end=3, aborted=listed) is None
    )
    assert walked([*begun, *rest, marker(5, 7)], 6, merged_end=3) == jump, "committed"
    assert walked([*begun, *rest], 5, merged_end=3) == jump, "without an end"
    merged: Story = [*begun, data(2), *rest, ABORT, marker(5, 7)]
    assert walked(merged, 6, merged_end=3, aborted=listed) == jump, "no gap"
    gone: Story = [*begun, marker(3, 7), part(4, 7, 2), ABORT, marker(5, 7)]
    assert walked(gone, 6, merged_end=3, aborted=(Aborted(7, 4, 5),)) is not None, "its own end lies between"
    back: Story = [part(0, 7, 5), marker(1, 7), part(3, 7, 4), ABORT, marker(4, 7)]
    assert walked(back, 5, merged_end=3, aborted=(Aborted(7, 2, 4),)) is not None, "it goes back"


def test_the_last_sequence_wraps() -> None:
    assert walked([data(0, 1, 7, (1 << 31) - 1), data(1, 1, 7, 0)], 2) is None


def test_two_aborted_transactions_may_share_a_gap() -> None:
    """Seed 19 of the simulation: of the records at 4 and 5, one of each, nothing is left but the markers."""
    story = [
        part(0, 7, 0),
        part(1, 8, 0),
        ABORT,
        marker(4, 7),
        ABORT,
        marker(5, 8),
        part(6, 8, 2),
        part(7, 7, 2),
    ]
    aborted = (Aborted(7, 0, 4), Aborted(8, 1, 5))
    committed = [part(0, 7, 0), marker(1, 7), part(2, 8, 0), marker(3, 8)]
    gone = [
        ABORT,
        marker(6, 7),
        ABORT,
        marker(7, 8),
        part(8, 8, 2),
        part(9, 7, 2),
        marker(10, 8),
        marker(11, 7),
    ]
    assert walked([*committed, *gone], 12, merged_end=8) is None
    assert walked(story, 8, aborted=aborted) is not None, "nothing is gone where nothing is merged"
