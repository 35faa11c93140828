"""What was decided behind the archive, and is told by objects: a topic that came back, commits to tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordination.commands import CommitTable, DeleteTopic, PutNamespace, UndeleteTopic
from coordination.restore.report import Report, TopicBack
from coordination.state import Done
from objectstore.adapters.memory import MemoryStore
from tests.unit.coordination.kit import A, Script
from tests.unit.coordination.lost import Lost, Sent
from tests.unit.coordination.test_restore import NOW, Target, restored, started, target, values

pytestmark = pytest.mark.services
__all__ = ["target"]
URL = "s3://floe/main"


@pytest.fixture
async def lost(script: Script) -> Lost:
    """A topic with a record, which is deleted in what is archived."""
    made = Lost(MemoryStore(), script)
    script.topic(A, "t", partitions=2)
    await made.bind()
    await made.commit(A, Sent(0, ["a"], (5, 0, 0)))
    assert isinstance(script.one(A, DeleteTopic(name="t")), Done)
    return made


async def undeleted(lost: Lost) -> None:
    """Behind the archive; and it was written to."""
    (kept,) = lost.script.state.deleted.values()
    lost.script.one(A, UndeleteTopic(topic_id=kept.topic.topic_id, name="back"))
    await lost.commit(A, Sent(0, ["b"], (5, 0, 1)), Sent(1, ["x"]))
    await lost.commit(A, Sent(0, ["c"], (5, 0, 2)))


async def test_a_topic_that_was_undeleted_since_has_all_that_was_acknowledged(
    lost: Lost, target: Target
) -> None:
    await lost.archive()
    await undeleted(lost)
    report = await restored(lost, target)
    assert (report.undeleted, report.deleted_records) == ([TopicBack("t", 3, "t")], 0)
    assert [(p.partition, p.certain_end, p.end) for p in report.partitions] == [(0, 1, 3), (1, 0, 1)]
    replica = await started(lost, target)
    assert await values(lost, replica.state) == ["a", "b", "c"]
    assert await values(lost, replica.state, index=1) == ["x"]
    assert replica.state.topics["t"].partitions[0].producers[5].last_sequence == 2
    await replica.stop()


async def test_it_is_called_otherwise_where_its_name_was_given_away(lost: Lost, target: Target) -> None:
    lost.script.topic(A, "t")
    await lost.archive()
    await undeleted(lost)
    (told,) = (await restored(lost, target)).undeleted
    assert (told.topic, told.name[:14], told.error) == ("t", "floe-restored-", "")
    replica = await started(lost, target)
    assert await values(lost, replica.state, told.name) == ["a", "b", "c"]
    assert await values(lost, replica.state) == []
    await replica.stop()


async def test_a_topic_that_stayed_deleted_stays_so(lost: Lost, target: Target) -> None:
    """A transaction that was open on it is aborted with all others, and brings nothing back."""
    await lost.archive()
    await lost.chunk(A, Sent(0, ["of no archived end"], (7, 0, 0), transactional=True))
    report = await restored(lost, target)
    assert (report.undeleted, report.deleted_records) == ([], 1)
    replica = await started(lost, target)
    assert not replica.state.topics
    await replica.stop()


# Tables.


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
@pytest.mark.parametrize(
    ("url", "folder"),
    [(URL, "tables"), (URL, "warehouse"), (URL, "lake/tables"), ("s3://floe/tables/main", "tables")],
)
async def test_commits_to_a_table_that_went_with_the_log_are_told_wherever_it_lies(
    lost: Lost, target: Target, url: str, folder: str, scheme: str
) -> None:
    at = f"{scheme}{url.removeprefix('s3')}/{folder}/lake/orders/metadata"
    lost.script.one(A, PutNamespace(name="lake"))
    first = CommitTable(namespace="lake", name="orders", metadata_location=f"{at}/00001-a.metadata.json")
    assert isinstance(lost.script.one(A, first), Done)
    await lost.archive()
    for name in ("00001-a", "00002-b", "00003-c"):
        key = f"{folder}/lake/orders/metadata/{name}.metadata.json"
        await lost.store.put(key, [b"{}"])
    report: Report = await restored(lost, target, replace(NOW, url=url, dry_run=True))
    (told,) = report.tables
    assert (told.metadata, told.newer) == (f"{at}/00001-a.metadata.json", 2)
    assert told.newest == f"{at}/00003-c.metadata.json"
