"""What the audit says of a table's columns, without Spark: it decodes by itself, and sees each damage."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pyarrow as pa
import pytest

from iceberg.column_ids import VALUE_ID
from iceberg.layout import Binding, Bindings, Registered, build
from iceberg.rows import arrow_batches
from iceberg.spark.columns import WRONG, Judge, TableColumns, judging
from iceberg.spark.messages import Reader
from iceberg.spark.schemas import KEY, VALUE, Schema, TopicSchemas
from iceberg.spark.verdict import COLUMN
from iceberg.spark.wire import Bad, frame, mistyped
from objectstore import batch
from schema import framing
from schema.registry import protobuf
from tests.spark import zoo_table
from tests.spark.damages import DAMAGES, Damage
from tests.spark.zoo_table import BROKEN, END, FULL, KEYS, MISTYPED, NAMELESS, ODD, PLAIN, V1, V2
from tests.unit.schema import samples


def columns(*, flat: bool = False) -> TableColumns:
    """The sound table's."""
    return TableColumns(json.dumps(zoo_table.fields(flat=flat)), zoo_table.table_layout().ids.to_json())


def handed(rows: list[zoo_table.Row] | pa.Table) -> pa.RecordBatch:
    """Rows as Spark hands them to the audit."""
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows, zoo_table.arrow_schema())
    (given,) = table.combine_chunks().to_batches()
    kafka = given.column("kafka")
    parts = {name: given.column(name) for name in ("key", "value", "headers")}
    return pa.RecordBatch.from_pydict(
        {"partition": kafka.field("partition"), "offset": kafka.field("offset"), **parts}
    )


def told(judge: Judge, batch: pa.RecordBatch) -> set[tuple[int, str]]:
    """Offset and column of all that is wrong."""
    offsets = batch.column("offset").to_pylist()
    return {
        (offset, column)
        for offset, wrong in zip(offsets, judge.wrong(batch), strict=True)
        for column, _ in wrong or ()
    }


def test_what_floe_writes_is_right() -> None:
    assert told(columns().judge(zoo_table.schemas(1)), handed(zoo_table.rows(0))) == set()


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_each_damage_to_a_column_is_seen(damage: Damage) -> None:
    rows = zoo_table.rows(0)
    damage.change(rows)
    expected = {(offset, column) for kind, offset, column in damage.found if kind == COLUMN}
    if rows:
        assert told(columns().judge(zoo_table.schemas(1)), handed(rows)) == expected
        flat = {(offset, column) for kind, offset, column in damage.in_flat() if kind == COLUMN}
        assert told(columns(flat=True).judge(zoo_table.schemas(1)), handed(rows)) == flat
    else:
        assert not expected


def test_what_spark_is_given_back_says_rows_by_column_and_detail() -> None:
    rows = zoo_table.rows(0)
    rows[FULL]["value"]["f_bool"] = False
    (judged,) = judging(columns(), zoo_table.schemas(1))([handed(rows)])
    assert judged.schema.names == ["partition", "offset", "wrong"]
    assert judged.schema.field("wrong").type == WRONG
    wrong = judged.column("wrong").to_pylist()
    assert wrong[FULL] == [{"column": "value.f_bool", "detail": "is False, True is due"}]
    assert wrong[FULL + 1 :] == [None] * (END - 1)


def test_rows_of_which_it_is_forgotten_what_was_bound_may_be_of_any_schema_that_was() -> None:
    """Below the log start the cluster remembers nothing; a row that no schema explains is still wrong."""
    sound = zoo_table.schemas(1)
    later = TopicSchemas(sound.schemas, {0: [(END, KEYS, V2)]})
    rows = zoo_table.rows(0)
    assert told(columns().judge(later), handed(rows)) == set()
    rows[FULL]["value"]["f_int64"] += 1
    rows[PLAIN]["value"]["added"] = "other"
    assert {offset for offset, _ in told(columns().judge(later), handed(rows))} == {FULL, PLAIN}


def test_spans_say_which_schema_a_row_has() -> None:
    """The same bytes under another binding are other columns."""
    sound = zoo_table.schemas(1)
    others = TopicSchemas(sound.schemas, {0: [(0, KEYS, V2), (PLAIN, KEYS, V2), (9, 0, 0)]})
    found = told(columns().judge(others), handed(zoo_table.rows(0)))
    assert (FULL, "value.f_string__32") in found
    assert (FULL, "value.f_string") in found
    assert not {offset for offset, _ in found} & {PLAIN, BROKEN}


def test_a_row_that_stands_for_a_batch_has_no_columns() -> None:
    rows = zoo_table.rows(0)
    value = {**dict.fromkeys(rows[FULL]["value"]), "__raw__": b"batch", "__err__": "cannot be opened"}
    rows[FULL].update(key=None, value=value, headers=[{"key": "floe.unreadable", "value": b"why"}])
    judge = columns().judge(zoo_table.schemas(1))
    assert told(judge, handed(rows)) == set()
    value["f_int64"] = 0
    assert told(judge, handed(rows)) == {(FULL, "value.f_int64")}


