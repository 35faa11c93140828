"""Which URLs of a copied bucket's tables are told anew, and what becomes of the files that have them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.avro.file import AvroFile, AvroOutputFile
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record, TableVersion
from pyiceberg.types import LongType, NestedField, StringType

from iceberg import manifest_avro, sealed
from iceberg.manifest_avro import Input, ManifestWriter, Output
from iceberg.moving import deletes, manifests, splicing
from iceberg.moving.manifests import DELETED_PATH, DeleteFile, Stored
from iceberg.moving.splicing import Unreadable
from iceberg.moving.table import named
from iceberg.moving.urls import Prefix

S3 = Prefix.of("s3://floe/main/", "s3://floe-copy/of/main")
SCHEMA = Schema(NestedField(1, "id", LongType(), required=True))


@pytest.mark.parametrize(
    ("url", "moved"),
    [
        (
            "s3://floe/main/tables/a/b%20c%2Fd/x=1%3A2/é",
            "s3://floe-copy/of/main/tables/a/b%20c%2Fd/x=1%3A2/é",
        ),
        ("s3://floe/main/a//b/", "s3://floe-copy/of/main/a//b/"),
        ("s3://floe/main", "s3://floe-copy/of/main"),
        ("s3a://floe/main/x", "s3a://floe-copy/of/main/x"),
        ("s3n://floe/main/x", "s3n://floe-copy/of/main/x"),
        ("s3://floe/main2/x", None),
        ("s3://floe/main%2Fx", None),
        ("s3://floe/mai", None),
        ("S3://floe/main/x", None),
        ("gs://floe/main/x", None),
        ("see s3://floe/main/x", None),
        ("s3://floe-copy/of/main/x", None),
    ],
)
def test_a_url_is_the_sources_by_whole_names(url: str, moved: str | None) -> None:
    assert S3.moved(url) == moved


def test_java_writes_files_with_one_slash_and_other_schemes_become_the_copys() -> None:
    folder = Prefix("file:///a/b", "file:///c")
    assert (folder.moved("file:/a/b/x"), folder.moved("file:///a/b/x")) == ("file:/c/x", "file:///c/x")
    assert Prefix("file:///a/b", "s3://c/d").moved("file:/a/b/x") == "s3://c/d/x"
    assert Prefix("s3://c/d", "gs://e").moved("s3a://c/d/x") == "gs://e/x"


def test_a_copy_below_or_above_its_source_is_moved_once() -> None:
    below = Prefix("s3://b/main", "s3://b/main/copy")
    assert below.moved("s3://b/main/tables/x") == "s3://b/main/copy/tables/x"
    assert below.moved("s3://b/main/copy/tables/x") is None
    above = Prefix("s3://b/main/a", "s3://b/main")
    assert above.moved("s3://b/main/a/tables/x") == "s3://b/main/tables/x"
    assert above.moved("s3://b/main/tables/x") is None


def test_of_metadata_all_urls_but_those_that_are_values_of_rows() -> None:
    inside = "s3://floe/main/t"
    metadata: dict[str, Any] = {
        "location": inside,
        "schemas": [{"fields": [{"initial-default": f"{inside}/x", "doc": inside}]}],
        "properties": {"write.data.path": f"{inside}/data", "plain": "s3://floe/main2/t", inside: "1"},
        "snapshots": [
            {"snapshot-id": 1, "manifest-list": f"{inside}/l.avro", "summary": {"x": f"{inside}/y"}}
        ],
        "metadata-log": [{"metadata-file": f"{inside}/m/00001.metadata.json", "timestamp-ms": 5}],
        "statistics": [{"statistics-path": f"{inside}/s.puffin", "blob-metadata": []}],
        "partition-statistics": [{"statistics-path": f"{inside}/p.parquet"}],
        "refs": {"main": {"snapshot-id": 1, "type": "branch"}},
    }
    moved = S3.everywhere(metadata, {f"{inside}/l.avro": "s3://floe-copy/of/main/t/new.avro"})
    there = "s3://floe-copy/of/main/t"
    assert moved["schemas"] == metadata["schemas"]
    assert moved["properties"] == {
        "write.data.path": f"{there}/data", "plain": "s3://floe/main2/t", inside: "1",
    }  # fmt: skip
    assert moved["snapshots"][0]["manifest-list"] == f"{there}/new.avro"
    assert moved["snapshots"][0]["summary"] == {"x": f"{there}/y"}
    assert moved["metadata-log"] == [{"metadata-file": f"{there}/m/00001.metadata.json", "timestamp-ms": 5}]
    assert moved["statistics"][0]["statistics-path"] == f"{there}/s.puffin"
    assert moved["partition-statistics"] == [{"statistics-path": f"{there}/p.parquet"}]
    assert (moved["refs"], moved["location"]) == (metadata["refs"], there)


def test_names_are_of_what_files_hold_and_begin_as_they_did() -> None:
    location = "s3://b/t/metadata/000000000000002a-m0.x0123456789abcdef.avro"
    made = named(location, b"content")
    assert made == sealed.sealed("s3://b/t/metadata/000000000000002a-m0.avro", b"content")
    assert named(made, b"content") == made
    assert named("s3://b/snap-1-2-u.avro", b"c").startswith("s3://b/snap-1-2-u.x")
    view = named("s3://b/v/metadata/00001-u.view.x0123456789abcdef.metadata.json", b"v")
    assert view.startswith("s3://b/v/metadata/00001-u.view.x")
    assert named("s3://b/dv.puffin", b"1") != named("s3://b/dv.puffin", b"2")
    assert named(named("s3://b/dv.puffin", b"1"), b"2") == named("s3://b/dv.puffin", b"2")
    with pytest.raises(Unreadable, match="ends with none"):
        named("s3://b/m.orc", b"")


# Manifests.


class _Deletes(ManifestWriter):
    """Of delete files, as engines write them."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def bounds(low: bytes, high: bytes) -> dict[str, Any]:
    return {"lower_bounds": {DELETED_PATH: low, 7: b"s3://floe/main/x"}, "upper_bounds": {DELETED_PATH: high}}


