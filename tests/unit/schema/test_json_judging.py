"""Records that are JSON of their schema, and those that are not: where, and why."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

from schema.registry.json import rules, text
from schema.registry.json import schema as json_schema
from schema.registry.json.judging import Judge

LINE = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "state": {"enum": ["open", "done"]},
        "code": {"type": "string", "pattern": "^[A-Z]{2}$", "maxLength": 2},
        "lines": {"type": "array", "items": LINE, "maxItems": 2, "uniqueItems": True},
        "note": {"oneOf": [{"type": "null"}, {"type": "string", "minLength": 1}]},
        "price": {"multipleOf": 0.01, "exclusiveMaximum": 10},
    },
    "required": ["id"],
    "additionalProperties": False,
}


def judge(said: Any) -> Judge:
    return Judge(json_schema.load(json_schema.parse(json.dumps(said), {}).canonical, {}).root)


@pytest.mark.parametrize(
    "text",
    [
        '{"id": 1}',
        '{"id": 1.0, "price": 9.99, "lines": [{"n": 1}, {"n": 2}], "note": null}',
        '{"id": 123456789012345678901234567890, "state": "done", "note": "\\ud83d\\ude00"}',
    ],
)
def test_a_record_of_the_schema(text: str) -> None:
    assert judge(ORDER).problem(text.encode()) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "no JSON that is taken: line 1, column 2"),
        ('{"id": 1} x', "no JSON that is taken: line 1, column 11: Extra data"),
        ('{"id": 1, "id": 2}', 'no JSON that is taken: #: "id" stands there twice: remove one of them'),
        ('{"id": NaN}', "NaN is no number of JSON"),
        ('{"id": 1e99999}', "digits and exponent may be 1000 at most"),
        ("[" * 101 + "]" * 101, "more than 100 levels"),
        ('{"id": "\\ud800"}', "half a surrogate pair"),
        (b'{"id": "\xff"}', "no JSON: invalid UTF-8 at byte 8"),
        ("7", "is integer, and not object"),
        ("{}", "property `id` is missing"),
        ('{"id": 1.5}', "field `id`: is a number with a fraction, and not integer"),
        ('{"id": 1, "other": 1}', "field `other`: nothing may stand here"),
        ('{"id": 1, "state": "gone"}', 'field `state`: "gone" is none of the listed values: "open", "done"'),
        ('{"id": 1, "code": "ab"}', 'field `code`: "ab" breaks pattern "^[A-Z]{2}$"'),
        ('{"id": 1, "code": "ABC"}', 'field `code`: "ABC" breaks maxLength 2 with 3'),
        ('{"id": 1, "lines": [{"n": 1}, {"n": 0}]}', "field `lines[1].n`: 0 breaks minimum 1"),
        ('{"id": 1, "lines": [{"n": 1}, {"n": 1.0}]}', "breaks uniqueItems"),
        ('{"id": 1, "note": ""}', 'field `note`: "" breaks minLength 1 with 0'),
        ('{"id": 1, "note": 5}', "field `note`: fits none of the 2 alternatives of oneOf, and must fit one"),
        ('{"id": 1, "price": 1.005}', "field `price`: 1.005 breaks multipleOf 0.01"),
        ('{"id": 1, "price": 10}', "field `price`: 10 breaks exclusiveMaximum 10"),
    ],
)
def test_no_record_of_the_schema(text: str | bytes, reason: str) -> None:
    payload = text if isinstance(text, bytes) else text.encode()
    problem = judge(ORDER).problem(payload)
    assert problem is not None
    assert reason in problem


@pytest.mark.parametrize(
    ("said", "text", "reason"),
    [
        ({"not": {"type": "string"}}, '"x"', "is what `not` excludes"),
        ({"if": {"type": "integer"}, "then": {"maximum": 3}, "else": False}, "4", "4 breaks maximum 3"),
        ({"if": {"type": "integer"}, "then": {"maximum": 3}, "else": False}, '"x"', "nothing may stand here"),
        ({"contains": {"const": 1}}, "[2]", "items that `contains` asks for"),
        ({"propertyNames": {"maxLength": 1}}, '{"ab": 1}', 'field `ab`: "ab" breaks maxLength 1 with 2'),
        ({"patternProperties": {"^a": {"type": "null"}}}, '{"ab": 1}', "`ab`: is integer, and not null"),
        ({"pattern": "^(?=a)"}, '"a"', "cannot be judged: pattern"),
        (
            {"properties": {"a": {"pattern": "^(?=x)"}, "b": {}}},
            '{"a": "y", "b": 1}',
            "field `a`: cannot be judged: pattern",
        ),
        ({"anyOf": [{"pattern": "^(?=x)"}, False]}, '"y"', "cannot be judged"),
        (
            {"$schema": "https://json-schema.org/draft/2020-12/schema", "unevaluatedProperties": False,
             "allOf": [{"properties": {"a": {}}}]},
            '{"a": 1}',
            "cannot be judged: Floe does not apply unevaluatedProperties here",
        ),
    ],
)  # fmt: skip
def test_keywords_of_schemas_within_schemas(said: Any, text: str, reason: str) -> None:
    problem = judge(said).problem(text.encode())
    assert problem is not None
    assert reason in problem


def test_a_pattern_is_matched_in_linear_time() -> None:
    """Python's own expressions take hours for this one."""
    problem = judge({"type": "string", "pattern": "^(a+)+$"}).problem(b'"' + b"a" * 10_000 + b'!"')
    assert problem is not None
    assert "breaks pattern" in problem


