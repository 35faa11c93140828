"""What of a partition was there at a point, and what two partitions are compared by."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import cast

import pytest

from agent.cli.failures import Failure, Status, told
from agent.cli.restoring import run
from agent.cli.restoring.cutting import Cut, Cutting
from agent.cli.restoring.digest import Digest
from agent.cli.restoring.point import Point, point_of
from agent.cli.restoring.report import plain, say
from agent.cli.restoring.run import Report, Restored, Restoring
from agent.cli.restoring.source import Part, Source
from agent.cli.restoring.writing import Ranges
from objectstore.batch import BatchHeader, CorruptBatch, NewRecord, Record, build, peek, seal, split
from objectstore.compression import Compression
from objectstore.markers import marker_batch
from objectstore.naming import MarkerId
from objectstore.store import StoreError

FIRST, SECOND = 7, 8
"""Producers."""


def data(offset: int, count: int, producer: int = -1, stamp_ms: int = 0) -> bytes:
    """A batch of `count` records at `offset`, each with its offset as its value."""
    made = [NewRecord(stamp_ms + n, None, b"%d" % (offset + n)) for n in range(count)]
    return build(
        made, base_offset=offset, producer_id=producer, producer_epoch=0, transactional=producer >= 0
    )


def marker(offset: int, producer: int, *, committed: bool, stamp_ms: int = 0) -> bytes:
    return marker_batch(MarkerId(producer, 0, committed), offset, stamp_ms)


def kept(log: Sequence[bytes], start: int, offset: int, time_ms: int | None = None) -> tuple[Cut, list[int]]:
    """Where the log is cut, and the offsets that were there."""
    view = memoryview(b"".join(log))
    batches = [(peek(view, at), view[at : at + size]) for at, size in split(view)]
    cutting = Cutting(start, offset, time_ms)
    for each in batches:
        if not cutting.take(*each):
            break
    cut = cutting.done()
    return cut, [record.offset for each in batches for record in cut.kept(*each)]


LOG = (
    data(0, 2),
    data(2, 2, FIRST),
    data(4, 1, SECOND),
    marker(5, FIRST, committed=True),
    data(6, 1, FIRST),
    marker(7, SECOND, committed=False),
    data(8, 3),
    marker(11, FIRST, committed=True),
    data(12, 1, FIRST),
    marker(13, FIRST, committed=False),
)


@pytest.mark.parametrize(
    ("start", "cut", "there"),
    [
        (0, 14, [0, 1, 2, 3, 6, 8, 9, 10]),
        (0, 13, [0, 1, 2, 3, 6, 8, 9, 10]),
        (0, 12, [0, 1, 2, 3, 6, 8, 9, 10]),
        (0, 11, [0, 1, 2, 3, 8, 9, 10]),
        (0, 10, [0, 1, 2, 3, 8, 9]),
        (0, 6, [0, 1, 2, 3]),
        (0, 5, [0, 1]),
        (1, 5, [1]),
        (3, 9, [3, 8]),
        (0, 0, []),
    ],
)
def test_what_had_committed_below_the_cut_is_there(start: int, cut: int, there: list[int]) -> None:
    found, offsets = kept(LOG, start, cut)
    assert (found.end, offsets) == (cut, there)


def test_a_time_cuts_before_the_first_record_or_marker_that_is_later() -> None:
    log = (
        data(0, 3, stamp_ms=100),
        data(3, 2, FIRST, stamp_ms=50),
        marker(5, FIRST, committed=True, stamp_ms=200),
        data(6, 1, stamp_ms=100),
    )
    assert kept(log, 0, 7, 101)[1] == [0, 1]
    assert kept(log, 2, 7, 102)[1] == [2]
    assert kept(log, 0, 7, 199)[0].end == 5
    assert kept(log, 0, 7, 199)[1] == [0, 1, 2], "its transaction was open then"
    assert kept(log, 0, 7, 200)[1] == [0, 1, 2, 3, 4, 6]
    assert kept(log, 0, 7, 99)[1] == []


def garbage(offset: int, stamp_ms: int = 0) -> bytes:
    """Three records under a good CRC that nobody can open, as an agent takes them."""
    made = build([NewRecord(stamp_ms, None, b"v")] * 3, base_offset=offset, compression=Compression.GZIP)
    return seal(peek(made), b"this is no gzip")


async def written(monkeypatch: pytest.MonkeyPatch, log: Sequence[bytes], time_ms: int | None) -> Restored:
    """What is found of a partition, in a dry run."""
    view = memoryview(b"".join(log))

    async def batches(
        _: Source, __: int, start: int, end: int
    ) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        for at, size in split(view):
            if start <= peek(view, at).base_offset < end:
                yield peek(view, at), view[at : at + size]

    monkeypatch.setattr(run, "batches", batches)
    source = SOURCE._replace(parts=[Part(0, 0, 9)])

    async def work(part: Part) -> Restored:
        cut = await run._cut(source, part, None, Point(time_ms=time_ms), lambda _: None)
        row = Restored(0, cut.start, cut.end, part.end, cut.left_out)
        await run._written(source, cut, row, None, lambda _: None)
        return row

    (row,) = await run._each(source, work)
    return row


async def test_a_batch_that_nobody_can_open_is_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that a broken client compressed must not keep the rest of its topic from being had back."""
    log = (data(0, 3), garbage(3), data(6, 3))
    row = await written(monkeypatch, log, None)
    assert (row.digest.count, row.closed, row.closed_more, row.cut) == (6, [(3, 6)], 0, 9)
    row.found = row.digest
    report = Report(SOURCE, [row], [])
    say(AS, report)
    assert "orders-0: 1 batches that nobody can open are left out: offsets 3-5\n" in capsys.readouterr().out
    (part,) = cast("list[dict[str, object]]", plain(AS, report)["partitions"])
    assert part["unreadable_batches_left_out"] == [{"from": 3, "to": 6}]
    monkeypatch.setattr(run, "RANGES_MAX", 0)
    assert (await written(monkeypatch, log, None)).closed_more == 1


