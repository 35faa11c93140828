"""What a table says of itself: each damage to manifests, ledger and kept snapshots is found by its kind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import ManifestEntry
from pyspark.sql import SparkSession

from iceberg import history, manifests
from iceberg.evolution import OFFSET_ID, PARTITION_ID, TIMESTAMP_ID
from iceberg.metadata import Metadata
from iceberg.spark.shelf import shelf
from iceberg.spark.tables import pinned
from iceberg.spark.verdict import FILE, LEDGER, SNAPSHOT, Finding
from tests.unit.iceberg import rig as rigs

pytestmark = pytest.mark.services

HIGHS = {("t", 0): 6, ("t", 1): 2}
Change = Callable[[Metadata], object]


@dataclass(frozen=True)
class Shelf:
    """A damage: to the table's metadata, or to its newest manifest and what that names."""

    name: str
    kinds: set[str]
    text: str
    metadata: Change | None = None
    manifest: Callable[[list[ManifestEntry]], object] | None = None


def _summary(at: int, **values: str | None) -> Change:
    """Other values in the summary of a snapshot."""

    def change(metadata: Metadata) -> None:
        summary = metadata["snapshots"][at]["summary"]
        for name, value in values.items():
            key = name.replace("__", ".").replace("_", "-")
            if value is None:
                del summary[key]
            else:
                summary[key] = value

    return change


def _bound(which: str, column: int, by: int) -> Callable[[list[ManifestEntry]], None]:
    """A bound of the first file is another."""

    def change(entries: list[ManifestEntry]) -> None:
        bounds = getattr(entries[0].data_file, f"{which}_bounds")
        number = int.from_bytes(bounds[column], "little", signed=True) + by
        bounds[column] = number.to_bytes(len(bounds[column]), "little", signed=True)

    return change


def _rows(entries: list[ManifestEntry]) -> None:
    entries[0].data_file[3] += 1  # record_count: pyiceberg has no setter


def _a_row_lost(entries: list[ManifestEntry]) -> None:
    """The file itself lacks its last row."""
    path = urlsplit(entries[0].data_file.file_path).path
    table = pq.read_table(path)
    other = path.replace(".parquet", "-other.parquet")
    pq.write_table(table.slice(0, len(table) - 1), other)
    entries[0].data_file[1] = f"file://{other}"


def _lists_exchanged(metadata: Metadata) -> None:
    first, second = metadata["snapshots"][1:3]
    first["manifest-list"], second["manifest-list"] = second["manifest-list"], first["manifest-list"]


SHELVES = [
    Shelf("nothing", set(), ""),
    Shelf("a ledger behind its rows", {LEDGER}, "there are rows up to 5", _summary(-1, floe__next_offsets="5,2")),
    Shelf("no ledger", {LEDGER}, "has no ledger", _summary(-1, floe__next_offsets=None)),
    Shelf("rows that an old snapshot did not add", {SNAPSHOT}, "says added-records 9, its manifests add 2",
          _summary(1, added_records="9")),
    Shelf("files that an old snapshot did not add", {SNAPSHOT}, "says added-data-files 4", _summary(2, added_data_files="4")),
    Shelf("an old snapshot's total", {SNAPSHOT}, "says total-records 7, with its parent's it is 5",
          _summary(2, total_records="7")),
    Shelf("the current snapshot's total", {SNAPSHOT}, "says total-data-files 9, it has 4",
          _summary(-1, total_data_files="9")),
    Shelf("ranges that its files are not in", {SNAPSHOT}, "outside the ranges", _summary(2, floe__ranges="0:4-5")),
    Shelf("ranges that another snapshot has", {SNAPSHOT}, "an earlier one up to 4", _summary(2, floe__ranges="0:2-4,1:0-2")),
    Shelf("the manifests of another snapshot", {SNAPSHOT}, "its manifest list names", _lists_exchanged),
    Shelf("a count of rows", {FILE, SNAPSHOT}, "the manifest says 2 rows, it has 1", manifest=_rows),
    Shelf("a row lost in the file", {FILE}, "it has", manifest=_a_row_lost),
    Shelf("a lowest offset", {FILE}, "lowest kafka.offset is 5, it is 4", manifest=_bound("lower", OFFSET_ID, 1)),
    Shelf("a highest offset", {FILE}, "highest kafka.offset is 4, it is 5", manifest=_bound("upper", OFFSET_ID, -1)),
    Shelf("a partition", {FILE}, "lowest kafka.partition is -1", manifest=_bound("lower", PARTITION_ID, -1)),
    Shelf("a timestamp", {FILE}, "highest kafka.timestamp", manifest=_bound("upper", TIMESTAMP_ID, -1)),
]  # fmt: skip


async def _made(folder: Path) -> tuple[Metadata, list[Any], dict[str, bytes]]:
    """A table of four snapshots as Floe's committer makes it, and the newest one's manifests."""
    async with rigs.running(folder) as rig:
        await rig.create_topic()
        committer = rig.committer()
        for values, partition in (([b"a", b"b"], 0), ([b"c", b"d"], 0), ([b"e"], 1), ([b"f"], 1)):
            pass
        await rig.produce([b"a", b"b"])
        await rig.drain(committer)
        await rig.produce([b"c", b"d"])
        await rig.drain(committer)
        await rig.produce([b"e", b"f"], partition=1)
        await rig.drain(committer)
        await rig.produce([b"g", b"h"])
        await rig.drain(committer)
        head = await rig.head()
        contents = {
            each.manifest_path: await rig.store.get(rig.warehouse.key(each.manifest_path))
            for each in head.manifests
        }
        return history.composed(head.metadata, []), list(head.manifests), contents
