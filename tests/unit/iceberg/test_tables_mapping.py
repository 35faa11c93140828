"""Protobuf message → Iceberg columns, and what happens to them when the message changes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from iceberg import evolution, layout, mapping
from iceberg.column_ids import FIRST_MESSAGE_ID, VALUE_ID, ColumnIds
from iceberg.decoder import MESSAGES_MAX
from iceberg.mapping import MappingError
from schema.compiler import compile_protos
from tests.unit.iceberg.rows import decoder
from tests.unit.schema import samples


class Table:
    """A table's columns under one message after another."""

    def __init__(self) -> None:
        self.fields: list[dict[str, Any]] = evolution.new_fields()
        self.ids = ColumnIds()

    def bind(self, source: str, message: str = "p.M", *, names: bool = True) -> dict[str, Any]:
        """{name: (id, type)} of the value's columns with this message."""
        text = f'syntax = "proto3"; package {message.rpartition(".")[0]}; {source}'
        return self.add(shape_of(text, message), message, names=names)

    def add(self, shape: mapping.Struct, message: str, *, names: bool = True) -> dict[str, Any]:
        """The same of a shape."""
        self.fields, self.ids = evolution.with_message(
            self.fields, VALUE_ID, shape, message, ColumnIds.from_json(self.ids.to_json()), names=names
        )
        value = next(each for each in self.fields if each["name"] == "value")["type"]["fields"]
        return {each["name"]: (each["id"], each["type"]) for each in value[2:]}

    @property
    def numbers(self) -> list[int]:
        """The ids of all columns that messages have, insides of lists and maps too."""
        return sorted(number for number in _numbers(self.fields) if number >= FIRST_MESSAGE_ID)


def _numbers(kind: Any) -> Iterator[int]:
    if isinstance(kind, list):
        for each in kind:
            yield from _numbers(each)
    elif isinstance(kind, dict):
        yield from (kind[name] for name in ("id", "element-id", "key-id", "value-id") if name in kind)
        for name in ("type", "fields", "element", "key", "value"):
            yield from _numbers(kind.get(name))


def shape_of(text: str, message: str = "p.M") -> mapping.Struct:
    """The shape of a message."""
    compiled = compile_protos({"m.proto": text.encode()})
    return mapping.shape(samples.descriptors.load(compiled, message).descriptor)


def test_every_kind_of_field_has_its_column() -> None:
    kind = samples.message_type(samples.ZOO, "zoo.All")
    table = Table()
    table.add(mapping.shape(kind.descriptor), kind.name)
    value = {each["name"]: each for each in table.fields[2]["type"]["fields"]}
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
    table = Table()
    table.add(mapping.shape(kind.descriptor), kind.name)
    assert table.numbers == list(range(FIRST_MESSAGE_ID, table.ids.last + 1))


def test_a_rename_keeps_the_id() -> None:
    table = Table()
    table.bind("message M { int32 a = 1; }")
    assert table.bind("message M { int32 b = 1; }") == {"b": (15, "int")}


def test_promotions_keep_the_id_and_never_go_back() -> None:
    table = Table()
    narrow = "message M { int32 a = 1; float b = 2; repeated int32 c = 3; map<string, int32> d = 4; }"
    table.bind(narrow)
    wide = table.bind(
        "message M { int64 a = 1; double b = 2; repeated int64 c = 3; map<string, int64> d = 4; }"
    )
    assert (wide["a"], wide["b"]) == ((15, "long"), (16, "double"))
    assert (wide["c"][0], wide["c"][1]["element"]) == (17, "long")
    assert (wide["d"][0], wide["d"][1]["value"]) == (18, "long")
    assert table.bind(narrow) == wide


def test_any_other_change_is_a_new_column_and_the_old_one_stays_readable() -> None:
    table = Table()
    table.bind("message M { int64 a = 1; string b = 2; }")
    after = table.bind("message M { string a = 1; string b = 2; }")
    assert after == {"a": (17, "string"), "b": (16, "string"), "a__15": (15, "long")}


