"""A row is decoded by its own schema: the one its frame names, else the one bound when it was appended."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coordination.commands import BindSchema
from iceberg import layout, rows, topic_layouts
from iceberg.layout import Binding, Bindings, MissingSchemas
from iceberg.writers import ProcessWriter
from objectstore import batch
from objectstore.compression import Compression
from schema import framing
from schema.compiler import compile_protos
from schema.descriptors import MessageType, load
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import Rig
from tests.unit.schema import samples

OLD = b'syntax = "proto3"; package p; message M { sint32 x = 1; string name = 2; }'
NEW = b'syntax = "proto3"; package p; message M { int32 x = 1; double price = 2; }'


def kind(source: bytes, message: str = "p.M") -> MessageType:
    return load(compile_protos({"m.proto": source}), message)


def encoded(source: bytes, **fields: Any) -> bytes:
    return kind(source).message_class(**fields).SerializeToString()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent."""
    async with rigs.running(tmp_path) as found:
        yield found


async def bound(rig: Rig, source: bytes, **fields: Any) -> int:
    return await rig.bind(source, "p.M", **fields)


async def values(rig: Rig) -> list[dict[str, Any] | None]:
    """The decoded values of partition 0 by offset, without raw bytes; columns that a row's file has."""
    found = sorted(await rig.rows(), key=lambda row: row["kafka"]["offset"])
    return [
        None
        if row["value"] is None
        else {name: each for name, each in row["value"].items() if name != "__raw__" and each is not None}
        for row in found
    ]


async def test_rows_of_before_a_binding_changed_are_decoded_by_the_binding_of_then(rig: Rig) -> None:
    """The committer lags: both kinds of rows come to one commit, and the binding is the newer one."""
    await rig.create_topic()
    await rig.produce([b"free"])
    await bound(rig, OLD)
    await rig.produce([encoded(OLD, x=-4, name="old"), None])
    await bound(rig, NEW)
    await rig.produce([encoded(NEW, x=7, price=2.5)])
    await rig.drain(rig.committer())
    assert await values(rig) == [
        {},
        {"x": -4, "name": "old"},
        None,
        {"x": 7, "price": 2.5},
    ]


async def test_going_back_to_a_message_finds_its_columns_again(rig: Rig) -> None:
    await rig.create_topic()
    committer = rig.committer()
    told: list[dict[str, Any]] = []
    for source, fields in (
        (OLD, {"x": 1, "name": "a"}),
        (NEW, {"x": 2, "price": 0.5}),
        (OLD, {"x": 3, "name": "b"}),
    ):
        await bound(rig, source)
        await rig.produce([encoded(source, **fields)])
        await rig.drain(committer)
        told.append(fields)
    assert await values(rig) == told
    columns = (await rig.head()).metadata["schemas"][-1]["fields"][2]["type"]["fields"]
    assert [each["name"] for each in columns] == ["__raw__", "__err__", "x", "name", "price"]


async def test_frames_name_their_schema(rig: Rig) -> None:
    """Also one that was replaced long ago: the committer learns of it from the row."""
    await rig.create_topic()
    first = await bound(rig, OLD)
    await rig.produce([encoded(OLD, x=1, name="plain")])
    committer = rig.committer()
    await rig.drain(committer)
    second = await bound(rig, NEW)
    old = framing.prefix(first, kind(OLD).indexes) + encoded(OLD, x=-4, name="framed")
    new = framing.prefix(second, kind(NEW).indexes) + encoded(NEW, x=8, price=1.5)
    foreign = framing.prefix(99, (0,)) + encoded(OLD, x=1)
    nested = framing.prefix(first, (3,)) + encoded(OLD, x=1)
    await rig.produce([old, new, encoded(NEW, x=9, price=0.5), foreign, nested])
    assert await rig.drain(committer) == 5
    assert await values(rig) == [
        {"x": 1, "name": "plain"},
        {"x": -4, "name": "framed"},
        {"x": 8, "price": 1.5},
        {"x": 9, "price": 0.5},
        {"__err__": f"Confluent frame names schema 99; bound to this topic: {first}, {second}"},
        {"__err__": f"Confluent frame has the message indexes [3]; schema {first} is [0]"},
    ]


