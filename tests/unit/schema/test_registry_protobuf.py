"""PROTOBUF schemas: what is one, which are the same, and what is printed means what it was printed from."""

from __future__ import annotations

import base64
from collections.abc import Callable
from itertools import pairwise

import pytest
from google.protobuf import descriptor_pb2

from schema import descriptors
from schema.compiler import compile_protos
from schema.redaction.marks import Action, Marks
from schema.redaction.messages import redactor
from schema.registry import known
from schema.registry.canonical import canonical
from schema.registry.parsed import IMPORTS_MAX, InvalidSchema
from schema.registry.printer import printed
from schema.registry.protobuf import NESTING_MAX, descriptor_set, load, parse, serialized

EVERYTHING_2 = """
syntax = "proto2";
package a.b;
import public "google/protobuf/timestamp.proto";
import "google/protobuf/descriptor.proto";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
option java_package = "x.\\"y\\"";
option (confluent.file_meta) = { doc: "a file" params { key: "k" value: "v\\n" } };
extend google.protobuf.FieldOptions { optional string note = 50001; repeated int32 marks = 50002; }
message Outer {
  option deprecated = true;
  required int32 id = 1 [default = -5, (note) = "it's \\"n\\"", (marks) = 1, (marks) = 2];
  optional string text = 2 [default = "a\\"b\\n", json_name = "TEXT"];
  optional bytes raw = 3 [default = "\\001\\xff\\"x"];
  optional double much = 4 [default = inf];
  optional Color color = 5 [default = RED];
  repeated int64 many = 6 [packed = true];
  map<string, Inner> by_name = 7;
  oneof choice { string one = 8; Inner two = 9; group Third = 10 { optional int32 x = 1; } }
  repeated group Part = 11 { optional string name = 1; message Deep { optional int32 y = 1; } }
  optional .google.protobuf.Timestamp at = 12;
  optional confluent.type.Decimal price = 13 [(confluent.field_meta) = { tags: "PII" }];
  message Inner { optional Outer back = 1; enum Kind { K0 = 0; } optional Kind kind = 2; }
  enum Color { option allow_alias = true; NONE = 0; RED = 1; ROT = 1 [deprecated = true]; reserved 5, 7 to 9, 100 to max; reserved "OLD"; }
  extensions 100 to 199, 1000 to max;
  reserved 20, 30 to 35;
  reserved "gone", "lost";
}
extend Outer { optional int32 more = 100; optional group Extra = 101 { optional int32 z = 1; } }
service Greeter {
  option deprecated = true;
  rpc Say (Outer) returns (Outer.Inner) { option deprecated = true; }
  rpc Flow (stream Outer) returns (stream Outer);
}
"""  # noqa: E501 - as people write it
EVERYTHING_3 = """
syntax = "proto3";
package a.b;
import "buf/validate/validate.proto";
import "google/protobuf/any.proto";
message M {
  optional int32 maybe = 1;
  string email = 2 [(buf.validate.field).string.email = true, (buf.validate.field).required = true];
  oneof c { option (buf.validate.oneof).required = true; int32 x = 4; string y = 3; }
  optional string later = 6;
  google.protobuf.Any any = 5;
  repeated int32 plain = 7 [packed = false];
  map<int32, E> m = 8;
  option (buf.validate.message).cel = { id: "i" message: "m" expression: "this.maybe > 1 ? '' : 'no'" };
}
enum E { E0 = 0; E1 = -1; }
"""
EDITION = """
edition = "2023";
package e;
option features.field_presence = IMPLICIT;
message M {
  int32 x = 1;
  string y = 2 [features.field_presence = LEGACY_REQUIRED];
  M sub = 3 [features.message_encoding = DELIMITED];
  reserved old;
}
enum E { option features.enum_type = CLOSED; A = 1; }
"""
ORDERS = """
syntax = "proto2";
message M {
  message First {}
  map<string, int32> b = 2;
  map<string, int32> a = 1;
  oneof o { group Inner = 3 { optional int32 x = 1; } int32 y = 4; }
  message Last {}
  extend A { optional group InMessage = 101 { optional int32 z = 1; } }
  optional int32 plain = 9;
}
extend A { optional group Before = 100 { optional int32 z = 1; } optional int32 more = 102; }
message A { extensions 100 to 200; }
"""
ALL = {"orders": ORDERS, "proto2": EVERYTHING_2, "proto3": EVERYTHING_3, "edition": EDITION}