async def test_a_time_cuts_before_a_later_batch_that_nobody_can_open(monkeypatch: pytest.MonkeyPatch) -> None:
    log = (data(0, 3), garbage(3, stamp_ms=100), data(6, 3))
    row = await written(monkeypatch, log, 50)
    assert (row.cut, row.digest.count, row.closed) == (3, 3, [])


async def test_what_several_partitions_end_by_is_told_once_and_by_itself() -> None:
    """Not as a group of exceptions, of which nobody learns what was wrong."""

    async def work(part: Part) -> None:
        raise StoreError("the store is away" if part.partition else "the store is full")

    with pytest.raises(Failure) as ended:
        await run._each(SOURCE._replace(parts=[Part(n, 0, 9) for n in range(3)]), work)
    found = str(ended.value), ended.value.status
    assert found == ("StoreError: the store is full; StoreError: the store is away", Status.UNREACHABLE)
    deep = ExceptionGroup("unhandled", [ExceptionGroup("unhandled", [CorruptBatch("records: no gzip")])])
    assert str(told(deep)) == "CorruptBatch: records: no gzip"


def test_more_transactions_than_are_held_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.cli.restoring.cutting.ABORTED_MAX", 0)
    with pytest.raises(Failure, match="transactions are left out"):
        kept((data(0, 1, FIRST),), 0, 1)


def test_anything_that_differs_makes_another_digest() -> None:
    one = Record(0, 5, b"k", b"v", [("h", b"x")])
    others = [
        one._replace(timestamp=6),
        one._replace(key=None),
        one._replace(key=b"kv", value=b""),
        one._replace(value=None),
        one._replace(value=b""),
        one._replace(headers=[]),
        one._replace(headers=[("h", None)]),
        one._replace(headers=[("hx", b"")]),
        one._replace(headers=[("h", b"x"), ("h", b"x")]),
    ]
    digests = {_digest([each]) for each in (one, *others)}
    assert len(digests) == 1 + len(others)
    assert _digest([one]) == _digest([one._replace(offset=9)]), "offsets do not count"
    assert _digest([one, others[0]]) != _digest([others[0], one])


def _digest(given: Sequence[Record]) -> str:
    digest = Digest()
    for each in given:
        digest.add(each)
    return digest.text()


def test_ranges_tell_which_offsets_became_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.cli.restoring.writing.RANGES_MAX", 2)
    ranges = Ranges()
    for new, old in enumerate((4, 5, 8, 9, 20, 21)):
        ranges.add(old, new)
    assert (ranges.rows, ranges.more) == ([[4, 6, 0], [8, 10, 2]], 2)


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("end", Point()),
        ("1700000000000", Point(time_ms=1_700_000_000_000)),
        ("2023-11-14T22:13:20.001Z", Point(time_ms=1_700_000_000_001)),
        ("2023-11-14T22:13:20", Point(time_ms=1_700_000_000_000)),
        ("2023-11-15T00:13:20+02:00", Point(time_ms=1_700_000_000_000)),
        ("0:5,12:0", Point(offsets={0: 5, 12: 0})),
    ],
)
def test_points(text: str, point: Point) -> None:
    assert point_of(text) == point


@pytest.mark.parametrize("text", ["", "now", "0:5,", "0:-1", "0:1,0:2", "2023-13-01"])
def test_what_is_no_point_is_refused_with_the_grammar(text: str) -> None:
    with pytest.raises(Failure, match="--at"):
        point_of(text)


def _row(partition: int, offsets: Sequence[int], found: Sequence[int], start: int = 0) -> Restored:
    row = Restored(partition, start, 9, 12, 1)
    row.found = Digest()
    for new, offset in enumerate(offsets):
        row.ranges.add(offset, new)
        row.digest.add(Record(offset, offset, None, b"v", []))
    for offset in found:
        row.found.add(Record(offset, offset, None, b"v", []))
    return row


SOURCE = Source("http://a", "orders", "6f", False, {}, "floe.orders", [])
AS = Restoring("orders", "orders-then", "end", "b", "http://a")
SAID = Path(__file__).with_name("restored_topic.txt")


def test_what_people_are_told(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> None:
    rows = [_row(0, (0, 1, 2), (0, 1, 2)), _row(1, (4, 7), (4, 7), start=4)]
    say(AS, Report(SOURCE, rows, ["floe.table.name"]))
    said = capsys.readouterr().out
    if request.config.getoption("--rewrite-golden"):
        SAID.write_text(said)
    assert said == SAID.read_text()
    say(AS, Report(SOURCE, [_row(0, (0, 1), (0,))], None))
    said = capsys.readouterr().out
    assert "NOT EQUAL: 1 records" in said
    assert "NOT EQUAL: topic orders-then is not what orders was, and stays marked" in said


def test_a_point_names_partitions_that_the_topic_has() -> None:
    for text in ("end", "7", "0:5", "0:5,1:9"):
        point_of(text).require_known("t", [0, 1])
    with pytest.raises(Failure, match="--at names partition 7: t has 2, from 0 on"):
        point_of("0:5,1:9,7:1").require_known("t", [0, 1])