async def test_what_comes_while_nothing_is_bound_has_no_columns(rig: Rig) -> None:
    await rig.create_topic()
    first = await bound(rig, OLD)
    await rig.produce([encoded(OLD, x=1, name="a")])
    await rig.replica.propose(BindSchema(topic="t", unbind=True))
    framed = framing.prefix(first, kind(OLD).indexes) + encoded(OLD, x=2)
    await rig.produce([encoded(OLD, x=2), framed])
    await rig.drain(rig.committer())
    assert await values(rig) == [{"x": 1, "name": "a"}, {}, {}]


async def test_keys_have_their_own_bindings(rig: Rig) -> None:
    await rig.create_topic()
    await bound(rig, OLD, role=1)
    await rig.produce([b"v"], keys=[encoded(OLD, x=1, name="k")])
    await bound(rig, NEW, role=1)
    await rig.produce([b"v"], keys=[encoded(NEW, x=2, price=0.5)])
    await rig.drain(rig.committer())
    found = sorted(await rig.rows(), key=lambda row: row["kafka"]["offset"])
    assert [{k: v for k, v in row["key"].items() if k != "__raw__" and v is not None} for row in found] == [
        {"x": 1, "name": "k"},
        {"x": 2, "price": 0.5},
    ]


def test_a_field_of_another_type_is_an_error_and_no_default() -> None:
    """The parser takes it for unknown and the message for one without it; unknown fields are no error."""
    table = layout.build(None, samples.Bound(compile_protos({"m.proto": NEW}), "p.M"))
    more = b'syntax = "proto3"; package p; message M { int32 x = 1; double price = 2; string more = 3; }'
    required = b'syntax = "proto2"; package p; message M { required int32 x = 1; optional string a = 2; }'
    found = decoded(table, [encoded(OLD, x=-4, name="old"), encoded(more, x=3, more="m"), encoded(NEW, x=5)])
    assert found["__err__"] == [
        "field `price`: wire type length-delimited, but its type needs fixed64",
        None,
        None,
    ]
    assert (found["x"], found["price"]) == ([None, 3, 5], [None, 0.0, 0.0])
    strict = layout.build(None, samples.Bound(compile_protos({"m.proto": required}), "p.M"))
    found = decoded(strict, [b"", encoded(required, x=1)])
    assert (found["__err__"], found["x"]) == (["required field `x` is missing", None], [None, 1])


def decoded(table: layout.Layout, records: list[bytes], base_offset: int = 0) -> dict[str, list[Any]]:
    """The columns of the values."""
    content = batch.build([batch.NewRecord(1, None, each) for each in records], base_offset=base_offset)
    return columns(table, content, base_offset)


def columns(table: layout.Layout, content: bytes, base_offset: int) -> dict[str, list[Any]]:
    found = rows.arrow_batches(table, 0, [memoryview(content)], base_offset, base_offset + 1_000)
    value = pa.Table.from_batches(found)["value"].combine_chunks()
    return {each.name: value.field(each.name).to_pylist() for each in value.type}


def test_a_batch_that_nobody_can_open_is_never_taken_for_a_frame() -> None:
    """It begins with its offset: from 16,777,216 on, with the id of a schema."""
    lone = b'syntax = "proto3"; package p; message M { bytes x = 15; }'
    table = layout.build(None, samples.Bound(compile_protos({"m.proto": lone}), "p.M"))
    sound = batch.peek(batch.build([batch.NewRecord(1, None, b"x")], base_offset=1 << 24))
    content = batch.seal(sound._replace(attributes=int(Compression.GZIP)), b"\x55" * 40)
    assert content.startswith(framing.prefix(1, (0,)))
    found = columns(table, content, 1 << 24)
    assert found["__raw__"] == [content]
    assert found["x"] == [None]
    assert found["__err__"][0].startswith("batch of offsets 16777216 to 16777216 cannot be opened: ")