def file(location: str, content: DataFileContent = DataFileContent.DATA, **more: Any) -> DataFile:
    arguments: dict[str, Any] = {
        "content": content, "file_path": location, "file_format": FileFormat.PARQUET, "partition": Record(),
        "record_count": 3, "file_size_in_bytes": 70, "column_sizes": {1: 5}, "value_counts": {1: 3},
        "null_value_counts": {}, "nan_value_counts": {}, "lower_bounds": {1: b"s3://floe/main/x"},
        "upper_bounds": {}, "key_metadata": b"s3://floe/main/k", "split_offsets": [4], "equality_ids": None,
        "sort_order_id": None,
    }  # fmt: skip
    found = manifest_avro.data_file(**(arguments | more))
    found.spec_id = 0
    return found


def manifest(version: TableVersion, *files: DataFile, writer: type[ManifestWriter] = ManifestWriter) -> bytes:
    output = Output("s3://floe/main/t/metadata/1-m0.avro")
    with writer(version, UNPARTITIONED_PARTITION_SPEC, SCHEMA, output, 5) as one:
        for each in files:
            entry = ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=5, sequence_number=None, data_file=each
            )
            one.add_entry(entry)
    return output.content


def plain(content: bytes) -> list[dict[str, Any]]:
    """What an Avro file holds, by its own schema."""

    def opened(value: Any, names: Any) -> Any:
        if isinstance(value, Record) and names is not None:
            return {
                n.name: opened(value[at], getattr(n.field_type, "fields", None)) for at, n in enumerate(names)
            }
        return dict(value) if isinstance(value, Mapping) else value

    with AvroFile[Record](Input("x", content), read_types={}, read_enums={}) as reader:
        return [opened(each, reader.schema.fields) for each in reader]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("files", [1, 1000])
