"""The part of `floe table audit` that looks at a topic's `__latest` table, where it has one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.cli import agent_http
from agent.cli.failures import refused
from agent.cli.output import remarks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from iceberg.spark.verdict import Verdict

Left = Callable[[], Mapping[int, int]]
"""By partition the log start, of a topic whose table has no rows below it."""


def latest_table(http: str, topic: str) -> str:
    """The name of the topic's latest table, empty for none. Raises Failure while there shall be one."""
    status = agent_http.ask(http, "/status.json")
    made, due = (_name(status[kind], topic) for kind in ("tables", "tables_not_made"))
    if due:
        raise refused(f"the table {due} of the newest rows of {topic!r} does not exist yet: try again later")
    return made


def _name(rows: Sequence[Mapping[str, Any]], topic: str) -> str:
    own = (str(each["table"]) for each in rows if each["topic"] == topic and each["latest"])
    return next(own, "")


def with_latest(
    spark: SparkSession, verdict: Verdict, http: str, topic: str, source: str, left: Left
) -> Verdict:
    """The verdict with what is found of the latest table, as it is now; the same where there is none.

    `source`: the topic's own table. `left`: is asked once the snapshots are chosen.
    """
    from iceberg.spark.latest_tables import Latest, judged
    from iceberg.spark.session import CATALOG

    name = latest_table(http, topic)
    if not name:
        return verdict
    remarks().print(f"comparing {name} in Spark …", style="dim")
    found = judged(spark, Latest(topic, f"{CATALOG}.{name}", source, left))
    counts = dict(verdict.counts)
    for kind, count in found.counts.items():
        counts[kind] = counts.get(kind, 0) + count
    return replace(
        verdict, counts=counts, findings=[*verdict.findings, *found.findings], latest=(found.rows,)
    )
