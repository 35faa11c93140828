"""A topic's table as a witness of the audit: hashes made by Spark, and what its columns are found to be."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from types import MappingProxyType
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from iceberg.column_ids import KEY_ID, VALUE_ID
from iceberg.spark.columns import COLUMNS_PROPERTY, WRONG_SQL, TableColumns, judging
from iceberg.spark.flat import whole, whole_value
from iceberg.spark.schemas import TopicSchemas
from objectstore.offset_ranges import outside

COMPARED = ("key_hash", "value_hash", "headers_hash", "timestamp_us", "timestamp_type")
WRONG = "wrong"
RAW = "__raw__"

HEADERS_SQL = "array<struct<key string, value binary>>"

_PLACE_SQL = "topic string, partition int, offset long"


@dataclass(frozen=True, slots=True)
class Digest:
    """How bytes are compared: by which hash, null for null, and that hash's type in SQL."""

    of: Callable[[Column], Column]
    kind: str

    @property
    def compared_sql(self) -> str:
        """COMPARED with their types."""
        hashes = ", ".join(f"{name} {self.kind}" for name in COMPARED[:3])
        return f"{hashes}, timestamp_us long, timestamp_type int"


def _sha256(data: Column) -> Column:
    return F.unhex(F.sha2(data, 256))


def _xxhash(data: Column) -> Column:
    return F.when(data.isNotNull(), F.xxhash64(data))


SHA256 = Digest(_sha256, "binary")
"""As in histories, which are written elsewhere (history.py)."""
XXHASH = Digest(_xxhash, "long")
"""Where Spark reads both sides: 64 bits, in a fraction of the time and room."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """A topic's table as of one snapshot, by which all of an audit reads it. No `snapshot`: it has none."""

    topic: str
    table: str
    columns: TableColumns
    snapshot: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    summary: Mapping[str, str] = field(default_factory=dict)
    specs: Sequence[str] = ()
    """The table's partition specs, each as JSON."""
    next_row_id: int | None = None
    """The first id that no row has; None where rows have none (format version 3)."""
    sequence: int = 0
    """The snapshot's sequence number."""

    @property
    def fields(self) -> list[dict[str, Any]]:
        """The top-level fields in Iceberg's JSON."""
        found: list[dict[str, Any]] = json.loads(self.columns.fields)
        return found

    @property
    def rows(self) -> str:
        """For FROM."""
        return self.table if self.snapshot is None else f"{self.table} VERSION AS OF {self.snapshot}"


def pinned(spark: SparkSession, topic: str, table: str) -> Pinned:
    """The table as of its present snapshot."""
    jvm: Any = spark._jvm  # PySpark shows neither the ids of columns nor the properties of a table
    spark._get_j_spark_session_class(jvm).setActiveSession(
        spark._jsparkSession
    )  # whose catalogs are looked in
    found = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table)
    snapshot = found.currentSnapshot()
    schema = found.schema() if snapshot is None else found.schemas()[snapshot.schemaId()]
    fields = json.loads(jvm.org.apache.iceberg.SchemaParser.toJson(schema))["fields"]
    properties = dict(found.properties())
    columns = TableColumns(json.dumps(fields), properties.get(COLUMNS_PROPERTY, ""))
    if snapshot is None:
        return Pinned(topic, table, columns, properties=properties)
    to_json = jvm.org.apache.iceberg.PartitionSpecParser.toJson
    specs = [str(to_json(each)) for each in found.specs().values()]
    summary = dict(snapshot.summary())
    row_id = None if snapshot.firstRowId() is None else found.operations().current().nextRowId()
    numbers = row_id, snapshot.sequenceNumber()
    return Pinned(topic, table, columns, snapshot.snapshotId(), properties, summary, specs, *numbers)


Since = Mapping[tuple[str, int], int]
"""By topic and partition, from which offset on rows are compared; from the first where it is not named."""
Covered = Mapping[tuple[str, int], Sequence[tuple[int, int]]]
"""By topic and partition ranges of offsets, in order and apart, whose rows are judged by digests."""
_BEHIND_ALL = (1 << 63) - 1


def plain_history(spark: SparkSession, topic: str, table: str, where: Column, digest: Digest) -> DataFrame:
    """A topic's table, or any view with its columns, in those of a history; `wrong` is null."""
    rows = spark.table(table).where(where).select(F.lit(topic).alias("topic"), *_compared(digest))
    return rows.withColumn(WRONG, F.lit(None).cast(WRONG_SQL))


def bytes_history(spark: SparkSession, of: Pinned, where: Column, digest: Digest) -> DataFrame:
    """The same of rows whose columns are judged elsewhere."""
    rows = spark.sql(f"SELECT * FROM {of.rows}").where(where)
    return rows.select(F.lit(of.topic).alias("topic"), *_compared(digest))


