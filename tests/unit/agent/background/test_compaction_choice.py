"""When a partition is due for compaction: Kafka's share and lags, and what Floe adds."""

from __future__ import annotations

import pytest

from agent.background.rewriting.compaction.choice import Rules, all_due, due, limit_of
from coordination.commands import (
    AlterTopicConfigs,
    CommitTable,
    DeleteTopic,
    DropTable,
    MergedRange,
    PutNamespace,
    SwapSegments,
)
from coordination.state.types import Done, Partition, Table
from objectstore.naming import ChunkId
from tests.unit.coordination.kit import Script

A = 101
NOW = 1_700_000_100_000
OLD = NOW - 1000
EVER = 1 << 60
PLAIN = Rules(0.5, 150, 0, EVER, 0)


@pytest.fixture
def script() -> Script:
    made = Script()
    made.register(A)
    made.topic(A, "c", 2)
    change = AlterTopicConfigs.Change(name="cleanup.policy", value="compact")
    made.one(A, AlterTopicConfigs(topic="c", changes=[change]))
    return made


def write(script: Script, *stamps: int) -> Partition:
    """One row of 100 bytes and 10 offsets per timestamp."""
    for stamp in stamps:
        script.commit(A, (0, 10), timestamps=[stamp])
    partition = script.state.partitions[0]
    assert partition is not None
    return partition


