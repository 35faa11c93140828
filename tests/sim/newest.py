"""The table of a topic's newest rows, when all is over, against a dictionary of all rows of its own table."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pyarrow.parquet as pq

from agent.app import App
from coordination.state.types import Table
from iceberg import head, manifests
from iceberg.latest_ids import latest_id, wanted
from iceberg.warehouse import Warehouse
from objectstore.store import ObjectStore, StoreError
from tests.checker.findings import Finding

CAUGHT_UP_S_MAX = 60.0
_COLUMNS = ["kafka.partition", "kafka.offset", "key.__raw__", "value.__raw__"]

Row = tuple[int, bytes | None]
Newest = dict[tuple[int, bytes], Row]
"""By partition and key a record's offset and value."""


async def judged(app: App, topic: str, objects: ObjectStore) -> list[Finding]:
    """That the table has each key's newest row, once, and no other; nothing where there shall be none."""
    state = app.replica.state
    known = state.topics[topic]
    if not wanted(known, state.cluster_configs, state.feature_level):
        return []
    own = next(each for each in state.tables.values() if each.topic_id == known.topic_id)
    table = await _caught_up(app, known.topic_id, own.next_offsets)
    if table is None:
        return [Finding("stuck", topic, f"its newest rows do not come up to {own.next_offsets}", ())]
    try:
        rows = [each async for each in _rows(app, table, objects)]
        every = [each async for each in _rows(app, own, objects)]
    except StoreError as error:
        return [Finding("latest-differs", topic, f"a table cannot be read: {error}", ())]
    return compared(topic, newest(every), rows)


def newest(rows: Sequence[Mapping[str, Any]]) -> Newest:
    """The rows that are due, record by record."""
    found: Newest = {}
    for row in sorted(rows, key=lambda each: each["kafka"]["offset"]):
        place = row["kafka"]["partition"], row["key"]["__raw__"]
        found.pop(place, None)
        if row["value"] is not None:
            found[place] = row["kafka"]["offset"], row["value"]["__raw__"]
    return found


def compared(topic: str, due: Newest, rows: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """How the table's rows differ from those."""
    there: Newest = {}
    findings = []
    for row in rows:
        place = row["kafka"]["partition"], row["key"]["__raw__"]
        if place in there:
            findings.append(Finding("latest-differs", topic, f"{place} has two rows", ()))
        there[place] = row["kafka"]["offset"], None if row["value"] is None else row["value"]["__raw__"]
    for place in sorted(due.keys() | there.keys()):
        if due.get(place) != there.get(place):
            detail = f"{place}: {there.get(place)!r}, the newest is {due.get(place)!r}"
            findings.append(Finding("latest-differs", topic, detail, ()))
    return findings


async def _caught_up(app: App, topic_id: bytes, ends: Sequence[int]) -> Table | None:
    """The table, once it has all that the topic's own has."""

    def now() -> Table | None:
        key = app.replica.state.tables_by_topic.get(latest_id(topic_id))
        table = app.replica.state.tables[key] if key is not None else None
        return table if table is not None and list(table.next_offsets) == list(ends) else None

    try:
        async with asyncio.timeout(CAUGHT_UP_S_MAX):
            while (found := now()) is None:  # noqa: ASYNC110 - polls a table
                await asyncio.sleep(0.2)
    except TimeoutError:
        return None
    return found


async def _rows(app: App, table: Table, objects: ObjectStore) -> AsyncIterator[Mapping[str, Any]]:
    warehouse = Warehouse.of(app.config.store.url, app.config.warehouse)
    at = await head.load(objects, warehouse, table.metadata_location)
    for manifest in at.manifests:
        content = await objects.get(warehouse.key(manifest.manifest_path))
        for location in manifests.data_files(manifest, content):
            data = pq.ParquetFile(io.BytesIO(await objects.get(warehouse.key(location))))
            for row in data.read(columns=_COLUMNS, use_threads=False).to_pylist():
                yield row
