"""JSON schemas: what is one, which are the same, and where references lead."""

# ruff: noqa: E501 - schemas, each in a row

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from schema.registry.json.graph import CHAIN_MAX
from schema.registry.json.patterns import PATTERN_MAX, PATTERNS_MAX
from schema.registry.json.schema import differences, load, parse
from schema.registry.json.text import DIGITS_MAX, NESTING_MAX, TEXT_BYTES_MAX
from schema.registry.parsed import IMPORTS_MAX, InvalidSchema

D4, D6, D7 = (f"http://json-schema.org/draft-0{number}/schema#" for number in (4, 6, 7))
D2019, D2020 = (f"https://json-schema.org/draft/{name}/schema" for name in ("2019-09", "2020-12"))
STRING = b'{"type":"string"}'


def takes(schema: Any, imports: dict[str, bytes] | None = None) -> bytes:
    """The canonical form; it can be loaded."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    form = parse(text, imports or {}).canonical
    load(form, imports or {})
    return form


@pytest.mark.parametrize(
    "schema",
    [
        *({"$schema": each, "type": "object"} for each in (D4, D6, D7, D2019, D2020)),
        *({"$schema": each} for each in ("https://json-schema.org/draft-07/schema", D7.removesuffix("#"))),
        *(True, False, {}, {"x-anything": [1, {"y": None}], "$comment": "c"}),
        {"type": "string", "minLength": 2.0},
        {"pattern": "^(?=.*[a-z])(?!x)", "patternProperties": {"(a+)+$": {}, "\\p{L}": {}}},
        {"$ref": D7},
        {"$id": "urn:example:a", "properties": {"a": {"$ref": "#/definitions/b"}}, "definitions": {"b": {}}},
        {"properties": {"$ref": {"type": "string"}, "$id": {"type": "string"}, "items": {}}},
        {"enum": [{"$ref": "#/nowhere"}], "default": {"$ref": "#/nowhere"}},
        {"definitions": {"a": {"properties": {"a": {"$ref": "#/definitions/a"}}}}, "$ref": "#/definitions/a"},
        {"components": {"a": {"type": "string"}}, "$ref": "#/components/a"},
    ],
)
def test_what_is_a_schema(schema: Any) -> None:
    takes(schema)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"type": "string",\n  }', "line 2, column 3"),
        ('{"type": }', "line 1, column 10"),
        ('{"a": NaN}', "NaN is no number of JSON"),
        ('{"a": -Infinity}', "is no number of JSON"),
        ('{"a": {"b": [{"c": 1, "c": 2}]}}', '#/a/b/0: "c" stands there twice'),
        ('{"$schema": "http://example.com/mine"}', f"{D2019}, {D2020}"),
        ('{"$schema": 7}', "#/$schema: 7 is unknown"),
        ('{"type": "strin"}', '#/type: "strin"'),
        ('{"properties": {"a/b": {"minLength": -1}}}', "#/properties/a~1b/minLength: -1 is less than the minimum"),
        ('{"multipleOf": 0}', "#/multipleOf"),
        ('{"required": "a"}', "#/required"),
        ('{"items": 7}', "#/items"),
        ("7", "#: 7 is not of type"),
        ('"string"', "#: 'string' is not of type"),
        (f'{{"$schema": "{D4}", "exclusiveMaximum": 3}}', "#/exclusiveMaximum"),
        (f'{{"$schema": "{D7}", "exclusiveMaximum": true}}', "#/exclusiveMaximum"),
        (f'{{"$schema": "{D2020}", "items": [{{}}]}}', "#/items"),
        (f'{{"properties": {{"a": {{"$schema": "{D2020}"}}}}}}', "#/properties/a/$schema: a document is of one draft"),
        ('{"pattern": "(("}', 'pattern "((" is none'),
        ('{"patternProperties": {"[": {}}}', 'pattern "[" is none'),
        ('{"enum": ["\\ud800"]}', "half a surrogate pair"),
        ('{"$ref": "#/definitions/a"}', '#/$ref: "#/definitions/a" leads to no schema'),
        ('{"$ref": "#a"}', '"#a" leads to no schema'),
        ('{"$ref": "#/required", "required": []}', "leads to no schema"),
        ('{"definitions": {"a": {"$ref": "other.json"}}}', "#/definitions/a/$ref: \"other.json\" is neither"),
        ('{"$ref": "http://127.0.0.1:1/x.json"}', "nothing is fetched"),
        ('{"$ref": "file:///etc/hostname"}', "nothing is fetched"),
        ('{"$ref": "http://[#a"}', "is no address"),
        ('{"$id": "http://a.example/b", "allOf": [{"$ref": "http://["}]}', "is no address"),
        ('{"$id": "http://[#a"}', "is no address"),
        ('{"$ref": "#"}', "#: it refers to itself for the same value"),
        ('{"components": {"a": {"type": 7}}, "$ref": "#/components/a"}', "7 is not valid"),
        (
            '{"definitions": {"a": {"anyOf": [{"$ref": "#/definitions/b"}]}, "b": {"not": {"$ref": "#/definitions/a"}}}}',
            "refers to itself for the same value",
        ),
    ],
)  # fmt: skip
def test_what_is_no_schema(text: str, words: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse(text, {})
    assert words in str(caught.value)


def nested(levels: int) -> str:
    return '{"not":' * levels + "{}" + "}" * levels


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (nested(NESTING_MAX), f"more than {NESTING_MAX} levels"),
        ("[" * 500_000, f"more than {NESTING_MAX} levels"),
        ('{"a":' * 200_000, f"more than {NESTING_MAX} levels"),
        ('{"description": "' + "x" * TEXT_BYTES_MAX + '"}', f"the limit is {TEXT_BYTES_MAX}"),
        ('{"a": ' + "9" * (DIGITS_MAX + 1) + "}", f"{DIGITS_MAX} at most"),
        ('{"a": 1e99999999999999999999}', f"{DIGITS_MAX} at most"),
        ('{"a": 1e-1001}', f"{DIGITS_MAX} at most"),
        ('{"pattern": "' + "x" * (PATTERN_MAX + 1) + '"}', f"the limit is {PATTERN_MAX}"),
    ],
    ids=["nested", "brackets", "objects", "size", "digits", "exponent", "small", "pattern"],
)
def test_bounds(text: str, words: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse(text, {})
    assert words in str(caught.value)
    assert len(str(caught.value)) < 1_000


def test_within_bounds() -> None:
    """The deepest, in each draft, and numbers that are none to a float."""
    for draft in (D4, D6, D7, D2019, D2020):
        text = f'{{"$schema": "{draft}", "properties": {{"a": {nested(NESTING_MAX - 3)}}}}}'
        with pytest.raises(InvalidSchema, match="schemas in a chain") if NESTING_MAX > CHAIN_MAX else _fine():
            takes(text)
    assert takes('{"maximum":1e400,"minimum":-123456789012345678901234567890}')
    assert takes('{"enum": ["[[[[", "\\"[", "{"]}')
    links = {f"d{n}": {"$ref": f"#/definitions/d{n + 1}"} for n in range(CHAIN_MAX)}
    with pytest.raises(InvalidSchema, match="schemas in a chain"):
        parse(json.dumps({"definitions": {**links, f"d{CHAIN_MAX}": {}}}), {})


class _fine:
    """Nothing is expected to go wrong."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_the_same_schema() -> None:
    """As with Confluent's registry: white space does not count, the order of keys and the form of numbers do."""
    one = '{"type": "object",\n "properties": {"a": {"maximum": 1.0}}}'
    assert (
        takes(one) == takes(one.replace("\n", "").replace(" ", "")) == takes(one.replace('"a"', '"\\u0061"'))
    )
    assert takes(one) == b'{"type":"object","properties":{"a":{"maximum":1.0}}}'
    assert takes(one) != takes(one.replace("1.0", "1"))
    turned = '{"properties": {"a": {"maximum": 1.0}}, "type": "object"}'
    assert takes(one) != takes(turned)
    first, second = (parse(text, {}, normalize=True) for text in (one, turned))
    assert first == second
    assert first.text == '{"properties":{"a":{"maximum":1.0}},"type":"object"}' == first.canonical.decode()
    assert parse(one, {}).text == one
    assert takes('{"const":"ä€\\n"}') == '{"const":"ä€\\n"}'.encode()


