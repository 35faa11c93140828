"""AVRO schemas: what is one, which are the same, and what a schema means with those that it refers to."""

# ruff: noqa: E501 - tables of schemas, as people write them

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import pytest

from schema.registry.avro import defaults as avro_defaults
from schema.registry.avro import reading as avro_reading
from schema.registry.avro.reading import NAME_CHARS_MAX
from schema.registry.avro.rules import differences
from schema.registry.avro.schema import IMPORTED_BYTES_MAX, load, parse
from schema.registry.avro.text import DIGITS_MAX, LEVELS_MAX, TEXT_BYTES_MAX
from schema.registry.avro.types import Type, decimal_of
from schema.registry.kinds import KINDS
from schema.registry.parsed import IMPORTS_MAX, InvalidSchema

EVERYTHING = """
// as people write it
{
  "namespace": "shop", "name": "Order", "type": "record", "doc": "an order", "aliases": ["Purchase", "old.Order"],
  "owner": {"team": "b", "at": "a"},
  "fields": [
    {"name": "id", "type": "long", "order": "descending"},
    {"name": "note", "type": ["null", "string"], "default": null, "doc": "free text", "aliases": ["remark"]},
    {"name": "last", "type": ["null", "string"], "default": "of a later branch"},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "at", "type": {"logicalType": "timestamp-millis", "type": "long"}, "default": 0},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"], "default": "A"}, "default": "B"},
    {"name": "sum", "type": {"type": "fixed", "name": "common.Hash", "size": 2}, "default": "\\u0000\\u00ff"},
    {"name": "twice", "type": "common.Hash", "pii": true},
    {"name": "parts", "type": {"type": "array", "items": ["Order", "Kind"]}, "default": []},
    {"name": "tags", "type": {"type": "map", "values": "double"}, "default": {"x": 1, "y": 2.5}},
    {"name": "inner", "type": {"type": "record", "name": "Inner", "namespace": "", "fields": [
      {"name": "n", "type": "int", "default": -2147483648}]}, "default": {}} /* the last */
  ]
}
"""


def record(fields: str, name: str = "R") -> str:
    return f'{{"type": "record", "name": "{name}", "fields": [{fields}]}}'


def field(kind: str, default: str | None = None) -> str:
    """A record with one field."""
    more = "" if default is None else f', "default": {default}'
    return record(f'{{"name": "f", "type": {kind}{more}}}')


def enum(more: str = '"symbols": ["A"]', name: str = "E") -> str:
    return f'{{"type": "enum", "name": "{name}", {more}}}'


def refused(text: str, imports: Mapping[str, bytes] | None = None) -> str:
    """What is told."""
    with pytest.raises(InvalidSchema) as caught:
        parse(text, imports or {})
    return str(caught.value)


def test_everything_is_read_and_kept() -> None:
    one = parse(EVERYTHING, {})
    assert one.text.encode() == one.canonical, "with comments it would not be read by most clients"
    told = json.loads(one.canonical)
    assert [*told] == ["type", "name", "doc", "aliases", "fields", "owner"]
    assert (told["name"], told["aliases"]) == ("shop.Order", ["shop.Purchase", "old.Order"])
    assert told["fields"][1] == {
        "name": "note", "type": ["null", "string"], "doc": "free text", "default": None, "aliases": ["remark"],
    }  # fmt: skip
    assert told["fields"][7] == {"name": "twice", "type": "common.Hash", "pii": True}
    assert told["fields"][10]["type"]["namespace"] == "", "else it would be shop.Inner to readers"
    assert parse(one.text, {}) == one, "the canonical form is its own"
    assert parse(one.text, {}, normalize=True) == one
    assert differences(load(one.canonical, {}), load(one.canonical, {})) == []


def test_a_text_is_told_as_it_was_given() -> None:
    text = '{\n  "type": "string"\n}\n'
    assert parse(text, {}) == (again := parse(text, {}))
    assert (again.text, again.canonical) == (text, b'"string"')
    assert parse(text, {}, normalize=True).text == '"string"'