def test_going_back_finds_the_columns_again_and_their_names() -> None:
    table, first = Table(), "message I { int32 x = 1; } message M { int64 a = 1; repeated I i = 2; I j = 3; }"
    before = table.bind(first)
    table.bind("message M { string a = 1; string i = 2; map<string, int32> j = 3; }")
    last = table.ids.last
    after = table.bind(first)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"a__21", "i__22", "j__23"}
    assert table.ids.last == last


def test_a_map_whose_key_changes_is_a_new_column_with_new_insides() -> None:
    table = Table()
    old = table.bind("message I { int32 x = 1; } message M { map<int32, I> m = 1; }")["m"]
    new = table.bind("message I { int32 x = 1; } message M { map<int64, I> m = 1; }")["m"]
    assert not set(_numbers([{"id": old[0], "type": old[1]}])) & set(
        _numbers([{"id": new[0], "type": new[1]}])
    )


def test_a_removed_field_keeps_its_column_and_gets_it_back() -> None:
    table = Table()
    table.bind("message M { int32 a = 1; int32 b = 2; }")
    assert table.bind("message M { int32 b = 2; int32 c = 3; }")["a"] == (15, "int")
    assert table.bind("message M { int32 a = 1; int32 b = 2; }")["a"] == (15, "int")


def test_another_message_shares_columns_only_where_the_names_are_the_same() -> None:
    table = Table()
    table.bind("message Order { string user = 1; int64 cents = 2; }", "v1.Order")
    moved = table.bind("message Order { string user = 1; int64 cents = 2; int32 kind = 3; }", "v2.Order")
    assert moved == {"user": (15, "string"), "cents": (16, "long"), "kind": (17, "int")}
    other = table.bind("message Payment { string payee = 1; int64 cents = 2; }", "v1.Payment")
    assert other["payee"] == (18, "string"), "a payee is no user"
    assert (other["user"], other["cents"]) == ((15, "string"), (16, "long"))
    back = table.bind("message Order { string user_name = 1; int64 cents = 2; }", "v1.Order")
    assert (back["user_name"], back["payee"]) == ((15, "string"), (18, "string")), "a rename of its own"


def test_an_earlier_message_adds_its_columns_without_taking_names() -> None:
    table = Table()
    now = table.bind("message M { string a = 1; int32 b = 2; }")
    added = table.bind("message M { int64 a = 1; int32 c = 2; int32 B = 3; }", names=False)
    assert added == {**now, "a__17": (17, "long"), "B__18": (18, "int")}
    assert table.bind("message M { string a = 1; int32 b = 2; }") == added


def test_a_new_field_gets_a_number_never_used_before() -> None:
    table = Table()
    table.bind("message I { int32 x = 1; } message M { I i = 1; int32 z = 3; }")
    after = table.bind("message I { int32 x = 1; int32 y = 2; } message M { I i = 1; int32 z = 3; }")
    inner = {each["name"]: each["id"] for each in after["i"][1]["fields"]}
    assert (after["i"][0], inner, after["z"][0]) == (15, {"x": 17, "y": 18}, 16)


def test_a_list_whose_element_changes_is_a_new_column_with_new_insides() -> None:
    table = Table()
    table.bind("message I { int32 x = 1; } message M { repeated I i = 1; }")
    after = table.bind("message M { repeated string i = 1; }")
    assert after["i"][0] == 18
    assert after["i"][1]["element-id"] == 19
    assert after["i__15"][0] == 15


def test_the_same_message_again_changes_nothing() -> None:
    kind = samples.message_type(samples.ZOO, "zoo.All")
    table = Table()
    first = table.add(mapping.shape(kind.descriptor), kind.name)
    count = table.ids.last
    assert list(table.add(mapping.shape(kind.descriptor), kind.name).items()) == list(first.items())
    assert table.ids.last == count


