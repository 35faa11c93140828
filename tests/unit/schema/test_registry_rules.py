"""What readers of protobuf cannot take from writers: each rule with what passes and what does not."""

# ruff: noqa: E501 - a table of schemas, a rule in each row

from __future__ import annotations

from functools import cache

import pytest
from google.protobuf.descriptor import FileDescriptor

from schema.registry.compatibility import LEVELS, Earlier, Loaded, problems
from schema.registry.protobuf import load, parse
from schema.registry.rules import differences

P3, P2 = 'syntax = "proto3"; ', 'syntax = "proto2"; '


@cache
def file(text: str) -> FileDescriptor:
    """A schema, of proto3 unless it says otherwise; other/d.proto may be imported."""
    imports = {}
    if "other/d.proto" in text:
        imports["other/d.proto"] = parse(f"{P3} package d; message D {{ int32 x = 1; }}", {}).canonical
    said = text if text.startswith(("syntax", "edition")) else P3 + text
    return load(parse(said, imports).canonical, imports)


def loaded(text: str) -> Loaded:
    return Loaded("PROTOBUF", file(text))


def m(fields: str) -> str:
    """A message of these fields."""
    return f"message M {{ {fields} }}"


def p2(fields: str) -> str:
    return P2 + m(fields)


E = "enum E { Z = 0; } "
# rule, writer, reader, and the kind of the difference with its path; None: the reader takes all of it
RULES: list[tuple[str, str, str, str | None]] = [
    ("field added", m("int32 a = 1;"), m("int32 a = 1; string b = 2;"), None),
    ("field removed", m("int32 a = 1; string b = 2;"), m("int32 a = 1;"), None),
    ("field renamed", m("int32 a = 1;"), m("int32 b = 1;"), None),
    ("field renumbered", m("int32 a = 1;"), m("int32 a = 2;"), "FIELD_NUMBER_CHANGED #/M/1"),
    ("number given to another kind", m("int32 a = 1;"), m("string a = 1;"), "FIELD_SCALAR_KIND_CHANGED #/M/1"),
    ("wider number", m("int32 a = 1;"), m("int64 a = 1;"), None),
    ("narrower number", m("uint64 a = 1;"), m("int32 a = 1;"), None),
    ("number to bool", m("uint32 a = 1;"), m("bool a = 1;"), None),
    ("number to enum", m("int32 a = 1;"), E + m("E a = 1;"), None),
    ("enum to number", E + m("E a = 1;"), m("uint32 a = 1;"), None),
    ("enum of another name", E + m("E a = 1;"), "enum F { Z = 0; } " + m("F a = 1;"), None),
    ("zigzag", m("sint32 a = 1;"), m("sint64 a = 1;"), None),
    ("zigzag to plain", m("sint32 a = 1;"), m("int32 a = 1;"), "FIELD_SCALAR_KIND_CHANGED #/M/1"),
    ("fixed of 32 bits", m("fixed32 a = 1;"), m("sfixed32 a = 1;"), None),
    ("fixed of 64 bits", m("fixed64 a = 1;"), m("sfixed64 a = 1;"), None),
    ("fixed to wider", m("fixed32 a = 1;"), m("fixed64 a = 1;"), "FIELD_SCALAR_KIND_CHANGED #/M/1"),
    ("fixed to float", m("fixed32 a = 1;"), m("float a = 1;"), "FIELD_SCALAR_KIND_CHANGED #/M/1"),
    ("float to double", m("float a = 1;"), m("double a = 1;"), "FIELD_SCALAR_KIND_CHANGED #/M/1"),
    ("text to bytes", m("string a = 1;"), m("bytes a = 1;"), None),
    ("bytes to text", m("bytes a = 1;"), m("string a = 1;"), "FIELD_SCALAR_KIND_CHANGED #/M/1"),
    ("message to bytes", m("M a = 1;"), m("bytes a = 1;"), "FIELD_KIND_CHANGED #/M/1"),
    ("text to message", m("string a = 1;"), m("M a = 1;"), "FIELD_KIND_CHANGED #/M/1"),
    ("number repeated", m("int32 a = 1;"), m("repeated int32 a = 1;"), "FIELD_NUMERIC_LABEL_CHANGED #/M/1"),
    ("number once", m("repeated int32 a = 1;"), m("int32 a = 1;"), "FIELD_NUMERIC_LABEL_CHANGED #/M/1"),
    ("text repeated", m("string a = 1;"), m("repeated string a = 1;"), None),
    ("message once", m("repeated M a = 1;"), m("M a = 1;"), None),
    ("packed or not", m("repeated int32 a = 1;"), m("repeated int32 a = 1 [packed = false];"), None),
    ("optional or not", m("int32 a = 1;"), m("optional int32 a = 1;"), None),
    ("list to map", m("repeated M a = 1;"), m("map<string, M> a = 1;"), "FIELD_KIND_CHANGED #/M/1"),
    ("key of a map", m("map<int32, M> a = 1;"), m("map<int64, M> b = 1;"), None),
    ("key of a map", m("map<int32, M> a = 1;"), m("map<string, M> a = 1;"), "FIELD_SCALAR_KIND_CHANGED #/M/1/1"),
    ("value of a map", m("map<int32, bytes> a = 1;"), m("map<int32, string> a = 1;"), "FIELD_SCALAR_KIND_CHANGED #/M/1/2"),
    ("message removed", m("") + "message N {}", m(""), "MESSAGE_REMOVED #/N"),
    ("message inside removed", m("message N {}"), m(""), "MESSAGE_REMOVED #/M/N"),
    ("message added", m(""), m("message N {}") + "message O {}", None),
    ("message renamed", "message N {}", m(""), "MESSAGE_REMOVED #/N"),
    ("messages in another order", m("") + "message N {}", "message N {}" + m(""), None),
    ("package", "package a; " + m("M m = 1;"), "package b.c; " + m("M m = 1;"), None),
    ("type of a field", m("A a = 1;") + "message A {} message B {}", m("B a = 1;") + "message A {} message B {}",
     "FIELD_NAMED_TYPE_CHANGED #/M/1"),
    ("deep inside", m("A a = 1;") + "message A { string s = 4; }", m("A a = 1;") + "message A { int32 s = 4; }",
     "FIELD_SCALAR_KIND_CHANGED #/A/4"),
    ("of an import", 'import "other/d.proto"; ' + m("d.D d = 1;"), m("D d = 1;") + "message D { int64 x = 1; }", None),
    ("of an import", 'import "other/d.proto"; ' + m("d.D d = 1;"), m("D d = 1;") + "message D { string x = 1; }",
     "FIELD_SCALAR_KIND_CHANGED #/M/1/1"),
    ("value of an enum added", E + m("E e = 1;"), "enum E { Z = 0; Y = 1; } " + m("E e = 1;"), None),
    ("value of an enum removed", "enum E { Z = 0; Y = 1; } " + m("E e = 1;"), E + m("E e = 1;"), None),
    ("enum removed", E + m(""), m(""), None),
    ("required added", p2("optional int32 a = 1;"), p2("optional int32 a = 1; required int32 b = 2;"),
     "REQUIRED_FIELD_ADDED #/M/2"),
    ("became required", p2("optional int32 a = 1;"), p2("required int32 a = 1;"), "REQUIRED_FIELD_ADDED #/M/1"),
    ("no longer required", p2("required int32 a = 1;"), p2("optional int32 a = 1;"), None),
    ("required removed", p2("required int32 a = 1;"), p2(""), "REQUIRED_FIELD_REMOVED #/M/1"),
    ("optional added", p2(""), p2("optional int32 a = 1;"), None),
    ("required by an edition", p2("optional int32 a = 1;"),
     'edition = "2023"; ' + m("int32 a = 1 [features.field_presence = LEGACY_REQUIRED];"),
     "REQUIRED_FIELD_ADDED #/M/1"),
    ("group and message", p2("optional group A = 1 {}"), p2("message A {} optional A a = 1;"),
     "FIELD_KIND_CHANGED #/M/1"),
    ("group and group", p2("optional group A = 1 {}"), p2("repeated group A = 1 { optional int32 x = 1; }"), None),
    ("one into a new oneof", m("int32 a = 1;"), m("oneof o { int32 a = 1; int32 b = 2; }"), None),
    ("two into a new oneof", m("int32 a = 1; int32 b = 2;"), m("oneof o { int32 a = 1; int32 b = 2; }"),
     "MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o"),
    ("one into an old oneof", m("int32 a = 1; oneof o { int32 b = 2; int32 c = 3; }"),
     m("oneof o { int32 a = 1; int32 b = 2; int32 c = 3; }"), "FIELD_MOVED_TO_EXISTING_ONEOF #/M/o"),
    ("two oneofs become one", m("oneof o { int32 a = 1; int32 b = 2; } oneof p { int32 c = 3; int32 d = 4; }"),
     m("oneof o { int32 a = 1; int32 b = 2; int32 c = 3; int32 d = 4; }"), "FIELD_MOVED_TO_EXISTING_ONEOF #/M/o"),
    ("optional ones into a oneof", m("optional int32 a = 1; optional int32 b = 2;"),
     m("oneof o { int32 a = 1; int32 b = 2; }"), "MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o"),
    ("out of a oneof", m("oneof o { int32 a = 1; int32 b = 2; }"), m("int32 a = 1; int32 b = 2;"), None),
    ("oneof renamed", m("oneof o { int32 a = 1; int32 b = 2; }"), m("oneof p { int32 a = 1; int32 b = 2; }"), None),
    ("added to a oneof", m("oneof o { int32 a = 1; int32 b = 2; }"),
     m("oneof o { int32 a = 1; int32 b = 2; int32 c = 3; }"), None),
    ("removed from a oneof", m("oneof o { int32 a = 1; int32 b = 2; }"), m("oneof o { int32 a = 1; }"),
     "ONEOF_FIELD_REMOVED #/M/2"),
    ("the only one of a oneof replaced", m("oneof o { int32 a = 1; }"), m("oneof o { int32 c = 3; }"),
     "ONEOF_FIELD_REMOVED #/M/1"),
    ("optional one replaced", m("optional int32 a = 1;"), m("optional int32 b = 2;"), None),
    ("beside the only one of a oneof", m("int32 a = 1; oneof o { int32 b = 2; }"),
     m("oneof o { int32 a = 1; int32 b = 2; }"), "FIELD_MOVED_TO_EXISTING_ONEOF #/M/o"),
    ("oneof removed", m("oneof o { int32 a = 1; int32 b = 2; }"), m(""), None),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "writer", "reader", "expected"), RULES, ids=[row[0] for row in RULES])