SAME = {
    "space": ('["null","int"]', ' [ "null" ,\n"int"]'),
    "an object for a name": ('"int"', '{"type": "int"}'),
    "order of attributes": (enum(), '{"symbols": ["A"], "name": "E", "type": "enum"}'),
    "unknown attributes in another order": ('{"type":"int","a":1,"b":{"c":1,"d":2}}',
                                           '{"b":{"d":2,"c":1},"type":"int","a":1}'),
    "namespace in the name": (enum(name="a.b.E"), enum('"namespace": "a.b", "symbols": ["A"]')),
    "the default order": (field('"int"'), record('{"name": "f", "type": "int", "order": "ascending"}')),
    "a comment": (enum(), f"/* {{ */ {enum()} // ["),
    "a doc where none belongs": ('{"type": "int", "doc": "x"}', '"int"'),
}  # fmt: skip
OTHER = {
    "doc": (enum(), enum('"symbols": ["A"], "doc": "x"')),
    "alias": (enum(), enum('"symbols": ["A"], "aliases": ["F"]')),
    "unknown attribute": ('"int"', '{"type": "int", "x": 1}'),
    "default": (field('"int"'), field('"int"', "0")),
    "order of fields": (record('{"name":"a","type":"int"},{"name":"b","type":"int"}'),
                        record('{"name":"b","type":"int"},{"name":"a","type":"int"}')),
    "order of a union": ('["null", "int"]', '["int", "null"]'),
    "namespace": (enum(), enum(name="a.E")),
    "slashes in a text": (field('"string"', '"//x"'), field('"string"', '"/*y*/"')),
}  # fmt: skip


@pytest.mark.parametrize("what", SAME)
def test_what_is_the_same(what: str) -> None:
    one, other = SAME[what]
    assert parse(one, {}).canonical == parse(other, {}).canonical


@pytest.mark.parametrize("what", OTHER)
def test_what_is_another(what: str) -> None:
    one, other = OTHER[what]
    assert parse(one, {}).canonical != parse(other, {}).canonical


TAKEN = {
    "a record that holds itself": field('["null", "R"]', "null"),
    "two types of one simple name in a union": f"[{enum(name='a.E')}, {enum(name='b.E')}]",
    "a union of the types of a file": f'[{enum()}, {record("", "R")}, "string", "bytes"]',
    "a name as the type of an object": record(f'{{"name":"a","type":{enum()}}},{{"name":"b","type":{{"type":"E"}}}}'),
    "an error": '{"type": "error", "name": "X", "fields": []}',
    "a fixed of no bytes": '{"type": "fixed", "name": "F", "size": 0}',
    "an invalid decimal": '{"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 9}',
    "a decimal without precision": '{"type": "bytes", "logicalType": "decimal"}',
    "a logical type in the wrong place": '{"type": "string", "logicalType": "date"}',
    "an unknown logical type": '{"type": "string", "logicalType": "colour"}',
    "a default of the enclosing type": record(
        '{"name": "me", "type": ["null", "R"], "default": {"me": null, "x": 1}}, {"name": "x", "type": "int"}'
    ),
    "a whole number for a double": field('"double"', "1"),
    "a type without a namespace in one that has": record(
        f'{{"name":"a","type":{enum(name="x.E")}}},{{"name":"b","type":{record("", "y.S")}}},{{"name":"c","type":"R"}}'
    ),
    "a record of Java's own attributes": '{"type": "map", "values": {"type": "string", "avro.java.string": "String"}}',
}  # fmt: skip


@pytest.mark.parametrize("what", TAKEN)
def test_what_is_taken(what: str) -> None:
    one = parse(TAKEN[what], {})
    assert parse(one.canonical.decode(), {}).canonical == one.canonical
    assert load(one.canonical, {}) is load(one.canonical, {}), "kept as it was read"