LEGACY = samples.message_type(samples.LEGACY, "legacy.Order")
PART = b"\x1a\x02\x08\x01"


@pytest.mark.parametrize(
    ("payload", "good"),
    [
        (b"\x08\x01", True),
        (b"", False),  # the required id
        (b"\x08\x01" + PART, True),
        (b"\x08\x01\x1a\x00", False),  # the required code of a part
        (b"\x08\x01\x1a\x06\x08\x01\x12\x02\xff\xfe", False),  # text that is not UTF-8
        (b"\x08\x01\x10\x09", True),  # an enum's value that a closed enum does not have is unknown
        (b"\x08\x01\x12\x01a", False),  # an enum with a length
        (b"\x08\x01\x22\x02\x01\x02", True),  # packed
        (b"\x08\x01\x20\x01\x20\x02", True),  # or not
        (b"\x08\x01\x25\x00\x00\x00\x00", False),  # numbers of four bytes
        (b"\x08\x01\xc8\x3e\x01", True),  # a field that nobody knows
        (b"\x08\x01\xff", False),
    ],
)
def test_the_strict_parse_is_the_audits_own(payload: bytes, good: bool) -> None:
    """The same verdict as Floe's, found another way."""
    layout = build(None, samples.bound(samples.LEGACY, "legacy.Order"))
    content = batch.build([batch.NewRecord(1, None, payload)])
    table = pa.Table.from_batches(list(arrow_batches(layout, 0, [memoryview(content)], 0, 1)))
    schemas = TopicSchemas(
        [Schema(1, VALUE, "legacy.Order", samples.descriptor_set(samples.LEGACY))], {0: [(0, 0, 1)]}
    )
    judge = TableColumns(json.dumps(layout.fields), layout.ids.to_json()).judge(schemas)
    assert told(judge, handed(table)) == set()
    reader = Reader(LEGACY, VALUE_ID, _inside(layout.fields), layout.ids)
    if good:
        assert reader.read(payload)
    else:
        with pytest.raises(Bad):
            reader.read(payload)


def test_groups_are_walked() -> None:
    bag = samples.message_type(samples.LEGACY, "legacy.Bag").descriptor
    assert mistyped(b"\x2b\x09" + bytes(8) + b"\x2c", bag) is None
    assert mistyped(b"\x2b\x08\x01\x2c", bag) is not None
    assert mistyped(b"\x7b\x08\x01\x7c", bag) is None, "an unknown group"


@pytest.mark.parametrize("indexes", [(0,), (1,), (3, 1, 200)])
def test_frames_are_read_as_they_are_written(indexes: tuple[int, ...]) -> None:
    assert frame(framing.prefix(77, indexes) + b"rest") == (77, indexes, b"rest")


@pytest.mark.parametrize(
    "record", [b"\0", b"\0\0\0\0\1", b"\0\0\0\0\1\x01", b"\0\0\0\0\1\x42", b"\0\0\0\0\1\x02\x80"]
)
def test_bad_frames_are_told(record: bytes) -> None:
    with pytest.raises(Bad):
        frame(record)


def test_a_field_without_column_is_wrong_in_each_row_of_its_schema() -> None:
    fields = zoo_table.fields()
    value = next(each for each in fields if each["name"] == "value")["type"]
    value["fields"] = [each for each in value["fields"] if each["name"] != "f_bool"]
    rows = zoo_table.rows(0)
    kind = pa.schema([*zoo_table.arrow_schema()])
    at = kind.get_field_index("value")
    kept = pa.struct([each for each in kind.field("value").type if each.name != "f_bool"])
    table = pa.Table.from_pylist(rows, kind.set(at, pa.field("value", kept)))
    judge = TableColumns(json.dumps(fields), zoo_table.table_layout().ids.to_json()).judge(
        zoo_table.schemas(1)
    )
    found = told(judge, handed(table))
    assert found == {(offset, "value.f_bool") for offset in (0, 1, ODD, 6, 7)}


def test_a_message_with_too_many_columns_has_none() -> None:
    fields = "".join(f"int32 f{number} = {number};" for number in range(1, 2_002))
    source = f'syntax = "proto3"; package p; message M {{ {fields} }}'.encode()
    layout = build(None, Bindings.only(samples.bound(source, "p.M")))
    content = batch.build([batch.NewRecord(1, None, b"\x08\x01"), batch.NewRecord(1, None, b"\xff")])
    table = pa.Table.from_batches(list(arrow_batches(layout, 0, [memoryview(content)], 0, 2)))
    schemas = TopicSchemas([Schema(1, VALUE, "p.M", samples.descriptor_set(source))], {0: [(0, 0, 1)]})
    judge = TableColumns(json.dumps(layout.fields), layout.ids.to_json()).judge(schemas)
    assert told(judge, handed(table)) == set()


