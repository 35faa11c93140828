"""Ids of schemas, partition specs and sort orders that engines add: given by the catalog. Pure.

An engine numbers what it adds by the table that it has seen, and another may have added something of that
number since; requirements do not always tell (Iceberg 1.12, TableMetadata.Builder: what is there already
is used again, and what is new gets the next number). `-1` is what was added last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSortOrderUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    TableUpdate,
)

LAST_ADDED = -1


class _Kind:
    """What one kind of parts has: their contents by id, and the id that was added last."""

    def __init__(self, content: Callable[[Any], object], parts: Iterable[tuple[int, Any]]) -> None:
        self._content = content
        self._known = {number: content(part) for number, part in parts}
        self.last: int | None = None

    def take(self, number: int, part: Any) -> int | None:
        """The id of a part that is added; None where the table has its like, whose id is `last` then."""
        content = self._content(part)
        for known, each in self._known.items():
            if each == content:
                self.last = known
                return None
        self.last = max(self._known) + 1 if self._known else number
        self._known[self.last] = content
        return self.last

    def named(self, number: int) -> int:
        """The id that an update means."""
        return self.last if number == LAST_ADDED and self.last is not None else number


def settled(updates: Iterable[TableUpdate], base: TableMetadata | None) -> tuple[TableUpdate, ...]:
    """The updates with ids that hold for the table as it is. `base`: None when there is none yet."""
    schemas = _Kind(_schema, ((each.schema_id, each) for each in (base.schemas if base else ())))
    specs = _Kind(_spec, ((each.spec_id, each) for each in (base.partition_specs if base else ())))
    orders = _Kind(_order, ((each.order_id, each) for each in (base.sort_orders if base else ())))
    found: list[TableUpdate] = []
    for update in updates:
        settled_one = _settled(update, schemas, specs, orders)
        if settled_one is not None:
            found.append(settled_one)
    return tuple(found)


def _settled(update: TableUpdate, schemas: _Kind, specs: _Kind, orders: _Kind) -> TableUpdate | None:
    match update:
        case AddSchemaUpdate():
            number = schemas.take(update.schema_.schema_id, update.schema_)
            schema = update.schema_.model_copy(update={"schema_id": number})
            return None if number is None else update.model_copy(update={"schema_": schema})
        case AddPartitionSpecUpdate():
            number = specs.take(update.spec.spec_id, update.spec)
            spec = update.spec.model_copy(update={"spec_id": number})
            return None if number is None else update.model_copy(update={"spec": spec})
        case AddSortOrderUpdate():
            number = orders.take(update.sort_order.order_id, update.sort_order)
            order = update.sort_order.model_copy(update={"order_id": number})
            return None if number is None else update.model_copy(update={"sort_order": order})
        case SetCurrentSchemaUpdate():
            return update.model_copy(update={"schema_id": schemas.named(update.schema_id)})
        case SetDefaultSpecUpdate():
            return update.model_copy(update={"spec_id": specs.named(update.spec_id)})
        case SetDefaultSortOrderUpdate():
            return update.model_copy(update={"sort_order_id": orders.named(update.sort_order_id)})
    return update


def _schema(schema: Schema) -> object:
    return schema.as_struct(), frozenset(schema.identifier_field_ids)


def _spec(spec: PartitionSpec) -> object:
    return tuple((each.source_id, each.transform, each.name) for each in spec.fields)


def _order(order: SortOrder) -> object:
    return tuple(order.fields)


DEFAULTS = ("initial-default", "write-default")


def with_defaults(made: Any, given: Any) -> Any:
    """A schema or type as JSON that got fresh ids, with the defaults of the fields that it was made of: they
    are lost where pyiceberg 0.12 gives ids (format version 3).
    """
    if not isinstance(made, dict):
        return made
    found = {**made, **{name: given[name] for name in DEFAULTS if name in given}}
    if "fields" in made:
        found["fields"] = [*map(with_defaults, made["fields"], given["fields"])]
    for inner in ("type", "element", "key", "value"):
        if isinstance(made.get(inner), dict):
            found[inner] = with_defaults(made[inner], given[inner])
    return found