def test_a_manifest_is_the_same_but_for_its_urls(version: TableVersion, files: int) -> None:
    some = [file(f"s3://floe/main/t/data/{n}%20.parquet") for n in range(files)]
    before = manifest(version, *some, file("s3://elsewhere/x.parquet"))
    after = manifests.moved_manifest(before, S3, {})
    assert manifests.moved_manifest(before, S3, {}) == after, "made again it has the same name"
    wanted = json.loads(json.dumps(plain(before), default=repr))
    for each in wanted:
        path = each["data_file"]["file_path"]
        each["data_file"]["file_path"] = path.replace("s3://floe/main/", "s3://floe-copy/of/main/")
    assert json.loads(json.dumps(plain(after), default=repr)) == wanted
    assert plain(after)[-1]["data_file"]["file_path"] == "s3://elsewhere/x.parquet"
    assert after[: before.index(b"avro.codec")] == before[: before.index(b"avro.codec")]


def test_a_list_names_manifests_where_they_are_and_how_long_they_are() -> None:
    paths = ["s3://floe/main/t/metadata/1-m0.avro", "s3://floe/main/t/metadata/1-m1.avro"]
    output = Output("s3://floe/main/t/metadata/1-snap.avro")
    with manifest_avro.ManifestListWriter(output, 5, None, 1, None) as writer:
        writer.add_manifests([listed_manifest(path, 1_000 + n) for n, path in enumerate(paths)])
    assert [(each.location, each.size, each.deletes) for each in manifests.listed(output.content)] == [
        (paths[0], 1_000, False), (paths[1], 1_001, True),
    ]  # fmt: skip
    new = Stored("s3://floe-copy/of/main/t/metadata/1-m0.x.avro", 123_456_789_012)
    moved = manifests.moved_list(output.content, S3, {paths[0]: new})
    found = [(each["manifest_path"], each["manifest_length"]) for each in plain(moved)]
    assert found == [(new.location, new.size), ("s3://floe-copy/of/main/t/metadata/1-m1.avro", 1_001)]
    rest = [{**each, "manifest_path": 0, "manifest_length": 0} for each in plain(moved)]
    assert str(rest) == str(
        [{**each, "manifest_path": 0, "manifest_length": 0} for each in plain(output.content)]
    )


def listed_manifest(path: str, size: int) -> ManifestFile:
    return ManifestFile.from_args(
        3, manifest_path=path, manifest_length=size, partition_spec_id=0,
        content=ManifestContent.DELETES if size % 2 else ManifestContent.DATA, sequence_number=1,
        min_sequence_number=1, added_snapshot_id=5, added_files_count=1, existing_files_count=0,
        deleted_files_count=0, added_rows_count=3, existing_rows_count=0, deleted_rows_count=0,
        partitions=[], key_metadata=None, first_row_id=None,
    )  # fmt: skip


# Delete files.


def test_delete_files_have_a_new_size_and_bounds_that_are_true() -> None:
    path = b"s3://floe/main/t/data/1.parquet"
    known = "s3://floe/main/t/data/d.parquet"
    old = manifest(
        2,
        file(known, DataFileContent.POSITION_DELETES, **bounds(path, path)),
        file("s3://floe/main/t/data/cut.parquet", DataFileContent.POSITION_DELETES, **bounds(path[:12], b"s3://fl\xff")),
        file("s3://floe/main/t/data/e.parquet", DataFileContent.EQUALITY_DELETES),
        writer=_Deletes,
    )  # fmt: skip
    assert manifests.delete_files(old) == [
        DeleteFile("s3://floe/main/t/data/cut.parquet", "parquet"), DeleteFile(known, "parquet"),
    ]  # fmt: skip
    new = Stored("s3://floe-copy/of/main/t/data/d.c0.parquet", 99)
    one, cut, equal = [each["data_file"] for each in plain(manifests.moved_manifest(old, S3, {known: new}))]
    assert (one["file_path"], one["file_size_in_bytes"]) == new
    there = b"s3://floe-copy/of/main/t/data/1.parquet"
    assert one["lower_bounds"] == {DELETED_PATH: there, 7: b"s3://floe/main/x"}
    assert one["upper_bounds"] == {DELETED_PATH: there}
    assert (cut["lower_bounds"][DELETED_PATH], cut["upper_bounds"][DELETED_PATH]) == (
        b"",
        "\U0010ffff".encode(),
    )
    assert cut["file_path"] == "s3://floe-copy/of/main/t/data/cut.parquet"
    assert equal["file_path"] == "s3://floe-copy/of/main/t/data/e.parquet"


