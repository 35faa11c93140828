"""The audit, seen to pass once and to fail in each way that it knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg.spark import audits
from iceberg.spark.audit import Account, AuditInput, Leaving, audit
from iceberg.spark.history import NO_HEADERS, REJECTED, UNKNOWN, HistoryRow
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
from tests.spark.audit_stories import Told, story, write_history, write_table

pytestmark = pytest.mark.services

REFUSED = HistoryRow("orders", None, None, None, None, NO_HEADERS, None, REJECTED, "no such field")
TWELVE_SENT = Account(produced=12, rejected=2)
Judge = Callable[..., Verdict]


@pytest.fixture
def judge(spark: SparkSession, tmp_path: Path) -> Judge:
    """`judge(sent=, consumed=, table=, …)` audits the story with the given sides replaced."""

    def run(
        *,
        sent: list[Told] | None = None,
        consumed: list[Told] | None = None,
        table: list[Told] | None = None,
        refused: int = 2,
        account: Account | None = TWELVE_SENT,
        extra_sent: tuple[HistoryRow, ...] = (),
        log_start: dict[tuple[str, int], int] | None = None,
        ends: dict[tuple[str, int], int] | None = None,
        holes: dict[tuple[str, int], list[tuple[int, int]]] | None = None,
        skipped: dict[tuple[str, int], list[tuple[int, int]]] | None = None,
        leaving: Leaving | None = None,
        by_consumer: bool = False,
        since: dict[tuple[str, int], int] | None = None,
    ) -> Verdict:
        view = write_table(tmp_path / "table.parquet", story() if table is None else table)
        spark.read.parquet(str(view)).createOrReplaceTempView("orders")
        rows = [told.history() for told in (story() if sent is None else sent)]
        given = AuditInput(
            tables={"orders": "orders"},
            sent=None
            if by_consumer
            else write_history(tmp_path / "sent", [*rows, *[REFUSED] * refused, *extra_sent]),
            consumed=write_history(
                tmp_path / "consumed",
                [told.history() for told in (story() if consumed is None else consumed)],
            ),
            accounts={} if account is None else {"orders": account},
            log_start=log_start or {},
            ends=ends or {},
            holes=holes or {},
            skipped=skipped or {},
            leaving={} if leaving is None else {"orders": leaving},
            since=since or {},
        )
        return audit(spark, given)

    return run


def only(verdict: Verdict, *kinds: str) -> list[Finding]:
    """The findings, having asserted that just these kinds were found."""
    assert {kind for kind in KINDS if verdict.counts[kind]} == set(kinds)
    assert not verdict.equal
    return list(verdict.findings)


def places(findings: list[Finding]) -> set[tuple[str, int, int]]:
    return {(finding.kind, finding.partition, finding.offset) for finding in findings}


def test_equal_sides_are_equal_with_nulls_empties_headers_and_rejections(judge: Judge) -> None:
    verdict = judge()
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


def test_a_row_missing_from_the_table_is_named(judge: Judge) -> None:
    table = [told for told in story() if (told.partition, told.offset) != (1, 3)]
    findings = only(judge(table=table), MISSING, GAP)
    assert places(findings) == {(MISSING, 1, 3), (GAP, 1, 3)}
    assert "acknowledged, but the table lacks it" in str(findings[0])
    assert "topic orders partition 1 offset 3" in str(findings[0])


def test_a_lost_tail_is_missing_though_offsets_are_dense(judge: Judge) -> None:
    table = [told for told in story() if (told.partition, told.offset) != (1, 4)]
    assert places(only(judge(table=table), MISSING)) == {(MISSING, 1, 4)}


def test_an_acknowledged_record_no_consumer_read_is_missing(judge: Judge) -> None:
    findings = only(judge(consumed=story()[:-1]), MISSING)
    assert "the consumer lacks it" in findings[0].detail


def test_a_row_twice_in_the_table_is_doubled(judge: Judge) -> None:
    findings = only(judge(table=[*story(), story()[2]]), DOUBLED)
    assert places(findings) == {(DOUBLED, 0, 2)}
    assert findings[0].detail == "table holds it 2 times"


def test_an_offset_acknowledged_twice_is_doubled(judge: Judge) -> None:
    doubled = judge(sent=[*story(), story()[0]], account=None)
    assert only(doubled, DOUBLED)[0].detail == "acknowledged holds it 2 times"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"value": b"other"}, "value"),
        ({"value": None}, "value"),
        ({"value": b""}, "value"),
        ({"key": b"other"}, "key"),
        ({"key": None}, "key"),
        ({"headers": (("added", None),)}, "headers"),
        ({"timestamp_ms": 1_700_000_000_124}, "timestamp"),
    ],
)
def test_each_changed_field_of_the_table_is_named(judge: Judge, change: dict[str, Any], named: str) -> None:
    table = story()
    table[8] = replace(table[8], **change)
    findings = only(judge(table=table), CHANGED)
    assert places(findings) == {(CHANGED, 1, 3)}
    assert findings[0].detail == f"{named} of the table differs"


def test_what_the_consumer_read_otherwise_is_changed(judge: Judge) -> None:
    consumed = story()
    consumed[0] = replace(consumed[0], value=b"flipped")
    assert only(judge(consumed=consumed), CHANGED)[0].detail == "value of the consumer differs"


def test_a_row_that_nobody_sent_is_extra(judge: Judge) -> None:
    findings = only(judge(table=[*story(), Told(0, 5)]), EXTRA)
    assert places(findings) == {(EXTRA, 0, 5)}


def test_rows_of_a_partition_that_nobody_wrote_are_extra(judge: Judge) -> None:
    assert places(only(judge(table=[*story(), Told(7, 0)]), EXTRA)) == {(EXTRA, 7, 0)}


def test_a_gap_on_all_sides_is_found_although_they_agree(judge: Judge) -> None:
    holed = [told for told in story() if (told.partition, told.offset) != (0, 2)]
    verdict = judge(sent=holed, consumed=holed, table=holed, account=None)
    findings = only(verdict, GAP)
    assert places(findings) == {(GAP, 0, 2)}
    assert verdict.counts[GAP] == 3


def test_offsets_known_to_hold_no_record_are_no_gap_and_hide_no_other(judge: Judge) -> None:
    """Markers and aborted records, also where the log starts; one more that is gone is found behind them."""
    holed = [told for told in story() if told.partition or told.offset not in (0, 2, 3)]
    sides = {"sent": holed, "consumed": holed, "table": holed, "account": None}
    assert judge(**sides, holes={("orders", 0): [(0, 1), (2, 4)]}).equal
    findings = only(judge(**sides, holes={("orders", 0): [(0, 1), (2, 3)]}), GAP)
    assert places(findings) == {(GAP, 0, 3)}


@pytest.mark.parametrize("lacking", [("consumed",), ("table",), ("consumed", "table")])
def test_what_is_passed_over_may_be_on_one_side_only_and_is_named(
    judge: Judge, lacking: tuple[str, ...]
) -> None:
    """It was in the table before it was damaged, or came back when the table had gone on."""
    passed = {("orders", 0): [(0, 1), (2, 4)]}
    less = [told for told in story() if told.partition or told.offset not in (0, 2, 3)]
    sides = dict.fromkeys(lacking, less)
    for by_consumer in (False, True):
        verdict = judge(**sides, skipped=passed, account=None, by_consumer=by_consumer)
        assert verdict.equal, verdict.findings
        assert [str(each).split(":")[1] for each in verdict.skipped] == [
            " topic orders partition 0 offsets 0 to 0", " topic orders partition 0 offsets 2 to 3",
        ]  # fmt: skip
        assert Verdict.from_json(verdict.to_json()) == verdict
    fewer = [told for told in less if (told.partition, told.offset) != (0, 1)]
    found = judge(**dict.fromkeys(lacking, fewer), skipped=passed, account=None)
    assert {place for place in places(only_places(found)) if place[0] == MISSING} == {(MISSING, 0, 1)}


def only_places(verdict: Verdict) -> list[Finding]:
    assert not verdict.equal
    return list(verdict.findings)


def test_what_is_passed_over_is_compared_where_all_have_it(judge: Judge) -> None:
    other = [
        replace(told, value=b"other") if (told.partition, told.offset) == (0, 2) else told for told in story()
    ]
    assert places(only(judge(table=other, skipped={("orders", 0): [(0, 6)]}), CHANGED)) == {(CHANGED, 0, 2)}


def test_offsets_that_do_not_begin_at_the_log_start_are_a_gap(judge: Judge) -> None:
    later = [told for told in story() if told.offset > 0]
    sides = {"sent": later, "consumed": later, "table": later, "account": None}
    assert places(only(judge(**sides), GAP)) == {(GAP, 0, 0), (GAP, 1, 0)}
    assert judge(**sides, log_start={("orders", 0): 1, ("orders", 1): 1}).equal


def test_a_broken_record_that_was_accepted_breaks_the_account(judge: Judge) -> None:
    accepted = [*story(), Told(1, 5)]
    findings = only(judge(sent=accepted, consumed=accepted, table=accepted, refused=1), ACCOUNT)
    assert findings[0].detail == "1 records were rejected, 2 should have been"


def test_a_send_with_an_unknown_outcome_breaks_the_account(judge: Judge) -> None:
    unknown = REFUSED._replace(outcome=UNKNOWN, reason="timed out")
    findings = only(judge(account=Account(13, 2), extra_sent=(unknown,)), ACCOUNT)
    assert findings[0].detail == "produced 13 is not accepted 10 + rejected 2"


def test_rows_beyond_the_given_ends_are_not_judged(judge: Judge) -> None:
    later = [*story(), Told(0, 5)]
    assert judge(table=later, ends={("orders", 0): 5, ("orders", 1): 5}).equal


@pytest.mark.parametrize("by_consumer", [False, True])
def test_rows_below_the_log_start_stay_in_a_table_that_keeps_them(judge: Judge, by_consumer: bool) -> None:
    """Nobody reads them any more, and they are no gap; one that is there twice is still found."""
    read = [told for told in story() if told.partition or told.offset >= 3]
    sides = {"consumed": read, "log_start": {("orders", 0): 3}, "by_consumer": by_consumer}
    verdict = judge(**sides)
    assert verdict.equal, verdict.findings
    (count,) = verdict.topics
    assert (count.consumed, count.table, count.history) == (7, 10, 3)
    assert places(only(judge(**sides, table=[*story(), story()[1]]), DOUBLED)) == {(DOUBLED, 0, 1)}
    assert places(only(judge(**sides, table=story()[:3] + story()[4:]), MISSING, GAP)) >= {(MISSING, 0, 3)}


def test_a_table_that_keeps_rows_misses_those_that_were_acknowledged(judge: Judge) -> None:
    read = [told for told in story() if told.partition or told.offset >= 3]
    sides = {"consumed": read, "table": read, "log_start": {("orders", 0): 3}}
    assert places(only(judge(**sides), MISSING)) == {(MISSING, 0, offset) for offset in range(3)}
    assert judge(**sides, leaving=Leaving(table_follows=True)).equal


def test_a_table_that_follows_may_be_behind_with_dropping_rows(judge: Judge) -> None:
    read = [told for told in story() if told.partition or told.offset >= 3]
    sides = {"consumed": read, "log_start": {("orders", 0): 3}, "leaving": Leaving(table_follows=True)}
    assert judge(**sides, table=story()[2:], by_consumer=True).equal
    assert places(only(judge(**sides, table=story()[:-1], by_consumer=True), MISSING)) == {(MISSING, 1, 4)}


def compacted() -> tuple[list[Told], list[Told]]:
    """A partition's history of two keys, and what compaction left of it: a tombstone went as well."""
    keys = (b"a", b"b", b"a", None, b"c", b"a", b"b")
    history = [Told(0, offset, b"%d" % offset, key) for offset, key in enumerate(keys)]
    history[4] = replace(history[4], value=None)
    return history, history[5:]