def merge(
    script: Script,
    end: int,
    first_dirty: int,
    clean_bytes: int,
    first_dirty_ms: int = OLD,
    newest_ms: int = 0,
) -> None:
    """Make the rows up to `end` a merged range of 100 bytes per 10 offsets."""
    merged = MergedRange(
        start_offset=0, end_offset=end, size_bytes=end * 10, segments=2, first_end_offset=10,
        first_dirty_offset=first_dirty, clean_bytes=clean_bytes, first_dirty_ms=first_dirty_ms,
        max_timestamp_ms=newest_ms or first_dirty_ms,
    )  # fmt: skip
    message = SwapSegments(partition=0, number=7, merged=merged)
    message.last_chunk.incarnation, message.last_chunk.number = ChunkId(A, end // 10)
    result = script.one(A, message)
    assert isinstance(result, Done), result


def test_nothing_is_due_before_enough_is_dirty(script: Script) -> None:
    partition = write(script, OLD)
    assert due(partition, PLAIN, EVER, NOW) is None, "100 bytes of 150"
    found = due(write(script, OLD), PLAIN, EVER, NOW)
    assert found is not None
    assert (found.overdue, found.ratio, found.handle) == (False, 1.0, 0)


def test_the_share_of_dirty_bytes_counts(script: Script) -> None:
    write(script, OLD, OLD, OLD, OLD)
    merge(script, 40, 40, 400)
    partition = write(script, OLD, OLD, OLD, OLD)
    assert due(partition, PLAIN, EVER, NOW) is None, "half is not more than half"
    write(script, OLD)
    found = due(partition, PLAIN, EVER, NOW)
    assert found is not None
    assert found.ratio == pytest.approx(500 / 900)


def test_merged_records_that_no_pass_has_seen_are_dirty(script: Script) -> None:
    partition = write(script, OLD, OLD, OLD, OLD)
    merge(script, 40, 10, 100)
    found = due(partition, PLAIN, EVER, NOW)
    assert found is not None
    assert found.ratio == pytest.approx(0.75)


def test_the_overdue_go_whatever_their_share_and_first(script: Script) -> None:
    partition = write(script, OLD)
    rules = Rules(0.5, 10_000, 0, 999, 0)
    found = due(partition, rules, EVER, NOW)
    assert found is not None
    assert found.overdue
    assert found > found._replace(overdue=False, ratio=1.0)
    assert due(partition, Rules(0.5, 10_000, 0, 1000, 0), EVER, NOW) is None
    merge(script, 10, 10, 100)
    assert due(partition, rules, EVER, NOW) is None, "what is clean is never overdue"


def test_what_is_too_young_does_not_count(script: Script) -> None:
    partition = write(script, OLD, OLD, NOW - 5, OLD)
    found = due(partition, Rules(0, 1, 10, EVER, 0), EVER, NOW)
    assert found is not None
    assert due(partition, Rules(0, 201, 10, EVER, 0), EVER, NOW) is None, "200 bytes before the young row"
    merge(script, 40, 0, 0, first_dirty_ms=NOW - 5)
    assert due(partition, Rules(0, 1, 10, EVER, 0), EVER, NOW) is None


def test_without_a_lag_no_record_is_too_young(script: Script) -> None:
    """One whose producer's clock was ahead would end compaction of its partition, where Kafka's goes on."""
    ahead = NOW * 1000
    partition = write(script, ahead, OLD)
    assert due(partition, PLAIN, EVER, NOW) is not None
    assert due(partition, Rules(0.5, 150, 1, EVER, 0), EVER, NOW) is None, (
        "with a lag it waits, as Kafka's does"
    )
    found = due(partition, Rules(0.5, 10_000, 0, 999, 0), EVER, NOW)
    assert found is not None, "the record behind it is overdue"
    assert found.overdue
    merge(script, 20, 0, 0, first_dirty_ms=ahead)
    assert due(partition, PLAIN, EVER, NOW) is not None
    write(script, OLD)
    assert due(partition, Rules(0.5, 10_000, 0, 999, 0), EVER, NOW) is not None


def test_a_delete_horizon_is_no_records_time(script: Script) -> None:
    """Segments of older versions begin with one where their first batch has it: a day ahead."""
    partition = write(script, OLD, OLD)
    merge(script, 20, 10, 0, first_dirty_ms=NOW + 86_400_000, newest_ms=OLD)
    assert due(partition, Rules(0.5, 100, 100, EVER, 0), EVER, NOW) is not None
    found = due(partition, Rules(0.5, 10_000, 0, 999, 0), EVER, NOW)
    assert found is not None
    assert found.overdue


def test_what_lies_behind_the_limit_does_not_count(script: Script) -> None:
    partition = write(script, OLD, OLD)
    assert due(partition, Rules(0, 101, 0, EVER, 0), 19, NOW) is None
    assert due(partition, Rules(0, 101, 0, EVER, 0), 20, NOW) is not None


def test_compaction_does_not_overtake_the_table(script: Script) -> None:
    partition = write(script, OLD, OLD)
    assert limit_of(script.state, partition, tables=False) == 20, "no table, nothing to wait for"
    assert limit_of(script.state, partition, tables=True) == 0, "its table is not there yet"
    script.one(A, PutNamespace(name="floe"))
    table = CommitTable(namespace="floe", name="c", metadata_location="m", topic="c", next_offsets=[10])
    assert isinstance(script.one(A, table), Done)
    assert limit_of(script.state, partition, tables=False) == 10
    other = script.state.partitions[1]
    assert other is not None
    assert limit_of(script.state, other, tables=False) == 0
    change = AlterTopicConfigs.Change(name="floe.table.enabled", value="false")
    script.one(A, AlterTopicConfigs(topic="c", changes=[change]))
    assert limit_of(script.state, partition, tables=True) == 20


def test_the_ledger_of_an_older_topic_of_that_name_says_nothing(script: Script) -> None:
    """A topic is deleted and made again: what its table holds are rows of the one before."""
    script.one(A, PutNamespace(name="floe"))
    table = CommitTable(namespace="floe", name="c", metadata_location="m", topic="c", next_offsets=[20, 20])
    assert isinstance(script.one(A, table), Done)
    script.one(A, DeleteTopic(name="c"))
    handle, _ = script.topic(A, "c", 2, b"+")
    script.commit(A, (handle, 30))
    partition = script.state.partitions[handle]
    assert partition is not None
    assert limit_of(script.state, partition, tables=True) == 0, "it is waited for: it will be set aside"
    assert limit_of(script.state, partition, tables=False) == 30, "nobody keeps tables any more"


def test_a_table_that_never_has_its_rows_is_not_waited_for(script: Script) -> None:
    """The name is that of another engine's table, or of another topic that lives."""
    partition = write(script, OLD, OLD)
    script.topic(A, "d")
    script.one(A, PutNamespace(name="floe"))
    assert isinstance(script.one(A, CommitTable(namespace="floe", name="c", metadata_location="m")), Done)
    assert limit_of(script.state, partition, tables=True) == 20
    script.one(A, DropTable(namespace="floe", name="c"))
    other = CommitTable(namespace="floe", name="c", metadata_location="n", topic="d")
    assert isinstance(script.one(A, other), Done)
    assert limit_of(script.state, partition, tables=True) == 20
    script.one(A, DeleteTopic(name="d"))
    assert limit_of(script.state, partition, tables=True) == 0, "now it can be set aside"


def test_a_table_whose_name_is_not_what_it_shall_be_yet_is_the_topics(script: Script) -> None:
    """Else compaction would take what the table lacks, or wait for a table of the new name."""
    partition = write(script, OLD, OLD)
    script.one(A, PutNamespace(name="floe"))
    made = CommitTable(namespace="floe", name="c", metadata_location="m", topic="c", next_offsets=[10, 0])
    assert isinstance(script.one(A, made), Done)
    change = AlterTopicConfigs.Change(name="floe.table.name", value="another")
    assert isinstance(script.one(A, AlterTopicConfigs(topic="c", changes=[change])), Done)
    for tables in (True, False):
        assert limit_of(script.state, partition, tables=tables) == 10


def test_only_topics_whose_policy_compacts(script: Script) -> None:
    write(script, OLD, OLD)
    topic = script.state.topics["c"]
    found = [*all_due(script.state, topic, 150, NOW, tables=False)]
    assert [each and each.handle for each in found] == [0, None]
    change = AlterTopicConfigs.Change(name="cleanup.policy", value="delete")
    script.one(A, AlterTopicConfigs(topic="c", changes=[change]))
    assert [*all_due(script.state, topic, 150, NOW, tables=False)] == []


def test_a_table_of_the_name_whose_topic_is_not_known_is_waited_for(script: Script) -> None:
    """When the level rose, it was that of a topic that had been deleted: it will be set aside."""
    partition = write(script, OLD, OLD)
    script.state.tables["floe", "c"] = Table("floe", "c", "m", 1, "c", (20, 20))
    assert limit_of(script.state, partition, tables=True) == 0
