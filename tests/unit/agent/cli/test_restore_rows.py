"""Rows of a table's files as records: by offset whatever the files' order, and only of sound files."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.cli.failures import Failure, Status
from agent.cli.restoring import rows
from agent.cli.restoring.cutting import Cut, Cutting
from agent.cli.restoring.report import plain, say
from agent.cli.restoring.rows import UNREADABLE, DataFile, Older, Row
from agent.cli.restoring.run import Report, Restored, Restoring
from agent.cli.restoring.source import Part, Source
from agent.cli.restoring.target import mark_of
from objectstore.batch import NewRecord, Record, build, peek

SOURCE = Source("http://a", "orders", "6f", False, {}, "floe.orders", [])
KAFKA = pa.struct(
    [("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC"))]
)
SCHEMA = pa.schema(
    [
        ("kafka", KAFKA),
        ("key", pa.struct([("__raw__", pa.binary()), ("id", pa.int32())])),
        ("value", pa.struct([("__raw__", pa.binary()), ("__err__", pa.string()), ("n", pa.int32())])),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
LIMIT = 50


def record(offset: int) -> Record:
    """One of each kind, by its offset."""
    return Record(
        offset,
        -1 if offset % 11 == 4 else 1_700_000_000_000 - offset,
        (None, b"", b"key %d" % offset)[offset % 3],
        (b"value %d" % offset, None, b"", b"\0")[offset % 4],
        [[], [("a", b"x"), ("a", None)], [("b", b"")]][offset // 2 % 3],
    )


def stored(
    folder: Path, some: Sequence[Record], partition: int = 0, errors: str | None = None, raw: bool = True
) -> DataFile:
    """A data file of these records, in this order."""
    table = pa.Table.from_pylist(
        [
            {
                "kafka": {"partition": partition, "offset": one.offset, "timestamp": one.timestamp * 1000},
                "key": None if one.key is None else {"__raw__": one.key, "id": 1},
                "value": None
                if one.value is None
                else {"__raw__": one.value if raw else None, "__err__": errors, "n": 1},
                "headers": [{"key": name, "value": content} for name, content in one.headers],
            }
            for one in some
        ],
        SCHEMA,
    )
    offsets = [one.offset for one in some]
    path = folder / f"{len(list(folder.iterdir()))}.parquet"
    pq.write_table(table, path, row_group_size=7)
    return DataFile(str(path), path.stat().st_size, len(some), min(offsets), max(offsets))


def older(files: Sequence[DataFile], below: int = LIMIT) -> Older:
    by_first = sorted(files, key=lambda one: one.first)
    return Older("floe.orders", 0, by_first[0].first, below, below, by_first)


def taken(files: Sequence[DataFile], below: int = LIMIT) -> list[Row]:
    """What comes of the files."""

    async def take() -> list[Row]:
        async with aclosing(rows.rows(SOURCE, older(files, below))) as found:
            return [row async for some in found for row in some]

    return asyncio.run(take())


@pytest.fixture(autouse=True)
def from_this_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are copied from their path; tests/compat has them from an agent."""

    def copied(_source: Source, file: DataFile, copy: IO[bytes]) -> None:
        with Path(file.location).open("rb") as whole:
            shutil.copyfileobj(whole, copy)
        copy.seek(0)

    monkeypatch.setattr(rows, "_fetch", copied)
    monkeypatch.setattr(rows, "READ_ROWS", 5)
    monkeypatch.setattr(rows, "GIVEN_ROWS", 3)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    offsets=st.sets(st.integers(0, LIMIT + 10), min_size=1),
    cut=st.lists(st.integers(0, 3), min_size=LIMIT + 11, max_size=LIMIT + 11),
    below=st.integers(1, LIMIT),
    shuffled=st.randoms(use_true_random=False),
)
def test_every_row_comes_once_by_its_offset(
    offsets: set[int], cut: list[int], below: int, shuffled: object
) -> None:
    with TemporaryDirectory() as name:
        parts: dict[int, list[Record]] = {}
        for offset in sorted(offsets):
            parts.setdefault(cut[offset], []).append(record(offset))
        for part in parts.values():
            shuffled.shuffle(part)  # type: ignore[attr-defined]  # Hypothesis's Random
        found = taken([stored(Path(name), part) for part in parts.values()], below)
    assert [each.record for each in found] == [record(each) for each in sorted(offsets) if each < below]
    assert not any(each.unreadable for each in found)


def test_who_is_cancelled_while_a_file_is_read_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = stored(tmp_path, [record(each) for each in range(6)])
    copied = rows._fetch
    begun, go_on = threading.Event(), threading.Event()

    def slow(source: Source, file: DataFile, copy: IO[bytes]) -> None:
        begun.set()
        assert go_on.wait(60)
        copied(source, file, copy)

    monkeypatch.setattr(rows, "_fetch", slow)

    async def cancelled() -> None:
        async def take() -> None:
            async with aclosing(rows.rows(SOURCE, older([file]))) as found:
                async for _ in found:
                    pass

        task = asyncio.create_task(take())
        await asyncio.to_thread(begun.wait, 60)
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())


