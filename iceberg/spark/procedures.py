"""A table's files, manifests, snapshots and orphans, looked at and made anew by Iceberg's procedures.

All of it is Spark's SQL. What is asked of a topic's table is what Floe's catalog takes (iceberg/foreign.py):
files of one Kafka partition and one spec, in a commit of operation `replace`; sorted as the table says, else
by offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pyspark.sql import Row, SparkSession

from iceberg.spark.commands import one_line
from iceberg.spark.jobs import PROPERTY
from iceberg.spark.rewriting import STEP_BYTES_MAX, DataFile, Sizes, Step
from iceberg.spark.topics import ancestry, head_of, now_ms, table_properties
from iceberg.spark.watermark import JobError, UnknownTable

TABLES_MAX = 10_000
"""Tables and namespaces of one catalog that a run looks at."""
FILES_MAX = 200_000
"""Files of one table that come to the driver; those of further partitions and offsets wait."""
SMALL_MANIFEST_BYTES = 4 << 20
"""Half of what Iceberg makes a manifest (commit.manifest.target-size-bytes)."""
_NO_LIMIT = 1 << 62
_TOPIC, _TOPIC_ID = "floe.topic", "floe.topic-id"
_SORT_ORDER = "sort-order"
"""A property that Spark's catalog tells of tables that have one."""
_AUDITED, _FINDINGS = "audit.topic-id", "audit.findings"  # iceberg/audited.py
_RUN = "run"


class Table(NamedTuple):
    """`name`: `namespace.name`; `sql`: the whole name, quoted; `topic`: None for a table that is no topic's;
    `sick`: why it cannot be looked at; `is_sorted`: whether the table has an order of its own.
    """

    name: str
    catalog: str
    sql: str
    topic: str | None
    sick: str = ""
    is_sorted: bool = False

    def call(self, procedure: str, **arguments: str) -> str:
        """A procedure over this table; arguments are SQL."""
        given = {"table": quoted(self.sql), **arguments}
        told = ", ".join(f"{name} => {value}" for name, value in given.items())
        return f"CALL {self.catalog}.system.{procedure}({told})"


class Rewritten(NamedTuple):
    """Files that went, files that came, and bytes of those that went."""

    files: int
    made: int
    size: int


def quoted(text: str) -> str:
    """A text of SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def tables(
    spark: SparkSession,
    catalog: str,
    wants: Callable[[str], bool],
    wants_topic: Callable[[str], bool],
) -> list[Table]:
    """The catalog's tables that `wants` by name or `wants_topic` by topic. Raises JobError for too many."""
    found, seen = [], 0
    for namespace in _namespaces(spark, catalog):
        space = f"{catalog}.{_named(namespace)}"
        for row in spark.sql(f"SHOW TABLES IN {space}").collect():
            seen += 1
            name, sql = f"{namespace}.{row['tableName']}", f"{space}.{_named(row['tableName'], whole=True)}"
            table = _wanted(spark, catalog, name, sql, wants, wants_topic)
            found += [table] if table else []
        if seen > TABLES_MAX:
            raise JobError(
                f"catalog {catalog} has over {TABLES_MAX} tables: maintain parts of it by --tables"
            )
    return found


def _wanted(
    spark: SparkSession,
    catalog: str,
    name: str,
    sql: str,
    wants: Callable[[str], bool],
    wants_topic: Callable[[str], bool],
) -> Table | None:
    """A table, if it is wanted; one that cannot be looked at is known by its name alone."""
    try:
        properties = table_properties(spark, sql)
    except UnknownTable:  # it went since it was listed
        return None
    except Exception as error:  # py4j's, Spark's: one sick table must not stop the others
        known = wants(name) or wants_topic(name.rpartition(".")[2])
        return Table(name, catalog, sql, None, one_line(error)) if known else None
    topic = properties.get(_TOPIC, "") if _TOPIC_ID in properties else None
    if wants(name) or (topic is not None and wants_topic(topic)):
        return Table(name, catalog, sql, topic, is_sorted=_SORT_ORDER in properties)
    return None


