"""Who could use a topic and who did: the audit log's table read by Spark (iceberg/spark/access.py)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from agent.kafka.trail.writer import encoded
from agent.telemetry.changes import Acl, Change
from agent.telemetry.trail import Actor, Event
from iceberg.spark.access import Could, Did, report
from iceberg.spark.watermark import JobError
from schema.audit import EVENT
from tests.spark.lake import lake
from tests.unit.iceberg.rig import Rig

PROTO = Path(__file__).resolve().parents[2] / "schema" / "proto" / "audit.proto"
ALICE = Actor("alice", "10.0.0.1", "app", "L")
ROOT = Actor("root", "10.0.0.9", "cli", "L")
READ = Acl("Topic", "PREFIXED", "pay", "User:alice", "*", "Read", "ALLOW")
OTHERS = Acl("Topic", "LITERAL", "other", "User:bob", "*", "Read", "ALLOW")
EVERY = Acl("Topic", "LITERAL", "*", "User:carol", "10.0.0.2", "Write", "DENY")


@pytest.fixture
async def rig(spark: SparkSession, tmp_path: Path) -> AsyncIterator[Rig]:
    async with lake(spark, tmp_path) as found:
        yield found


def event(
    number: int, kind: str, actor: Actor, change: Change, outcome: str = "NONE", times: int = 1
) -> bytes:
    return encoded(Event(f"a-1-{number}", number, kind, actor, change, outcome, times))


def acls(number: int, added: Sequence[Acl] = (), removed: Sequence[Acl] = (), outcome: str = "NONE") -> bytes:
    change = Change("CreateAcls", "Cluster", "", added=added, removed=removed)
    return event(number, "CHANGE", ROOT, change, outcome)


def access(number: int, topic: str, times: int = 1) -> bytes:
    return event(number, "ACCESS", ALICE, Change("Read", "Topic", topic), times=times)


EVENTS = [
    acls(100, added=[READ, OTHERS, EVERY]),
    access(110, "payments"),
    acls(120, added=[READ]),  # it was there
    access(130, "payments", times=7),
    access(130, "payments", times=7),  # written twice
    access(140, "other"),
    acls(150, removed=[READ], outcome="CLUSTER_AUTHORIZATION_FAILED"),
    acls(160, removed=[READ]),
    event(170, "REFUSED", ALICE, Change("Read", "Topic", "payments"), "TOPIC_AUTHORIZATION_FAILED", 3),
    acls(180, added=[READ]),
]


async def test_who_could_and_who_did(rig: Rig, spark: SparkSession) -> None:
    await rig.create_topic(name="floe.audit", partitions=1)
    await rig.bind(PROTO.read_bytes(), EVENT, topic="floe.audit")
    await rig.produce(EVENTS, topic="floe.audit")
    await rig.drain(rig.committer(topic="floe.audit"))
    carol = Could("User:carol", "10.0.0.2", "Write", "DENY", "LITERAL *", 100, None)

    def look() -> None:
        found = report(spark, "payments")
        assert found.did == [
            Did("User:alice", "10.0.0.1", "ACCESS", "Read", "NONE", 8, 110, 130),
            Did("User:alice", "10.0.0.1", "REFUSED", "Read", "TOPIC_AUTHORIZATION_FAILED", 3, 170, 170),
        ]
        alice = ("User:alice", "*", "Read", "ALLOW", "PREFIXED pay")
        assert found.could == [Could(*alice, 100, 160), carol, Could(*alice, 180, None)]
        between = report(spark, "payments", 160, 180)
        assert [each.kind for each in between.did] == ["REFUSED"]
        assert between.could == [carol], "alice was out in between"
        assert report(spark, "unknown").did == []

    await asyncio.to_thread(look)


async def test_without_an_audit_log_it_says_what_to_set(rig: Rig, spark: SparkSession) -> None:
    def look() -> None:
        with pytest.raises(JobError, match=r"floe.floe_audit is not there: set audit_log.topic"):
            report(spark, "payments")

    await asyncio.to_thread(look)
