"""Confluent's registry client and its protobuf serializers against Floe's registry, unchanged, end to end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
)
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from schema.compiler import compile_protos
from schema.framing import parse
from schema.registry import known
from tests.compat.conftest import Embedded
from tests.compat.registry_rig import Connect, connect, name, registry, sent_and_read

__all__ = ["connect", "name", "registry"]  # fixtures

COMMON = """
syntax = "proto3";
package shop.common;
import "google/protobuf/timestamp.proto";
message Money { string currency = 1; int64 units = 2; google.protobuf.Timestamp at = 3; }
"""
ADDRESS = """
syntax = "proto3";
package shop.common;
import "shop/money.proto";
message Address { string street = 1; Money rent = 2; }
"""
ORDERS = """
syntax = "proto3";
package shop;
import "shop/money.proto";
import "shop/address.proto";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
message Customer {
  string name = 1 [(confluent.field_meta) = { tags: "PII" }];
  shop.common.Address address = 2;
}
message Order {
  message Line { string sku = 1; uint32 count = 2; }
  message Note { message Deep { string text = 1; } Deep deep = 1; }
  uint64 id = 1;
  shop.common.Money total = 2;
  repeated Line lines = 3;
  optional string remark = 4;
  confluent.type.Decimal weight = 5;
  Customer customer = 6;
}
"""
FILES = {"shop/money.proto": COMMON, "shop/address.proto": ADDRESS, "shop/orders.proto": ORDERS}
PLAIN = {"use.deprecated.format": False}


def classes(files: Mapping[str, str]) -> Callable[[str], Any]:
    """Message classes by full name, as generated code has them, in a pool of their own."""
    texts = {name: text.encode() for name, text in files.items()}
    texts |= {name: (known._FOLDER / place).read_bytes() for name, place in known._PLACES.items()}
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(compile_protos(texts)).file:
        pool.AddSerializedFile(file.SerializeToString())
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


MESSAGE = classes(FILES)


def order(number: int) -> Any:
    """An order with something of each kind."""
    made = MESSAGE("shop.Order")(id=number, remark="r")
    made.total.currency, made.total.units, made.total.at.seconds = "EUR", 5, 77
    made.lines.add(sku="x", count=number)
    made.customer.name, made.customer.address.rent.units = "n", 9
    made.weight.value = b"\x01"
    return made


def test_registered_by_the_serializer_and_read_back(
    embedded: Embedded, registry: SchemaRegistryClient, name: str
) -> None:
    """auto.register.schemas: the file and all that it imports, but for what is known."""
    serializer = ProtobufSerializer(MESSAGE("shop.Order"), registry, PLAIN)
    deserializer = ProtobufDeserializer(MESSAGE("shop.Order"), PLAIN, registry)
    context = SerializationContext(name, MessageField.VALUE)
    orders = [order(number) for number in range(5)]
    framed = [serializer(one, context) for one in orders]
    read = sent_and_read(embedded.bootstrap, name, framed)
    assert read == framed
    assert [deserializer(one, context) for one in read] == orders
    assert {f"{name}-value", "shop/money.proto", "shop/address.proto"} <= set(registry.get_subjects())
    latest = registry.get_latest_version(f"{name}-value")
    assert latest.schema.schema_type == "PROTOBUF"
    named = {(one.name, one.subject) for one in latest.schema.references}
    assert named == {(path, path) for path in ("shop/money.proto", "shop/address.proto")}
    assert "message Order {" in latest.schema.schema_str, "as text, though it was registered as a descriptor"
    assert {parse(one).schema_id for one in framed} == {latest.schema_id}
    assert registry.get_referenced_by("shop/money.proto", 1) is not None


def test_another_process_that_starts_registers_nothing_new(connect: Connect, name: str) -> None:
    ids = set()
    for _ in range(2):
        serializer = ProtobufSerializer(MESSAGE("shop.Order"), connect(), PLAIN)
        ids.add(parse(serializer(order(1), SerializationContext(name, MessageField.VALUE))).schema_id)
    assert len(ids) == 1


@pytest.mark.parametrize(
    ("message", "indexes"),
    [
        ("shop.Customer", (0,)),
        ("shop.Order", (1,)),
        ("shop.Order.Line", (1, 0)),
        ("shop.Order.Note.Deep", (1, 1, 0)),
    ],
)
def test_several_messages_of_one_file(
    embedded: Embedded, connect: Connect, name: str, message: str, indexes: tuple[int, ...]
) -> None:
    """Records name theirs by its place in the file: the registry keeps the places."""
    kind = MESSAGE(message)
    context = SerializationContext(name, MessageField.VALUE)
    framed = ProtobufSerializer(kind, connect(), PLAIN)(kind(), context)
    assert parse(framed).indexes == indexes
    (read,) = sent_and_read(embedded.bootstrap, name, [framed])
    assert ProtobufDeserializer(kind, PLAIN, connect())(read, context) == kind()


def test_the_latest_version_is_used(connect: Connect, registry: SchemaRegistryClient, name: str) -> None:
    """use.latest.version: what somebody else registered, as text."""
    subject = f"{name}-value"
    text = 'syntax = "proto3"; package shop; message Small { int32 a = 1; string more = 2; }'
    registered = connect().register_schema(subject, Schema(text, "PROTOBUF"))
    kind = classes({"small.proto": 'syntax = "proto3"; package shop; message Small { int32 a = 1; }'})(
        "shop.Small"
    )
    settings = {**PLAIN, "auto.register.schemas": False, "use.latest.version": True}
    context = SerializationContext(name, MessageField.VALUE)
    framed = ProtobufSerializer(kind, registry, settings)(kind(a=7), context)
    assert parse(framed).schema_id == registered
    reader = ProtobufDeserializer(kind, {**PLAIN, "use.latest.version": True}, registry)
    assert reader(framed, context) == kind(a=7)


def test_nothing_is_registered_when_that_is_off(registry: SchemaRegistryClient, name: str) -> None:
    settings = {**PLAIN, "auto.register.schemas": False}
    kind = classes({"x.proto": 'syntax = "proto3"; message X {}'})("X")
    with pytest.raises(SchemaRegistryError) as caught:
        ProtobufSerializer(kind, registry, settings)(kind(), SerializationContext(name, MessageField.VALUE))
    assert (caught.value.http_status_code, caught.value.error_code) == (404, 40401)


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        (record_subject_name_strategy, "shop.Order"),
        (topic_record_subject_name_strategy, "{topic}-shop.Order"),
    ],
)
def test_subject_names(registry: SchemaRegistryClient, name: str, strategy: Any, subject: str) -> None:
    settings = {**PLAIN, "subject.name.strategy": strategy, "normalize.schemas": True}
    serializer = ProtobufSerializer(MESSAGE("shop.Order"), registry, settings)
    serializer(order(1), SerializationContext(name, MessageField.VALUE))
    assert registry.get_versions(subject.format(topic=name)) == [1]


def test_an_incompatible_schema_is_refused(registry: SchemaRegistryClient, name: str) -> None:
    context = SerializationContext(name, MessageField.VALUE)
    old = classes({"m.proto": 'syntax = "proto3"; message M { int32 a = 1; }'})("M")
    new = classes({"m.proto": 'syntax = "proto3"; message M { string a = 1; }'})("M")
    ProtobufSerializer(old, registry, PLAIN)(old(a=1), context)
    with pytest.raises(SchemaRegistryError, match="FIELD_SCALAR_KIND_CHANGED") as caught:
        ProtobufSerializer(new, registry, PLAIN)(new(a="x"), context)
    assert caught.value.http_status_code == 409
    registry.set_compatibility(f"{name}-value", "NONE")
    assert ProtobufSerializer(new, registry, PLAIN)(new(a="x"), context)


def test_the_client_s_calls(connect: Connect, registry: SchemaRegistryClient, name: str) -> None:
    """One of each, on a subject of its own."""
    subject = f":.{name}:s"
    one, two = (
        Schema(f'syntax = "proto3"; package one_of_each; message M {{ {fields} }}', "PROTOBUF")
        for fields in ("int32 a = 1;", "int32 a = 1; string b = 2;")
    )
    wrong = Schema('syntax = "proto3"; package one_of_each; message M { string a = 1; }', "PROTOBUF")
    first = registry.register_schema(subject, one)
    second = registry.register_schema_full_response(subject, two)
    assert second.version == 2
    assert registry.lookup_schema(subject, one).version == 1
    assert registry.get_versions(subject) == [1, 2]
    fresh = connect()
    assert fresh.get_schema(first).schema_str == one.schema_str
    assert fresh.get_schema_by_guid(second.guid).schema_str == two.schema_str
    assert fresh.get_version(subject, 1).schema_id == first
    assert subject in fresh.get_subjects_by_schema_id(first)
    assert (subject, 1) in {(v.subject, v.version) for v in fresh.get_schema_versions(first)}
    assert fresh.test_compatibility(subject, two)
    assert not fresh.test_compatibility(subject, wrong, 1)
    assert not fresh.test_compatibility_all_versions(subject, wrong)
    fresh.set_config(subject, ServerConfig(compatibility=ConfigCompatibilityLevel.FULL_TRANSITIVE))
    assert fresh.get_config(subject).compatibility_level == "FULL_TRANSITIVE"
    assert fresh.get_compatibility(subject) == "FULL_TRANSITIVE"
    fresh.delete_config(subject)
    assert fresh.get_compatibility() == "BACKWARD"
    assert f".{name}" in fresh.get_contexts()


def test_the_client_s_deletes(registry: SchemaRegistryClient, name: str) -> None:
    """Of what others refer to, of what can only be read, of the rest."""
    subject, fresh = f":.{name}:s", registry
    for fields in ("int32 a = 1;", "int32 a = 1; string b = 2;"):
        text = f'syntax = "proto3"; package one_of_each; message M {{ {fields} }}'
        fresh.register_schema(subject, Schema(text, "PROTOBUF"))
    wrong = Schema('syntax = "proto3"; package one_of_each; message M { string a = 1; }', "PROTOBUF")
    uses = Schema(
        'syntax = "proto3"; import "m.proto"; message N { one_of_each.M m = 1; }', "PROTOBUF",
        [SchemaReference("m.proto", subject, 2)],
    )  # fmt: skip
    used = fresh.register_schema(f":.{name}:uses", uses)
    assert fresh.get_referenced_by(subject, 2) == [used]
    with pytest.raises(SchemaRegistryError) as caught:
        fresh.delete_version(subject, 2)
    assert caught.value.error_code == 42206
    assert fresh.delete_subject(f":.{name}:uses") == [1]
    assert fresh.delete_version(subject, 2) == 2
    fresh.update_mode(f":.{name}:", "READONLY")
    with pytest.raises(SchemaRegistryError) as caught:
        fresh.register_schema(subject, wrong)
    assert caught.value.error_code == 42205
    fresh.delete_mode(f":.{name}:")
    assert fresh.delete_subject(subject) == [1]
    with pytest.raises(SchemaRegistryError) as caught:
        fresh.get_latest_version(subject)
    assert caught.value.error_code == 40401
