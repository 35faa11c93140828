"""The audit, seen to pass once and to fail in each way that it knows.

A story is a topic. What is told of all of them is judged by a few audits, one for each group of stories that
may share one, and each test looks at its own topics' part of the verdict. What an audit says as a whole, and
what it does when there is little to compare, has audits of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg.spark import audits
from iceberg.spark.audit import audit
from iceberg.spark.given import Account, AuditInput, Leaving
from iceberg.spark.verdict import (
    ACCOUNT,
    CHANGED,
    DOUBLED,
    EXTRA,
    GAP,
    KINDS,
    MISSING,
    PLACE,
    Finding,
    Verdict,
)
from tests.spark.audit_stories import TWELVE_SENT, Judged, Story, Told, audit_of, story

pytestmark = pytest.mark.services

Group = tuple[bool, bool]
STORIES: dict[str, Story] = {}
COMPACTED = Leaving(compacted=True)
FOLLOWS = Leaving(table_follows=True)


def topics(*stories: Story) -> tuple[str, ...]:
    """Their names in the audits."""
    names = tuple(f"story_{len(STORIES) + at}" for at in range(len(stories)))
    STORIES.update(zip(names, stories, strict=True))
    return names


def told(*stories: Story) -> pytest.MarkDecorator:
    """The test is about these topics: `judged` when it is one, else `judgements`."""
    only = pytest.param(topics(*stories), id=pytest.HIDDEN_PARAM)
    return pytest.mark.parametrize("judgements", [only], indirect=True)


def told_with_and_without_sent(*stories: Story) -> pytest.MarkDecorator:
    """The same, once with what was sent and once without."""
    without = [replace(each, by_consumer=True) for each in stories]
    ways = {"sent": topics(*stories), "by_consumer": topics(*without)}
    return pytest.mark.parametrize("judgements", ways.values(), ids=ways.keys(), indirect=True)


@pytest.fixture(scope="module")
def quick(jvm: SparkSession) -> SparkSession:
    """A session that plans for small tables."""
    spark = jvm.newSession()
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    return spark


@pytest.fixture(scope="module")
def verdict_of(quick: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Group], Verdict]:
    """The one audit of all stories of a group, made when the first of them is asked for."""

    @cache
    def run(group: Group) -> Verdict:
        own = {topic: each for topic, each in STORIES.items() if each.group == group}
        return audit_of(quick, own, tmp_path_factory.mktemp("audit"))

    return run


@pytest.fixture
def judgements(request: pytest.FixtureRequest, verdict_of: Callable[[Group], Verdict]) -> list[Judged]:
    """What the audits say of each of the test's topics."""
    return [Judged.of(verdict_of(STORIES[topic].group), topic) for topic in request.param]


@pytest.fixture
def judged(judgements: list[Judged]) -> Judged:
    """What the audit says of the test's only topic."""
    (only,) = judgements
    return only


def places(findings: Sequence[Finding]) -> set[tuple[str, int, int]]:
    return {(finding.kind, finding.partition, finding.offset) for finding in findings}


def story_without(*gone: tuple[int, int]) -> list[Told]:
    """What the story tells, but not these offsets of partitions."""
    return [each for each in story() if (each.partition, each.offset) not in gone]


def story_with(place: tuple[int, int], **change: Any) -> list[Told]:
    """The story with a record changed."""
    return [replace(each, **change) if (each.partition, each.offset) == place else each for each in story()]


def on_all_sides(records: Sequence[Told]) -> Story:
    """They are what was sent, read and is in the table."""
    return Story(sent=records, consumed=records, table=records, account=None)


def test_equal_sides_are_equal_with_nulls_empties_headers_and_rejections(
    spark: SparkSession, tmp_path: Path
) -> None:
    verdict = audit_of(spark, {"orders": Story()}, tmp_path)
    assert verdict.equal
    assert verdict.findings == []
    (count,) = verdict.topics
    assert (count.produced, count.accepted, count.rejected, count.consumed, count.table) == (
        12,
        10,
        2,
        10,
        10,
    )
    assert Verdict.from_json(verdict.to_json()) == verdict


