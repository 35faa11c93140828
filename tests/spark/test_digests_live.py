"""`floe table audit --since digests` of a topic whose old records are gone from the log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from agent.cli.audit import Auditing, audited, topic_id
from deploy.run.damage import damage
from deploy.run.stages import Embedded
from iceberg.spark.verdict import CHANGED, Verdict
from tests.spark.catalogs import attach, expect_little
from tests.spark.embedded import command, produce

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]

OLD, NEW = 2_000, 20
"""Records of partition 0: enough that a changed file has room for its metadata; and behind them."""
WAIT_S_MAX = 120


@pytest.fixture
def floe(tmp_path: Path) -> Iterator[Embedded]:
    """An agent with topic `t` of one partition."""
    with Embedded(tmp_path / "floe") as found:
        command(found, "topic", "create", "t", "--partitions", "1")
        yield found


@pytest.mark.thorough
def test_old_ranges_are_audited_though_their_records_are_gone(
    floe: Embedded, jvm: SparkSession, tmp_path: Path
) -> None:
    """A byte changed under a file's name is found, and nothing but what is new is read of the topic."""
    spark = jvm.newSession()
    expect_little(spark)
    attach(spark, "lake", f"{floe.http[0]}/iceberg")
    given = Auditing("t", floe.bootstrap, floe.http[0], (), None, WAIT_S_MAX, None, keep=True)
    given = replace(given, connector=[Path("of the session")])
    own = asyncio.run(topic_id(given))

    def audit(name: str, *, by_digests: bool) -> Verdict:
        (tmp_path / name).mkdir()
        return audited(replace(given, by_digests=by_digests), spark, own, tmp_path / name)

    produce(floe, 0, OLD, OLD)
    assert audit("first", by_digests=False).equal
    produce(floe, 0, NEW, OLD + NEW)
    admin = AdminClient({"bootstrap.servers": floe.bootstrap})
    start = TopicPartition("t", 0, OLD)
    admin.delete_records([start])[start].result(WAIT_S_MAX)

    verdict = audit("by digests", by_digests=True)
    assert verdict.equal, verdict.findings
    (count,), (known,) = verdict.topics, verdict.digests
    assert (count.consumed, count.table) == (NEW, NEW), "the old ones are not read"
    assert (known.ranges, known.rows) == (1, OLD)
    (done,) = damage(["change"], "t", "floe.t", f"{floe.http[0]}/iceberg", {})
    assert done.offset < OLD

    verdict = audit("changed", by_digests=True)
    assert [(each.kind, each.partition, each.offset) for each in verdict.findings] == [(CHANGED, 0, 0)]
    assert verdict.findings[0].detail.endswith("; the topic has them no more")
    (count,), (known,) = verdict.topics, verdict.digests
    assert count.consumed == 0, "what was new last time has a digest by now"
    assert (known.ranges, known.rows) == (2, OLD + NEW)