@pytest.mark.parametrize("by_consumer", [False, True])
def test_the_table_of_a_compacted_topic_is_its_history(judge: Judge, by_consumer: bool) -> None:
    history, left = compacted()
    sides = {"sent": history, "consumed": left, "account": None, "by_consumer": by_consumer}
    compact = {"leaving": Leaving(compacted=True)}
    verdict = judge(**sides, table=history, **compact)
    assert verdict.equal, verdict.findings
    assert (verdict.topics[0].consumed, verdict.topics[0].table, verdict.topics[0].history) == (2, 7, 5)
    assert judge(**sides, table=history, log_start={("orders", 0): 2}, **compact).equal, "and delete"
    assert not judge(**sides, table=history).equal, "not of a topic that is not compacted"
    assert places(only(judge(**sides, table=history[:6], **compact), MISSING)) == {(MISSING, 0, 6)}


def test_what_somebody_has_read_is_no_history(judge: Judge) -> None:
    history, _ = compacted()
    sides = {"sent": history, "consumed": history, "table": history, "account": None}
    (count,) = judge(**sides, leaving=Leaving(compacted=True)).topics
    assert (count.consumed, count.table, count.history) == (7, 7, 0)


def test_compaction_of_one_topic_excuses_no_other(spark: SparkSession, tmp_path: Path) -> None:
    history, left = compacted()
    view = write_table(tmp_path / "table.parquet", history)
    spark.read.parquet(str(view)).createOrReplaceTempView("orders")
    read = [told.history() for told in left]
    read += [row._replace(topic="others") for row in read]
    given = AuditInput(
        tables={"orders": "orders", "others": "orders"},
        consumed=write_history(tmp_path / "consumed", read),
        leaving={"orders": Leaving(compacted=True)},
    )
    verdict = audit(spark, given)
    assert {(finding.kind, finding.topic) for finding in verdict.findings} == {
        (EXTRA, "others"),
        (GAP, "others"),
    }
    assert verdict.counts[EXTRA] == 5