REFUSED = {
    "": "line 1, column 1: Expecting value",
    "string": 'a name alone is written "string", with quotes',
    '{"type": "record",\n "name" "R"}': "line 2, column 9: Expecting ':'",
    "/* {} // only": "line 1, column 1",
    "{}": "type: must be the name of a type, an object without it",
    "7": "7 is no type: give a name, an object or a list of types",
    '{"type": ["null", "int"]}': 'type: must be the name of a type, not ["null", "int"]',
    '"shop.Order"': '"shop.Order" is no known type: define it before it is named, or refer to the schema',
    field('"decimal"'): 'fields[0] "f" type: "decimal" is no known type',
    '[{"type": "array"}]': '[0]: array without "items"',
    '{"type": "map"}': 'map without "values"',
    "[]": "a union of no types",
    '["int", ["null"]]': "[1]: a union within a union",
    '["int", {"type": "int", "logicalType": "date"}]': "[1]: a second int in one union",
    '[{"type": "map", "values": "int"}, {"type": "map", "values": "long"}]': "[1]: a second map in one union",
    f'[{enum()}, "E"]': "[1]: a second enum E in one union",
    enum('"symbols": ["A", "A"]'): "symbols: E has one of its symbols twice",
    enum('"symbols": ["A", "a-b"]'): 'symbols[1]: "a-b" is no symbol',
    enum('"symbols": [1]'): "symbols[0]: 1 is no symbol",
    enum('"doc": ""'): "symbols: is missing: enum needs a list",
    enum('"symbols": ["A"], "default": "B"'): 'default: "B" is none of the symbols',
    enum(name="2E"): 'name: "2E" is no name',
    enum(name="a-b.E"): 'name: "a-b.E" is no name: it and parts of its namespace have letters, digits and _',
    enum(name=".E"): 'name: ".E" is no name',
    enum(name="string"): "name: string is a type of AVRO's",
    enum('"symbols": ["A"], "namespace": 5'): "namespace: must be a string, not 5",
    enum('"symbols": ["A"], "aliases": ["x y"]'): 'aliases: "x y" is no name',
    enum('"symbols": ["A"], "aliases": "x"'): 'aliases: must be a list of names, not "x"',
    '{"type": "enum", "symbols": []}': "name: enum needs one, a string, not null",
    record(f'{{"name":"a","type":{enum()}}},{{"name":"b","type":{enum()}}}'):
        'fields[1] "b" type name: E is defined already',
    '{"type": "fixed", "name": "F", "size": -1}': "size: must be a number of bytes, 0 to 2147483647, not -1",
    '{"type": "fixed", "name": "F", "size": true}': "size: must be a number of bytes",
    '{"type": "fixed", "name": "F"}': "size: must be a number of bytes, 0 to 2147483647, not null",
    '{"type": "record", "name": "R"}': "fields: is missing: record needs a list",
    record("5"): "fields[0]: 5 is no field",
    record('{"name": "a b", "type": "int"}'): 'fields[0] name: "a b" is no name',
    record('{"name": "a"}'): 'fields[0] "a": a field without "type"',
    record('{"name": "a", "type": "int"}, {"name": "a", "type": "int"}'): 'a second field "a" in R',
    record('{"name": "a", "type": "int", "order": "up"}'): 'fields[0] "a" order: "up" is none of ascending',
    field('"int"', "NaN"): "NaN is no number of JSON",
    field('"double"', "1e999"): "the number 1e999 is beyond what a double holds",
    field('"string"', '"\\ud800"'): "half a character",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_and_where(text: str) -> None:
    assert REFUSED[text] in refused(text)


FIXED, MAP = '{"type": "fixed", "name": "F", "size": 1}', '{"type": "map", "values": "int"}'
DEFAULTS = [  # type, what is a default of it, what is none
    ('"null"', ["null"], ["0", '"null"']),
    ('"boolean"', ["true"], ["0", '"true"']),
    ('"int"', ["0", "2147483647"], ["2147483648", "1.0", "true", '"1"', "null"]),
    ('"long"', ["-9223372036854775808"], ["9223372036854775808"]),
    ('"float"', ["0.5", "3"], ["true", '"0"']),
    ('"bytes"', ['"\\u00ff"', '""'], ['"\\u0100"', "[1]"]),
    ('"string"', ['"\\u0100"'], ["1", "null"]),
    (FIXED, ['"x"'], ['"xy"', '""', '"\\u0100"']),
    (enum(), ['"A"'], ['"B"', "0", "[]"]),
    ('{"type": "array", "items": "int"}', ["[]", "[1, 2]"], ["{}", '[1, "2"]']),
    (MAP, ["{}", '{"a": 1}'], ["[]", '{"a": null}']),
    ('["null", "int"]', ["null", "5"], ['"5"', "{}"]),
    (record('{"name": "a", "type": "int"}', "S"), ['{"a": 1}', '{"a": 1, "b": 2}'], ["{}", '{"a": ""}', "null"]),
    (record('{"name": "a", "type": "int", "default": 1}', "S"), ["{}"], ['{"a": []}']),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "good", "bad"), DEFAULTS, ids=[row[0][:30] for row in DEFAULTS])
