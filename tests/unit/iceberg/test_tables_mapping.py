"""Protobuf message → Iceberg columns, and what happens to them when the message changes."""

from typing import Any

import pytest

from iceberg import evolution, layout, mapping
from iceberg.evolution import FIRST_MESSAGE_ID, ColumnIds
from iceberg.mapping import MappingError
from schema.compiler import compile_protos
from tests.unit.schema import samples


def columns(source: str, ids: ColumnIds | None = None, before: Any = ()) -> dict[str, Any]:
    """{name: (id, type)} of the value's columns of message `p.M` under this body; `ids` is extended."""
    text = f'syntax = "proto3"; package p; {source}'
    fields = evolution.table_fields(None, shape_of(text), ids if ids is not None else ColumnIds(), before)
    value = next(each for each in fields if each["name"] == "value")["type"]["fields"]
    return {each["name"]: (each["id"], each["type"]) for each in value[2:]}


def table_of(source: str, ids: ColumnIds, before: Any = ()) -> list[dict[str, Any]]:
    """The table's fields."""
    text = f'syntax = "proto3"; package p; {source}'
    return evolution.table_fields(None, shape_of(text), ids, before)


def shape_of(text: str) -> mapping.Struct:
    """The shape of `p.M`."""
    compiled = compile_protos({"m.proto": text.encode()})
    return mapping.shape(samples.descriptors.load(compiled, "p.M").descriptor)


def test_every_kind_of_field_has_its_column() -> None:
    kind = samples.message_type(samples.ZOO, "zoo.All")
    fields = evolution.table_fields(None, mapping.shape(kind.descriptor), ColumnIds())
    value = {each["name"]: each for each in fields[2]["type"]["fields"]}
    primitive = {name: each["type"] for name, each in value.items() if isinstance(each["type"], str)}
    assert primitive == {
        "__raw__": "binary",
        "__err__": "string",
        "f_double": "double",
        "f_float": "float",
        "f_bool": "boolean",
        "f_string": "string",
        **dict.fromkeys(("f_int32", "f_sint32", "f_sfixed32", "o_int32"), "int"),
        **dict.fromkeys(("f_int64", "f_sint64", "f_sfixed64", "f_uint32", "f_fixed32"), "long"),
        **dict.fromkeys(("f_uint64", "f_fixed64", "o_uint64", "w_uint64"), "decimal(20, 0)"),
        **dict.fromkeys(("f_bytes", "w_bytes", "any"), "binary"),
        **dict.fromkeys(("f_enum", "o_string", "c_string", "c_enum", "w_string"), "string"),
        **dict.fromkeys(("c_int64", "took", "w_int64", "w_uint32"), "long"),
        "at": "timestamptz",
        "w_bool": "boolean",
        "w_double": "double",
    }
    assert "nothing" not in value
    assert [each["name"] for each in value["leaf"]["type"]["fields"]] == ["name", "numbers", "colour"]
    assert value["by_name"]["type"]["value"]["type"] == "struct"
    assert value["spans"]["type"]["element"] == "long"
    tree = {each["name"]: each["type"] for each in value["tree"]["type"]["fields"]}
    assert (tree["left"], tree["others"]["element"]) == ("binary", "binary")
    assert all(not each["required"] for each in value.values())


def test_ids_are_unique_and_begin_behind_the_fixed_ones() -> None:
    kind = samples.message_type(samples.ZOO, "zoo.All")
    ids = ColumnIds()
    evolution.table_fields(mapping.shape(kind.descriptor), mapping.shape(kind.descriptor), ids)
    assert sorted(ids.ids.values()) == list(range(FIRST_MESSAGE_ID, ids.last + 1))
    assert ColumnIds.from_json(ids.to_json()) == ids


def test_a_rename_keeps_the_id() -> None:
    ids = ColumnIds()
    before = table_of("message M { int32 a = 1; }", ids)
    assert columns("message M { int32 b = 1; }", ids, before) == {"b": (15, "int")}


def test_promotions_keep_the_id() -> None:
    ids = ColumnIds()
    before = table_of("message M { int32 a = 1; float b = 2; repeated int32 c = 3; }", ids)
    after = columns("message M { int64 a = 1; double b = 2; repeated int64 c = 3; }", ids, before)
    assert (after["a"], after["b"]) == ((15, "long"), (16, "double"))
    assert (after["c"][0], after["c"][1]["element"]) == (17, "long")


def test_any_other_change_is_a_new_column_and_the_old_one_stays_readable() -> None:
    ids = ColumnIds()
    before = table_of("message M { int64 a = 1; string b = 2; }", ids)
    after = columns("message M { string a = 1; string b = 2; }", ids, before)
    assert after == {"a": (17, "string"), "b": (16, "string"), "a__15": (15, "long")}


def test_a_removed_field_keeps_its_column_and_gets_it_back() -> None:
    ids = ColumnIds()
    first = table_of("message M { int32 a = 1; int32 b = 2; }", ids)
    second = table_of("message M { int32 b = 2; int32 c = 3; }", ids, first)
    assert columns("message M { int32 b = 2; int32 c = 3; }", ids, second)["a"] == (15, "int")
    assert columns("message M { int32 a = 1; int32 b = 2; }", ids, second)["a"] == (15, "int")


def test_a_new_field_gets_a_number_never_used_before() -> None:
    ids = ColumnIds()
    before = table_of("message I { int32 x = 1; } message M { I i = 1; int32 z = 3; }", ids)
    after = columns(
        "message I { int32 x = 1; int32 y = 2; } message M { I i = 1; int32 z = 3; }", ids, before
    )
    inner = {each["name"]: each["id"] for each in after["i"][1]["fields"]}
    assert (after["i"][0], inner, after["z"][0]) == (15, {"x": 16, "y": 18}, 17)


def test_a_list_whose_element_changes_is_a_new_column_with_new_insides() -> None:
    ids = ColumnIds()
    before = table_of("message I { int32 x = 1; } message M { repeated I i = 1; }", ids)
    after = columns("message M { repeated string i = 1; }", ids, before)
    assert after["i"][0] == 18
    assert after["i"][1]["element-id"] == 19
    assert after["i__15"][0] == 15


def test_the_same_message_again_changes_nothing() -> None:
    kind = samples.message_type(samples.ZOO, "zoo.All")
    ids = ColumnIds()
    before = evolution.table_fields(None, mapping.shape(kind.descriptor), ids)
    count = ids.last
    assert evolution.table_fields(None, mapping.shape(kind.descriptor), ids, before) == before
    assert ids.last == count


def test_names_that_readers_would_confuse_are_told_apart() -> None:
    after = columns("message M { int32 Name = 1; int32 name = 2; int32 __raw__ = 3; }")
    assert list(after) == ["Name", "name_2", "__raw___3"]


def test_a_message_that_is_too_wide_becomes_raw_bytes_with_a_reason() -> None:
    wide = " ".join(f"int32 f{number} = {number};" for number in range(1, 102))
    text = f"message W {{ {wide} }} message M {{ {' '.join(f'W w{n} = {n};' for n in range(1, 30))} }}"
    with pytest.raises(MappingError, match="more than 2000 columns"):
        columns(text)
    compiled = compile_protos({"m.proto": f'syntax = "proto3"; package p; {text}'.encode()})
    built = layout.build(None, samples.Bound(compiled, "p.M"))
    assert "more than 2000 columns" in built.problems[0]
    assert built.value.decoder is None
    assert [each["name"] for each in built.fields[2]["type"]["fields"]] == ["__raw__", "__err__"]
