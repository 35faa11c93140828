"""Tags in a schema's metadata mark fields by their full names, as Confluent's clients match these."""

from __future__ import annotations

import functools
import io
import json
import random
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry.wildcard_matcher import wildcard_match

from schema import descriptors
from schema.compiler import compile_protos
from schema.redaction import avro, messages
from schema.redaction import json as redacted_json
from schema.redaction.marks import Action, Marks, Unreadable
from schema.redaction.metadata_tags import BadTags, may_name_below, named, with_metadata
from schema.redaction.saying import PATH_CHARS_MAX
from schema.registry import known
from schema.registry.avro import schema as avro_schema
from schema.registry.json.schema import parse

TEXT: dict[str, Any] = {"type": "string"}


def marks(action: Action = Action.REMOVE, /, **tagged: list[str]) -> Marks:
    """By patterns, of which `__` stands for a dot, `any` for two asterisks and `some` for one."""
    tags = {
        each.replace("__", ".").replace("any", "**").replace("some", "*").replace("top", "$"): tags
        for each, tags in tagged.items()
    }
    return with_metadata(Marks(action, frozenset({"PII"})), json.dumps({"tags": tags}))


def test_patterns_match_as_those_of_confluent_s_clients() -> None:
    """Theirs is the oracle. (It takes brackets for sets of characters; its documents say nothing of that.)"""
    draw, met = random.Random(1), 0
    for _ in range(1_500):
        pattern = "".join(
            draw.choices(("*", "**", "?", ".", ".", "a", "b", "$", "+", "é"), k=draw.randrange(1, 7))
        )
        name = "".join(draw.choices(("a", "b", ".", "$", "é", "+"), k=draw.randrange(1, 7)))
        if "***" in pattern:  # what of three asterisks is the two is nobody's meaning
            continue
        found = with_metadata(Marks(Action.MASK, frozenset({"x"})), json.dumps({"tags": {pattern: ["x"]}}))
        due = wildcard_match(name, pattern)
        assert (named(found, name) is Action.MASK) == due, (pattern, name)
        met += due
        begin = name.rpartition(".")[0]
        assert not due or "." not in name or may_name_below(found, begin), (pattern, name)
    assert met > 60


def test_only_patterns_with_a_tag_of_the_topic_count() -> None:
    found = marks(any__a=["PII", "X"], any__b=["PUBLIC"], any__c=[])
    assert found.paths == ("**.a",)
    plain = Marks(Action.REMOVE, frozenset({"PII"}))
    for metadata in ("", "{}", '{"tags":null}', '{"properties":{"**.a":"PII"}}', '{"tags":{"a[0]":["X"]}}'):
        assert with_metadata(plain, metadata) is plain
    assert with_metadata(plain, '{"tags":{"a":"PII"}}').paths == ("a",)


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ('{"tags":["PII"]}', "no object by paths, but list"),
        ('{"tags":{"a":{"PII":1}}}', "for the path 'a' are no list"),
        ('{"tags":{"a[0]":["PII"]}}', r"path 'a\[0\]': write it without brackets"),
        ('{"tags":{"a\\\\.b":["PII"]}}', "without brackets and"),
        (json.dumps({"tags": {"a" * 5_000: ["PII"]}}), "more than 4096 characters"),
    ],
)
def test_what_cannot_be_told_is_no_licence_to_show(metadata: str, reason: str) -> None:
    with pytest.raises(BadTags, match=reason):
        with_metadata(Marks(Action.REMOVE, frozenset({"PII"})), metadata)


SOURCE = b"""
syntax = "proto3";
package shop;
import "floe/redact.proto";
message Order {
  string who = 1;
  Card card = 2;
  repeated Card cards = 3;
  map<string, Card> by_name = 4;
  string hashed = 5 [(floe.redact) = HASH];
  message Card { string number = 1; int32 year = 2; }
}
message Other { string who = 1; Order order = 2; }
"""


@functools.cache
def kind(message: str) -> descriptors.MessageType:
    texts = {name: (known._FOLDER / place).read_bytes() for name, place in known._PLACES.items()}
    return descriptors.load(compile_protos({"shop.proto": SOURCE, **texts}), message)


def left(message: str, told: Marks, **fields: Any) -> dict[str, Any]:
    made = kind(message).message_class
    found = messages.redactor(kind(message), told, b"k")
    assert found is not None
    rest: Any = made.FromString(found.redacted(made(**fields).SerializeToString()))
    return {field.name: value for field, value in rest.ListFields()}


def test_protobuf_s_names_are_those_of_messages_and_fields() -> None:
    card = {"number": "n", "year": 7}
    whole = {"who": "w", "card": card, "cards": [card, card], "by_name": {"a": card}}
    of_card = left("shop.Order", marks(shop__Order__Card__number=["PII"]), **whole)
    assert of_card["who"] == "w"
    cards = [of_card["card"], *of_card["cards"], of_card["by_name"]["a"]]
    assert [(each.number, each.year) for each in cards] == [("", 7)] * 4
    assert [*left("shop.Order", marks(any__card=["PII"]), **whole)] == ["who", "cards", "by_name"]
    assert left("shop.Order", marks(Action.MASK, shop__some__who=["PII"]), who="w") == {"who": "****"}
    inner = left("shop.Other", marks(shop__Order__who=["PII"]), who="w", order={"who": "w", "card": card})
    assert (inner["who"], inner["order"].who, inner["order"].card.number) == ("w", "", "n")
    own = left("shop.Order", marks(any=["PII"]), who="w", hashed="h")
    assert [*own] == ["hashed"], "its own option counts first"
    assert messages.redactor(kind("shop.Order.Card"), marks(Card__number=["PII"]), b"k") is None