def test_a_gap_on_all_sides_is_found_although_they_agree(quick: SparkSession, tmp_path: Path) -> None:
    """Nothing else is found and nothing is known of any offsets."""
    verdict = audit_of(quick, {"orders": on_all_sides(story_without((0, 2)))}, tmp_path)
    assert {kind for kind in KINDS if verdict.counts[kind]} == {GAP}
    assert not verdict.equal
    assert places(verdict.findings) == {(GAP, 0, 2)}
    assert verdict.counts[GAP] == 3


@told(Story(table=story_without((1, 3))))
def test_a_row_missing_from_the_table_is_named(judged: Judged) -> None:
    findings = judged.only(MISSING, GAP)
    assert places(findings) == {(MISSING, 1, 3), (GAP, 1, 3)}
    assert "acknowledged, but the table lacks it" in str(findings[0])
    assert f"topic {judged.topic} partition 1 offset 3" in str(findings[0])


@told(Story(table=story_without((1, 4))))
def test_a_lost_tail_is_missing_though_offsets_are_dense(judged: Judged) -> None:
    assert places(judged.only(MISSING)) == {(MISSING, 1, 4)}


@told(Story(consumed=story()[:-1]))
def test_an_acknowledged_record_no_consumer_read_is_missing(judged: Judged) -> None:
    assert "the consumer lacks it" in judged.only(MISSING)[0].detail


@told(Story(table=[*story(), story()[2]]))
def test_a_row_twice_in_the_table_is_doubled(judged: Judged) -> None:
    findings = judged.only(DOUBLED)
    assert places(findings) == {(DOUBLED, 0, 2)}
    assert findings[0].detail == "table holds it 2 times"


@told(Story(sent=[*story(), story()[0]], account=None))
def test_an_offset_acknowledged_twice_is_doubled(judged: Judged) -> None:
    assert judged.only(DOUBLED)[0].detail == "acknowledged holds it 2 times"


CHANGES: Sequence[tuple[str, tuple[int, int], Mapping[str, Any]]] = (
    ("value", (1, 3), {"value": b"other"}),
    ("value", (1, 3), {"value": None}),
    ("value", (1, 3), {"value": b""}),
    ("value", (0, 2), {"value": b""}),  # was null
    ("value", (0, 3), {"value": None}),  # was empty
    ("key", (1, 3), {"key": b"other"}),
    ("key", (1, 3), {"key": None}),
    ("headers", (1, 3), {"headers": (("added", None),)}),
    ("timestamp", (1, 3), {"timestamp_ms": 1_700_000_000_124}),
)


@pytest.mark.parametrize(
    ("named", "place", "judgements"),
    [(named, place, topics(Story(table=story_with(place, **change)))) for named, place, change in CHANGES],
    indirect=["judgements"],
    ids=[f"{place} {change}" for _, place, change in CHANGES],
)
def test_each_changed_field_of_the_table_is_named(judged: Judged, named: str, place: tuple[int, int]) -> None:
    findings = judged.only(CHANGED)
    assert places(findings) == {(CHANGED, *place)}
    assert findings[0].detail == f"{named} of the table differs"


@told(Story(consumed=story_with((0, 0), value=b"flipped")))
def test_what_the_consumer_read_otherwise_is_changed(judged: Judged) -> None:
    assert judged.only(CHANGED)[0].detail == "value of the consumer differs"


@told(Story(table=[*story(), Told(0, 5)]))
def test_a_row_that_nobody_sent_is_extra(judged: Judged) -> None:
    assert places(judged.only(EXTRA)) == {(EXTRA, 0, 5)}


@told(Story(table=[*story(), Told(7, 0)]))
def test_rows_of_a_partition_that_nobody_wrote_are_extra(judged: Judged) -> None:
    assert places(judged.only(EXTRA)) == {(EXTRA, 7, 0)}


HOLED = on_all_sides(story_without((0, 0), (0, 2), (0, 3)))