def test_compaction_may_not_take_the_newest_record_of_a_key(judge: Judge) -> None:
    history, _ = compacted()
    sides = {"sent": history, "table": history, "account": None, "leaving": Leaving(compacted=True)}
    assert places(only(judge(**sides, consumed=history[5:6]), MISSING)) == {(MISSING, 0, 6)}
    assert places(only(judge(**sides, consumed=history[5:6], by_consumer=True), EXTRA)) == {(EXTRA, 0, 6)}


def test_what_superseded_a_record_may_have_come_during_the_audit(judge: Judge) -> None:
    history, _ = compacted()
    sides = {"table": history, "consumed": history[1:2], "by_consumer": True}
    compact = Leaving(compacted=True)
    assert judge(**sides, ends={("orders", 0): 5}, leaving=compact).equal
    assert places(only(judge(**sides, ends={("orders", 0): 6}, leaving=compact), EXTRA)) == {(EXTRA, 0, 5)}


def test_the_history_of_a_compacted_topic_is_missed(judge: Judge) -> None:
    history, left = compacted()
    verdict = judge(sent=history, consumed=left, table=left, account=None, leaving=Leaving(compacted=True))
    assert places(only(verdict, MISSING)) == {(MISSING, 0, offset) for offset in range(5)}


def test_an_empty_table_misses_everything(judge: Judge) -> None:
    verdict = judge(table=[])
    assert verdict.counts[MISSING] == 10
    only(verdict, MISSING)


