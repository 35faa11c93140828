"""`floe produce` by schemas of the registry: JSON lines in, framed records out, places of what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from agent.cli.json_places import place_of
from tests.unit.agent.cli.conftest import Dev

ORDER = """syntax = "proto3";
package shop;
import "encoded/money.proto";
message Other { int32 a = 1; }
message Order {
  message Line { string sku = 1; }
  int64 id = 1; common.Money total = 2; repeated Line lines = 3; }
"""
MONEY = 'syntax = "proto3"; package common; message Money { int64 units = 1; }\n'
ITEM = {
    "type": "object", "required": ["sku"], "additionalProperties": False,
    "properties": {"sku": {"type": "string"}, "price": {"$ref": "money.json"}},
}  # fmt: skip
PRICE = {"type": "object", "properties": {"units": {"type": "integer"}}}
GOOD = '{"id": "7", "total": {"units": "3"}, "lines": [{"sku": "ä"}]}'


@pytest.fixture(scope="module")
def subjects(dev: Dev, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Subjects of each type, with references."""
    folder = tmp_path_factory.mktemp("encoded")
    (folder / "encoded").mkdir()
    (folder / "encoded/money.proto").write_text(MONEY)
    for name, text in {
        "order.proto": ORDER, "item.json": json.dumps(ITEM), "money.json": json.dumps(PRICE),
        "text.avsc": '"string"',
    }.items():  # fmt: skip
        (folder / name).write_text(text)
    dev.run("schema", "register", "encoded-value", str(folder / "order.proto"))
    dev.run("schema", "register", "encoded-money", str(folder / "money.json"))
    reference = ("--reference", "money.json=encoded-money")
    dev.run("schema", "register", "encoded-item", str(folder / "item.json"), *reference)
    dev.run("schema", "register", "encoded-text", str(folder / "text.avsc"))
    return folder


def values(dev: Dev, topic: str) -> list[Any]:
    return [json.loads(line)["value"] for line in dev.run("consume", topic).out.splitlines()]


def raw(dev: Dev, topic: str) -> bytes:
    """The bytes of the first record's value."""
    consumer = Consumer({"bootstrap.servers": dev.bootstrap, "group.id": "raw"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(20)
        assert message is not None
        value = message.value()
        assert isinstance(value, bytes)
        return value
    finally:
        consumer.close()


ENCODED = ("--subject", "encoded-value", "--message", "shop.Order")


def test_protobuf_goes_through_a_bound_topic_and_back(dev: Dev, subjects: Path) -> None:
    """The topic takes nothing that is not strictly a registered message; consume decodes by the frame."""
    dev.run("topic", "create", "encoded")
    dev.run("topic", "bind", "encoded", "--subject", "encoded-value")
    dev.run("produce", "encoded", *ENCODED, "-v", GOOD, "-v", "{}")
    dev.run("produce", "encoded", "--subject", "encoded-value", "-v", '{"a": 1}')
    assert values(dev, "encoded") == [json.loads(GOOD), {}, {"a": 1}], "the first message without --message"
    shown = json.loads(dev.run("schema", "show", "encoded-value", "--output", "json").out)
    dev.run(
        "produce",
        "encoded",
        "--schema",
        str(shown["id"]),
        "--message",
        "shop.Order.Line",
        "-v",
        '{"sku": "x"}',
    )
    assert values(dev, "encoded")[-1] == {"sku": "x"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"id": 1, "nope": 2}', "record 1: line 1, column 19: no shop.Order"),
        ('{"total": {"units": "x"}}', "record 1: line 1, column 21: no shop.Order"),
        ('{"lines": [{"sku": "a"}, {"sk": 1}]}', "record 1: line 1, column 33: no shop.Order"),
        ('{"lines": [{"sku": "a"}, {"sku": 1}]}', "record 1: line 1, column 11: no shop.Order"),
        ('{"id": 1', "line 1 column 9"),
    ],
)
def test_what_does_not_fit_has_a_place(dev: Dev, subjects: Path, text: str, words: str) -> None:
    status, line = dev.fails("produce", "encoded-bad", *ENCODED, "-v", text)
    assert (status, words in line) == (1, True), line


def test_json_by_its_schema(dev: Dev, subjects: Path) -> None:
    good = '{"sku": "a", "price": {"units": 3}}'
    dev.run("produce", "encoded-json", "--subject", "encoded-item", "-v", good)
    for text, words in (
        (
            '{"sku": "a", "price": {"units": "x"}}',
            "line 1, column 33: not as encoded-item version 1 wants it",
        ),
        ('{"sku": 1}', "line 1, column 9: not as encoded-item"),
        ("{}", "line 1, column 1: not as encoded-item version 1 wants it: 'sku' is a required property"),
        ("{", "line 1, column 2: no JSON"),
    ):
        status, line = dev.fails("produce", "encoded-json", "--subject", "encoded-item", "-v", text)
        assert (status, words in line) == (1, True), line
    assert values(dev, "encoded-json") == [json.loads(good)], "decoded by what its frame names"
    shown = json.loads(dev.run("schema", "show", "encoded-item", "--output", "json").out)
    stored = raw(dev, "encoded-json")
    assert stored[:5] == b"\0" + shown["id"].to_bytes(4), "Confluent's frame of JSON: magic and id"
    assert json.loads(stored[5:]) == json.loads(good)


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (
            ("--subject", "encoded-text"),
            2,
            "encoded-text version 1 is of AVRO: PROTOBUF and JSON are encoded here",
        ),
        (("--subject", "nobody"), 5, "nobody has no version latest"),
        (("--schema", "2000000000"), 5, "has no schema 2000000000"),
        (("--message", "shop.Order"), 2, "--message is of a schema"),
        (("--subject", "a", "--schema", "1"), 2, "not both"),
        (("--subject", "encoded-value", "--message", "shop.Nobody"), 1, "shop.Nobody"),
        (("--subject", "encoded-item", "--message", "shop.Nobody"), 2, "which has no messages"),
    ],
)
def test_what_cannot_be_encoded_by(
    dev: Dev, subjects: Path, options: tuple[str, ...], status: int, words: str
) -> None:
    found, line = dev.fails("produce", "encoded-bad", *options, "-v", "{}")
    assert (found, words in line) == (status, True), line


def test_places_in_a_text() -> None:
    text = '{"a": 1, "b": [1, {"c": "x"}],\n "d": {}, "a": 2}'
    places = {
        (): (1, 1), ("a",): (2, 16), ("b",): (1, 15), ("b", 1): (1, 19), ("b", 1, "c"): (1, 25),
        ("d",): (2, 7), ("z",): None, ("b", 2): None,
    }  # fmt: skip
    assert {path: place_of(text, path) for path in places} == places
    deep = "[" * 300 + "]" * 300
    assert place_of(deep, [0] * 250) is None, "as deep as it looks"
