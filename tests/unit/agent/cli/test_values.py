"""Records for people: whatever a record legally holds is shown, and the next one after it."""

from __future__ import annotations

import base64
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf import any_pb2, descriptor_pb2, timestamp_pb2

from agent.cli.reading import _line
from agent.cli.values import Bound, Values
from schema import framing
from schema.descriptors import MessageType, load
from schema.registered import UNKNOWN_MAX
from schema.registry import protobuf

MESSAGE = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
STRING = descriptor_pb2.FieldDescriptorProto.TYPE_STRING


@pytest.fixture
def kind() -> MessageType:
    """A message with an Any and a Timestamp, and another one in the same file."""
    files = descriptor_pb2.FileDescriptorSet()
    for known in (any_pb2, timestamp_pb2):
        known.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(name="x.proto", package="x", syntax="proto3")
    file.dependency.extend(["google/protobuf/any.proto", "google/protobuf/timestamp.proto"])
    file.message_type.add(name="Inner").field.add(name="name", number=1, type=STRING, label=1)
    outer = file.message_type.add(name="Outer")
    for number, (name, of) in enumerate((("what", "Any"), ("at", "Timestamp")), 1):
        outer.field.add(name=name, number=number, type=MESSAGE, label=1, type_name=f".google.protobuf.{of}")
    return load(files.SerializeToString(), "x.Outer")


def test_an_any_of_a_type_of_the_topic_s_own_is_shown_and_taken(kind: MessageType) -> None:
    values = Values({"value": Bound(1, "plain", kind)})
    record: Any = kind.message_class()
    record.what.type_url, record.what.value = "type.googleapis.com/x.Inner", b"\n\x01q"
    shown = {"what": {"@type": "type.googleapis.com/x.Inner", "name": "q"}}
    assert values.show("value", record.SerializeToString()) == shown
    text = '{"what": {"@type": "type.googleapis.com/x.Inner", "name": "q"}}'
    assert values.parse("value", text) == record.SerializeToString()


@pytest.mark.parametrize("fields", [{"seconds": 10**13}, {"nanos": -5}, None])
def test_what_has_no_form_in_json_is_shown_as_bytes(kind: MessageType, fields: dict[str, int] | None) -> None:
    record: Any = kind.message_class()
    if fields is None:
        record.what.type_url = "type.googleapis.com/of.nobody"
    else:
        for name, value in fields.items():
            setattr(record.at, name, value)
    shown: Any = Values({"value": Bound(1, "plain", kind)}).show("value", record.SerializeToString())
    assert set(shown) == {"undecodable", "bytes"}
    assert shown["undecodable"]


def test_a_header_without_a_value_is_null() -> None:
    record: Any = SimpleNamespace(
        key=None, value=b"v", headers=[("h", None), ("i", b"j")], partition=0, offset=3, timestamp=4
    )
    assert '"headers": [["h", null], ["i", "j"]]' in _line(record, Values({}))


def test_records_that_follow_a_subject_are_shown_by_what_they_name() -> None:
    """And those of a role that is bound to nothing; what nobody told, and what is no frame, as it is."""
    text = 'syntax = "proto3"; message A { int32 a = 1; } message B { string b = 2; }'
    files = base64.b64encode(protobuf.descriptor_set(protobuf.parse(text, {}).canonical, {})).decode()
    registered = [{"schema_id": 7, "descriptor_set": files}, {"schema_id": 9, "descriptor_set": ""}]
    values = Values.from_schemas([{"role": "value", "naming": "subject", "descriptor_set": ""}], registered)
    one = framing.prefix(7, (0,)) + b"\x08\x05"
    assert values.show("value", one) == {"a": 5}
    assert values.show("value", framing.prefix(7, (1,)) + b"\x12\x01x") == {"b": "x"}
    assert values.show("key", one) == {"a": 5}
    assert values.show("value", None) is None
    for plain in (b"text", b"\x00\x00\x00\x00\x09\x02a", framing.prefix(8, (0,)), b"\x00\x01"):
        assert values.show("value", plain) == plain.decode()
    shown = values.show("value", framing.prefix(7, (5,)))
    assert isinstance(shown, dict)
    assert "indexes [5]" in shown["undecodable"]
    damaged = framing.prefix(7, (5,))
    assert values.show("key", damaged) == damaged.decode(), "nobody said that it is one"


def test_the_registry_is_asked_once_for_each_schema_and_not_for_ever() -> None:
    """By id or guid; what it does not have are bytes, and after many such it is left alone."""
    text = 'syntax = "proto3"; message A { int32 a = 1; }'
    files = base64.b64encode(protobuf.descriptor_set(protobuf.parse(text, {}).canonical, {})).decode()
    asked: list[str] = []

    def ask(name: str) -> Any:
        asked.append(name)
        return {"schema_id": 7, "descriptor_set": files} if name in ("7", guid) else None

    guid = "01234567-89ab-cdef-0123-456789abcdef"
    values = Values.from_schemas([], [], ask)
    header = ("__value_schema_id", b"\x01" + bytes.fromhex(guid.replace("-", "")) + b"\x00")
    for _ in range(2):
        assert values.show("value", framing.prefix(7, (0,)) + b"\x08\x05") == {"a": 5}
        assert values.show("value", b"\x08\x06", [header]) == {"a": 6}
        assert values.show("key", b"plain", [header]) == "plain"
        assert values.show("value", b"\x00" * 8) == "\0" * 8
    assert asked == ["7", guid]
    for number in range(1_000, 1_000 + 2 * UNKNOWN_MAX):
        shown = values.show("value", framing.prefix(number, (0,)))
        assert isinstance(shown, str) or "base64" in shown  # type: ignore[operator]  # an object to mypy
    assert len(asked) == 2 + UNKNOWN_MAX