@pytest.mark.parametrize("text", ['{"maximum":1e400}', '{"enum":[1,1.0,1.50,-0.0,"1",true]}', "true"])
def test_what_is_canonical_stays_so(text: str) -> None:
    form = takes(text)
    assert takes(form.decode()) == form


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({"$ref": "other.json"}, "other.json"),
        ({"$ref": "./other.json"}, "other.json"),
        ({"$ref": "other.json#"}, "other.json"),
        ({"$id": "http://example.com/s/root.json", "$ref": "#/definitions/a", "definitions": {"a": {"$ref": "other.json"}}}, "other.json"),
        ({"$id": "http://example.com/s/root.json", "allOf": [{"$ref": "http://example.com/s/other.json"}]}, "other.json"),
        ({"$schema": D2020, "$id": "http://example.com/s/root.json", "$ref": "/t/other.json"}, "http://example.com/t/other.json"),
        ({"$ref": "http://example.com/other.json"}, "http://example.com/other.json"),
        ({"$ref": "com.example.Other"}, "com.example.Other"),
        ({"$ref": "urn:example:other"}, "urn:example:other"),
    ],
)  # fmt: skip
def test_references_by_name(schema: Any, name: str) -> None:
    """A reference's name is the `$ref`, or what that is relative to `$id`."""
    with pytest.raises(InvalidSchema, match=r"is neither in the schema nor the name of a reference \(none"):
        takes({"allOf": [schema]} if "$id" not in schema else schema)
    found = load(takes(schema, {name: STRING}), {name: STRING})
    text, number = (load(takes({"type": kind}), {}) for kind in ("string", "number"))
    assert differences(text, found) == []
    assert [one.kind for one in differences(number, found)] == ["TYPE_CHANGED"]