def test_defaults(kind: str, good: list[str], bad: list[str]) -> None:
    for default in good:
        parse(field(kind, default), {})
    for default in bad:
        assert 'fields[0] "f" default: ' in refused(field(kind, default))
    assert refused(field('["null", "int"]', '"x"')) == (
        'fields[0] "f" default: "x" is no value of union of null, int: give a value of the type, or none'
    )


def test_decimals_that_are_invalid_are_plain_bytes() -> None:
    """As Java's library ignores them."""
    made = '{{"type": "fixed", "name": "D", "size": 2, "logicalType": "decimal", {}}}'
    rows = {'"precision": 4, "scale": 1': (4, 1), '"precision": 4': (4, 0), '"precision": 5': None,
            '"precision": 2, "scale": 3': None, '"precision": 0': None, '"precision": "4"': None}  # fmt: skip
    for said, expected in rows.items():
        assert decimal_of(load(parse(made.format(said), {}).canonical, {})) == expected, said
    assert decimal_of(load(b'{"type":"string","logicalType":"decimal","precision":4}', {})) is None


def test_names_are_looked_for_as_java_does() -> None:
    """In the namespace around them, then without one."""
    text = record(f'{{"name":"a","type":{enum()}}},{{"name":"b","type":"E"}}', "x.R")
    assert b'{"name":"b","type":"x.E"}' in parse(text, {}).canonical
    b = '{"name":"b","type":"E"}'
    outside = f"[{enum()}, {record(b, 'x.R')}]"
    assert b'{"name":"b","type":"E"}' in parse(outside, {}).canonical


def canonicals(**texts: str) -> dict[str, bytes]:
    """Schemas by the names of references, each after those that it needs."""
    found: dict[str, bytes] = {}
    for name, text in texts.items():
        found[name.replace("_", ".")] = parse(text, found).canonical
    return found


def test_types_of_schemas_that_it_refers_to() -> None:
    """Over levels, whatever the order; the second type of one, too."""
    imports = canonicals(
        z_Money=record(f'{{"name": "unit", "type": {enum(name="z.Unit")}}}', "z.Money"),
        a_Line=record('{"name": "price", "type": "z.Money"}', "a.Line"),
        m_Order=record('{"name": "lines", "type": {"type": "array", "items": "a.Line"}}', "m.Order"),
    )
    text = record(
        '{"name": "o", "type": "m.Order"}, {"name": "u", "type": "z.Unit", "default": "A"}', "top.T"
    )
    one = parse(text, imports)
    assert one.canonical == parse(text, dict(reversed(imports.items()))).canonical
    assert b'"type":"m.Order"' in one.canonical
    loaded = load(one.canonical, imports)
    inner = loaded.fields[0].type.fields[0].type.items
    assert inner is not None
    assert inner.fields[0].type.name == "z.Money"
    assert 'fields[0] "o" type: "m.Order" is no known type' in refused(text)
    assert "z.Money is defined already" in refused(record("", "z.Money"), imports)
    twice = {"one": imports["z.Money"], "two": imports["z.Money"]}
    assert "reference two: name: z.Money is defined already" in refused('"int"', twice)
    assert parse('["z.Unit", "z.Money"]', imports).canonical == b'["z.Unit","z.Money"]'


