"""Several files of a table are made one: by field id, each value as it was, or not at all."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg import layout, splicing, writer
from iceberg.column_metrics import leaves
from iceberg.layout import Binding, Bindings, Layout
from iceberg.merging import Expected, Merge, UnfitFile
from iceberg.parquet_footer import footer_of, stored_bytes
from iceberg.writer import FileContent
from iceberg.writers import ProcessWriter
from iceberg.writing import ThreadWriter, WriterDied
from objectstore import batch
from schema.compiler import compile_protos
from schema.descriptors import load

INNER = b"message I { int32 n = 1; string s = 2; }"
OLD = (
    b'syntax = "proto3"; package p; '
    + INNER
    + b"message M { int32 x = 1; string name = 2; repeated I many = 3;"
    b" map<string, I> by = 4; I one = 5; repeated float fs = 6; bool gone = 7; uint64 u = 8; }"
)
WIDER = b"message I { int64 n = 1; string t = 2; string more = 3; }"
NEW = (
    b'syntax = "proto3"; package p; '
    + WIDER
    + b"message M { int64 x = 1; string label = 2; repeated I many = 3;"
    b" map<string, I> by = 4; I one = 5; repeated double fs = 6; uint64 u = 8; bytes fresh = 9; }"
)
VALUES: list[dict[str, Any]] = [
    {"x": -5, "name": "a", "many": [{"n": 1, "s": "q"}, {"n": 2}], "by": {"k": {"n": 3}}, "one": {"s": "z"}},
    {"fs": [1.5, -2.25], "gone": True, "u": (1 << 64) - 1},
    {"by": {"a": {"n": 1}, "b": {"s": "w"}}},
]


@pytest.fixture(autouse=True, params=["decoded", "copied"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How row groups of these columns come into the file: small ones are decoded, large ones copied."""
    if request.param == "copied":
        monkeypatch.setattr(splicing, "COPIED_BYTES_MIN", 1)
    return str(request.param)


def binding(source: bytes, number: int) -> Binding:
    """A schema that is bound under this number."""
    return Binding(number, compile_protos({"m.proto": source}), "p.M")


def layouts() -> tuple[Layout, Layout]:
    """A table's layout before and after its message changed."""
    before = layout.build(None, Bindings((binding(OLD, 1),), 1, (1,)))
    after = layout.build(
        None, Bindings((binding(NEW, 2),), 2, (1, 2)), ids=before.ids.to_json(), previous=before.fields
    )
    return before, after


def written(table: Layout, source: bytes, values: list[dict[str, Any]], start: int) -> FileContent:
    """A file of these values, of which the last is followed by a tombstone, from an offset on."""
    kind = load(compile_protos({"m.proto": source}), "p.M").message_class
    records = [batch.NewRecord(1000 + at, b"k", _made(kind, each)) for at, each in enumerate(values)]
    content = batch.build([*records, batch.NewRecord(2000, None, None)], base_offset=start)
    end = start + len(records) + 1
    found = writer.write_file(table, 3, [memoryview(content)], start, end)
    assert found is not None
    return found


def _made(kind: Any, fields: dict[str, Any]) -> bytes:
    message = kind()
    for name, value in fields.items():
        if name == "by":
            for key, inner in value.items():
                for field, each in inner.items():
                    setattr(message.by[key], field, each)
        elif name == "many":
            for inner in value:
                message.many.add(**inner)
        elif name == "one":
            for field, each in value.items():
                setattr(message.one, field, each)
        elif isinstance(value, list):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    content: bytes = message.SerializeToString()
    return content


def expected(found: FileContent, name: str = "f") -> Expected:
    """What manifests say of a file."""
    return Expected(name, found.rows, found.bounds[3].lower, found.bounds[3].upper)


def rows(content: memoryview) -> list[dict[str, Any]]:
    """The rows of a file."""
    table: pa.Table = pq.read_table(pa.BufferReader(pa.py_buffer(content)))
    return table.to_pylist()


def merged(table: Layout, *files: FileContent) -> FileContent:
    """The files as one."""
    merge = Merge(json.dumps(table.fields), 3)
    for each in files:
        merge.add(each.content, expected(each))
    return merge.finish()