def test_references_of_references_and_into_them() -> None:
    imports = {
        "money.json": b'{"$id":"http://example.com/money.json","definitions":{"unit":{"type":"string"}}}',
        "item.json": b'{"properties":{"unit":{"$ref":"money.json#/definitions/unit"},"list":{"$ref":"order.json"}}}',
        "order.json": b'{"items":{"$ref":"item.json"}}',
    }
    schema = {
        "type": "object",
        "properties": {"item": {"$ref": "item.json"}, "u": {"$ref": "money.json#/definitions/unit"}},
    }
    assert takes(schema, imports)
    with pytest.raises(InvalidSchema, match=r"item\.json#/properties/unit/\$ref"):
        takes({"$ref": "item.json"}, {"item.json": imports["item.json"], "order.json": imports["order.json"]})
    with pytest.raises(InvalidSchema, match="leads to no schema"):
        takes({"$ref": "money.json#/definitions/none"}, imports)


@pytest.mark.parametrize(
    "form", [b"\n\x08a.proto\xff", b'"int"', b'{"type":"record","name":"R","fields":[]}']
)
def test_references_of_other_types_are_none(form: bytes) -> None:
    with pytest.raises(InvalidSchema, match="reference other: no JSON schema"):
        parse('{"$ref": "other"}', {"other": form})


def test_too_many_references() -> None:
    with pytest.raises(InvalidSchema, match="257 imported schemas"):
        parse("{}", {f"r{n}": STRING for n in range(IMPORTS_MAX + 1)})


def test_names_inside_a_document() -> None:
    """`$id` and anchors inside, and what `$ref` says of keywords beside it, per draft."""
    text, number = (load(takes({"type": kind}), {}) for kind in ("string", "number"))
    for schema in (
        {"$schema": D7, "$ref": "#t", "definitions": {"t": {"$id": "#t", "type": "string"}}},
        {"$schema": D7, "$ref": "#/definitions/t", "type": "number", "definitions": {"t": {"type": "string"}}},
        {"$schema": D7, "allOf": [{"$ref": "t.json"}], "definitions": {"t": {"$id": "t.json", "type": "string"}}},
        {"$schema": D4, "allOf": [{"$ref": "t.json"}], "definitions": {"t": {"id": "t.json", "type": "string"}}},
        {"$schema": D2019, "$ref": "#t", "$defs": {"t": {"$anchor": "t", "type": "string"}}},
        {"$schema": D2020, "$ref": "t#u", "$defs": {"t": {"$id": "t", "$defs": {"x": {"$anchor": "u", "type": "string"}}}}},
        {"$schema": D2020, "$ref": "#/$defs/a~1b%25", "$defs": {"a/b%": {"type": "string"}}},
    ):  # fmt: skip
        found = load(takes(schema), {})
        assert differences(text, found) == [], schema
        assert differences(number, found) != [], schema
    both = load(
        takes({"$schema": D2020, "$ref": "#/$defs/t", "maxLength": 3, "$defs": {"t": {"type": "string"}}}), {}
    )
    assert [one.kind for one in differences(both, text)] == ["MAX_LENGTH_ADDED"]