@told(replace(HOLED, holes={0: [(0, 1), (2, 4)]}), replace(HOLED, holes={0: [(0, 1), (2, 3)]}))
def test_offsets_known_to_hold_no_record_are_no_gap_and_hide_no_other(judgements: list[Judged]) -> None:
    """Markers and aborted records, also where the log starts; one more that is gone is found behind them."""
    known, one_more = judgements
    assert known.equal, known.findings
    assert places(one_more.only(GAP)) == {(GAP, 0, 3)}


PASSED_OVER = Story(skipped={0: [(0, 1), (2, 4)]}, account=None)
LESS = story_without((0, 0), (0, 2), (0, 3))
FEWER = story_without((0, 0), (0, 1), (0, 2), (0, 3))


@told_with_and_without_sent(
    replace(PASSED_OVER, consumed=LESS),
    replace(PASSED_OVER, table=LESS),
    replace(PASSED_OVER, consumed=LESS, table=LESS),
)
def test_what_is_passed_over_may_be_on_one_side_only_and_is_named(judgements: list[Judged]) -> None:
    """It was in the table before it was damaged, or came back when the table had gone on."""
    for judged in judgements:
        assert judged.equal, judged.findings
        assert [str(each).split(":")[1] for each in judged.skipped] == [
            f" topic {judged.topic} partition 0 offsets 0 to 0",
            f" topic {judged.topic} partition 0 offsets 2 to 3",
        ]


@told(
    replace(PASSED_OVER, consumed=FEWER),
    replace(PASSED_OVER, table=FEWER),
    replace(PASSED_OVER, consumed=FEWER, table=FEWER),
)
def test_what_is_missing_between_what_is_passed_over_is_found(judgements: list[Judged]) -> None:
    for judged in judgements:
        assert {place for place in places(judged.findings) if place[0] == MISSING} == {(MISSING, 0, 1)}


@told(Story(table=story_with((0, 2), value=b"other"), skipped={0: [(0, 6)]}))
def test_what_is_passed_over_is_compared_where_all_have_it(judged: Judged) -> None:
    assert places(judged.only(CHANGED)) == {(CHANGED, 0, 2)}


LATER = on_all_sides([each for each in story() if each.offset > 0])


@told(LATER, replace(LATER, log_start={0: 1, 1: 1}))
def test_offsets_that_do_not_begin_at_the_log_start_are_a_gap(judgements: list[Judged]) -> None:
    unknown, known = judgements
    assert places(unknown.only(GAP)) == {(GAP, 0, 0), (GAP, 1, 0)}
    assert known.equal, known.findings


@told(replace(on_all_sides([*story(), Told(1, 5)]), account=TWELVE_SENT, refused=1))
def test_a_broken_record_that_was_accepted_breaks_the_account(judged: Judged) -> None:
    assert judged.only(ACCOUNT)[0].detail == "1 records were rejected, 2 should have been"


@told(Story(account=Account(13, 2), unknown=1))
def test_a_send_with_an_unknown_outcome_breaks_the_account(judged: Judged) -> None:
    assert judged.only(ACCOUNT)[0].detail == "produced 13 is not accepted 10 + rejected 2"


CUT = replace(on_all_sides(story_without((0, 4), *((1, at) for at in range(5)))), ends={0: 5, 1: 5})


@told(CUT, replace(CUT, holes={0: [(4, 5)], 1: [(0, 5)]}), replace(CUT, holes={0: [(4, 5)], 1: [(1, 5)]}))
def test_what_all_sides_lack_at_the_end_is_a_gap(judgements: list[Judged]) -> None:
    """The last record of one partition and all of another; not where they were aborted, say."""
    lost, aborted, some = judgements
    assert places(lost.only(GAP)) == {(GAP, 0, 4), (GAP, 1, 0)}
    assert aborted.equal, aborted.findings
    assert places(some.only(GAP)) == {(GAP, 1, 0)}


@told(Story(table=[*story(), Told(0, 5)], ends={0: 5, 1: 5}))
def test_rows_beyond_the_given_ends_are_not_judged(judged: Judged) -> None:
    assert judged.equal, judged.findings