def positions(rows: int) -> bytes:
    def named_field(name: str, kind: pa.DataType, number: int) -> pa.Field:
        return pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": str(number)})

    schema = pa.schema(
        [named_field("file_path", pa.string(), DELETED_PATH), named_field("pos", pa.int64(), 2147483545)],
        metadata={"delete-type": "position"},
    )
    paths = [f"s3://floe/main/t/data/{at // 1000}.parquet" for at in range(rows)]
    sink = io.BytesIO()
    pq.write_table(pa.table([paths, [*range(rows)]], schema=schema), sink, row_group_size=50_000)
    return sink.getvalue()


@pytest.mark.parametrize("rows", [0, 1, 200_000])
def test_deleted_positions_are_of_the_same_files_under_their_new_names(rows: int) -> None:
    content = positions(rows)
    moved = deletes.moved_deletes("parquet", content, S3)
    before, after = pq.ParquetFile(io.BytesIO(content)), pq.ParquetFile(io.BytesIO(moved))
    assert after.schema_arrow.equals(before.schema_arrow, check_metadata=True)
    old, new = before.read().to_pydict(), after.read().to_pydict()
    assert new["pos"] == old["pos"]
    assert new["file_path"] == [each.replace("floe/main", "floe-copy/of/main") for each in old["file_path"]]
    assert deletes.moved_deletes("parquet", content, S3) == moved


def test_positions_in_avro() -> None:
    schema = Schema(
        NestedField(DELETED_PATH, "file_path", StringType(), required=True),
        NestedField(2147483545, "pos", LongType(), required=True),
    )
    output = Output("s3://floe/main/t/data/d.avro")
    with AvroOutputFile[Record](output, schema, "deletes") as writer:
        writer.write_block([Record("s3://floe/main/t/1.parquet", at) for at in range(3)])
    moved = deletes.moved_deletes("avro", output.content, S3)
    assert plain(moved) == [{"file_path": "s3://floe-copy/of/main/t/1.parquet", "pos": at} for at in range(3)]


def test_vectors_say_whose_they_are_and_stay_where_they_lie() -> None:
    own = {"referenced-data-file": "s3://floe/main/t/1.parquet", "cardinality": "1"}
    blob: dict[str, Any] = {
        "type": "deletion-vector-v1", "fields": [], "snapshot-id": -1, "sequence-number": -1, "offset": 4,
        "length": 7, "properties": own,
    }  # fmt: skip
    footer = json.dumps({"blobs": [blob], "properties": {"created-by": "x"}}).encode()
    content = b"PFA1vectors" + b"PFA1" + footer + len(footer).to_bytes(4, "little") + bytes(4) + b"PFA1"
    moved = deletes.moved_deletes("puffin", content, S3)
    size = int.from_bytes(moved[-12:-8], "little")
    assert (moved[:15], moved[-8:]) == (content[:15], content[-8:])
    told = json.loads(moved[-12 - size : -12])
    assert told["blobs"][0].pop("properties") == {
        "referenced-data-file": "s3://floe-copy/of/main/t/1.parquet", "cardinality": "1",
    }  # fmt: skip
    del blob["properties"]
    assert told == {"blobs": [blob], "properties": {"created-by": "x"}}
    with pytest.raises(Unreadable, match="compressed"):
        deletes.moved_deletes("puffin", content[:-8] + b"\1" + content[-7:], S3)
    for bad in (b"", b"PFA1", content[1:], content[:-1]):
        with pytest.raises(Unreadable):
            deletes.moved_deletes("puffin", bad, S3)