def test_a_table_without_any_schema_has_nothing_decoded() -> None:
    layout = build(None, None)
    content = batch.build([batch.NewRecord(1, b"k", b"\x08\x01"), batch.NewRecord(1, None, None)])
    table = pa.Table.from_batches(list(arrow_batches(layout, 0, [memoryview(content)], 0, 2)))
    judge = TableColumns(json.dumps(layout.fields), "").judge(TopicSchemas((), {0: [(0, 0, 0)]}))
    assert told(judge, handed(table)) == set()


def test_keys_and_values_have_schemas_of_their_own() -> None:
    schemas = zoo_table.schemas(1)
    assert schemas.bound(KEY, 0, 0) == [KEYS]
    assert schemas.bound(VALUE, 0, 0) == [V1]
    assert schemas.bound(VALUE, 0, END - 1) == [0]
    assert set(schemas.bound(VALUE, None, 3)) == {0, V1, V2}


def _inside(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = next(each for each in fields if each["id"] == VALUE_ID)["type"]["fields"]
    return found


def test_good_rows_are_known_together_and_none_that_is_damaged_is() -> None:
    """What is told of a row one by one costs some three times as much."""
    judge = columns().judge(zoo_table.schemas(1))
    sound = handed(zoo_table.rows(0))
    places = [sound.column(name).to_pylist() for name in ("partition", "offset")]
    known = judge._values.known(places[0], places[1], sound.column("value"), [()] * len(places[0]))
    assert [at for at, each in enumerate(known) if not each] == [BROKEN, MISTYPED, NAMELESS]
    assert all(judge._keys.known(places[0], places[1], sound.column("key"), [()] * len(places[0])))
    many = zoo_table.rows(0)[FULL : FULL + 1] * 100
    many[71] = deepcopy(many[71])
    many[71]["value"]["leaf"]["name"] = "other"
    batch = handed(many)
    known = judge._values.known([0] * 100, [0] * 100, batch.column("value"), [()] * 100)
    unknown = [at for at, each in enumerate(known) if not each]
    assert 71 in unknown
    assert len(unknown) <= 16
    assert [at for at, each in enumerate(judge.wrong(batch)) if each] == [71]


def test_rows_of_several_types_are_in_the_structs_of_their_own() -> None:
    """Each column of a row's own type, null in the others; a type for which there was no more room."""
    others = "message B { B b = 1; int32 n = 2; } message C { int32 c = 1; }"
    text = f'syntax = "proto3"; message A {{ int32 a = 1; }} {others}'
    files = protobuf.descriptor_set(protobuf.parse(text, {}).canonical, {})
    named = [Registered((7, (at,)), files, name, apart=at > 0) for at, name in enumerate("ABC")]
    bindings = Bindings((Binding(1, b"", "", follows=True),), 1, (1,), tuple(named))
    layout = build(None, bindings, types_max=1)
    assert len(layout.problems) == 1
    sent = [framing.prefix(7, (at,)) + b"\x08\x05" for at in (0, 2)]
    sent += [framing.prefix(7, (1,)) + b"\x10\x06", framing.prefix(7, (1,)) + b"\xff"]
    content = batch.build([batch.NewRecord(1, None, value) for value in sent])
    table = pa.Table.from_batches(list(arrow_batches(layout, 0, [memoryview(content)], 0, len(sent))))
    columns = TableColumns(json.dumps(layout.fields), layout.ids.to_json())
    judge = columns.judge(
        TopicSchemas([Schema(1, VALUE, "", b"", follows=True)], {0: [(0, 0, 1)]}, {7: files})
    )
    rows = handed(table)
    values = rows.column("value").to_pylist()
    assert [(each["a"], each["B"] and each["B"]["n"]) for each in values] == [
        (5, None), (None, None), (None, 6), (None, None),
    ]  # fmt: skip
    assert told(judge, rows) == set()
    damaged = rows.to_pylist()
    for each in damaged:
        each["value"]["B"] = {"b": None, "n": 77}
    wrong = pa.RecordBatch.from_pylist(damaged, rows.schema)
    assert told(judge, wrong) == {(0, "value.B"), (1, "value.B"), (2, "value.B.n"), (3, "value.B")}
    for each in damaged:
        each["value"]["B"] = None
    wrong = pa.RecordBatch.from_pylist(damaged, rows.schema)
    assert told(judge, wrong) == {(2, "value.B")}


def test_rows_that_follow_a_subject_are_what_their_frames_name() -> None:
    """Two messages of one file, another type, no frame, no such message, no good bytes, one nobody told."""
    text = 'syntax = "proto3"; message A { int32 a = 1; } message B { int32 a = 1; string b = 2; }'
    files = protobuf.descriptor_set(protobuf.parse(text, {}).canonical, {})
    named = (
        *(Registered((7, (at,)), files, name) for at, name in enumerate("AB")),
        Registered((7, (5,)), problem="no such message"),
        Registered((9, None)),
        Registered((8, None), problem="gone"),
    )
    layout = build(
        None, Bindings((Binding(1, b"", "", follows=True),), 1, (1,), named, frozenset({(7, (0,))}))
    )
    head = b"\x00\x00\x00\x00"
    sent = [
        framing.prefix(7, (0,)) + b"\x08\x05",
        framing.prefix(7, (1,)) + b"\x08\x06\x12\x01x",
        head + b"\x09\xff\xff",
        b"\x08\x05",
        framing.prefix(7, (5,)),
        framing.prefix(7, (0,)) + b"\xff",
        framing.prefix(8, (0,)) + b"\x08\x05",
    ]
    content = batch.build([batch.NewRecord(1, None, value) for value in sent])
    table = pa.Table.from_batches(list(arrow_batches(layout, 0, [memoryview(content)], 0, len(sent))))
    columns = TableColumns(json.dumps(layout.fields), layout.ids.to_json())
    bound = [Schema(1, VALUE, "", b"", follows=True)]
    judge = columns.judge(TopicSchemas(bound, {0: [(0, 0, 1)]}, {7: files, 9: b""}))
    rows = handed(table)
    assert [each["a"] for each in rows.column("value").to_pylist()] == [5, 6] + [None] * 5
    assert told(judge, rows) == set()
    damaged = rows.to_pylist()
    for each in damaged:
        each["value"]["a"] = 77
    wrong = pa.RecordBatch.from_pylist(damaged, rows.schema)
    assert told(judge, wrong) == {(at, "value.a") for at in range(6)}, "of the last one nobody knows"
    below = columns.judge(TopicSchemas(bound, {}, {7: files, 9: b""}))
    assert told(below, rows) == set()
    assert {at for at, _ in told(below, wrong)} == set(range(6))


def test_frames_in_headers_are_taken_for_the_row_s_own() -> None:
    """Where the topic follows a subject; each of a row's own role, and what is none is no good row."""
    text = 'syntax = "proto3"; message A { int32 a = 1; } message B { int32 a = 1; string b = 2; }'
    files = protobuf.descriptor_set(protobuf.parse(text, {}).canonical, {})
    guid, gone = bytes(range(16)), bytes(16)
    named = (
        *(Registered((guid, (at,)), files, name, by_guid=7) for at, name in enumerate("AB")),
        Registered((7, (0,)), files, "A"),
        Registered((gone, None), problem="gone"),
    )
    layout = build(None, Bindings((Binding(1, b"", "", follows=True),), 1, (1,), named, (7, (0,))))
    header = "__value_schema_id"
    sent: list[tuple[bytes, str, bytes]] = [
        (b"\x08\x05", header, b"\x01" + guid + b"\x00"),
        (b"\x08\x06\x12\x01x", header, b"\x01" + guid + b"\x02\x02"),
        (framing.prefix(7, (0,)) + b"\x08\x07", "__key_schema_id", b"\x01" + guid + b"\x00"),
        (framing.prefix(7, (0,)) + b"\x08\x07", header, b"\x01" + guid + b"\x00"),
        (b"\x08\x05", header, b"\x01"),
        (b"\x08\x05", header, b"\x01" + gone + b"\x00"),
    ]
    rows = [batch.NewRecord(1, None, value, [("x", None), (name, front)]) for value, name, front in sent]
    content = batch.build(rows)
    table = pa.Table.from_batches(list(arrow_batches(layout, 0, [memoryview(content)], 0, len(sent))))
    columns = TableColumns(json.dumps(layout.fields), layout.ids.to_json())
    bound = [Schema(1, VALUE, "", b"", follows=True)]
    judge = columns.judge(TopicSchemas(bound, {0: [(0, 0, 1)]}, {7: files}, {guid: 7}))
    found = handed(table)
    decoded = found.column("value").to_pylist()
    assert [(each["a"], each["b"]) for each in decoded] == [
        (5, None), (6, "x"), (7, None), *[(None, None)] * 3,
    ]  # fmt: skip
    assert [each["__err__"] is None for each in decoded] == [True] * 3 + [False] * 3
    assert [each["__raw__"] for each in decoded] == [value for value, _, _ in sent]
    assert told(judge, found) == set()
    damaged = found.to_pylist()
    for each in damaged:
        each["value"]["a"] = 77
    wrong = pa.RecordBatch.from_pylist(damaged, found.schema)
    assert told(judge, wrong) == {(at, "value.a") for at in range(5)}, "of the last one nobody knows"