def test_bombs_are_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = f"more than {LEVELS_MAX} levels of lists and objects"
    for text in ("[" * 100_000, '{"type":' * 100_000, '{"type":"array","items":' * 40_000):
        assert deep in refused(text)
    assert "line 1, column 1" in refused('"' + '\\"' * 500_000)
    assert "line 1, column 1" in refused("/* " * 300_000)
    assert "line 1, column 800008: Expecting value" in refused('[1, //"' + '/* "' * 200_000)
    assert f"at most {TEXT_BYTES_MAX}" in refused(f'"{"ä" * (TEXT_BYTES_MAX // 2)}"')
    assert f"at most {DIGITS_MAX} are read" in refused("9" * 1_000_000)
    assert "no valid Unicode" in refused('"\ud800"')
    assert f"the limit is {IMPORTS_MAX}" in refused(
        '"int"', {f"i{n}": b'"int"' for n in range(IMPORTS_MAX + 1)}
    )
    assert "…" in refused(f'"{"x" * 1_000}"'), "what is wrong is not told in full"
    long = "x" * (NAME_CHARS_MAX + 1)
    for text in (
        enum(name=long),
        enum(name="x." * 500 + "E"),
        record(f'{{"name": "{long}", "type": "int"}}'),
    ):
        assert "is no name: " in refused(text)
    parse(enum(name=long[1:]), {})
    large = {str(n): b" " * TEXT_BYTES_MAX for n in range(IMPORTED_BYTES_MAX // TEXT_BYTES_MAX + 1)}
    assert f"at most {IMPORTED_BYTES_MAX} are read" in refused('"int"', large)
    monkeypatch.setattr(avro_reading, "NAMED_MAX", 2)
    assert "more than 2 named types" in refused(f"[{enum(name='A')}, {enum(name='B')}, {enum(name='C')}]")


def test_what_is_just_as_deep_is_read() -> None:
    """Frames of Python are bounded as levels are: nothing ends in RecursionError."""
    inside = LEVELS_MAX - 1
    text = '{"type":"array","items":' * inside + '["int"]' + "}" * inside
    assert load(parse(text, {}).canonical, {}).kind == "array"
    depth = (LEVELS_MAX - 4) // 2
    value = '[{"f":' * depth + "[]" + "}]" * depth
    parse(field('["null", {"type": "array", "items": ["null", "R"]}]', value), {})
    nested = '"int"'
    for level in range(LEVELS_MAX // 4):
        nested = record(f'{{"name": "f", "type": ["null", {nested}]}}', f"R{level}")
    one = parse(nested, {})
    assert differences(load(one.canonical, {}), load(one.canonical, {})) == []


def test_defaults_that_multiply_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value in a value may be of two records: tried anew each time, that were 2 ** 50 tries."""
    inside = record('{"name": "f", "type": ["int", "A", "B"]}', "B")
    value = '{"f": ' * 50 + '"no"' + "}" * 50
    text = record(f'{{"name": "f", "type": ["int", "A", {inside}], "default": {value}}}', "A")
    assert "is no value of union of int, record A, record B" in refused(text)
    monkeypatch.setattr(avro_defaults, "STEPS_MAX", 50)
    assert "defaults of more than 50 values" in refused(
        field('{"type": "array", "items": "int"}', str([*range(99)]))
    )


def test_it_is_a_type_of_the_registry() -> None:
    kind = KINDS["AVRO"]
    form = kind.parse('["int", "string"]', {}).canonical
    assert [one.kind for one in kind.differences(kind.load(b'"int"', {}), kind.load(form, {}))] == [
        "TYPE_MISMATCH"
    ]


def test_an_enum_s_symbols_are_gone_through_once_for_all_defaults() -> None:
    """Thousands of defaults, each against tens of thousands of symbols, took a schema of 1 MiB seconds."""
    looks = 0

    class Symbols(tuple[str, ...]):
        def __iter__(self) -> Iterator[str]:
            nonlocal looks
            looks += 1
            return super().__iter__()

        def __contains__(self, symbol: object) -> bool:
            raise AssertionError("goes through all of them for one default")

    wanted, waiting = (
        Type("enum", "E", symbols=Symbols(f"S{n}" for n in range(1_000))),
        avro_defaults.Defaults(),
    )
    for number in range(1_000):
        waiting.later(wanted, f"S{number}", f"/fields/{number}/default")
    waiting.check()
    assert looks == 1
    waiting.later(wanted, "S1000", "/fields/0/default")
    with pytest.raises(InvalidSchema, match='"S1000" is no value of enum E'):
        waiting.check()


@pytest.mark.parametrize(
    "mark", ['"floe.redact": "remove"', '"confluent:tags": ["PII"]', '"confluent.tags": ["PII"]']
)
@pytest.mark.parametrize("exact", [False, True])
def test_a_mark_beside_the_name_of_a_type_is_refused(mark: str, exact: bool) -> None:
    """It is no part of the schema (as Java has it), so nothing would be kept from anybody."""
    card = '{"type": "record", "name": "a.Card", "fields": []}'
    name = "a.Card" if exact else "Card"
    fields = (
        f'{{"name": "c", "type": {card}}}, {{"name": "d", "type": ["null", {{"type": "{name}", {mark}}}]}}'
    )
    text = f'{{"type": "record", "name": "a.R", "fields": [{fields}]}}'
    with pytest.raises(
        InvalidSchema, match=r"beside the name of a type marks nothing: mark the field that has it, or"
    ):
        parse(text, {})
    parse(text.replace(mark, '"owner": "x"'), {})