def test_older_files_get_the_columns_of_now_by_their_ids() -> None:
    before, after = layouts()
    old, new = written(before, OLD, VALUES, 0), written(after, NEW, [{"x": 1 << 40, "label": "n"}], 4)
    found = merged(after, old, new)
    got = rows(found.content)
    assert [each["kafka"]["offset"] for each in got] == [*range(6)]
    first, second, third, grave, last, _ = [each["value"] for each in got]
    was = [each["value"] for each in rows(old.content)]
    assert (first["x"], first["label"], last["x"], last["label"]) == (-5, "a", 1 << 40, "n")
    assert [(each["n"], each["t"], each["more"]) for each in first["many"]] == [(1, "q", None), (2, "", None)]
    assert [(key, each["n"]) for key, each in first["by"]] == [("k", 3)]
    assert sorted((key, each["n"], each["t"]) for key, each in third["by"]) == [("a", 1, ""), ("b", 0, "w")]
    assert (first["one"]["t"], third["one"], second["fs"], second["u"]) == (
        "z",
        None,
        [1.5, -2.25],
        2**64 - 1,
    )
    assert (second["gone"], last["gone"], first["fresh"], grave) == (True, None, None, None)
    assert [each and each["__raw__"] for each in (first, second, third, grave)] == [
        each and each["__raw__"] for each in was
    ]
    assert [each["key"] for each in got] == [each["key"] for each in rows(old.content) + rows(new.content)]


def test_a_file_that_was_merged_is_as_one_that_was_written() -> None:
    _, after = layouts()
    parts = [written(after, NEW, [{"x": at}], 2 * at) for at in range(20)]
    found = merged(after, *parts)
    metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(found.content)))
    one = pq.read_metadata(pa.BufferReader(pa.py_buffer(parts[0].content)))
    assert (found.rows, metadata.num_rows, metadata.num_row_groups) == (40, 40, 1)
    assert (found.bounds[3].lower, found.bounds[3].upper, found.bounds[2].upper) == (0, 39, 3)
    assert metadata.row_group(0).column(0).compression == one.row_group(0).column(0).compression == "ZSTD"
    ids = {each.name: each.metadata for each in pq.read_schema(pa.BufferReader(pa.py_buffer(found.content)))}
    assert ids == {each.name: each.metadata for each in after.arrow}
    again = merged(after, merged(after, *parts[:10]), merged(after, *parts[10:]))
    assert rows(again.content) == rows(found.content)


def test_large_row_groups_are_copied_as_they_are(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, _ = layouts()
    small, large = ([{"x": at, "fs": [0.5] * at} for at in some] for some in (range(3), range(3, 9)))
    files, start = [], 0
    for values in (large, small, small, large, VALUES):
        files.append(written(before, OLD, values, start))
        start += len(values) + 1
    found = merged(before, *files)
    monkeypatch.setattr(splicing, "COPIED_BYTES_MIN", 1 << 40)
    decoded = merged(before, *files)
    assert rows(found.content) == rows(decoded.content)
    assert (found.rows, found.bounds, found.columns) == (decoded.rows, decoded.bounds, decoded.columns)
    groups = pq.read_metadata(pa.BufferReader(pa.py_buffer(found.content))).num_row_groups
    assert groups == len(found.split_offsets) == (len(files) if way == "copied" else 1)


def test_rows_between_row_groups_that_are_copied_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    before, _ = layouts()
    large, small = [{"name": "".join(map(str, range(at * 300)))} for at in range(5)], [{"x": 1}]
    files, start = [], 0
    for values in (small, large, small, small, small, large, small):
        files.append(written(before, OLD, values, start))
        start += len(values) + 1
    sizes = [sum(map(stored_bytes, footer_of(each.content).groups)) for each in files]
    monkeypatch.setattr(splicing, "COPIED_BYTES_MIN", max(sizes))
    assert sizes[1] == sizes[5] == max(sizes)
    found = merged(before, *files)
    metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(found.content)))
    assert [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)] == [2, 6, 6, 6, 2]
    assert [each["kafka"]["offset"] for each in rows(found.content)] == [*range(start)]


def test_a_column_that_is_nan_somewhere_has_no_bounds_however_it_came(way: str) -> None:
    real = compile_protos({"m.proto": b'syntax = "proto3"; message M { double d = 1; int32 n = 2; }'})
    table = layout.build(None, Bindings((Binding(1, real, "M"),), 1, (1,)))
    kind = load(real, "M").message_class
    files = []
    for start, value in ((0, 1.0), (1, float("nan")), (2, 2.0)):
        raw = batch.NewRecord(1000, b"k", kind(d=value, n=start).SerializeToString())
        found = writer.write_file(
            table, 3, [memoryview(batch.build([raw], base_offset=start))], start, start + 1
        )
        assert found is not None
        files.append(found)
    clean, mixed = merged(table, files[0]), merged(table, *files)
    (number,) = [each.number for each in leaves(table.arrow) if each.real]
    assert clean.columns[number].lower is not None
    assert mixed.columns[number].lower is None
    assert mixed.columns[number].nans is None


def test_row_groups_end_where_those_of_commits_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "ROW_GROUP_ROWS", 8)
    _, after = layouts()
    found = merged(after, *[written(after, NEW, [{"x": at}], 2 * at) for at in range(20)])
    assert pq.read_metadata(pa.BufferReader(pa.py_buffer(found.content))).num_row_groups == 5
    assert len(found.split_offsets) == 5
    assert [each["kafka"]["offset"] for each in rows(found.content)] == [*range(40)]


