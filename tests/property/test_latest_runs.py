"""Folding and merging of latest tables against a dictionary, on Arrow alone: any keys, any turns."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg import evolution
from iceberg.evolution import KEY_RAW_ID
from iceberg.merging import UnfitFile
from iceberg.small_files import LiveFile
from iceberg.upsert.folding import Fold, Folded, keys_of, schema_of
from iceberg.upsert.merging import KeyMerge
from iceberg.upsert.plan import Bounds, KeyFile, groups, shares, takes
from iceberg.writer import FileContent, open_writer

FIELDS = json.dumps(evolution.new_fields())
SCHEMA = schema_of(FIELDS)
ROOMY = 1 << 30

keys = st.one_of(
    st.binary(max_size=3),
    st.integers(0, 20).map(lambda at: b"k" * 1_030 + b"%02d" % at),
    st.just(b"\xff" * 1_040),
)
turns = st.lists(
    st.lists(st.tuples(keys, st.one_of(st.none(), st.binary(max_size=4))), min_size=1, max_size=25),
    max_size=5,
)


def appended(rows: list[tuple[bytes, bytes | None]], first: int) -> memoryview:
    """A file of an append table, of partition 0."""
    told: list[dict[str, Any]] = [
        {
            "kafka": {"partition": 0, "offset": first + at, "timestamp": 0, "timestamp_type": 0},
            "key": {"__raw__": key},
            "value": None if value is None else {"__raw__": value, "__err__": None},
            "headers": [],
        }
        for at, (key, value) in enumerate(rows)
    ]
    sink = pa.BufferOutputStream()
    with open_writer(sink, SCHEMA) as writer:
        writer.write_table(pa.Table.from_pylist(told, SCHEMA))
    return memoryview(sink.getvalue())


def folded(rows: list[tuple[bytes, bytes | None]], first: int, parts: int) -> Folded:
    """The newest rows, of files that are given last first."""
    fold, size = Fold(FIELDS, FIELDS, None, ROOMY), max(1, len(rows) // parts)
    for start in reversed(range(0, len(rows), size)):
        some = rows[start : start + size]
        fold.add(appended(some, first + start), "f", len(some), 0, first, first + len(rows))
    return fold.done()


def merged(files: list[FileContent], new: pa.Table, rows_max: int) -> list[FileContent]:
    """The run with the new rows."""
    run = [_file(each) for each in files]
    new_keys = keys_of(new)
    touched = shares(run, len(new), lambda at: new_keys[at].as_py())
    made: dict[int, list[FileContent]] = {at: [each] for at, each in enumerate(files)}
    for group in groups(run, touched, rows_max * 100):
        merge = KeyMerge(FIELDS, 0, rows_max, 1)
        found: list[FileContent] = []
        for share in group:
            some = new.slice(share.first, share.end - share.first)
            if share.file < 0:
                found += merge.begin(some)
            else:
                found += merge.merge(files[share.file].content, run[share.file], some)
            made[share.file] = []
        made[group[0].file] = [*found, *merge.rest()]
    return [each for at in sorted(made) for each in made[at]]


def _file(each: FileContent) -> KeyFile:
    low = each.columns[KEY_RAW_ID].lower
    assert low is not None
    return KeyFile(0, low, each.rows, each.size, "f")


@settings(max_examples=25, deadline=None)
@given(turns, st.integers(1, 6), st.integers(1, 3))
def test_any_history_ends_as_a_dictionary_would(
    history: list[list[tuple[bytes, bytes | None]]], rows_max: int, parts: int
) -> None:
    files: list[FileContent] = []
    wanted: dict[bytes, tuple[int, bytes]] = {}
    first = 0
    for rows in history:
        for at, (key, value) in enumerate(rows):
            wanted.pop(key, None)
            if value is not None:
                wanted[key] = first + at, value
        files = merged(files, folded(rows, first, parts).rows, rows_max)
        first += len(rows)
        found = []
        for each in files:
            told = _read(each)
            lower, upper = each.columns[KEY_RAW_ID].lower, each.columns[KEY_RAW_ID].upper
            assert lower == told[0][0][:1_024]
            assert upper is None or upper >= told[-1][0][:1_024]
            found += told
        assert [key for key, _ in found] == sorted(wanted)
        assert dict(found) == wanted
        lows = [_file(each).low for each in files]
        assert lows == sorted(set(lows)), "each key has one file that owns it"


def _read(file: FileContent) -> list[tuple[bytes, tuple[int, bytes]]]:
    rows = pq.read_table(pa.BufferReader(pa.py_buffer(file.content))).to_pylist()
    return [(each["key"]["__raw__"], (each["kafka"]["offset"], each["value"]["__raw__"])) for each in rows]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9), st.integers(1, 50)), max_size=12),
    st.lists(st.integers(0, 30), min_size=3, max_size=3),
    st.integers(1, 120),
    st.integers(1, 9),
    st.integers(0, 2),
)
def test_turns_take_every_offset_once_and_come_to_an_end(
    made: list[tuple[int, int, int]], begun: list[int], bytes_max: int, span: int, first: int
) -> None:
    ends, files = [0, 0, 0], []
    for number, (partition, rows, size) in enumerate(made):
        start = ends[partition]
        ends[partition] += rows
        files.append(LiveFile(partition, start, ends[partition] - 1, rows, size, f"{number}"))
    have = [min(each, end) for each, end in zip(begun, ends, strict=True)]
    read: set[tuple[int, int]] = set()
    wanted = {(at, offset) for at in range(3) for offset in range(have[at], ends[at])}
    while have != ends:
        found, more = takes(files, have, ends, Bounds(bytes_max, span), first)
        assert found
        for each in found:
            assert each.start == have[each.partition] < each.end <= ends[each.partition]
            some = {
                (one.partition, offset)
                for one in each.files
                for offset in range(max(one.first, each.start), min(one.last + 1, each.end))
            }
            assert some == {(each.partition, offset) for offset in range(each.start, each.end)}
            read |= some
            have[each.partition] = each.end
        assert more == (have != ends)
        first = (found[-1].partition + 1) % 3
    assert read == wanted


def test_a_file_that_is_not_what_its_manifest_says_is_refused() -> None:
    (file,) = merged([], folded([(b"b", b"1"), (b"a", b"2")], 0, 1).rows, 10)
    new = folded([(b"a", b"3")], 2, 1).rows
    good = _file(file)
    for bad in (good._replace(rows=3), good._replace(low=b"b")):
        with pytest.raises(UnfitFile, match="drop the table"):
            list(KeyMerge(FIELDS, 0, 10, 1).merge(file.content, bad, new))
    with pytest.raises(UnfitFile, match="drop the table"):
        list(KeyMerge(FIELDS, 1, 10, 1).merge(file.content, good, new))
    unsorted = appended([(b"b", b"1"), (b"a", b"2")], 0)
    with pytest.raises(UnfitFile, match="sorted by key"):
        list(KeyMerge(FIELDS, 0, 10, 1).merge(unsorted, good._replace(low=b"b"), new))
    with pytest.raises(UnfitFile, match="cannot be read"):
        list(KeyMerge(FIELDS, 0, 10, 1).merge(memoryview(b"none"), good, new))
    with pytest.raises(UnfitFile, match="another partition"):
        Fold(FIELDS, FIELDS, None, ROOMY).add(unsorted, "f", 2, 1, 0, 2)
