"""What a message would do to a table's columns, told before it is done (iceberg/impact.py)."""

from __future__ import annotations

from typing import Any

import pytest

from iceberg import evolution, flat, mapping
from iceberg.column_ids import VALUE_ID, ColumnIds
from iceberg.impact import COLUMNS_TOLD_MAX, Message, impact
from iceberg.unions import Places
from schema import descriptors
from schema.compiler import compile_protos


def message(fields: str, name: str = "M", *, names: bool = True) -> Message:
    text = f'syntax = "proto3"; message {name} {{ {fields} }}'
    return Message(compile_protos({"m.proto": text.encode()}), name, names)


def table_of(*messages: Message) -> dict[str, Any]:
    """What a table has once it had rows of these."""
    fields, ids = evolution.new_fields(), ColumnIds()
    for one in messages:
        shape = mapping.shape(descriptors.load(one.files, one.name).descriptor)
        fields, ids = evolution.with_message(fields, VALUE_ID, shape, one.name, ids, names=one.names)
    return {"fields": fields, "ids": ids.to_json(), "flat": False}


OLD = "int32 a = 1; string b = 2; Deep deep = 3; message Deep { float x = 1; } repeated int32 many = 4;"
NEW = (
    "int64 a = 1; string note = 2; Deep deep = 3; message Deep { double x = 1; bool y = 2; } "
    "repeated int64 many = 4; bytes c = 9;"
)


def test_added_widened_renamed_and_unfilled() -> None:
    old = message(OLD + " string gone = 7;")
    found = impact(table_of(old), [message(NEW)], [old], key=False)
    assert found.added == [
        {"column": "value.deep.y", "type": "boolean"}, {"column": "value.c", "type": "binary"},
    ]  # fmt: skip
    assert found.widened == [
        {"column": "value.a", "type": "int", "to": "long"},
        {"column": "value.deep.x", "type": "float", "to": "double"},
        {"column": "value.many", "type": "list<int>", "to": "list<long>"},
    ]
    assert found.renamed == [{"column": "value.b", "to": "value.note"}]
    assert found.unfilled == [{"column": "value.gone", "type": "string"}]
    assert (found.apart, found.problems) == ([], [])


def test_a_field_that_its_column_cannot_hold_gets_another() -> None:
    old = message("int32 a = 1; string b = 2;")
    found = impact(table_of(old), [message("string a = 1; string b = 2;")], [old], key=False)
    assert found.apart == [{"column": "value.a", "type": "string", "instead_of": "value.a"}]
    assert [row["to"] for row in found.renamed] == ["value.a__15"], "the old one makes room for the name"
    assert found.unfilled == [{"column": "value.a", "type": "int"}]
    assert found.added == []


def test_it_is_what_the_commit_would_do() -> None:
    """The columns that are told are those that the table has after a commit with the message."""
    old, new = message(OLD), message(NEW)
    before, after = table_of(old), table_of(old, new)
    found = impact(before, [new], [old], key=False)
    again = impact(after, [new], [new], key=False)
    assert found.added
    assert not any((again.added, again.widened, again.renamed, again.apart, again.unfilled))


def test_of_no_table_all_is_new() -> None:
    found = impact(None, [message("int32 a = 1;")], [], key=True)
    assert found.added == [{"column": "key.a", "type": "int"}]


def test_of_a_flat_table_names_stand_at_the_top() -> None:
    nested = table_of(message("int32 a = 1;"))
    table = {**nested, "fields": flat.flattened(nested["fields"]), "flat": True}
    found = impact(table, [message("int64 a = 1; int32 b = 2;")], [], key=False)
    assert found.added == [{"column": "b", "type": "int"}]
    assert found.widened == [{"column": "a", "type": "int", "to": "long"}]


@pytest.mark.parametrize("count", [COLUMNS_TOLD_MAX, COLUMNS_TOLD_MAX + 3])
def test_bounded(count: int) -> None:
    fields = " ".join(f"int32 f{number} = {number};" for number in range(1, count + 1))
    found = impact(None, [message(fields)], [], key=False)
    assert (len(found.added), found.more) == (COLUMNS_TOLD_MAX, count - COLUMNS_TOLD_MAX)
    assert impact(None, [Message(b"", "Nobody", True)], [], key=False).problems


def test_a_type_of_several_is_told_inside_its_struct() -> None:
    """Of further messages of a file only what the table has; what a type had and has no more."""
    order, refund = (
        message("int32 a = 1; int32 gone = 9;", name, names=False) for name in ("Order", "Refund")
    )
    order = order._replace(apart=True)
    places, ids = Places(VALUE_ID, ColumnIds(), 5), ColumnIds()
    shape = mapping.shape(descriptors.load(order.files, order.name).descriptor)
    fields, ids = evolution.with_message(
        evolution.new_fields(), VALUE_ID, places.shape(shape, "Order", apart=True), "Order", ids, names=True
    )
    table = {"fields": fields, "ids": ids.to_json(), "flat": False}
    wider = message("int64 a = 1; string b = 2;", "Order")._replace(apart=True, spare=True)
    spare = refund._replace(apart=True, spare=True)
    found = impact(table, [wider, spare], [order, spare], key=False)
    assert found.widened == [{"column": "value.Order.a", "type": "int", "to": "long"}]
    assert found.added == [{"column": "value.Order.b", "type": "string"}]
    assert found.unfilled == [{"column": "value.Order.gone", "type": "int"}]
    named = spare._replace(spare=False)
    assert [each["column"] for each in impact(table, [named], [], key=False).added] == [
        "value.Refund", "value.Refund.a", "value.Refund.gone",
    ]  # fmt: skip
    (why,) = impact(table, [named], [], key=False, types_max=1).problems
    assert "tables.types_max" in why