def test_avro_s_names_are_those_of_records_and_fields() -> None:
    card = {
        "type": "record", "name": "Card", "namespace": "pay",
        "fields": [{"name": "number", "type": "string"}, {"name": "year", "type": "int"}],
    }  # fmt: skip
    said = {
        "type": "record", "name": "Order", "namespace": "shop",
        "fields": [
            {"name": "who", "type": "string"},
            {"name": "card", "type": ["null", card]},
            {"name": "cards", "type": {"type": "map", "values": "pay.Card"}},
            {"name": "hashed", "type": "string", "floe.redact": "hash"},
        ],
    }  # fmt: skip
    form, schema = avro_schema.parse(json.dumps(said), {}).canonical, fastavro.parse_schema(said)
    one = {"number": "n", "year": 7}
    made = io.BytesIO()
    fastavro.schemaless_writer(made, schema, {"who": "w", "card": one, "cards": {"a": one}, "hashed": "h"})

    def rest(told: Marks) -> Any:
        found = avro.redactor(form, {}, told, b"")
        assert found is not None
        return fastavro.schemaless_reader(io.BytesIO(found.redacted(made.getvalue())), schema, None)

    gone = {"number": "", "year": 7}
    assert rest(marks(pay__Card__number=["PII"])) == {
        "who": "w", "card": gone, "cards": {"a": gone}, "hashed": "",
    }  # fmt: skip
    assert rest(marks(Action.MASK, shop__Order__some=["PII"])) == {
        "who": "****", "card": None, "cards": {}, "hashed": "",
    }  # fmt: skip
    assert rest(marks(shop__Order__card__number=["PII"]))["card"] == one, "no path through records"


def json_left(said: Any, given: Any, told: Marks) -> Any:
    found = redacted_json.redactor(parse(json.dumps(said), {}).canonical, {}, told, b"k")
    assert found is not None
    return json.loads(found.redacted(json.dumps(given).encode()))


def test_names_of_json_are_paths_from_the_top() -> None:
    line = {"type": "object", "properties": {"n": {"type": "integer"}, "ssn": TEXT}}
    said = {
        "type": "object",
        "properties": {
            "ssn": TEXT, "who": TEXT, "boss": {"$ref": "#"}, "lines": {"type": "array", "items": line},
            "open": {"type": "object"}, "either": {"anyOf": [{"type": "null"}, line]},
            "list": {"type": "array"}, "own": {**TEXT, "x-floe-redact": "mask"},
        },
        "required": ["who"],
    }  # fmt: skip
    one = {"n": 1, "ssn": "s"}
    person = {"who": "w", "ssn": "s"}
    given = {
        **person, "boss": {**person, "boss": person}, "lines": [one, one], "open": {"a": [one], "ssn": one},
        "either": one, "list": [[one], "s"], "own": "o",
    }  # fmt: skip
    free = {"open": {"a": [one], "ssn": one}, "list": [[one], "s"]}
    less, bare = {"n": 1}, {"who": "w"}
    assert json_left(said, given, marks(any__ssn=["PII"])) == {
        **bare, "boss": {**bare, "boss": bare}, "lines": [less, less], "open": {"a": [less]},
        "either": less, "list": [[less], "s"], "own": "****",
    }  # fmt: skip
    assert json_left(said, given, marks(top__boss__ssn=["PII"], top__lines__ssn=["PII"])) == {
        **given, **free, "boss": {**bare, "boss": person}, "lines": [less, less], "own": "****",
    }  # fmt: skip
    assert json_left(said, given, marks(Action.MASK, top__some=["PII"], top=["PII"])) == {
        "who": "****", "ssn": "****", "own": "****",
    }  # fmt: skip
    assert json_left(said, given, marks(top__who=["PII"]))["who"] == "", "it has to be there"
    assert json_left(said, given, marks(top__open__a__ssn=["PII"]))["open"] == {"a": [less], "ssn": one}


def test_a_path_that_is_too_long_shows_nothing() -> None:
    said = {"type": "object", "additionalProperties": {"$ref": "#"}}
    found = redacted_json.redactor(parse(json.dumps(said), {}).canonical, {}, marks(any__ssn=["PII"]), b"k")
    assert found is not None
    name = "n" * (PATH_CHARS_MAX // 2)
    assert (
        found.redacted(json.dumps({name: {"a": {"ssn": {}}}}).encode())
        == f'{{"{name}":{{"a":{{}}}}}}'.encode()
    )
    with pytest.raises(Unreadable, match="within one another have over 4096 characters"):
        found.redacted(json.dumps({name: {name: {"ssn": {}}}}).encode())
