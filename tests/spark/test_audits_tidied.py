"""What many audits leave behind is made few, and nothing goes that the next one or an agent asks for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession, Window

from iceberg.audited import TOPIC_ID, Outcome, take
from iceberg.spark import audits, procedures
from iceberg.spark.audits import Last
from iceberg.spark.audits import Outcome as Kept
from iceberg.spark.digested import Digested, usable
from tests.spark.catalogs import keep_below

pytestmark = pytest.mark.services

NAMESPACE = "tidied.many"
TABLE = f"{NAMESPACE}.{audits.NAME}"


def keep(local: SparkSession, topic_id: str, end: int, findings: int = 0) -> None:
    """An audit of a topic with one partition."""
    audits.keep(local, f"topic {topic_id}", topic_id, Kept({0: (0, end)}, findings, end), NAMESPACE)


def outcomes(local: SparkSession) -> dict[bytes, Outcome]:
    """What an agent makes of the table's snapshots."""
    found: dict[bytes, Outcome] = {}
    rows = local.sql(f"SELECT summary, committed_at FROM {TABLE}.snapshots ORDER BY committed_at").collect()
    for row in rows:
        ms = int(row["committed_at"].timestamp() * 1_000)
        take(found, {"summary": row["summary"], "timestamp-ms": ms})
    return found


@pytest.fixture(scope="module")
def local(jvm: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """A session with a catalog of the module's own."""
    spark = jvm.newSession()
    keep_below(spark, "tidied", tmp_path_factory.mktemp("tidied"))
    return spark


@pytest.fixture
def few(local: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """Of topic a eight audits, the first three equal; of b one before them. Two of all are few here."""
    monkeypatch.setattr(audits, "FILES_MAX", 2)
    monkeypatch.setattr(audits, "SNAPSHOTS_MAX", 2)
    local.sql(f"DROP TABLE IF EXISTS {TABLE}")
    keep(local, "0b", 7)
    for number in range(8):
        keep(local, "0a", number, findings=max(0, number - 2))
    return local


def test_few_rows_files_and_snapshots_say_the_same(
    few: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, known = outcomes(few), [audits.last(few, each, NAMESPACE) for each in ("0a", "0b")]
    assert known == [Last({0: 0}), Last({0: 7}, 7)]
    audits.tidy(few, NAMESPACE)
    assert few.table(TABLE).count() == 9, "days have not gone by"
    assert few.table(f"{TABLE}.files").count() == 1
    kept = few.table(f"{TABLE}.snapshots").count()
    assert kept <= 5, "the newest two, the equal one and the last one of a, and that of b"
    assert outcomes(few) == before
    first = f"SELECT min(committed_at) AS at FROM {TABLE}.snapshots WHERE summary['{TOPIC_ID}'] = '0b'"
    at_ms = few.sql(f"SELECT unix_millis(at) AS ms FROM ({first})").collect()[0]["ms"]
    until = datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f UTC")
    table = procedures.Table("many.offsets", "tidied", TABLE, None)
    assert procedures.expiry(few, table, 0) == until, "that of b is asked for, and no older one"
    monkeypatch.setattr(audits, "KEPT_DAYS", 0)
    for _ in range(2):
        keep(few, "0b", 8)
    audits.tidy(few, NAMESPACE)
    rows = few.table(TABLE).collect()
    assert sorted((row["topic_id"], row["next_offset"]) for row in rows) == [("0a", 2), ("0a", 7), ("0b", 8)]
    assert audits.last(few, "0a", NAMESPACE) == known[0]
    assert outcomes(few)[b"\x0a"] == before[b"\x0a"]


def test_what_was_found_is_looked_at_until_it_is_found_equal(few: SparkSession) -> None:
    """A whole audit finds damage in an old row; increments behind it say nothing of that."""

    def audited(first: int, end: int, findings: int, *, by_digests: bool = False) -> tuple[Last, int]:
        ends = {0: (first, end), 1: (first, end)}
        done = Kept(ends, findings, end, by_digests=by_digests)
        audits.keep(few, "topic 0e", "0e", done, NAMESPACE)
        return audits.last(few, "0e", NAMESPACE), outcomes(few)[b"\x0e"].findings

    assert audited(0, 10, 0) == (Last({0: 10, 1: 10}, 10), 0)
    assert audited(0, 11, 3) == (Last({0: 0, 1: 0}), 3)
    assert audited(10, 12, 0) == (Last({0: 0, 1: 0}), 3), "it had begun before"
    audits.tidy(few, NAMESPACE)
    assert (audits.last(few, "0e", NAMESPACE), outcomes(few)[b"\x0e"].findings) == (Last({0: 0, 1: 0}), 3)
    assert audited(0, 13, 0) == (Last({0: 13, 1: 13}, 13), 0)
    assert audited(13, 14, 1) == (Last({0: 13, 1: 13}, 13), 1), "an increment's lie in what the next looks at"
    assert audited(13, 15, 0) == (Last({0: 15, 1: 15}, 15), 0)
    assert audited(0, 16, 1, by_digests=True) == (Last({0: 0, 1: 0}, None, True), 1)
    assert audits.digests(few, "0e", NAMESPACE) == {}
    assert audited(0, 17, 0, by_digests=True) == (Last({0: 17, 1: 17}, 17), 0)


def test_digests_of_old_audits_are_added_up_and_none_is_lost(
    few: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a table that has both rows with digests and rows without; the newest row stays as it is."""
    most = (1 << 63) - 1
    ranges = [Digested(0, 5, 4, most, -1), Digested(5, 7, 2, 1, -2), Digested(7, 9, 2, 7, 7)]
    for each in [*ranges, Digested(9, 12, 3, 1, 1)]:
        done = Kept({0: (each.first, each.end)}, 0, 1, None, {0: [each]})
        audits.keep(few, "topic 0d", "0d", done, NAMESPACE)
    before = outcomes(few)
    monkeypatch.setattr(audits, "KEPT_DAYS", 0)
    audits.tidy(few, NAMESPACE)
    own = few.table(TABLE).where("topic_id = '0d'").orderBy("next_offset").collect()
    told = [tuple(row[name] for name in ("from_offset", *audits.RANGE)) for row in own]
    assert told == [(0, 0, 9, 8, -(1 << 63) + 7, 4), (9, 9, 12, 3, 1, 1)]
    assert all(row["equal"] and row["topic"] == "topic 0d" for row in own)
    kept = audits.digests(few, "0d", NAMESPACE)[0]
    assert usable(kept, 0, 12) == sorted(kept)
    assert audits.last(few, "0d", NAMESPACE).offsets == {0: 12}
    assert outcomes(few) == before
    audits.tidy(few, NAMESPACE)
    assert audits.digests(few, "0d", NAMESPACE)[0] == kept


def test_an_audit_that_is_kept_meanwhile_stays(few: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its append comes between what tidying read and what it writes: that fails."""
    window = Window.partitionBy

    def late(*names: str) -> object:
        monkeypatch.setattr(Window, "partitionBy", window)
        keep(few, "0c", 3)
        return window(*names)

    monkeypatch.setattr(Window, "partitionBy", late)
    with pytest.raises(Exception, match="conflicting files"):
        audits.tidy(few, NAMESPACE)
    assert audits.last(few, "0c", NAMESPACE).offsets == {0: 3}
    assert few.table(TABLE).count() == 10