def test_ids_of_before_messages_were_told_apart_are_understood() -> None:
    """A table whose property has the older form: {path of field numbers: id}."""
    table, source = (
        Table(),
        "message I { int32 x = 4; } message M { I i = 2; repeated I l = 3; int32 a = 1; }",
    )
    columns = table.bind(source)
    inside = columns["l"][1]
    paths = {
        "v.1": columns["a"][0],
        "v.2": columns["i"][0],
        "v.2.4": columns["i"][1]["fields"][0]["id"],
        "v.3": columns["l"][0],
        "v.3[]": inside["element-id"],
        "v.3[].4": inside["element"]["fields"][0]["id"],
    }
    text = json.dumps({"last": table.ids.last, "ids": paths})
    table.ids = ColumnIds.from_json(text, table.fields)
    assert table.bind(source) == columns
    assert table.ids.last == json.loads(text)["last"]


def test_a_table_has_a_most_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evolution, "COLUMNS_MAX", 5)
    table = Table()
    before = table.bind("message M { int32 a = 1; int32 b = 2; int32 c = 3; }")
    with pytest.raises(evolution.TooManyColumns, match="would have 6 columns: at most 5"):
        table.bind("message N { string d = 1; string e = 2; string f = 3; }", "p.N")
    assert table.bind("message M { int32 a = 1; int32 b = 2; int32 c = 3; }") == before


def test_names_that_readers_would_confuse_are_told_apart() -> None:
    after = Table().bind("message M { int32 Name = 1; int32 name = 2; int32 __raw__ = 3; int32 name_2 = 4; }")
    assert list(after) == ["Name", "name_2", "__raw___3", "name_2_4"]


def test_a_message_that_is_too_wide_becomes_raw_bytes_with_a_reason() -> None:
    wide = " ".join(f"int32 f{number} = {number};" for number in range(1, 102))
    text = f"message W {{ {wide} }} message M {{ {' '.join(f'W w{n} = {n};' for n in range(1, 30))} }}"
    with pytest.raises(MappingError, match="more than 2000 columns"):
        Table().bind(text)
    compiled = compile_protos({"m.proto": f'syntax = "proto3"; package p; {text}'.encode()})
    built = layout.build(None, samples.Bound(compiled, "p.M"))
    assert "more than 2000 columns" in built.problems[0]
    assert built.value.parts[1].decoder is None
    assert [each["name"] for each in built.fields[2]["type"]["fields"]] == ["__raw__", "__err__"]


METHODS = b"""
syntax = "proto2";
message Inner {
  optional int32 q = 1; optional int64 HasField = 2; optional int64 SerializePartialToString = 3;
  optional int64 DESCRIPTOR = 4;
}
message Blob {
  required int64 ByteSize = 1; optional int64 IsInitialized = 2; optional int64 DiscardUnknownFields = 3;
  optional int64 HasField = 4; optional int64 SerializePartialToString = 5; optional Inner inner = 6;
  optional group G = 7 { optional Blob again = 1; optional int64 DESCRIPTOR = 2; }
}
"""


def test_fields_that_are_called_as_methods_have_columns() -> None:
    """A message has the field under that name, and not the method."""
    found = decoder(METHODS, "Blob")
    assert not found.fast, "it has groups: each row is decoded in Python"
    decoded = found.decode(
        [b"\x08\x01\x32\x04\x08\x01\x10\x02", b"\x32\x00", b"\x08\x02\x3b\x0a\x02\x08\x07\x3c"]
    )
    assert decoded.errors == {1: "required field `ByteSize` is missing"}
    assert decoded.arrays[0].to_pylist() == [1, None, 2]
    inner, group = (each.to_pylist() for each in decoded.arrays[-2:])
    assert inner[0] == {"q": 1, "HasField": 2, "SerializePartialToString": None, "DESCRIPTOR": None}
    assert group[2] == {"again": b"\x08\x07", "DESCRIPTOR": None}


def test_messages_in_a_long_row_are_decoded_in_python() -> None:
    """ptars calls itself as deep as they refer to one another: the process would end."""
    row = "".join(f"message M{each} {{ optional M{each + 1} f = 1; }}\n" for each in range(20_000))
    text = f'syntax = "proto2"; {row} message M20000 {{ optional string s = 1; }}'
    found = decoder(text.encode(), "M0")
    assert not found.fast
    assert found.why_slow == f"more than {MESSAGES_MAX} messages can be inside it"