def test_what_is_not_as_the_table_says_is_merged_with_nothing() -> None:
    before, after = layouts()
    old, new = written(before, OLD, VALUES, 0), written(after, NEW, [{"x": 1}], 4)
    told = expected(new, "the-file")
    cases = [
        ("has 2 rows, its manifest says 3", new, told._replace(rows=3)),
        ("the-file begins at offset 4", new, told._replace(first=3)),
        ("the-file ends at offset 5, not at 6", new, told._replace(last=6)),
        ("has offsets twice, or of files before it", old, expected(old)),
        ("cannot be read", FileContent([new.content[:-9]], 2, {}, []), told),
    ]
    for reason, file, says in cases:
        merge = Merge(json.dumps(after.fields), 3)
        merge.add(old.content, expected(old))
        with pytest.raises(UnfitFile, match=reason):
            merge.add(file.content, says)
    with pytest.raises(UnfitFile, match="another partition than 4"):
        Merge(json.dumps(after.fields), 4).add(new.content, told)
    with pytest.raises(UnfitFile, match="column x is int64 there and int32 in the table"):
        Merge(json.dumps(before.fields), 3).add(new.content, told)


def with_offsets(found: FileContent, offsets: list[int | None]) -> FileContent:
    """The file with other offsets, by somebody who does not say that each row has one."""
    table: pa.Table = pq.read_table(pa.BufferReader(pa.py_buffer(found.content)))
    kafka = table.column("kafka").combine_chunks()
    kinds = [each.with_nullable(True) for each in kafka.type]
    children = [kafka.field(each.name) for each in kinds]
    children[kafka.type.get_field_index("offset")] = pa.array(offsets, pa.int64())
    at = table.schema.get_field_index("kafka")
    field = table.schema.field(at).with_type(pa.struct(kinds))
    out = pa.BufferOutputStream()
    pq.write_table(table.set_column(at, field, pa.StructArray.from_arrays(children, fields=kinds)), out)
    return replace(found, parts=[writer.octets(out.getvalue())])


@pytest.mark.parametrize("offsets", [[0, None, 2, 3], [0, 2, 1, 2], [0, 1, 1, 3], [3, 1, 0, 1]])
def test_offsets_that_are_missing_or_there_twice_are_noticed_in_any_order(offsets: list[int | None]) -> None:
    before, _ = layouts()
    found = with_offsets(written(before, OLD, VALUES, 0), offsets)
    told = Expected("f", 4, 0, max(each for each in offsets if each is not None))
    with pytest.raises(UnfitFile, match=r"twice|ends at offset None"):
        Merge(json.dumps(before.fields), 3).add(found.content, told)


def test_offsets_out_of_order_stay_so() -> None:
    before, _ = layouts()
    found = with_offsets(written(before, OLD, VALUES, 0), [0, 3, 1, 2])
    got = rows(merged(before, found, written(before, OLD, VALUES, 4)).content)
    assert [each["kafka"]["offset"] for each in got] == [0, 3, 1, 2, 4, 5, 6, 7]


@pytest.fixture
async def helper() -> AsyncIterator[ProcessWriter]:
    """A writer with a process of its own."""
    found = ProcessWriter()
    yield found
    await found.close()


async def test_a_process_merges_what_a_thread_merges(helper: ProcessWriter) -> None:
    before, after = layouts()
    old, new = written(before, OLD, VALUES, 0), written(after, NEW, [{"x": 1}], 4)
    made = []
    for each in (helper, ThreadWriter()):
        merge, other = (each.merging(json.dumps(after.fields), 3) for _ in range(2))
        await merge.add(old.content, expected(old))
        await other.add(new.content, expected(new))
        await merge.add(new.content, expected(new))
        made.append(bytes((await merge.finish()).content))
        await merge.drop()
        await other.drop()
    assert made[0] == made[1] == bytes(merged(after, old, new).content)


async def test_a_helper_that_ends_takes_its_merges_with_it(helper: ProcessWriter) -> None:
    before, after = layouts()
    old, new = written(before, OLD, VALUES, 0), written(after, NEW, [{"x": 1}], 4)
    merge = helper.merging(json.dumps(after.fields), 3)
    await merge.add(old.content, expected(old))
    await helper.close()
    with pytest.raises(WriterDied):
        await merge.add(new.content, expected(new))
    await merge.drop()
    again = helper.merging(json.dumps(after.fields), 3)
    with pytest.raises(UnfitFile, match="cannot be read"):
        await again.add(new.content[:50], expected(new))
    await again.drop()