READ = [each for each in story() if each.partition or each.offset >= 3]
KEPT = Story(consumed=READ, log_start={0: 3})


@told_with_and_without_sent(
    KEPT,
    replace(KEPT, table=[*story(), story()[1]]),
    replace(KEPT, table=story_without((0, 3))),
)
def test_rows_below_the_log_start_stay_in_a_table_that_keeps_them(judgements: list[Judged]) -> None:
    """Nobody reads them any more, and they are no gap; one that is there twice is still found."""
    kept, doubled, missing = judgements
    assert kept.equal, kept.findings
    assert (kept.count.consumed, kept.count.table, kept.count.history) == (7, 10, 3)
    assert places(doubled.only(DOUBLED)) == {(DOUBLED, 0, 1)}
    assert places(missing.only(MISSING, GAP)) >= {(MISSING, 0, 3)}


@told(replace(KEPT, table=READ), replace(KEPT, table=READ, leaving=FOLLOWS))
def test_a_table_that_keeps_rows_misses_those_that_were_acknowledged(judgements: list[Judged]) -> None:
    keeps, follows = judgements
    assert places(keeps.only(MISSING)) == {(MISSING, 0, offset) for offset in range(3)}
    assert follows.equal, follows.findings


FOLLOWING = replace(KEPT, leaving=FOLLOWS, by_consumer=True)


@told(replace(FOLLOWING, table=story()[2:]), replace(FOLLOWING, table=story()[:-1]))
def test_a_table_that_follows_may_be_behind_with_dropping_rows(judgements: list[Judged]) -> None:
    behind, short = judgements
    assert behind.equal, behind.findings
    assert places(short.only(MISSING)) == {(MISSING, 1, 4)}


def written() -> list[Told]:
    """A partition's history of few keys, one with a tombstone; compaction leaves what is from LEFT on."""
    keys = (b"a", b"b", b"a", None, b"c", b"a", b"b")
    history = [Told(0, offset, b"%d" % offset, key) for offset, key in enumerate(keys)]
    history[4] = replace(history[4], value=None)
    return history


LEFT = 5
UNCOMPACTED = replace(on_all_sides(written()), consumed=written()[LEFT:])
COMPACT = replace(UNCOMPACTED, leaving=COMPACTED)


@told_with_and_without_sent(
    COMPACT,
    replace(COMPACT, log_start={0: 2}),
    UNCOMPACTED,
    replace(COMPACT, table=written()[:6]),
)
def test_the_table_of_a_compacted_topic_is_its_history(judgements: list[Judged]) -> None:
    whole, and_delete, not_compacted, missing = judgements
    assert whole.equal, whole.findings
    assert (whole.count.consumed, whole.count.table, whole.count.history) == (2, 7, 5)
    assert and_delete.equal, and_delete.findings
    assert not not_compacted.equal
    assert places(missing.only(MISSING)) == {(MISSING, 0, 6)}


@told(replace(COMPACT, consumed=written()))
def test_what_somebody_has_read_is_no_history(judged: Judged) -> None:
    assert (judged.count.consumed, judged.count.table, judged.count.history) == (7, 7, 0)


@told(replace(COMPACT, by_consumer=True), replace(UNCOMPACTED, by_consumer=True))
def test_compaction_of_one_topic_excuses_no_other(judgements: list[Judged]) -> None:
    compacted, other = judgements
    assert compacted.equal, compacted.findings
    assert [each.kind for each in other.only(EXTRA, GAP)].count(EXTRA) == 5


ONE_LEFT = replace(COMPACT, consumed=written()[5:6])


@told(ONE_LEFT, replace(ONE_LEFT, by_consumer=True))
def test_compaction_may_not_take_the_newest_record_of_a_key(judgements: list[Judged]) -> None:
    sent, by_consumer = judgements
    assert places(sent.only(MISSING)) == {(MISSING, 0, 6)}
    assert places(by_consumer.only(EXTRA)) == {(EXTRA, 0, 6)}