def _namespaces(spark: SparkSession, catalog: str, above: str = "") -> Iterator[str]:
    """All of them, with dots between levels."""
    place = f"{catalog}.{_named(above)}" if above else catalog
    for row in spark.sql(f"SHOW NAMESPACES IN {place}").collect():
        namespace = str(row["namespace"]).replace("`", "")
        yield namespace
        yield from _namespaces(spark, catalog, namespace)


def _named(name: str, *, whole: bool = False) -> str:
    """A name in SQL; its dots part levels unless it is one `whole` name."""
    parts = [name] if whole else name.split(".")
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def topic_files(spark: SparkSession, table: Table) -> list[DataFile]:
    """A topic's data files by Kafka partition and first offset, FILES_MAX at most."""
    place, offset = (f"readable_metrics.`kafka.{name}`" for name in ("partition", "offset"))
    rows = spark.sql(
        f"SELECT file_size_in_bytes AS size, spec_id, {_values(spark, table)} AS values, "
        f"{place}.lower_bound AS partition, {offset}.lower_bound AS first, {offset}.upper_bound AS last "
        f"FROM {table.sql}.files WHERE {place}.lower_bound IS NOT NULL AND {offset}.lower_bound IS NOT NULL "
        f"ORDER BY partition, first LIMIT {FILES_MAX}"
    ).collect()
    return [DataFile(**row.asDict()) for row in rows]


def own_files(spark: SparkSession, table: Table, sizes: Sizes) -> tuple[int, int]:
    """How many small files of a table, and of how many bytes, are worth a rewrite."""
    rows = spark.sql(
        f"SELECT count(*) AS files, sum(file_size_in_bytes) AS size FROM {table.sql}.data_files "
        f"WHERE file_size_in_bytes < {sizes.small_below} GROUP BY spec_id, {_values(spark, table)} "
        f"HAVING files > 1 AND (files >= {sizes.files_min} OR size > {sizes.target_bytes})"
    ).collect()
    return sum(row["files"] for row in rows), sum(row["size"] for row in rows)


def _values(spark: SparkSession, table: Table) -> str:
    """A file's partition values as one text; tables that never had a spec have no such column."""
    return "to_json(partition)" if "partition" in spark.table(f"{table.sql}.files").columns else "''"


def rewrite_sorted(spark: SparkSession, table: Table, step: Step, sizes: Sizes) -> Rewritten:
    """One commit to a topic's table."""
    more = {"output-spec-id": step.spec_id}
    if (
        sizes.is_sorted
    ):  # a stretch that makes one large file of few is worth it, which Iceberg has no word for
        more["min-input-files"] = 2
    sort = {"strategy": "'sort'", "where": quoted(step.where())}
    if not sizes.is_sorted:
        sort["sort_order"] = "'kafka.offset'"
    call = table.call("rewrite_data_files", **sort, options=_options(sizes, more))
    return _rewritten(spark.sql(call).collect()[0])


def rewrite_own(spark: SparkSession, table: Table, files_max: int, sizes: Sizes) -> Rewritten:
    """One commit to a table of the users' own, as that is sorted and partitioned now."""
    step = min(STEP_BYTES_MAX, sizes.step_bytes_max)
    options = _options(sizes, {"max-files-to-rewrite": files_max, "max-file-group-size-bytes": step})
    sort = {"strategy": "'sort'"} if table.is_sorted else {}
    return _rewritten(spark.sql(table.call("rewrite_data_files", **sort, options=options)).collect()[0])


def _options(sizes: Sizes, more: Mapping[str, int]) -> str:
    """What rewriting.py chose is what Iceberg chooses: small files, that many, and never a large one."""
    given = {
        "target-file-size-bytes": sizes.target_bytes,
        "min-file-size-bytes": sizes.small_below,
        "max-file-size-bytes": _NO_LIMIT,
        "max-file-group-size-bytes": _NO_LIMIT,
        "min-input-files": sizes.files_min,
        **more,
    }
    return "map(" + ", ".join(f"'{name}', '{value}'" for name, value in given.items()) + ")"


