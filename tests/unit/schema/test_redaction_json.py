"""What is left of JSON records whose properties are marked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft7Validator

from schema.redaction.json import redactor
from schema.redaction.marks import Action, Marks, Unreadable
from schema.registry.json.schema import parse
from tests.unit.schema.test_redaction_avro import KEY, hashed

TEXT: dict[str, Any] = {"type": "string"}
PII: dict[str, Any] = {**TEXT, "confluent:tags": ["PII"]}


def of(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required], **more}


def left(
    said: Any, value: Any, action: Action = Action.REMOVE, tags: str = "PII", *, valid: bool = True
) -> Any:
    """What is left of a record, which the schema takes."""
    made = text_left(said, json.dumps(value), action, tags)
    found = json.loads(made)
    if valid:
        Draft7Validator(said).validate(found)
    return found


def text_left(
    said: Any, text: str, action: Action = Action.REMOVE, tags: str = "PII", key: bytes = KEY
) -> str:
    form = parse(json.dumps(said), {}).canonical
    found = redactor(form, {}, Marks(action, frozenset(tags.split(","))), key)
    assert found is not None
    return found.redacted(text.encode()).decode()


def test_a_property_is_what_its_keyword_says_or_what_the_topic_does() -> None:
    said = of(
        {
            "name": PII,
            "mail": {**TEXT, "x-floe-redact": "hash"},
            "phones": {"type": "array", "items": TEXT, "x-floe-redact": "mask"},
            "town": {**TEXT, "confluent:tags": ["PUBLIC"]},
            "salary": {"type": ["number", "null"], "confluent:tags": ["PII"]},
            "odd": {**TEXT, "x-floe-redact": 7},
        }
    )
    given = {"name": "Ada", "mail": "a@b", "phones": ["1", ""], "town": "x", "salary": 9, "odd": "o"}
    own = {"mail": hashed(b"a@b"), "phones": ["****"] * 2, "town": "x"}
    assert left(said, given) == own
    assert left(said, given, Action.MASK) == {**own, "name": "****"}
    assert left(said, given, Action.HASH) == {**own, "name": hashed(b"Ada")}
    assert json.loads(text_left(said, json.dumps(given), Action.HASH, key=b"")) == {
        "phones": ["****"] * 2,
        "town": "x",
    }
    assert left(said, given, tags="PUBLIC,X")["name"] == "Ada"
    assert left(said, {"salary": None}) == {"salary": None}, "null says that there was nothing"


REQUIRED = (
    ({"type": ["string", "null"]}, "s", None),
    (TEXT, "s", ""),
    ({**TEXT, "default": "none"}, "s", "none"),
    ({**TEXT, "enum": ["red", "blue"]}, "blue", "red"),
    ({"type": "integer"}, 5, 0),
    ({"type": "integer", "minimum": 3, "default": 4}, 5, 4),
    ({"type": "boolean"}, True, False),
    ({"type": "array", "items": TEXT}, ["s"], []),
    ({"type": "object"}, {"secret": 1}, {}),
    (of({"a": TEXT, "b": TEXT}, "a"), {"a": "s", "b": "s"}, {"a": ""}),
)


@pytest.mark.parametrize(("said", "given", "due"), REQUIRED, ids=lambda each: str(each)[:40])
def test_what_has_to_be_there_is_what_the_schema_takes(said: dict[str, Any], given: Any, due: Any) -> None:
    whole = of({"x": {**said, "confluent:tags": ["PII"]}}, "x")
    assert left(whole, {"x": given}) == {"x": due}


def test_what_the_schema_takes_in_no_form_is_empty_all_the_same() -> None:
    """Most readers do not ask the schema; none sees the number."""
    said = of({"ssn": {**PII, "pattern": "^[0-9]{9}$"}}, "ssn")
    assert left(said, {"ssn": "123456789"}, valid=False) == {"ssn": ""}
    assert left(said, {"ssn": "123456789"}, Action.MASK, valid=False) == {"ssn": ""}
    said = of({"ssn": {**PII, "minLength": 2}}, "ssn")
    assert left(said, {"ssn": "123456789"}, Action.MASK) == {"ssn": "****"}


def test_all_schemas_of_a_value_count() -> None:
    """Beside a reference of an old draft, behind it, in each alternative that takes the value."""
    said = of(
        {
            "beside": {"$ref": "#/definitions/open", "confluent:tags": ["PII"]},
            "behind": {"$ref": "#/definitions/secret"},
            "either": {"oneOf": [{"type": "null"}, PII]},
            "some": {"anyOf": [{"type": "integer"}, PII]},
            "all": {"allOf": [TEXT, {"confluent:tags": ["PII"]}]},
            "open": {"$ref": "#/definitions/open"},
        },
        definitions={"open": TEXT, "secret": PII},
    )
    given = {"beside": "s", "behind": "s", "either": "s", "some": "s", "all": "s", "open": "o"}
    assert left(said, given) == {"open": "o"}
    assert left(said, {"either": None, "some": 5}) == {"either": None, "some": 5}


def test_alternatives_of_objects_are_told_by_the_value() -> None:
    card = of({"kind": {"const": "card"}, "number": PII}, "kind", "number")
    cash = of({"kind": {"const": "cash"}, "number": TEXT}, "kind", "number")
    said = of({"paid": {"oneOf": [card, cash]}})
    assert left(said, {"paid": {"kind": "card", "number": "4"}}) == {"paid": {"kind": "card", "number": ""}}
    assert left(said, {"paid": {"kind": "cash", "number": "4"}}) == {"paid": {"kind": "cash", "number": "4"}}
    chosen = {
        "if": {"properties": {"kind": {"const": "card"}}},
        "then": {"properties": {"number": {"confluent:tags": ["PII"]}}},
    }
    said = of({"kind": TEXT, "number": TEXT}, **chosen)
    assert left(said, {"kind": "card", "number": "4"}) == {"kind": "card"}
    assert left(said, {"kind": "cash", "number": "4"}) == {"kind": "cash", "number": "4"}


def test_arrays_maps_and_what_holds_itself() -> None:
    person = of({"who": PII, "friends": {"type": "array", "items": {"$ref": "#/definitions/p"}}, "n": {}})
    said = of(
        {
            "people": {"type": "array", "items": {"$ref": "#/definitions/p"}},
            "named": {"type": "object", "additionalProperties": {"$ref": "#/definitions/p"}},
            "by": {"type": "object", "patternProperties": {"^x": PII}},
            "list": {"type": "array", "items": PII},
            "pair": {"type": "array", "items": [PII, {"type": "integer"}]},
            "keys": {"type": "object", "propertyNames": {"confluent:tags": ["PII"]}},
        },
        definitions={"p": person},
    )
    full = {"who": "s", "friends": [{"who": "s", "n": 2}], "n": 1}
    clean = {"friends": [{"n": 2}], "n": 1}
    given = {
        "people": [full], "named": {"k": full}, "by": {"x1": "s"}, "list": ["s", "t"], "pair": ["s", 5, 7],
        "keys": {"s": 1},
    }  # fmt: skip
    assert left(said, given) == {
        "people": [clean], "named": {"k": clean}, "by": {}, "list": [], "pair": ["", 5],
    }  # fmt: skip
    assert left(said, given, Action.MASK)["list"] == ["****"] * 2


def test_properties_that_the_schema_does_not_name_go() -> None:
    """Nobody can tell what they are; an object of which nothing is said stays."""
    said = of({"id": {"type": "integer"}, "who": PII, "free": {"type": "object"}, "any": {}}, "seen")
    given = {"id": 1, "more": "s", "free": {"a": 1}, "any": [{"b": 2}], "seen": "y"}
    due = {"id": 1, "free": {"a": 1}, "any": [{"b": 2}], "seen": "y"}
    assert left(said, given) == due
    assert left({**said, "additionalProperties": True}, given) == due
    assert left({**said, "additionalProperties": TEXT}, given) == {**due, "more": "s"}


def test_numbers_and_text_keep_their_form() -> None:
    said = of({"n": {"type": "number"}, "t": TEXT, "who": PII})
    text = '{"n":1.50,"t":"é\\u2713\\n\\"","who":"s"}'
    assert text_left(said, text) == '{"n":1.50,"t":"é✓\\n\\""}'
    assert text_left(said, '{"n":123456789012345678901234567890}') == '{"n":123456789012345678901234567890}'


def test_schemas_without_marks_are_left_alone() -> None:
    form = parse(json.dumps(of({"a": PII})), {}).canonical
    assert redactor(form, {}, Marks(Action.REMOVE, frozenset({"SECRET"})), KEY) is None


@pytest.mark.parametrize("text", ["{", '{"who":5}', '{"who":"secret","n":"secret"}', "\xff"])
def test_records_that_are_none_are_told_and_not_shown(text: str) -> None:
    with pytest.raises(Unreadable, match=r"^it is no JSON that its schema takes$"):
        text_left(of({"who": PII, "n": {"type": "integer"}}), text)


def test_of_several_defaults_both_ways_take_the_same() -> None:
    parts = [TEXT, {"default": "one"}, {"default": "other"}]
    said = of({"who": {"allOf": parts, "confluent:tags": ["PII"]}}, "who")
    form = parse(json.dumps(said), {}).canonical
    found = redactor(form, {}, Marks(Action.REMOVE, frozenset({"PII"})), KEY)
    assert found is not None
    quick, due = found.straight.redacted({"who": "w"}), found.weighed({"who": "w"}, 11)
    assert quick == due
    assert due["who"] in ("one", "other")