def test_rule(rule: str, writer: str, reader: str, expected: str | None) -> None:
    found = [f"{one.kind} {one.path}" for one in differences(file(reader), file(writer))]
    assert found == ([expected] if expected else []), rule


def test_every_kind_of_difference_has_an_example() -> None:
    kinds = {
        "MESSAGE_REMOVED", "FIELD_KIND_CHANGED", "FIELD_SCALAR_KIND_CHANGED", "FIELD_NUMERIC_LABEL_CHANGED",
        "FIELD_NAMED_TYPE_CHANGED", "FIELD_NUMBER_CHANGED", "REQUIRED_FIELD_ADDED", "REQUIRED_FIELD_REMOVED",
        "ONEOF_FIELD_REMOVED", "FIELD_MOVED_TO_EXISTING_ONEOF", "MULTIPLE_FIELDS_MOVED_TO_ONEOF",
    }  # fmt: skip
    assert {row[3].partition(" ")[0] for row in RULES if row[3]} == kinds


def test_long_chains_and_wide_messages_are_no_matter() -> None:
    """What somebody sends to make a comparison stop: thousands of messages in a row, of fields in one oneof."""
    count = 3_000
    chain = "".join(f"message M{n} {{ M{n + 1} m = 1; }} " for n in range(count)) + f"message M{count} {{}}"
    assert differences(file(chain), file(chain)) == []
    wide = "".join(f"int32 f{n} = {n + 1}; " for n in range(count))
    assert len(differences(file("message M { int32 x = 9000; }"), file(m(f"oneof o {{ {wide} }}")))) == 0
    assert len(differences(file(m(f"oneof o {{ {wide} }}")), file(m(wide)))) == 1


