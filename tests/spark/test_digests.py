"""Old ranges are judged by digests that audits kept, also when their records are gone from the topic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from iceberg.spark import audits
from iceberg.spark.audit import audit
from iceberg.spark.digested import Digested, usable
from iceberg.spark.digests import by_digests, kept_of
from iceberg.spark.given import AuditInput
from iceberg.spark.hashes import FORM, halves, hashed
from iceberg.spark.schemas import TopicSchemas
from iceberg.spark.tables import XXHASH, Digest, bytes_history, inside, pinned
from iceberg.spark.verdict import CHANGED, COLUMN, DOUBLED, GAP, MISSING, PLACE, Finding, Verdict
from tests.spark import zoo_table
from tests.spark.catalogs import expect_little, keep_below

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]

Row = dict[str, Any]
Found = tuple[str, int, str]
TOPIC, NAMESPACE = "t", "local.audits"
MID, END = 4, 8
"""Where the first audit ended and the second one began, and where that one ended."""
PLAIN, KEYLESS, TOMBSTONE, LATE = 1, 2, 3, 6
READ_AS = "local.db.topic"


def rows_of(partition: int) -> list[Row]:
    """A partition's rows as they were written: of a topic that nothing is bound to."""
    found = []
    for offset in range(END):
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=offset)
        kafka = {"partition": partition, "offset": offset, "timestamp": at, "timestamp_type": 0}
        value = {"__raw__": b"%d" % offset, "__err__": None, "f_int64": None}
        headers = [{"key": "h", "value": None}] if offset == PLAIN else []
        found.append({"kafka": kafka, "key": {"__raw__": b"k"}, "value": value, "headers": headers})
    found[KEYLESS]["key"] = found[TOMBSTONE]["value"] = None
    return found


def columns() -> list[dict[str, Any]]:
    """Those of the table: what each topic has, and one of a message."""
    found = deepcopy(zoo_table.fields())
    for name in ("key", "value"):
        (message,) = (each["type"] for each in found if each["name"] == name)
        message["fields"] = [
            each for each in message["fields"] if each["name"] in ("__raw__", "__err__", "f_int64")
        ]
    return found