def _rewritten(row: Row) -> Rewritten:
    return Rewritten(
        row["rewritten_data_files_count"], row["added_data_files_count"], row["rewritten_bytes_count"]
    )


def small_manifests(spark: SparkSession, table: Table) -> int:
    """How many manifests could be fewer."""
    small = f"SELECT count(*) FROM {table.sql}.manifests WHERE length < {SMALL_MANIFEST_BYTES}"
    return int(spark.sql(small).collect()[0][0])


def rewrite_manifests(spark: SparkSession, table: Table) -> int:
    """One commit; how many manifests went."""
    row = spark.sql(table.call("rewrite_manifests")).collect()[0]
    return int(row["rewritten_manifests_count"])


def expiry(spark: SparkSession, table: Table, hours: int) -> str:
    """Before when snapshots may go, in SQL's form: so many hours ago, and never those that jobs and audits
    will ask for: of each topic the newest one that notes up to where a run, or an audit, has read.
    """
    until_ms, head = now_ms(spark) - hours * 3_600_000, head_of(spark, table.sql)
    rows = spark.sql(
        "SELECT snapshot_id, parent_id, unix_millis(committed_at) AS ms, map_filter(summary, (name, value) "
        f"-> startswith(name, '{PROPERTY}') OR name IN ('{_AUDITED}', '{_FINDINGS}')) AS noted "
        f"FROM {table.sql}.snapshots"
    ).collect()
    at_ms = unasked_ms(head, (row.asDict() for row in rows), until_ms)
    at = datetime.fromtimestamp(at_ms / 1_000, UTC)
    return at.strftime("%Y-%m-%d %H:%M:%S.%f UTC")


def unasked_ms(head: int | None, rows: Iterable[Mapping[str, Any]], until_ms: int) -> int:
    """Before when nobody asks for a snapshot of these, which are in the order of their commits; `until_ms` at
    most. `head`: where main is.

    With a snapshot Iceberg lets go all that it came from. So what was committed since the one that is asked
    for must not be older either, as that of an engine whose clock is behind would be. Audits are asked of all
    snapshots: a table of them that was tidied has gaps, behind which none is main's ancestor.
    """
    kept = {row["snapshot_id"]: row for row in rows}
    ours = ancestry(head, {number: row["parent_id"] for number, row in kept.items()})
    apart = [number for number in reversed(kept) if number not in frozenset(ours)]
    found, at_ms = dict[tuple[str, str], int](), until_ms
    for place, number in enumerate([*ours, *apart]):
        at_ms = min(at_ms, kept[number]["ms"])
        for told in _told(kept[number]["noted"] or {}):
            if place < len(ours) or told[0] != _RUN:
                found.setdefault(told, at_ms)
    return min(found.values(), default=until_ms)


def _told(summary: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Of what a snapshot's summary tells: of which topic somebody has read up to where."""
    for name, value in summary.items():
        if name.startswith(PROPERTY):
            yield _RUN, value.rpartition("=")[0]
        if name == _AUDITED:
            yield "audit", value
            if summary.get(_FINDINGS) == "0":
                yield "equal audit", value


def expire(spark: SparkSession, table: Table, until: str) -> int:
    """Remove snapshots of before then; how many files went with them."""
    row = spark.sql(table.call("expire_snapshots", older_than=f"TIMESTAMP '{until}'")).collect()[0]
    return sum(value for name, value in row.asDict().items() if name.endswith("_count"))


def remove_orphans(spark: SparkSession, table: Table, hours: int, *, dry_run: bool) -> int:
    """Remove files below the table's folder that none of its snapshots names; how many there were."""
    before = datetime.fromtimestamp((now_ms(spark) - hours * 3_600_000) / 1_000, UTC)
    given = {"older_than": f"TIMESTAMP '{before:%Y-%m-%d %H:%M:%S} UTC'", "dry_run": str(dry_run).lower()}
    return len(spark.sql(table.call("remove_orphan_files", **given, prefix_listing="true")).collect())