def test_messages_that_hold_themselves_end() -> None:
    text = "message A { B b = 1; A a = 2; map<int32, A> m = 3; } message B { A a = 1; repeated B c = 2; }"
    assert differences(file(text), file(text)) == []


# What each level says of: text that becomes bytes (only readers of the new one understand it), bytes that
# become text, neither, both.
WIDER = (m("string a = 1;"), m("bytes a = 1;"))
DIRECTIONS = {
    "backward": (WIDER[0], WIDER[1], {"BACKWARD", "BACKWARD_TRANSITIVE"}),
    "forward": (WIDER[1], WIDER[0], {"FORWARD", "FORWARD_TRANSITIVE"}),
    "both": (m(""), m("int32 a = 1;"), set(LEVELS)),
    "neither": (m("int32 a = 1;"), m("string a = 1;"), set()),
}


@pytest.mark.parametrize("name", DIRECTIONS)
@pytest.mark.parametrize("level", LEVELS)
def test_levels_and_directions(name: str, level: str) -> None:
    old, new, taken_by = DIRECTIONS[name]
    told = problems(loaded(new), [Earlier(1, old, loaded(old))], level)
    assert (not told) == (level in taken_by or level == "NONE"), told


def test_transitive_levels_look_at_all_versions() -> None:
    """1: text, 2: the field is gone, 3: a number."""
    first, second, third = m("string a = 1;"), m(""), m("int32 a = 1;")
    earlier = [Earlier(1, first, loaded(first)), Earlier(2, second, loaded(second))]
    for level in LEVELS:
        told = problems(loaded(third), earlier, level)
        assert bool(told) == level.endswith("TRANSITIVE")
    assert problems(loaded(third), [], "FULL") == []