ARROW = pa.schema(
    {
        "kafka": pa.struct(
            {
                "partition": pa.int32(), "offset": pa.int64(), "timestamp": pa.timestamp("us", "UTC"),
                "timestamp_type": pa.int32(),
            }
        ),
        "key": pa.struct({"__raw__": pa.binary()}),
        "value": pa.struct({"__raw__": pa.binary(), "__err__": pa.string(), "f_int64": pa.int64()}),
        "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    }
)  # fmt: skip


@dataclass(frozen=True)
class Story:
    """What is done to a partition's rows. `found`: what an audit against the topic finds of it; `beside`:
    what is found of the last partition but one.
    """

    name: str
    change: Callable[[list[Row]], object]
    found: frozenset[Found]
    beside: frozenset[Found] = frozenset()


def story(
    name: str, change: Callable[[list[Row]], object], *found: Found, beside: Sequence[Found] = ()
) -> Story:
    return Story(name, change, frozenset(found), frozenset(beside))


def put(row: int, part: str, name: str, value: Any) -> Callable[[list[Row]], object]:
    """One cell is another."""
    return lambda rows: rows[row][part].update({name: value})


def _exchanged(rows: list[Row]) -> None:
    rows[0]["value"], rows[PLAIN]["value"] = rows[PLAIN]["value"], rows[0]["value"]


def _lost_tail(rows: list[Row]) -> None:
    del rows[MID:]


BESIDE = 17
STORIES = [
    story("a byte of a value", put(PLAIN, "value", "__raw__", b"X"), (CHANGED, PLAIN, "")),
    story("a key as null", lambda rows: rows[LATE].update(key=None), (CHANGED, LATE, "")),
    story("headers lost", lambda rows: rows[PLAIN].update(headers=[]), (CHANGED, PLAIN, "")),
    story("another time", put(0, "kafka", "timestamp", datetime(2026, 2, 1, tzinfo=UTC)), (CHANGED, 0, "")),
    story("the producer's time as broker's", put(LATE, "kafka", "timestamp_type", 1), (CHANGED, LATE, "")),
    story("a tombstone as an empty value",
          lambda rows: rows[TOMBSTONE].update(value={"__raw__": b"", "__err__": None, "f_int64": None}),
          (CHANGED, TOMBSTONE, "")),
    story("a row dropped", lambda rows: rows.pop(PLAIN), (MISSING, PLAIN, "")),
    story("the last row dropped", lambda rows: rows.pop(), (MISSING, END - 1, "")),
    story("a row twice", lambda rows: rows.append(deepcopy(rows[PLAIN])), (DOUBLED, PLAIN, "")),
    story("a row moved to another offset of its range", put(0, "kafka", "offset", PLAIN),
          (MISSING, 0, ""), (DOUBLED, PLAIN, ""), (CHANGED, PLAIN, "")),
    story("a row moved into another range", put(0, "kafka", "offset", LATE),
          (MISSING, 0, ""), (DOUBLED, LATE, ""), (CHANGED, LATE, "")),
    story("values of two rows exchanged", _exchanged, (CHANGED, 0, ""), (CHANGED, PLAIN, "")),
    story("a whole range dropped", _lost_tail, *((MISSING, at, "") for at in range(MID, END))),
    story("a column", put(PLAIN, "value", "f_int64", 7), (COLUMN, PLAIN, "value.f_int64")),
    story("an error", put(LATE, "value", "__err__", "cannot be parsed"), (COLUMN, LATE, "value.__err__")),
    story("a row more behind the end", lambda rows: rows.append(
        {**deepcopy(rows[0]), "kafka": {**rows[0]["kafka"], "offset": END}}), (PLACE, END, "")),
    story("a row moved to another partition", put(PLAIN, "kafka", "partition", BESIDE), (MISSING, PLAIN, ""),
          beside=[(DOUBLED, PLAIN, ""), (CHANGED, PLAIN, "")]),
]  # fmt: skip
assert len(STORIES) == BESIDE
SOUND = BESIDE + 1
PARTITIONS = SOUND + 1
PLACES = [(TOPIC, partition) for partition in range(PARTITIONS)]
Stretches = Mapping[int, Sequence[tuple[int, int]]]


@dataclass
class Lake:
    """A table, and another that has what a consumer reads of its topic. `asked`: what was read of that."""

    spark: SparkSession
    name: str
    asked: Stretches

    def given(self, start: int, end: int, since: int = 0) -> AuditInput:
        """An audit of records from `since` up to `end`, where the topic has those from `start` on."""

        def reading(spark: SparkSession, digest: Digest, due: Stretches) -> DataFrame:
            self.asked = {number: stretches for number, stretches in due.items() if stretches}
            return bytes_history(spark, pinned(spark, TOPIC, READ_AS), inside(due), digest)

        return AuditInput(
            tables={TOPIC: self.name},
            consumed=reading,
            log_start=dict.fromkeys(PLACES, start),
            ends=dict.fromkeys(PLACES, end),
            since=dict.fromkeys(PLACES, since) if since else {},
            schemas={TOPIC: TopicSchemas([], {})},
            high_watermarks=lambda: dict.fromkeys(PLACES, END),
            examples=10_000,
        )

    def keep(self, first: int, end: int) -> None:
        """As an audit of this range does that found it equal."""
        sums = kept_of(self.spark, self.given(0, end, first), pinned(self.spark, TOPIC, self.name), None)
        found = audits.Outcome(dict.fromkeys(range(PARTITIONS), (first, end)), 0, 1, None, sums)
        audits.keep(self.spark, TOPIC, "0a", found, NAMESPACE)

    def by_digests(self, start: int) -> Verdict:
        """An audit by the digests that were kept, of a topic that begins at `start`."""
        kept = audits.digests(self.spark, "0a", NAMESPACE)
        found = {place: usable(kept[place[1]], start, END) for place in PLACES}
        return audit(self.spark, replace(self.given(start, END), digests=found))

    def now(self, rows: list[Row]) -> None:
        """Another engine writes the whole table anew."""
        given, kinds = (
            self.spark.createDataFrame(pa.Table.from_pylist(rows, ARROW)),
            self.spark.table(self.name),
        )
        cast = given.select(*(given[each.name].cast(each.dataType) for each in kinds.schema))
        cast.coalesce(1).writeTo(self.name).overwrite(F.lit(True))


@dataclass(frozen=True)
class Told:
    """What audits said: of the sound table, and of the damaged one with and without the topic's records."""

    lake: Lake
    sound: Verdict
    asked_when_sound: Stretches
    gone: Verdict
    there: Verdict
    asked_when_there: Stretches


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the module's tables are."""
    return tmp_path_factory.mktemp("digests")


@pytest.fixture(scope="module")
def local(jvm: SparkSession, folder: Path) -> SparkSession:
    """A session with a catalog of the module's own."""
    spark = jvm.newSession()
    keep_below(spark, "local", folder)
    expect_little(spark)
    return spark


@pytest.fixture(scope="module")
def told(local: SparkSession, folder: Path) -> Told:
    """Digests are kept, an audit goes by them; then all damages are done, each to its partition."""
    rows = [row for partition in range(PARTITIONS) for row in rows_of(partition)]
    for name in ("topic", "t"):
        zoo_table.empty_table(folder, name, columns())
        lake = Lake(local, f"local.db.{name}", {})
        lake.now(rows)
    lake.keep(0, MID)
    lake.keep(MID, END)
    sound, asked = lake.by_digests(END), lake.asked
    damaged: list[Row] = []
    for partition, each in enumerate(STORIES):
        own = rows_of(partition)
        each.change(own)
        damaged += own
    lake.now([*damaged, *rows_of(BESIDE), *rows_of(SOUND)])
    gone = lake.by_digests(END)
    there = lake.by_digests(0)
    return Told(lake, sound, asked, gone, there, lake.asked)


def test_digests_are_of_what_was_found_equal(told: Told) -> None:
    kept = audits.digests(told.lake.spark, "0a", NAMESPACE)
    assert set(kept) == set(range(PARTITIONS))
    for own in kept.values():
        assert [each[:3] for each in sorted(own)] == [(0, MID, MID), (MID, END, END - MID)]
        assert all(each.at_us for each in own)


def test_a_sound_table_is_proven_though_all_its_records_are_gone(told: Told) -> None:
    """And nothing is read of the topic."""
    assert told.sound.equal, told.sound.findings
    assert told.asked_when_sound == {}
    (count,), (known,) = told.sound.topics, told.sound.digests
    assert (count.consumed, count.table) == (0, 0)
    assert (known.ranges, known.rows) == (2 * PARTITIONS, PARTITIONS * END)
    assert Verdict.from_json(told.sound.to_json()) == told.sound


def found(verdict: Verdict) -> dict[int, list[Finding]]:
    """By partition, without gaps."""
    by_partition: dict[int, list[Finding]] = defaultdict(list)
    for each in verdict.findings:
        if each.kind != GAP:
            by_partition[each.partition].append(each)
    return by_partition


def places(findings: Sequence[Finding]) -> set[Found]:
    return {(each.kind, each.offset, each.column) for each in findings}


def ranges(due: frozenset[Found]) -> set[Found]:
    """What is found of ranges, where this is found of rows."""
    rows = {at for kind, at, _ in due if kind in (CHANGED, MISSING, DOUBLED)}
    return {(CHANGED, 0 if at < MID else MID, "") for at in rows}


@pytest.mark.parametrize("each", STORIES, ids=lambda each: each.name)
def test_what_was_done_is_found_by_its_range_and_columns_by_their_places(told: Told, each: Story) -> None:
    """Where the topic has no record any more."""
    for partition, due in ((STORIES.index(each), each.found), (BESIDE, each.beside)):
        if partition == BESIDE and not due:
            continue
        findings = found(told.gone)[partition]
        seen = {one for one in due if one[0] in (COLUMN, PLACE, DOUBLED)}
        assert places(findings) == ranges(due) | seen, [str(one) for one in findings]
        for one in findings:
            if one.kind == CHANGED:
                assert "that the audit of 2" in one.detail
                assert one.detail.endswith("; the topic has them no more")


@pytest.mark.parametrize("each", STORIES, ids=lambda each: each.name)
def test_where_the_topic_has_the_records_the_places_are_told_too(told: Told, each: Story) -> None:
    own = STORIES.index(each)
    findings = found(told.there)[own]
    assert places(findings) == ranges(each.found) | each.found, [str(one) for one in findings]
    read = told.asked_when_there.get(own, [])
    due = {0 if at < MID else MID for kind, at, _ in each.found if kind != PLACE}
    assert read == ([(0, END)] if len(due) == 2 else [(at, at + MID) for at in due])


def test_what_is_sound_beside_them_is_and_is_not_read(told: Told) -> None:
    for verdict in (told.gone, told.there):
        assert found(verdict)[SOUND] == []
        assert not verdict.equal
        assert verdict.counts[CHANGED] == len([each for each in verdict.findings if each.kind == CHANGED])
    assert SOUND not in told.asked_when_there


def test_where_one_consumer_has_read_the_topic_nothing_of_it_is_left_out(told: Told, tmp_path: Path) -> None:
    """Its history has all, so that a row without its record would be too many."""
    lake, kept = told.lake, audits.digests(told.lake.spark, "0a", NAMESPACE)
    given = replace(
        lake.given(0, END), consumed=tmp_path, digests={place: kept[place[1]] for place in PLACES}
    )
    judged = by_digests(lake.spark, given, pinned(lake.spark, TOPIC, lake.name))
    assert judged.given.covered == {}
    ranges_found = {(each.partition, each.range.first) for each in judged.unlike}
    due = {(at, one[1]) for at, each in enumerate(STORIES) for one in ranges(each.found)}
    assert ranges_found == due | {(BESIDE, 0)}


def test_what_both_sides_have_of_another_kind_than_then_is_told_as_that(
    local: SparkSession, folder: Path
) -> None:
    """A log that was put back and went on otherwise: the topic and its table agree, not with the audit."""
    zoo_table.empty_table(folder, "again", columns())
    lake = Lake(local, "local.db.again", {})
    lake.now(rows_of(0))
    own = {(TOPIC, 0): END}
    given = replace(
        lake.given(0, END),
        ends=own,
        log_start=dict.fromkeys(own, 0),
        high_watermarks=lambda: own,
        consumed=lambda spark, digest, due: bytes_history(
            spark, pinned(spark, TOPIC, lake.name), inside(due), digest
        ),
    )
    other = Digested(0, END, END, 1, 2, 1_700_000_000_000_000)
    verdict = audit(local, replace(given, digests={(TOPIC, 0): [other]}))
    (only,) = verdict.findings
    assert (only.kind, only.offset) == (CHANGED, 0)
    assert "2023-11-14T22:13:20+00:00" in only.detail
    assert only.detail.endswith("; what the topic has of them now is the same in both")
    assert verdict.topics[0].consumed == END, "it is read"


def test_digests_have_a_form_for_ever(local: SparkSession) -> None:
    """Another hash of the same record would make all that was kept a finding: it needs another number."""
    rows = [
        (3, 7, b"k", b"v", b"", 1_700_000_000_000_123, 0),
        (3, 8, None, b"", b"68:31", -5, 1),
        (0, 1 << 40, b"", None, b"", None, None),
    ]
    kinds = "partition int, offset long, k binary, v binary, h binary, timestamp_us long, timestamp_type int"
    told = local.createDataFrame(rows, kinds)
    for name, column in (("key_hash", "k"), ("value_hash", "v"), ("headers_hash", "h")):
        told = told.withColumn(name, XXHASH.of(F.col(column)))
    summed = told.select(hashed().alias("whole")).agg(*halves("whole", F.lit(True))).collect()
    assert (FORM, tuple(summed[0])) == (1, (6_610_077_211, 5_454_855_306))


def test_a_table_of_an_earlier_version_gets_the_columns_and_its_rows_have_no_digest(
    local: SparkSession,
) -> None:
    """Neither have those of another form."""
    name = f"local.older.{audits.NAME}"
    local.sql("CREATE NAMESPACE local.older")
    local.sql(
        f"CREATE TABLE {name} (topic string, topic_id string, partition int, from_offset bigint, "
        "next_offset bigint, equal boolean, findings bigint, audited_at timestamp) USING iceberg"
    )
    local.sql(f"INSERT INTO {name} VALUES ('t', '0a', 0, 0, 7, true, 0, timestamp '2026-01-01')")
    assert audits.digests(local, "0a", "local.older") == {}
    assert audits.last(local, "0a", "local.older").offsets == {}
    sums = {0: [Digested(2, 4, 2, 3, 4), Digested(7, 9, 2, 5, -6)]}
    outcome = audits.Outcome({0: (7, 9), 1: (0, 3)}, 0, 1, None, sums)
    audits.keep(local, "t", "0a", outcome, "local.older")
    assert audits.last(local, "0a", "local.older").offsets == {0: 9, 1: 3}
    kept = audits.digests(local, "0a", "local.older")
    assert [each[:5] for each in sorted(kept[0])] == [(2, 4, 2, 3, 4), (7, 9, 2, 5, -6)]
    assert set(kept) == {0}
    audits.keep(local, "t", "0a", outcome._replace(findings=1), "local.older")
    assert audits.digests(local, "0a", "local.older") == kept, "what was found wrong has none"
    assert audits.digests(local, "0b", "local.older") == {}, "the topic of another life"
    local.sql(f"UPDATE {name} SET digest_form = 2")
    assert audits.digests(local, "0a", "local.older") == {}