def test_a_schema_cannot_make_much_work_of_little() -> None:
    """Alternatives within alternatives, 4 ** 12 of them for each value: work is bounded by the bytes."""
    definitions: dict[str, Any] = {"d0": {"type": "string"}}
    for depth in range(1, 40):
        inside = {"properties": {"a": {"$ref": f"#/definitions/d{depth - 1}"}}}
        definitions[f"d{depth}"] = {"anyOf": [{**inside, "minProperties": each} for each in range(4)]}
    wide = {"anyOf": [{"required": [f"p{each}"]} for each in range(3_000)]}
    found = judge({"definitions": definitions, "allOf": [{"$ref": "#/definitions/d39"}, wide]})
    problem = found.problem(b"{}")
    assert problem is not None
    assert "too much to judge" in problem


class Counted:
    """Numbers with a fraction, as they are frozen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        monkeypatch.setattr(text, "Fraction", self)

    def __call__(self, value: Any) -> Fraction:
        self.count += 1
        return Fraction(value)


LARGE = {"p": [each + 0.5 for each in range(100)]}
DOUBLE = [*LARGE["p"], 0.5]


@pytest.mark.parametrize(
    ("alternatives", "value", "reason"),
    [
        ([{"enum": [{"x": each}]} for each in range(50)], LARGE, "fits none of the 50 alternatives"),
        ([{"enum": [each]} for each in range(50)], LARGE, "fits none of the 50 alternatives"),
        ([{"uniqueItems": True, "maxItems": 200 + each} for each in range(50)], DOUBLE, "fits none"),
        ([{"const": {"x": {"p": each}}} for each in range(50)], {"x": LARGE}, "fits none of the 50"),
    ],
)  # fmt: skip
def test_a_value_is_held_against_lists_of_many_schemas_and_frozen_once(
    alternatives: list[Any], value: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, counted = judge({"anyOf": alternatives}), Counted(monkeypatch)
    assert reason in str(found.problem(json.dumps(value).encode()))
    assert counted.count <= 101


def test_listed_values_are_frozen_once_for_a_whole_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded(said: Any) -> json_schema.Loaded:
        return json_schema.load(json_schema.parse(json.dumps(said), {}).canonical, {})

    reader = loaded({"anyOf": [{"enum": [{"x": each}, {"y": each}]} for each in range(50)]})
    writer, counted = loaded({"enum": [LARGE, 7]}), Counted(monkeypatch)
    assert [each.kind for each in rules.compared(reader.root, writer.root)] == ["TYPE_CHANGED"]
    assert counted.count <= 100


PATTERNS = {f"^x{each}": {} for each in range(80)}
NAMES = {f"a{each}": 1 for each in range(99)}


@pytest.mark.parametrize(
    ("alternatives", "value"),
    [
        ([{"$ref": "#/definitions/pattern"}] * 2_200, "x" * 30_000),
        ([{"patternProperties": PATTERNS, "maxProperties": 99 + each} for each in range(40)], NAMES),
        ([{"$ref": "#/definitions/const"}] * 900, LARGE),
        ([{"multipleOf": (each + 1) / 100} for each in range(900)], 10**900),
    ],
    ids=("patterns", "names", "equal", "multiples"),
)  # fmt: skip
def test_what_takes_longer_than_a_look_counts_as_several(alternatives: list[Any], value: Any) -> None:
    payload = json.dumps(value).encode()
    definitions = {"pattern": {"pattern": "(x|y)+z"}, "const": {"const": LARGE}}
    few, many = ({"oneOf": some, "definitions": definitions} for some in (alternatives[:2], alternatives))
    assert "too much to judge" not in str(judge(few).problem(payload))
    assert "too much to judge" in str(judge(many).problem(payload))


def test_what_is_equal_is_frozen_as_one() -> None:
    same = (
        text.read(each)
        for each in ('[1, {"a": 0.5}, true]', '[1.0, {"a": 5e-1}, true]', '[1e0,{"a":0.50},true]')
    )
    assert len(set(map(text.frozen, same))) == 1
    other = (
        "[1, 2]",
        "[2, 1]",
        "[1]",
        "[[1], 2]",
        "[true, 2]",
        '["1/1", 2]',
        "{}",
        "[]",
        '""',
        "0",
        "false",
        "null",
        "-1",
        "1",
    )
    assert len({text.frozen(text.read(each)) for each in other}) == len(other)