def history_of(
    spark: SparkSession, of: Pinned, schemas: TopicSchemas, where: Column, digest: Digest
) -> DataFrame:
    """The same with `wrong`, where a row is, or may be."""
    if schemas.schemas:
        return judged_history(spark, of, schemas, where, digest)
    return unbound_history(spark, of, where, digest)


def judged_history(
    spark: SparkSession, of: Pinned, schemas: TopicSchemas, where: Column, digest: Digest
) -> DataFrame:
    """The same with `wrong`: where columns are not what the row's bytes say."""
    rows = (
        spark.sql(f"SELECT * FROM {of.rows}")
        .where(where)
        .select(F.lit(of.topic).alias("topic"), *_compared(digest), "key", whole_value(of.fields), "headers")
    )
    described = f"{_PLACE_SQL}, {digest.compared_sql}, {WRONG} {WRONG_SQL}"
    return rows.mapInArrow(judging(of.columns, schemas), described)


def unbound_history(spark: SparkSession, of: Pinned, where: Column, digest: Digest) -> DataFrame:
    """The same of a topic that nothing was ever bound to, by Spark's own means: `wrong` where a row has more
    than its bytes, or lacks those, which may be right all the same.
    """
    rows = spark.sql(f"SELECT * FROM {of.rows}").where(where)
    return rows.select(F.lit(of.topic).alias("topic"), *unbound_columns(of, digest))


def unbound_columns(of: Pinned, digest: Digest) -> list[Column]:
    """What `unbound_history` says of a row, but its topic."""
    fields = {each["id"]: each for each in whole(of.fields)}
    messages = ((KEY_ID, F.col("key")), (VALUE_ID, whole_value(of.fields)))
    right = [_bytes_alone(message, fields[number]["type"]["fields"]) for number, message in messages]
    return [*_compared(digest), F.when(~reduce(Column.__and__, right), F.lit(1)).alias(WRONG)]


def _bytes_alone(message: Column, fields: Sequence[Mapping[str, Any]]) -> Column:
    """Whether a key or value is null, or has bytes and no column beside them."""
    others = [message[each["name"]].isNull() for each in fields if each["name"] != RAW]
    return message.isNull() | reduce(Column.__and__, [message[RAW].isNotNull(), *others])


def beyond(topic: str, since: Since, covered: Covered = MappingProxyType({})) -> Column:
    """Rows that are to be compared with the topic: all but those of a partition that lie below its offset of
    `since`, or in what is `covered`.

    By plain comparisons, so that files are left out by their manifests' bounds; what is in no partition that
    is named, or at no offset, stays.
    """
    partition, offset = F.col("kafka.partition"), F.col("kafka.offset")
    named = {number for of, number in since if of == topic and since[of, number] > 0}
    named |= {number for (of, number), ranges in covered.items() if of == topic and ranges}
    if not named:
        return F.lit(True)
    kept = partition.isNull() | offset.isNull() | (offset < 0) | ~partition.isin(sorted(named))
    for number in sorted(named):
        first, ranges = since.get((topic, number), 0), covered.get((topic, number), ())
        *inner, last = outside(first, _BEHIND_ALL, ranges)
        here = offset >= last[0]
        for begin, until in inner:
            here |= (offset >= begin) & (offset < until)
        kept |= (partition == number) & here
    return kept


def inside(ranges: Mapping[int, Sequence[tuple[int, int]]]) -> Column:
    """Rows in these ranges of offsets, by partition."""
    partition, offset = F.col("kafka.partition"), F.col("kafka.offset")
    found = F.lit(False)
    for number, stretches in sorted(ranges.items()):
        here = F.lit(False)
        for first, end in stretches:
            here |= (offset >= first) & (offset < end)
        found |= (partition == number) & here
    return found


def headers_text(headers: Column) -> Column:
    """A list of headers as bytes, the text of history.py; null for none.

    No list of headers is not an empty one, and a header without key or a null one is none that can be sent.
    """
    text = F.transform(
        headers,
        lambda header: F.concat(
            F.coalesce(F.hex(F.encode(header["key"], "UTF-8")), F.lit("?")),
            F.lit(":"),
            F.coalesce(F.hex(header["value"]), F.lit("-")),
        ),
    )
    written = F.encode(F.array_join(text, ","), "UTF-8")
    return F.when(F.size(headers) == 0, F.lit(b"")).otherwise(written)  # most have none, which is quicker


def _compared(digest: Digest) -> list[Column]:
    """Where a row is, and what of it is compared with what was sent and read."""
    return [
        F.col("kafka.partition").alias("partition"),
        F.col("kafka.offset").alias("offset"),
        digest.of(F.col("key.__raw__")).alias("key_hash"),
        digest.of(F.col("value.__raw__")).alias("value_hash"),
        digest.of(headers_text(F.col("headers"))).alias("headers_hash"),
        F.unix_micros(F.col("kafka.timestamp")).alias("timestamp_us"),
        F.col("kafka.timestamp_type").alias("timestamp_type"),
    ]
