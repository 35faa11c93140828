"""What a topic's table says of itself, asked through Spark's SQL alone: no JVM of ours is needed, so that it
works over Spark Connect as well.

The ledger is in the current snapshot's summary: `floe.next-offsets`, per partition the end of what the table
holds, and `floe.topic-id` (iceberg/ledger.py writes both). A snapshot that removed rows, since they went with
the topic's, says below which offsets in `floe.removed-below`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from iceberg.spark.session import CATALOG
from iceberg.spark.watermark import UnknownTable, Watermark

_TOPIC, _TOPIC_ID = "floe.topic", "floe.topic-id"
LOOKS_MAX = 5


@dataclass(frozen=True, slots=True)
class TopicTable:
    """A topic's table at its current snapshot; `snapshot_id` is None while nothing was committed.

    `removed_below`: by partition, below which offsets the kept snapshots took rows out.
    """

    table: str
    topic: str
    end: Watermark
    snapshot_id: int | None
    removed_below: tuple[int, ...]


def topic_table(spark: SparkSession, table: str) -> TopicTable:
    """Look at a table (`catalog.namespace.name`). Raises UnknownTable."""
    properties = table_properties(spark, table)
    if _TOPIC_ID not in properties:
        raise UnknownTable(
            f"table {table!r} is no topic's (it has no property {_TOPIC_ID}): name the table of a topic, as "
            "`floe table list` does"
        )
    for _ in range(LOOKS_MAX):
        found = _look(spark, table, properties)
        if found is not None:
            return found
    raise UnknownTable(
        f"table {table!r} has no ledger in its current snapshot, looked at {LOOKS_MAX} times: it was not "
        "written by Floe; `floe table list` says what its agents make of it"
    )


def _look(spark: SparkSession, table: str, properties: Mapping[str, str]) -> TopicTable | None:
    """One look; None when the snapshot that was the current one is so no more, and has no ledger any more."""
    snapshot_id = head_of(spark, table)
    rows = spark.sql(
        f"SELECT snapshot_id, summary['{_TOPIC_ID}'] AS topic_id, "
        "summary['floe.next-offsets'] AS next_offsets, summary['floe.removed-below'] AS removed_below "
        f"FROM {table}.snapshots WHERE snapshot_id = {snapshot_id or 0} "
        "OR summary['floe.removed-below'] IS NOT NULL"
    ).collect()
    ends = [
        Watermark(row["topic_id"], _offsets(row["next_offsets"]))
        for row in rows
        if row["snapshot_id"] == snapshot_id and row["next_offsets"] is not None
    ]
    if snapshot_id is not None and not ends:
        return None
    removed = Watermark("")
    for row in rows:
        removed = removed.raised(_offsets(row["removed_below"]))
    end = ends[0] if ends else Watermark(properties[_TOPIC_ID])
    return TopicTable(table, properties[_TOPIC], end, snapshot_id, removed.offsets)


def head_of(spark: SparkSession, table: str, ref: str = "main") -> int | None:
    """The snapshot that a branch of the table stands at; None when there is none.

    Asked for by itself, and first: two tables of metadata in one query may be of two moments.
    """
    rows = spark.sql(f"SELECT snapshot_id FROM {table}.refs WHERE name = '{ref}'").collect()
    return int(rows[0]["snapshot_id"]) if rows else None


def ancestry(head: int | None, parents: Mapping[int, int | None]) -> list[int]:
    """The snapshots that `head` came from, itself first, as far as they are kept.

    By their parents: a stamp is by the clock of who wrote the snapshot, and tells no order.
    """
    found: dict[int, None] = {}
    while head is not None and head in parents and head not in found:
        found[head] = None
        head = parents[head]
    return [*found]


def table_properties(spark: SparkSession, table: str) -> dict[str, str]:
    """The properties of any table. Raises UnknownTable when it is not there."""
    if not spark.catalog.tableExists(table):
        raise UnknownTable(
            f"table {table!r} does not exist: write catalog.namespace.name, such as {CATALOG}.floe.clicks "
            "for topic clicks; a topic's table comes some seconds after its first record"
        )
    return {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect()}


def now_ms(spark: SparkSession) -> int:
    """The time by Spark's clock, in Unix milliseconds."""
    return int(spark.sql("SELECT unix_millis(current_timestamp()) AS ms").collect()[0]["ms"])


def _offsets(text: str | None) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(",")) if text else ()
