"""A bare message is framed with a registered schema only where that means the same message."""

from __future__ import annotations

import pytest

from schema import descriptors, framing
from schema.compiler import compile_protos
from schema.descriptors import MessageType
from schema.enveloping import frame_of
from schema.registry import protobuf

SHOP = """
syntax = "proto3";
package shop;
message Customer { string name = 1; Kind kind = 2; }
enum Kind { NONE = 0; GOOD = 1; }
message Order {
  message Line { string sku = 1; Order of = 2; }
  uint64 id = 1; Customer who = 2; repeated Line lines = 3;
  oneof how { string card = 4; bool cash = 5; }
  map<string, Customer> others = 6;
}
"""


def bound(text: str = SHOP, name: str = "shop.Order") -> MessageType:
    return descriptors.load(compile_protos({"order.proto": text.encode()}), name)


def registered(text: str) -> bytes:
    return protobuf.descriptor_set(protobuf.parse(text, {}).canonical, {})


@pytest.mark.parametrize(
    "text",
    [
        SHOP,
        SHOP.replace("message Customer {", "/* whom we like */ message Customer {"),
        SHOP.replace("id = 1;", "id = 1 [deprecated = true];"),
        SHOP + "message Later { int32 a = 1; }",
    ],
)
def test_the_same_message_is_named_by_its_place(text: str) -> None:
    assert frame_of(bound(), 7, registered(text)) == framing.prefix(7, (1,))
    nested = bound(name="shop.Order.Line")
    assert frame_of(nested, 7, registered(text)) == framing.prefix(7, (1, 0))


@pytest.mark.parametrize(
    "text",
    [
        SHOP.replace("package shop", "package shops"),
        SHOP.replace("uint64 id", "int64 id"),
        SHOP.replace("uint64 id", "repeated uint64 id"),
        SHOP.replace("uint64 id", "optional uint64 id"),
        SHOP.replace("uint64 id", "uint64 number"),
        SHOP.replace("id = 1;", "id = 1; string note = 9;"),
        SHOP.replace("bool cash = 5;", ""),
        SHOP.replace("sku = 1", "sku = 3"),
        SHOP.replace("GOOD = 1", "GOOD = 1; BAD = 2"),
        SHOP.replace("map<string, Customer> others", "map<string, Order> others"),
        SHOP.replace("oneof how { string card = 4; bool cash = 5; }", "string card = 4; bool cash = 5;"),
    ],
)
def test_another_message_is_not(text: str) -> None:
    assert frame_of(bound(), 7, registered(text)) is None


def test_a_message_that_is_only_imported_has_no_place() -> None:
    imports = {"order.proto": protobuf.parse(SHOP, {}).canonical}
    other = (
        'syntax = "proto3"; package x; import "order.proto"; message Zero {} message Y { shop.Order o = 1; }'
    )
    files = protobuf.descriptor_set(protobuf.parse(other, imports).canonical, imports)
    assert frame_of(bound(), 7, files) is None