def test_files_that_are_not_what_the_table_says_end_it(tmp_path: Path) -> None:
    good = stored(tmp_path, [record(each) for each in range(6)])
    assert len(taken([good])) == 6, "control"
    other = stored(tmp_path, [record(each) for each in range(6)], partition=1)
    for wrong, said in (
        (good._replace(rows=7), "not as its manifest says"),
        (good._replace(first=1), "not as its manifest says"),
        (good._replace(last=6), "not as its manifest says"),
        (other, "another partition"),
    ):
        with pytest.raises(Failure, match=said) as failed:
            taken([wrong])
        assert failed.value.status is Status.FAILED
    Path(good.location).write_bytes(b"PAR1 and no more")
    with pytest.raises(Failure, match="is damaged"):
        taken([good])


def test_a_row_that_is_there_twice_ends_it(tmp_path: Path) -> None:
    files = [stored(tmp_path, [record(each) for each in some]) for some in ((0, 1, 2), (2, 3))]
    with pytest.raises(Failure, match=r"offset 2: floe\.orders has several rows"):
        taken(files)


def test_a_value_of_which_only_columns_are_left_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"no bytes of the value at offset 0 .*raw_bytes"):
        taken([stored(tmp_path, [record(0)], raw=False)])
    assert taken([stored(tmp_path, [record(1)], raw=False)])[0].record.value is None, "control: a tombstone"


def test_bounds_of_what_is_open_and_sorted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    across = [stored(tmp_path, [record(each), record(20 + each)]) for each in range(3)]
    monkeypatch.setattr(rows, "OPEN_MAX", 2)
    with pytest.raises(Failure, match="more than 2 data files"):
        taken(across)
    assert len(taken(across[:2])) == 4, "control"
    monkeypatch.setattr(rows, "SORTED_BYTES_MAX", 1)
    with pytest.raises(Failure, match=r"floe\.table\.sort"):
        taken([stored(tmp_path, [record(1), record(0)])])


def test_a_batch_that_nobody_can_open_is_told_and_a_record_like_it_is_one(tmp_path: Path) -> None:
    kept = build([NewRecord(5, None, b"v")], base_offset=3)
    reason = [(UNREADABLE, b"why")]
    for one, error, unreadable in (
        (Record(3, 5, None, kept, reason), "why", True),
        (Record(3, 5, None, kept, reason), None, False),
        (Record(4, 5, None, kept, reason), "why", False),
        (Record(3, 5, b"k", kept, reason), "why", False),
        (Record(3, 5, None, kept[:-1], reason), "why", False),
        (Record(3, 5, None, kept[:-1] + b"\xff", reason), "why", False),
        (Record(3, 5, None, kept, []), "why", False),
        (Record(3, 5, None, None, reason), None, False),
    ):
        assert taken([stored(tmp_path, [one], errors=error)]) == [Row(one, unreadable)]


def test_rows_are_cut_by_time_and_the_log_counts_from_its_start() -> None:
    cutting = Cutting(0, 9, 1_000, 5)
    early = [Record(each, 900 + each, None, b"v", []) for each in range(3)]
    assert cutting.take_rows(early)
    assert not cutting.take_rows([Record(3, 1_001, None, b"v", []), Record(4, 1, None, b"v", [])])
    cut = cutting.done()
    assert (cut.start, cut.log_start, cut.end) == (0, 5, 3)
    batch = build([NewRecord(1, None, b"%d" % each) for each in range(4, 8)], base_offset=4)
    across = Cut(0, 7, [], 5)
    assert [each.offset for each in across.kept(peek(batch), memoryview(batch))] == [5, 6], (
        "what is below the log start is a row of the table"
    )


def test_a_mark_says_where_the_log_began() -> None:
    source = SOURCE._replace(parts=[Part(0, 4, 9)])
    marks = {mark_of(source, "end", [Cut(0, 9, [], start)]) for start in (0, 4, 5)}
    assert len(marks) == 3
    assert mark_of(source, "end", [Cut(4, 9, [], 4)]) == mark_of(source, "end", [Cut(4, 9, [])])


def test_what_is_told_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    asked = Restoring("orders", "new", "end", "b", "http://a", dry_run=True, with_table=True)
    row = Restored(0, 2, 9, 9, 0, older=Older("floe.orders", 0, 2, 8, 7, ()), rows=3, unreadable=1)
    nothing = Restored(1, 4, 9, 9, 0)
    report = Report(SOURCE, [row, nothing], None)
    told = plain(asked, report)["partitions"]
    assert isinstance(told, list)
    assert [each["from_table"] for each in told] == [
        {
            "table": "floe.orders",
            "from": 2,
            "below": 8,
            "rows": 3,
            "unreadable_batches_left_out": 1,
            "offsets_without_row": 2,
            "never_in_table": {"from": 7, "to": 8},
        },
        None,
    ]
    say(asked, report)
    said = capsys.readouterr().out
    for line in (
        "orders-0: 3 records of offsets 2 to below 8 are rows of table floe.orders; 2 offsets",
        "orders-0: offsets below 2 are in neither the log nor the table",
        "orders-0: 1 batches that nobody can open are left out",
        "orders-0: offsets 7 to below 8 left the log before the table had them",
        "orders-1: offsets below 4 are gone from the log; table floe.orders has none",
    ):
        assert line in said