@pytest.mark.parametrize("name", ALL)
def test_what_is_printed_means_the_same(name: str) -> None:
    """Whatever stands in a file: the text that is told of a descriptor is that schema again."""
    first = parse(ALL[name], {})
    assert first.text == ALL[name], "a text is kept as it was said"
    text = printed(load(first.canonical, {}))
    again = parse(text, {})
    assert again.canonical == first.canonical, text
    assert parse(ALL[name], {}, normalize=True).text == text
    assert printed(load(again.canonical, {})) == text


@pytest.mark.parametrize("name", ALL)
def test_a_descriptor_is_the_schema_that_its_text_is(name: str) -> None:
    """As Confluent's clients send it, and as they ask for it."""
    of_text = parse(ALL[name], {})
    compiled = descriptor_pb2.FileDescriptorSet.FromString(
        compile_protos({"some/file.proto": ALL[name].encode(), **_known_sources()})
    )
    (file,) = (one for one in compiled.file if one.name == "some/file.proto")
    of_descriptor = parse(base64.b64encode(file.SerializeToString()).decode(), {})
    assert of_descriptor.canonical == of_text.canonical
    assert of_descriptor.text == parse(ALL[name], {}, normalize=True).text
    assert parse(serialized(of_text.canonical), {}).canonical == of_text.canonical


def _known_sources() -> dict[str, bytes]:
    return {name: (known._FOLDER / place).read_bytes() for name, place in known._PLACES.items()}


# fmt: off
P = 'syntax = "proto3"; '
SAME = [
    (P + 'message M { int32 a = 1; string b = 2; }',
     '// words\nsyntax="proto3";\nmessage M {\n  string b = 2; // more\n  int32 a = 1 [json_name = "a"]; }'),
    ('message M { optional int32 a = 1; }', 'syntax = "proto2"; message M { optional int32 a = 1; }'),
    (P + 'package p; message M { M m = 1; }',
     P + 'package p; message M { .p.M m = 1; }'),
    (P + 'message M { optional int32 a = 1; optional int32 b = 2; oneof o { int32 c = 4; int32 d = 3; } }',
     P + 'message M { oneof o { int32 d = 3; int32 c = 4; } optional int32 b = 2; optional int32 a = 1; }'),
    (P + 'message M { reserved 5, 3; reserved "x", "a"; }',
     P + 'message M { reserved "a"; reserved 3; reserved 5; reserved "x"; }'),
    (P + 'import "google/protobuf/any.proto"; import "google/protobuf/duration.proto"; '
     'message M { google.protobuf.Any a = 1; google.protobuf.Duration d = 2; }',
     P + 'import "google/protobuf/duration.proto"; import "google/protobuf/any.proto"; '
     'message M { google.protobuf.Any a = 1; google.protobuf.Duration d = 2; }'),
]
DIFFERENT = [
    (P + 'message A {} message B {}', P + 'message B {} message A {}'),
    (P + 'message M { int32 a = 1; }', P + 'message M { int32 b = 1; }'),
    (P + 'message M { int32 a = 1; }', P + 'message M { optional int32 a = 1; }'),
    (P + 'message M { int32 a = 1; }', P + 'package p; message M { int32 a = 1; }'),
    (P + 'message M { int32 a = 1; }', P + 'message M { int32 a = 1 [json_name = "b"]; }'),
    ('enum E { A = 1; B = 2; }', 'enum E { B = 2; A = 1; }'),
    ("message M { message A {} message B {} }", "message M { message B {} message A {} }"),
]
# fmt: on


@pytest.mark.parametrize(("one", "other"), SAME)
def test_these_are_the_same(one: str, other: str) -> None:
    assert parse(one, {}).canonical == parse(other, {}).canonical


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_these_are_not(one: str, other: str) -> None:
    """The order of messages is by which records name one; that of a closed enum has its default."""
    assert parse(one, {}).canonical != parse(other, {}).canonical


