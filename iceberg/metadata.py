"""Table metadata as plain dicts (Iceberg spec, format v2 and v3): new tables, appended snapshots, expiry.

pyiceberg copies whole metadata models at every commit, which grows with the snapshots; a dict with two lists
changed does not. Nothing here does I/O. Every function returns new metadata and leaves its argument alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iceberg import json_steps, ledger, lineage
from iceberg.evolution import OFFSET_ID, PARTITION_ID
from objectstore.turns import Turns, at_once

Metadata = dict[str, Any]

IDENTIFIER_IDS = (PARTITION_ID, OFFSET_ID)
"""By which columns a row is known (the specification's identifier fields): required ones of a required
struct, as the specification wants them. They were required in every table that Floe ever made.
"""
PREVIOUS_PROPERTY = "write.metadata.previous-versions-max"
DELETE_PROPERTY = "write.metadata.delete-after-commit.enabled"
_DEPTH = 2  # a snapshot is made and read whole
_LAST_PARTITION_ID = 999  # the spec's start: a table without partition fields has none


@dataclass(frozen=True, slots=True)
class Retention:
    """What a metadata file names: snapshots (the rest stands in segments, history.py), former metadata files
    (a table's PREVIOUS_PROPERTY may say fewer, one at least).

    `history_max`: snapshots of the whole history, whatever their age.
    """

    snapshots: int = 32
    previous_versions: int = 20
    history_max: int = 20_000


def new_table(
    table_uuid: str,
    location: str,
    fields: Sequence[Mapping[str, Any]],
    last_column_id: int,
    properties: Mapping[str, str],
    now_ms: int,
    format_version: int = 2,
) -> Metadata:
    """An empty, unpartitioned table of format version 2 or a later one."""
    first = {
        "format-version": 2,
        "table-uuid": table_uuid,
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": now_ms,
        "last-column-id": last_column_id,
        "current-schema-id": 0,
        "schemas": [_schema(0, fields)],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": _LAST_PARTITION_ID,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": dict(properties),
        "current-snapshot-id": -1,
        "refs": {},
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
        "statistics": [],
        "partition-statistics": [],
    }
    return lineage.upgraded(first, format_version)


def with_schema(
    metadata: Metadata,
    fields: Sequence[Mapping[str, Any]],
    last_column_id: int,
    properties: Mapping[str, str],
) -> Metadata:
    """The table with these columns; its metadata as it is when it has them already."""
    properties = {**metadata["properties"], **properties}
    if has_schema(metadata, fields):
        return {**metadata, "properties": properties}
    number = max(each["schema-id"] for each in metadata["schemas"]) + 1
    return {
        **metadata,
        "properties": properties,
        "schemas": [*metadata["schemas"], _schema(number, fields)],
        "current-schema-id": number,
        "last-column-id": max(last_column_id, metadata["last-column-id"]),
    }


def with_snapshot(metadata: Metadata, snapshot: Mapping[str, Any]) -> Metadata:
    """The table with one more snapshot as its current one. The one before tells no more than it must."""
    number, stamp, before = snapshot["snapshot-id"], snapshot["timestamp-ms"], metadata["current-snapshot-id"]
    return {
        **metadata,
        "snapshots": [
            *[_former(each) if each["snapshot-id"] == before else each for each in metadata["snapshots"]],
            dict(snapshot),
        ],
        "snapshot-log": [*metadata["snapshot-log"], {"timestamp-ms": stamp, "snapshot-id": number}],
        "current-snapshot-id": number,
        "last-sequence-number": snapshot["sequence-number"],
        **({} if (end := lineage.end_of(snapshot)) is None else {lineage.NEXT: end}),
        "refs": {**metadata["refs"], "main": {"snapshot-id": number, "type": "branch"}},
    }


def _former(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    return {**snapshot, "summary": ledger.told_elsewhere(snapshot["summary"])}


def following(
    metadata: Metadata, previous: str, before: Metadata, now_ms: int, retention: Retention
) -> Metadata:
    """`metadata` as it is written next, with its time and the log of former files, which `previous` joins.

    `before`: the metadata at location `previous`.
    """
    log = [*before["metadata-log"], {"metadata-file": previous, "timestamp-ms": newest_ms(before)}]
    stamp = max(now_ms, newest_ms(before), newest_ms(metadata))
    wanted = whole_number((metadata.get("properties") or {}).get(PREVIOUS_PROPERTY))
    kept = max(1, min(retention.previous_versions, retention.previous_versions if wanted is None else wanted))
    return {**metadata, "metadata-log": log[-kept:], "last-updated-ms": stamp}


def newest_ms(metadata: Mapping[str, Any]) -> int:
    """The latest time that a table tells: what comes next is stamped no earlier, whatever a clock says.

    Java's engines load no table whose logs, or last update, go back by more than a minute (TableMetadata).
    """
    logs = [metadata.get(name) or [] for name in ("snapshot-log", "metadata-log")]
    stamps = [int(each["timestamp-ms"]) for log in logs for each in log[-1:]]
    return max([int(metadata.get("last-updated-ms") or 0), *stamps])


def forgotten(before: Metadata, after: Metadata) -> list[str]:
    """Former metadata files that `after`, the next commit, names no more, where they are to be deleted
    (DELETE_PROPERTY); else none.
    """
    if after["properties"].get(DELETE_PROPERTY) != "true":
        return []
    named = {each["metadata-file"] for each in after["metadata-log"]}
    found = [each["metadata-file"] for each in before["metadata-log"]]
    return [each for each in found if each not in named]


def whole_number(text: object) -> int | None:
    """A property's value as a whole number from 0 on; None when it is none."""
    if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 19:
        return int(text)
    return None


def current_fields(metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The top-level fields of the current schema."""
    fields: list[dict[str, Any]] = current_schema(metadata)["fields"]
    return fields


def current_schema(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """The current schema."""
    number = metadata["current-schema-id"]
    found: Mapping[str, Any] = next(each for each in metadata["schemas"] if each["schema-id"] == number)
    return found


def has_schema(metadata: Mapping[str, Any], fields: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the current schema has these fields and says by which a row is known.

    Tables of older versions of Floe do not say that: they get a schema that does with their next commit.
    """
    schema = current_schema(metadata)
    identifier = sorted(schema.get("identifier-field-ids") or ())
    return bool(schema["fields"] == list(fields)) and identifier == list(IDENTIFIER_IDS)


def encode_steps(metadata: Metadata) -> Turns[list[bytes]]:
    """The file's content in parts, snapshot by snapshot."""
    return json_steps.encode(metadata, _DEPTH)


def decode_steps(content: bytes) -> Turns[Metadata]:
    """Inverse of encode. Raises ValueError."""
    found = yield from json_steps.decode(content, _DEPTH)
    if not isinstance(found, dict) or "format-version" not in found:
        raise ValueError("not Iceberg table metadata")
    return found


def encode(metadata: Metadata) -> bytes:
    """The file's content, where nobody waits."""
    return b"".join(at_once(encode_steps(metadata)))


def decode(content: bytes) -> Metadata:
    """Inverse of encode, where nobody waits. Raises ValueError."""
    return at_once(decode_steps(content))


def version_of(location: str) -> int:
    """The number at the front of a metadata file's name; 0 for names that have none."""
    front = location.rsplit("/", 1)[-1].split("-", 1)[0]
    return int(front) if front.isdecimal() else 0


def metadata_name(version: int, unique: bytes) -> str:
    """The name of a metadata file, unique by 16 random bytes, in the form that engines expect."""
    text = unique.hex()
    uuid = "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
    return f"metadata/{version:05d}-{uuid}.metadata.json"


def _schema(number: int, fields: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "type": "struct",
        "schema-id": number,
        "fields": [dict(each) for each in fields],
        "identifier-field-ids": [*IDENTIFIER_IDS],
    }