def test_what_deletes_rows_of_other_buckets_or_in_other_formats_is_refused() -> None:
    with pytest.raises(Unreadable, match="not below s3://other"):
        deletes.moved_deletes("parquet", positions(1), Prefix("s3://other", "s3://copy"))
    with pytest.raises(Unreadable, match="orc"):
        deletes.moved_deletes("orc", b"", S3)
    with pytest.raises(Unreadable, match="cannot be read"):
        deletes.moved_deletes("parquet", b"PAR1nothing", S3)


# Files that are not as they should be.


def test_a_damaged_file_is_refused_or_read_and_nothing_runs_away() -> None:
    content = manifest(2, file("s3://floe/main/t/data/1.parquet"))
    for at in range(0, len(content), 11):
        for bad in (content[:at], content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]):
            try:
                manifests.moved_manifest(bad, S3, {})
            except Unreadable:
                continue
    for bad in (b"", b"Obj\1", b"PAR1", content[:-1]):
        with pytest.raises(Unreadable):
            manifests.moved_manifest(bad, S3, {})


def test_numbers_and_what_lies_in_unions_maps_and_fixed_fields() -> None:
    for value in (0, -1, 1, 63, 64, -65, 1 << 40, -(1 << 62), (1 << 63) - 1, -(1 << 63)):
        assert splicing._Cursor(splicing.integer(value)).integer() == value
    schema = {"type": "record", "name": "r", "fields": [
        {"name": "a", "type": ["null", {"type": "map", "values": "float", "value-id": 9}], "field-id": 1},
        {"name": "b", "type": {"type": "fixed", "size": 3, "name": "f"}, "field-id": 2},
        {"name": "c", "type": {"type": "array", "items": "f", "element-id": 8}, "field-id": 3},
        {"name": "d", "type": {"type": "enum", "name": "e", "symbols": ["x"]}, "field-id": 4},
        {"name": "g", "type": ["null", "string"], "field-id": 5},
    ]}  # fmt: skip
    body = (
        b"\x02" + splicing.integer(-1) + splicing.integer(6) + splicing.text("k") + b"\0\0\0\0" + b"\0"
        + b"abc" + splicing.integer(1) + b"def" + b"\0" + b"\0" + b"\x02" + splicing.text("old")
    )  # fmt: skip
    head = splicing.integer(1) + splicing.text("avro.schema") + splicing.text(json.dumps(schema)) + b"\0"
    content = b"Obj\1" + head + bytes(16) + splicing.integer(2) + splicing.text(body * 2) + bytes(16)
    found = splicing.AvroFile(content, {5})
    assert [each[5][0].value for each in found.records()] == ["old", "old"]
    made = found.spliced(
        lambda spots: [splicing.Patch(each.start, each.end, splicing.text("newer")) for each in spots[5]]
    )
    wanted = body.replace(splicing.text("old"), splicing.text("newer"))
    assert made.endswith(splicing.integer(2) + splicing.text(wanted * 2) + bytes(16))


def test_a_table_of_another_schema_is_refused() -> None:
    with pytest.raises(Unreadable, match="no field with the id 500"):
        manifests.listed(manifest(2, file("s3://floe/main/1.parquet")))
    output = Output("x.avro")
    with AvroOutputFile[Record](output, SCHEMA, "r") as writer:
        writer.write_block([Record(1)])
    with pytest.raises(Unreadable, match="no field with the id"):
        manifests.moved_manifest(output.content, S3, {})