def test_imports_are_those_that_are_given() -> None:
    base = parse('syntax = "proto3"; package b; message Base { int32 x = 1; }', {}).canonical
    text = 'syntax = "proto3"; import "some/base.proto"; message M { b.Base base = 1; }'
    with pytest.raises(InvalidSchema, match=r"schema\.proto:1:20: Import \"some/base\.proto\" was not found"):
        parse(text, {})
    found = parse(text, {"some/base.proto": base})
    assert load(found.canonical, {"some/base.proto": base}).message_types_by_name["M"].fields_by_name["base"]
    with pytest.raises(InvalidSchema, match=r"imports 'some/base\.proto'"):
        load(found.canonical, {})
    wrong = parse('syntax = "proto3"; package b; message Other {}', {}).canonical
    with pytest.raises(InvalidSchema, match="Base"):
        parse(text, {"some/base.proto": wrong})


def test_a_known_file_can_be_given_all_the_same() -> None:
    """Somebody who registered confluent/meta.proto refers to that one."""
    own = parse('syntax = "proto3"; package confluent; message Meta { int32 mine = 1; }', {}).canonical
    text = 'syntax = "proto3"; import "confluent/meta.proto"; message M { confluent.Meta meta = 1; }'
    found = load(parse(text, {"confluent/meta.proto": own}).canonical, {"confluent/meta.proto": own})
    meta = found.message_types_by_name["M"].fields_by_name["meta"].message_type
    assert meta is not None
    assert list(meta.fields_by_name) == ["mine"]


def test_what_an_import_imports_is_known_too() -> None:
    base = parse(
        'syntax = "proto3"; package b; import "confluent/types/decimal.proto";'
        "message Base { confluent.type.Decimal d = 1; }",
        {},
    ).canonical
    text = 'syntax = "proto3"; import "base.proto"; message M { b.Base base = 1; }'
    assert load(parse(text, {"base.proto": base}).canonical, {"base.proto": base})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Missing|no"),
        ("nonsense", "schema.proto:1:1: "),
        ('syntax = "proto3";\nmessage M {\n  int31 a = 1;\n}', r'schema.proto:3:3: "int31" is not defined'),
        ('syntax = "proto3"; import "x.proto";', "was not found"),
        ('syntax = "proto3"; message M { int32 a = 1; int32 b = 1; }', "already been used"),
        ("message \ud800 {}", "no valid Unicode"),
        ("message M { " * 200 + "}" * 200, "schema.proto"),
    ],
)
def test_what_is_no_schema_is_refused_with_its_place(text: str, words: str) -> None:
    if not text:
        assert load(parse(text, {}).canonical, {}) is not None, "an empty file is a file of proto2"
        return
    with pytest.raises(InvalidSchema, match=words):
        parse(text, {})


@pytest.mark.parametrize("change", ["type", "import", "twice", "deep", "cycle"])
def test_a_descriptor_that_is_none_is_refused(change: str) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", syntax="proto3")
    message = file.message_type.add(name="M")
    message.field.add(name="a", number=1, type=11, label=1, type_name=".M")
    if change == "type":
        message.field[0].type_name = ".Nothing"
    if change == "import":
        file.dependency.append("nowhere.proto")
    if change == "twice":
        message.field.add(name="b", number=1, type=5, label=1)
    if change == "cycle":
        file.dependency.append("schema.proto")
    for number in range(NESTING_MAX if change == "deep" else 0):
        message = message.nested_type.add(name=f"N{number}")
    with pytest.raises(InvalidSchema):
        parse(base64.b64encode(file.SerializeToString()).decode(), {})


@pytest.mark.parametrize(
    "form", [b'{"type":"record","name":"R","fields":[]}', b'"int"', b'{"type":"object"}']
)
def test_a_schema_of_another_type_is_no_import(form: bytes) -> None:
    with pytest.raises(InvalidSchema, match=r"a\.proto is referred to, and is no PROTOBUF schema"):
        parse('syntax = "proto3"; message M { int32 a = 1; }', {"a.proto": form})