def test_patterns_are_compiled_and_never_run_away() -> None:
    """Listed values are matched in linear time, or nothing is concluded."""
    slow = load(takes({"pattern": "^(a+)+$"}), {})
    listed = load(takes({"enum": ["a" * 5_000 + "b"]}), {})
    assert [one.kind for one in differences(slow, listed)] == ["ENUM_ARRAY_CHANGED"]
    ahead = load(takes({"pattern": "^(?=(a+)+$)"}), {})
    assert [one.kind for one in differences(ahead, listed)] == ["PATTERN_ADDED"]


MANY = 100_000
HOSTILE = {
    "a text that does not end": '"' + '\\"' * 4 * MANY,
    "names that stand there once, but the last": "{"
    + "".join(f'"{n}":0,' for n in range(MANY))
    + '"x":0,"x":0}',
    "a type that is a list of anything": json.dumps({"type": [None, *range(MANY)]}),
    "names that are none": json.dumps({"dependencies": {"a": [None, *range(MANY)]}}),
    "values of many types, of which each is to be another": json.dumps(
        {"$schema": D4, "enum": [None, *range(MANY), 1]}
    ),
    "objects, of which each is to be another": json.dumps(
        {"$schema": D4, "enum": [*({"a": n} for n in range(50_000)), {"a": 1}]}
    ),
}


@pytest.mark.timeout(60, method="thread")
@pytest.mark.parametrize("name", HOSTILE)
def test_lists_are_looked_at_in_linear_time(name: str) -> None:
    """Each item with each would take an hour of a core, for a text of less than 1 MiB."""
    with pytest.raises(InvalidSchema):
        parse(HOSTILE[name], {})


def test_values_are_told_apart_as_the_specification_has_it() -> None:
    takes({"$schema": D4, "enum": [1, True, "1", [1], None, 2.5]})
    for twice in ([1, 1.0], [{"a": [1]}, {"a": [1.0]}], ["a", "a"]):
        with pytest.raises(InvalidSchema, match="#/enum"):
            parse(json.dumps({"$schema": D4, "enum": twice}), {})


def test_long_names_are_no_matter() -> None:
    """Each schema below one has its name in its place: thousands of times what was sent."""
    name = "n" * 100_000
    schema = {"properties": {name: {"properties": {f"p{n}": {"type": "string"} for n in range(5_000)}}}}
    tracemalloc.start()
    try:
        form = parse(json.dumps(schema), {}).canonical
        load(form, {})
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()
    with pytest.raises(InvalidSchema, match=r"#/properties/n{60}…n{60} \(100000 characters\)/type: "):
        parse(json.dumps({"properties": {name: {"type": 7}}}), {})


DIAMONDS = ("allOf", "anyOf", "oneOf", "then")


@pytest.mark.timeout(60, method="thread")
@pytest.mark.parametrize("keyword", DIAMONDS)
def test_schemas_that_share_others_over_and_over(keyword: str) -> None:
    """Forty levels with two ways on each: a value is held against each schema once, not 2⁴⁰ times."""
    ways = [{"$ref": "#/definitions/d%d"}, {"$ref": "#/definitions/d%d"}]
    held: Any = {"if": ways[0], "then": ways[1]} if keyword == "then" else {keyword: ways}
    text = json.dumps(held)
    definitions = {f"d{n}": json.loads(text.replace("%d", str(n + 1))) for n in range(40)}
    definitions["d40"] = {"type": "string"}
    shares = takes({"definitions": definitions, "$ref": "#/definitions/d0"})
    listed = takes({"enum": ["a", "b"]})
    told = differences(load(shares, {}), load(listed, {}))
    assert bool(told) == (keyword == "oneOf")  # both take it, and just one should
    differences(load(listed, {}), load(shares, {}))


@pytest.mark.timeout(60, method="thread")
def test_many_names_with_many_patterns() -> None:
    """Each name is held against each pattern: the comparison ends by its steps, not by the clock."""
    patterns = {f"^x{n}$": {"type": "string"} for n in range(PATTERNS_MAX - 1)}
    properties = {f"p{n}": {"type": "string"} for n in range(10_000)}
    one = takes({"properties": properties, "patternProperties": patterns})
    other = takes({"properties": properties, "patternProperties": {**patterns, "^y$": {}}})
    assert [one.kind for one in differences(load(one, {}), load(other, {}))] == ["NOT_COMPARED"]
    with pytest.raises(InvalidSchema, match=f"more than {PATTERNS_MAX} patterns"):
        parse(json.dumps({"patternProperties": {**patterns, "^y$": {}, "^z$": {}}}), {})