def test_how_a_problem_is_told() -> None:
    """As Confluent's registry does: tools look for errorType and path."""
    old, new = m("int32 a = 1;"), m("string a = 1;")
    assert problems(loaded(new), [Earlier(3, old, loaded(old))], "BACKWARD") == [
        '{errorType:"FIELD_SCALAR_KIND_CHANGED", description:"The kind of a SCALAR field in the new schema does '
        "not match its kind in the old (path '#/M/1')\"}",
        "{oldSchemaVersion: 3}",
        "{oldSchema: 'message M { int32 a = 1; }'}",
        "{compatibility: 'BACKWARD'}",
    ]
    told = problems(loaded(m("")), [Earlier(1, "", loaded(m("") + "message N {}"))], "FULL")[0]
    assert "The new schema is missing a message type of the old (path '#/N')" in told
    told = problems(loaded(m("") + "message N {}"), [Earlier(1, "", loaded(m("")))], "FORWARD")[0]
    assert "The old schema is missing a message type of the new (path '#/N')" in told


def test_a_subject_may_change_its_type_at_level_none_only() -> None:
    earlier = [Earlier(1, '"int"', Loaded("AVRO", None))]  # of another type: nobody loads it
    for level in LEVELS:
        told = problems(loaded(m("")), earlier, level)
        assert bool(told) == (level != "NONE")
        assert not told or told[0] == "Incompatible because of different schema type: PROTOBUF after AVRO"


def test_all_fields_of_a_oneof_replaced() -> None:
    """What is set is then not known, though none of them is there; as Confluent's, where the oneof is."""
    writer = file(m("oneof o { int32 a = 1; string b = 2; }"))
    found = differences(file(m("oneof o { int32 c = 3; string d = 4; }")), writer)
    assert [f"{one.kind} {one.path}" for one in found] == [
        "ONEOF_FIELD_REMOVED #/M/1",
        "ONEOF_FIELD_REMOVED #/M/2",
    ]
    assert differences(file(m("oneof p { int32 c = 3; string d = 4; }")), writer) == []