def test_imports_are_bounded() -> None:
    with pytest.raises(InvalidSchema, match="the limit is"):
        parse("", {f"{number}.proto": b"" for number in range(IMPORTS_MAX + 1)})


def test_the_name_of_a_file_says_nothing() -> None:
    one = descriptor_pb2.FileDescriptorProto(name="a.proto", package="p")
    other = descriptor_pb2.FileDescriptorProto(name="b.proto", package="p", syntax="proto2")
    assert canonical(one) == canonical(other)


@pytest.mark.timeout(60, method="thread")  # a regular expression hears no signal
def test_a_text_of_blanks_is_no_matter() -> None:
    """Whether it is base64 is seen in one pass: trying again from each blank holds the agent for an hour."""
    with pytest.raises(InvalidSchema):
        parse(" " * 900_000 + "!", {})


@pytest.mark.parametrize("last", ["", "M0 back = 2; M70 other = 3;"], ids=("row", "circle"))
def test_messages_that_refer_to_one_another_in_a_long_row_are_loaded(last: str) -> None:
    """Neither we nor the library may call itself as deep as they go."""
    row = "".join(f"message M{each} {{ M{each + 1} f = 1; }}\n" for each in range(2_000))
    text = f'syntax = "proto3"; {row}' + f"message M2000 {{ string s = 1; {last} }}"
    kind = descriptors.load(descriptor_set(parse(text, {}).canonical, {}), "M0")
    assert not kind.has_required
    made = kind.message_class.FromString(b"\x0a\x02\x0a\x00")
    assert made.f.f.HasField("f") is False  # type: ignore[attr-defined]  # by its descriptor
    assert redactor(kind, Marks(Action.REMOVE), b"") is None


def test_files_that_import_one_another_in_a_long_row_are_put_in_order() -> None:
    files = [descriptor_pb2.FileDescriptorProto(name=f"f{each}") for each in range(3_000)]
    for one, other in pairwise(files):
        one.dependency.append(other.name)
    assert [each.name for each in descriptors.in_order(files)] == [
        f"f{each}" for each in reversed(range(3_000))
    ]
    files[-1].dependency.append("f7")
    with pytest.raises(descriptors.DescriptorError, match="'f7' imports itself"):
        descriptors.in_order(files)
    files[-1].dependency[:] = ["lost"]
    with pytest.raises(descriptors.DescriptorError, match="'f2999' imports 'lost', which the descriptor set"):
        descriptors.in_order(files)


def a_group(file: descriptor_pb2.FileDescriptorProto) -> None:
    file.message_type[0].nested_type.add(name="B")
    file.message_type[0].field.add(name="b", number=2, type=10, type_name=".M.B", label=1)


def an_entry_that_is_no_list(file: descriptor_pb2.FileDescriptorProto) -> None:
    entry = file.message_type[0].nested_type.add(name="YEntry", options={"map_entry": True})
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=9, label=1)
    file.message_type[0].field.add(name="y", number=2, type=11, type_name=".M.YEntry", label=1)


def a_reserved_number(file: descriptor_pb2.FileDescriptorProto) -> None:
    file.message_type[0].reserved_range.add(start=1, end=2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (a_group, "none of a .proto text: .*Groups are not supported in proto3"),
        (an_entry_that_is_no_list, "means what no .proto text does"),
        (a_reserved_number, 'none of a .proto text: .*Field "a" uses reserved number 1'),
    ],
)
def test_a_descriptor_that_no_compiler_reads_again_is_refused(
    change: Callable[[descriptor_pb2.FileDescriptorProto], None], words: str
) -> None:
    """Nobody could compare it with another, or take the text that is told."""
    file = descriptor_pb2.FileDescriptorProto(name="x", syntax="proto3")
    file.message_type.add(name="M").field.add(name="a", number=1, type=5, label=1)
    parse(base64.b64encode(file.SerializeToString()).decode(), {})
    change(file)
    with pytest.raises(InvalidSchema, match=words):
        parse(base64.b64encode(file.SerializeToString()).decode(), {})