SUPERSEDED = replace(COMPACT, consumed=written()[1:2], by_consumer=True)


@told(replace(SUPERSEDED, ends={0: 5}), replace(SUPERSEDED, ends={0: 6}))
def test_what_superseded_a_record_may_have_come_during_the_audit(judgements: list[Judged]) -> None:
    meanwhile, before = judgements
    assert meanwhile.equal, meanwhile.findings
    assert places(before.only(EXTRA)) == {(EXTRA, 0, 5)}


@told(replace(COMPACT, table=written()[LEFT:]))
def test_the_history_of_a_compacted_topic_is_missed(judged: Judged) -> None:
    assert places(judged.only(MISSING)) == {(MISSING, 0, offset) for offset in range(5)}


@told(Story(table=[]))
def test_an_empty_table_misses_everything(judged: Judged) -> None:
    assert len(judged.only(MISSING)) == 10


def test_an_audit_without_a_witness_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="needs what was sent or what was consumed"):
        audit(spark, AuditInput(tables={"orders": "orders"}))


SINCE = Story(consumed=READ, since={0: 3}, by_consumer=True)


@told(
    replace(SINCE, table=[replace(story()[2], value=b"x"), *READ]),
    replace(SINCE, table=[*story_with((0, 3), value=b"y"), replace(story()[0], offset=-1)]),
    replace(SINCE, consumed=READ[1:], table=READ[1:]),
)
def test_only_what_lies_beyond_the_last_audit_is_compared_exactly_from_its_offset_on(
    judgements: list[Judged],
) -> None:
    """A changed row below is not seen again, one at the offset is; what is in no place is not forgotten."""
    below, at_the_offset, missing_on_both_sides = judgements
    assert below.equal, below.findings
    assert [(each.partition, each.offset) for each in below.since] == [(0, 3)]
    assert (below.count.table, below.count.consumed) == (len(READ), len(READ))
    assert places(at_the_offset.findings) == {(CHANGED, 0, 3), (PLACE, 0, -1)}
    assert places(missing_on_both_sides.findings) == {(GAP, 0, 3)}


@pytest.mark.parametrize("group", sorted({each.group for each in STORIES.values()}))
def test_each_audit_has_counted_all_stories_and_told_all_that_it_found(
    verdict_of: Callable[[Group], Verdict], group: Group
) -> None:
    """Else a story could be equal because nobody looked at it, or because its findings came too late."""
    verdict = verdict_of(group)
    assert verdict.counts == dict.fromkeys(KINDS, 0) | Counter(each.kind for each in verdict.findings)
    assert Verdict.from_json(verdict.to_json()) == verdict
    for topic, own in STORIES.items():
        if own.group == group:
            count = Judged.of(verdict, topic).count
            assert count.accepted == (None if own.by_consumer else len(own.sent)), topic
            assert count.consumed == len(own.consumed), topic
            if not own.since:
                assert count.table + count.later == len(own.table), topic


def test_what_was_compared_is_kept_by_topic_id_and_only_of_equal_audits(spark: SparkSession) -> None:
    def last(topic_id: str) -> tuple[dict[int, int], int | None]:
        found = audits.last(spark, topic_id, "local.audits")
        return found.offsets, found.snapshot

    def keep(
        topic_id: str, ends: dict[int, tuple[int, int]], snapshot: int | None, findings: int = 0
    ) -> None:
        audits.keep(spark, "orders", topic_id, audits.Outcome(ends, findings, snapshot), "local.audits")

    assert last("a") == ({}, None)
    keep("a", {0: (0, 5), 1: (0, 7)}, 10)
    keep("a", {0: (5, 9), 1: (7, 7)}, 11)
    keep("a", {0: (9, 20), 1: (7, 30)}, 12, findings=1)
    keep("b", {0: (0, 100)}, None)
    assert last("a") == ({0: 9, 1: 7}, 11)
    assert last("b") == ({0: 100}, None)
    assert last("c") == ({}, None)