def test_an_audit_without_a_witness_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="needs what was sent or what was consumed"):
        audit(spark, AuditInput(tables={"orders": "orders"}))


def test_only_what_lies_beyond_the_last_audit_is_compared_exactly_from_its_offset_on(judge: Judge) -> None:
    """A changed row below is not seen again, one at the offset is; what is in no place is not forgotten."""
    since = {("orders", 0): 3}
    rest = [told for told in story() if told.partition == 1 or told.offset >= 3]
    verdict = judge(
        consumed=rest, table=[replace(story()[2], value=b"x"), *rest], by_consumer=True, since=since
    )
    assert verdict.equal, verdict.findings
    assert [(each.partition, each.offset) for each in verdict.since] == [(0, 3)]
    (count,) = verdict.topics
    assert (count.table, count.consumed) == (len(rest), len(rest))
    table = [
        replace(told, value=b"y") if (told.partition, told.offset) == (0, 3) else told for told in story()
    ]
    table += [replace(story()[0], offset=-1)]
    verdict = judge(consumed=rest, table=table, by_consumer=True, since=since)
    assert places(list(verdict.findings)) == {(CHANGED, 0, 3), (PLACE, 0, -1)}
    verdict = judge(consumed=rest[1:], table=rest[1:], by_consumer=True, since=since)
    assert places(list(verdict.findings)) == {(GAP, 0, 3)}, "missing on both sides"


def test_what_was_compared_is_kept_by_topic_id_and_only_of_equal_audits(spark: SparkSession) -> None:
    def last(topic_id: str) -> dict[int, int]:
        return audits.last(spark, topic_id, "local.audits")

    def keep(topic_id: str, ends: dict[int, tuple[int, int]], findings: int = 0) -> None:
        audits.keep(spark, "orders", topic_id, ends, findings, "local.audits")

    assert last("a") == {}
    keep("a", {0: (0, 5), 1: (0, 7)})
    keep("a", {0: (5, 9), 1: (7, 7)})
    keep("a", {0: (9, 20), 1: (7, 30)}, findings=1)
    keep("b", {0: (0, 100)})
    assert last("a") == {0: 9, 1: 7}
    assert last("b") == {0: 100}
    assert last("c") == {}
