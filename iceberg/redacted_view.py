"""A view on a topic's table without what its schemas mark, as Iceberg's view metadata. Pure.

The query names each column that it shows, so that what comes to the table later is in no old answer. It is
Spark's SQL. Marked text and bytes are masked where the mark says so; everything else that is marked is left
out, hashes too: their key would stand in the query.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from iceberg.column_ids import KEY_ID, VALUE_ID
from iceberg.evolution import HEADERS_ID, KAFKA_ID, KEY_RAW_ID
from iceberg.redacted_columns import Told
from iceberg.rows import UNREADABLE_HEADER
from iceberg.view_metadata import FORMAT_VERSION
from schema.redaction.marks import MASK, Action

DIALECT = "spark"
_TEXT = {"string": f"'{MASK}'", "binary": f"CAST('{MASK}' AS BINARY)"}


class Shown(NamedTuple):
    """A column of the view: its expression, name and type."""

    sql: str
    name: str
    kind: Any
    number: int
    changed: bool


def metadata(
    table: Mapping[str, Any],
    key: tuple[str, str],
    fields: Sequence[Mapping[str, Any]],
    told: Told,
    *,
    raw_key: bool,
) -> dict[str, Any]:
    """The view's metadata. `table`: that of the table at `key`, `fields` its current columns; `raw_key`:
    keys have no schema, and are shown as they are.
    """
    shown = columns(fields, told, raw_key=raw_key)
    selected = ", ".join(
        each.sql if not each.changed else f"{each.sql} AS {quoted(each.name)}" for each in shown
    )
    sql = f"SELECT {selected} FROM {quoted(key[1])}"
    at_ms = int(table["last-updated-ms"])
    version = {
        "version-id": 1,
        "timestamp-ms": at_ms,
        "schema-id": 0,
        "summary": {"engine-name": "floe"},
        "default-namespace": key[0].split("."),
        "representations": [{"type": "sql", "sql": sql, "dialect": DIALECT}],
    }
    schema = {"type": "struct", "schema-id": 0, "fields": [_field(each) for each in shown]}
    return {
        "view-uuid": _uuid(str(table["table-uuid"])),
        "format-version": FORMAT_VERSION,
        "location": table["location"],
        "schemas": [schema],
        "current-version-id": 1,
        "versions": [version],
        "version-log": [{"timestamp-ms": at_ms, "version-id": 1}],
        "properties": {"comment": f"{'.'.join(key)} without what its schemas mark (floe.redact)"},
    }


def columns(fields: Sequence[Mapping[str, Any]], told: Told, *, raw_key: bool) -> list[Shown]:
    """The columns that are shown, of a nested table's top level or a flat one's."""
    found = []
    for each in fields:
        number, name = each["id"], quoted(each["name"])
        if number == KAFKA_ID:
            found.append(Shown(name, each["name"], each["type"], number, changed=False))
        elif number == HEADERS_ID:
            sql = f"filter({name}, header -> header.key <> '{UNREADABLE_HEADER}')"
            found.append(Shown(sql, each["name"], each["type"], number, changed=True))
        elif number in (KEY_ID, VALUE_ID):
            own = {**told, KEY_RAW_ID: None} if raw_key else told
            made = _struct(name, each["name"], each["type"], number, own, 0)
            found += [made] if made is not None else []
        else:
            made = _column(name, each, told, 0)
            found += [made] if made is not None else []
    return found


def quoted(name: str) -> str:
    """An identifier."""
    return "`" + name.replace("`", "``") + "`"


def _column(sql: str, column: Mapping[str, Any], told: Told, depth: int) -> Shown | None:
    """None: it is not shown."""
    number, kind = column["id"], column["type"]
    if number not in told:
        return None
    action, name = told[number], column["name"]
    if action is Action.MASK:
        return _masked(sql, name, kind, number, depth)
    if action is not None:
        return None
    made = _inner(sql, kind, told, depth)
    return None if made is None else Shown(made[0], name, made[1], number, made[0] != sql)


def _masked(sql: str, name: str, kind: Any, number: int, depth: int) -> Shown | None:
    if isinstance(kind, str) and kind in _TEXT:
        return Shown(f"CASE WHEN {sql} IS NOT NULL THEN {_TEXT[kind]} END", name, kind, number, changed=True)
    if isinstance(kind, Mapping) and kind["type"] == "list" and kind["element"] in ("string", "binary"):
        inside = f"transform({sql}, x{depth} -> {_TEXT[kind['element']]})"
        return Shown(inside, name, kind, number, changed=True)
    return None


def _inner(sql: str, kind: Any, told: Told, depth: int) -> tuple[str, Any] | None:
    """A shown column's expression and type, without what is hidden inside; None: nothing of it is shown."""
    if isinstance(kind, str):
        return sql, kind
    if kind["type"] == "struct":
        made = _struct(sql, "", kind, 0, told, depth)
        return None if made is None else (made.sql, made.kind)
    inside, variable = "element" if kind["type"] == "list" else "value", f"x{depth}"
    found = _inner(variable, kind[inside], told, depth + 1)
    if found is None:
        return None
    if found[0] == variable:
        return sql, kind
    function, lambda_ = "transform", variable
    if kind["type"] == "map":
        function, lambda_ = "transform_values", f"(k{depth}, {variable})"
    return f"{function}({sql}, {lambda_} -> {found[0]})", {
        **kind,
        inside: found[1],
        f"{inside}-required": False,
    }


def _struct(sql: str, name: str, kind: Any, number: int, told: Told, depth: int) -> Shown | None:
    parts = [_column(f"{sql}.{quoted(each['name'])}", each, told, depth) for each in kind["fields"]]
    shown = [each for each in parts if each is not None]
    if not shown:
        return None
    if len(shown) == len(parts) and not any(each.changed for each in shown):
        return Shown(sql, name, kind, number, changed=False)
    named = ", ".join(f"'{_escaped(each.name)}', {each.sql}" for each in shown)
    made = f"CASE WHEN {sql} IS NOT NULL THEN named_struct({named}) END"
    return Shown(
        made, name, {"type": "struct", "fields": [_field(each) for each in shown]}, number, changed=True
    )


def _field(each: Shown) -> dict[str, Any]:
    return {"id": each.number, "name": each.name, "required": False, "type": each.kind}


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace("'", "\\'")


def _uuid(of: str) -> str:
    digits = hashlib.sha256(f"redacted view of {of}".encode()).hexdigest()[:32]
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
