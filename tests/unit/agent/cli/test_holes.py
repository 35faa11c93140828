"""Offsets without a committed record: what explains one, and what does not."""

from __future__ import annotations

from agent.cli.holes import Walk
from objectstore.batch import NewRecord, build, empty_batch, patch, peek, seal
from objectstore.compression import Compression
from objectstore.markers import marker_batch
from objectstore.naming import MarkerId
from objectstore.offset_ranges import joined
from objectstore.parting import part

STAMP_MS = 1_700_000_000_000


def data(base: int, count: int = 1, producer: int = -1) -> bytes:
    """A batch; of a transaction when it has a producer."""
    rows = [NewRecord(STAMP_MS, None, b"x")] * count
    if producer < 0:
        raw = bytearray(build(rows))
    else:
        raw = bytearray(
            build(rows, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
        )
    patch(raw, 0, base)
    return bytes(raw)


def marker(base: int, producer: int, committed: bool = False) -> bytes:
    """The end of a transaction."""
    return marker_batch(MarkerId(producer, 0, committed), base, STAMP_MS)


def walked(
    *batches: bytes, aborted: tuple[tuple[int, int], ...] = (), start: int = 0
) -> list[tuple[int, int]]:
    """The holes in one answer."""
    walk = Walk(start)
    walk.answer(memoryview(b"".join(batches)), aborted)
    return joined(walk.ranges)


def test_records_are_no_holes() -> None:
    assert walked(data(0, 3), data(3, 2, producer=7)) == []
    assert walked() == []


def test_markers_aborted_records_and_empty_batches_are() -> None:
    story = (
        data(0),
        data(1, 2, producer=7),
        data(3),
        marker(4, 7),
        data(5, 1, producer=7),
        marker(6, 7, True),
    )
    assert walked(*story, aborted=((1, 7),)) == [(1, 3), (4, 5), (6, 7)]
    assert walked(data(0), empty_batch(1, 4)) == [(1, 4)]
    assert walked(*story, aborted=((1, 7),), start=2) == [(2, 3), (4, 5), (6, 7)], "from the log start on"


def test_what_was_merged_away_is_explained_by_the_marker_of_an_abort() -> None:
    assert walked(data(0), marker(3, 7)) == [(1, 4)]
    assert walked(data(0), data(3), marker(4, 7)) == [(1, 3), (4, 5)]


def test_nothing_else_explains_a_gap() -> None:
    assert walked(data(0), data(3)) == [], "no transaction at all"
    assert walked(data(0), marker(3, 7, committed=True)) == [(3, 4)], "it was committed"
    assert walked(data(0), data(3, 1, producer=7), marker(4, 7), aborted=((3, 7),)) == [(3, 5)], (
        "begun behind"
    )


def test_a_batch_that_nobody_can_open_explains_nothing() -> None:
    """What of its offsets has a record nobody can say: the audit goes on, and what lacks is a gap."""
    closed = peek(data(1, 3))._replace(attributes=Compression.GZIP, record_count=2)
    assert walked(data(0), seal(closed, b"no gzip"), marker(4, 7, committed=True)) == [(4, 5)]


def test_what_was_set_aside_of_a_batch_is_no_gap() -> None:
    left, _ = part(data(0, 6), [0, 2, 3, 5], 1 << 20)
    gone, _ = part(data(0, 2), [0, 1], 1 << 20)
    story = bytearray(left), bytearray(gone)
    for base, each in zip((10, 16), story, strict=True):
        patch(each, 0, base)
    assert walked(*map(bytes, story), start=10) == [(10, 11), (12, 14), (15, 18)]
    assert walked(*map(bytes, story), start=13) == [(13, 14), (15, 18)], "from the log start on"