async def test_a_helper_process_says_which_schemas_it_lacks() -> None:
    known = Bindings((Binding(2, compile_protos({"m.proto": NEW}), "p.M"),), 2, (1, 2))
    content = batch.build([batch.NewRecord(1, None, framing.prefix(1, (0,)) + encoded(OLD, x=1))])
    helper = ProcessWriter()
    try:
        with pytest.raises(MissingSchemas) as missing:
            await helper.write(layout.build(None, known), 0, [memoryview(content)], 0, 1)
    finally:
        await helper.close()
    assert missing.value.schema_ids == {1}


EDITIONS = b"""edition = "2023"; package p; option features.field_presence = IMPLICIT;
message M { int32 x = 1; string name = 2; }"""
ALIKE = b"""syntax = "proto3"; package p; message M { string user_id = 1; string userid = 2; }
message Z { int32 x = 1; }"""
CASES = b"""syntax = "proto3"; package p; message N { int32 Id = 1; int32 id = 2; }
message M { int32 x = 1; N n = 2; }"""


@pytest.mark.parametrize(
    ("source", "message", "fields"),
    [
        (EDITIONS, "p.M", {"x": 4, "name": "a"}),
        (ALIKE, "p.M", {"user_id": "a", "userid": "b"}),
        (ALIKE, "p.Z", {"x": 1}),
        (CASES, "p.M", {"x": 1}),
    ],
)
def test_no_legal_schema_is_without_a_table(source: bytes, message: str, fields: dict[str, Any]) -> None:
    """The native decoder panics on these, anywhere in the file: the plain one reads them."""
    compiled = compile_protos({"m.proto": source})
    table = layout.build(None, samples.Bound(compiled, message))
    (told,) = table.problems
    assert told.startswith(f"schema 1 ({message}) is decoded slowly, some 25,000 rows/s: the native decoder ")
    content = load(compiled, message).message_class(**fields).SerializeToString()
    found = decoded(table, [content])
    assert {name: found[name] for name in fields} == {name: [each] for name, each in fields.items()}
    assert found["__err__"] == [None]


async def test_what_frames_named_is_forgotten_where_it_is_much(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layout has a decoder for each; rows of more schemas than are kept are committed all the same."""
    monkeypatch.setattr(topic_layouts, "FRAMED_KEPT", 2)
    await rig.create_topic()
    ids = []
    for number in range(1, 6):
        text = f'syntax = "proto3"; package p; message M {{ int32 x = 1; string f{number} = {number + 1}; }}'
        ids.append((await bound(rig, text.encode()), text.encode()))
    committer = rig.committer()
    for _ in range(2):
        await rig.produce([framing.prefix(one, (0,)) + encoded(text, x=one) for one, text in ids])
        assert await rig.drain(committer) == 5
    assert [each["x"] for each in await values(rig) if each] == [one for one, _ in ids] * 2
    await committer.run_once()
    assert not committer._layouts._framed


def test_text_of_proto2_that_is_not_utf8_is_an_error_of_its_row() -> None:
    """The parser takes it, and gives bytes; it failed the file, again and again."""
    source = b'syntax = "proto2"; package p; message M { optional string a = 1; repeated string b = 2; }'
    table = layout.build(None, samples.Bound(compile_protos({"m.proto": source}), "p.M"))
    found = decoded(table, [b"\x0a\x01\xff", encoded(source, a="good"), b"\x12\x02\xc3\x28"])
    assert found["a"] == [None, "good", None]
    assert [bool(each) for each in found["__err__"]] == [True, False, True]
