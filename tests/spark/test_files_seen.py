"""An increment of an audit: files that an equal audit saw are not read, and hold the same rows still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from iceberg.spark import audits, seen
from iceberg.spark.audits import Last, Outcome
from iceberg.spark.seen import Earlier, Moved, settled_from, unsettled
from iceberg.spark.shelf import _snapshots, shelf
from iceberg.spark.tables import pinned
from iceberg.spark.verdict import FILE, Finding
from tests.spark.catalogs import expect_little, keep_below
from tests.spark.lake import away, files

pytestmark = pytest.mark.services

KAFKA = "struct<partition: int, offset: bigint, timestamp: timestamp, timestamp_type: int>"
DONE = {0: 4, 1: 4}
"""By partition the offset up to which the first audit compared."""
NAMESPACE = "local.audits"


def ends(of: dict[int, int]) -> dict[tuple[str, int], int]:
    """By topic and partition."""
    return {("t", partition): end for partition, end in of.items()}


@dataclass
class Table:
    """A table of any engine's, whose rows change by SQL: {t} is its name."""

    spark: SparkSession
    name: str

    def make(self, partitions: Sequence[int] = (0, 1)) -> None:
        """Two files of each partition, two rows in each."""
        value = "struct<__raw__: binary, price: int>"
        columns = f"kafka {KAFKA}, value {value}"
        self.change(f"CREATE TABLE {{t}} ({columns}) USING iceberg PARTITIONED BY (kafka.partition)")
        for low in (0, 2):
            self.append(*((partition, low + at) for partition in partitions for at in (0, 1)))

    def append(self, *places: tuple[int, int]) -> None:
        """A file of each partition with these rows."""
        rows = [((*place, None, 0), (b"x", place[1])) for place in places]
        kinds = f"kafka {KAFKA}, value struct<__raw__: binary, price: int>"
        self.spark.createDataFrame(rows, kinds).coalesce(1).writeTo(self.name).append()

    def change(self, *statements: str) -> None:
        """One statement after the other."""
        for each in statements:
            self.spark.sql(each.format(t=self.name)).collect()

    def call(self, procedure: str, options: str = "") -> None:
        """One of Iceberg's procedures over the whole table."""
        catalog, _, name = self.name.partition(".")
        self.change(f"CALL {catalog}.system.{procedure}(table => '{name}'{options})")

    def compact(self) -> None:
        """All rows of a partition in one file."""
        self.call("rewrite_data_files", ", options => map('rewrite-all', 'true')")

    def audit(self, earlier: Earlier, upto: dict[int, int]) -> tuple[list[Finding], DataFrame]:
        """What is found of what the table says of itself, and what was seen of its files."""
        saw: dict[str, DataFrame] = {}
        of = pinned(self.spark, "t", self.name)
        found = shelf(self.spark, of, {}, earlier, ends(upto), saw.__setitem__)
        return found, saw["t"]

    @property
    def snapshot(self) -> int:
        """The newest one's number."""
        found = pinned(self.spark, "t", self.name).snapshot
        assert found is not None
        return found


@dataclass(frozen=True)
class Story:
    """What happens to a partition between two audits: statements, of which {p} is its number, and offsets
    that are in a file once more. What the second audit has to find of it, and of another partition. `left`:
    its log start, which the table follows.
    """

    name: str
    statements: Sequence[str] = ()
    again: Sequence[int] = ()
    found: str = ""
    beside: str = ""
    left: int = 0


OTHER = 100
"""Above a story's own partition is another one that it may have."""
OWN = " WHERE kafka.partition = {p} AND kafka.offset "
ONE_LESS = "had 2 rows, the files that no audit has looked at have 1"
OTHERS = "had 2 rows, the files that no audit has looked at have 2, and others"
STORIES = [
    Story("nothing but new rows"),
    Story("a row lost as another engine writes its file anew", ["DELETE FROM {t}" + OWN + "= 1"],
          found=ONE_LESS),
    Story("a file gone", ["DELETE FROM {t}" + OWN + "< 2"],
          found="had 2 rows, the files that no audit has looked at have 0"),
    Story("a row again, in a new file", again=[3],
          found="had 0 rows, the files that no audit has looked at have 1"),
    Story("a row at another's offset", ["UPDATE {t} SET kafka.offset = 0" + OWN + "= 1"], found=OTHERS),
    Story("a row lost and another twice", ["DELETE FROM {t}" + OWN + "= 1"], again=[2], found=OTHERS),
    Story("a row of another time", ["UPDATE {t} SET kafka.timestamp = timestamp '2026-01-01'" + OWN + "= 1"],
          found=OTHERS),
    Story("a row of another partition", ["UPDATE {t} SET kafka.partition = {p} + 100" + OWN + "= 3"],
          found=ONE_LESS, beside="had 0 rows, the files that no audit has looked at have 1"),
    Story("a file below the log start gone", ["DELETE FROM {t}" + OWN + "< 2"], left=2),
    Story("more gone than below the log start", ["DELETE FROM {t}" + OWN + "< 4"], left=2,
          found="had 2 rows, the files that no audit has looked at have 0"),
]  # fmt: skip
Told = dict[int, list[Finding]]


@pytest.fixture(scope="module")
def local(jvm: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """A session with a catalog of the module's own."""
    spark = jvm.newSession()
    keep_below(spark, "local", tmp_path_factory.mktemp("seen"))
    expect_little(spark)
    return spark


@pytest.fixture(scope="module")
def told(local: SparkSession) -> tuple[Told, Told, list[Finding]]:
    """By partition what an increment finds behind all stories, and what it finds once all rows lie in new
    files; and what one finds that saw all that.
    """
    table, numbers = Table(local, "local.db.stories"), range(len(STORIES))
    own = [*numbers, *(OTHER + number for number in numbers)]
    done, upto = dict.fromkeys(own, 4), dict.fromkeys(own, 5)
    left = ends({number: story.left for number, story in enumerate(STORIES)})
    table.make(own)
    found, saw = table.audit(Earlier(), done)
    saw = saw.cache()
    assert (found, saw.count()) == ([], 2 * len(own))
    for number, story in enumerate(STORIES):
        table.change(*(each.replace("{p}", str(number)) for each in story.statements))
    table.append(*((number, at) for number in numbers for at in [*STORIES[number].again, 4]))
    earlier = Earlier(ends(done), saw, left)
    moved = table.audit(earlier, upto)[0]
    table.compact()
    compacted, more = table.audit(earlier, upto)
    return _told(moved), _told(compacted), table.audit(Earlier(ends(upto), more, left), upto)[0]


def _told(found: list[Finding]) -> Told:
    assert {each.kind for each in found} == {FILE}
    by_partition: Told = {}
    for each in found:
        by_partition.setdefault(each.partition, []).append(each)
    return by_partition


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_an_increment_finds_that_rows_are_not_those_that_were_seen(
    told: tuple[Told, Told, list[Finding]], story: Story
) -> None:
    """Also behind compaction, which reads the rows that others have left."""
    moved, compacted, later = told
    number = STORIES.index(story)
    for partition, due in ((number, story.found), (OTHER + number, story.beside)):
        assert len(moved.get(partition, ())) == len(compacted.get(partition, ())) == bool(due)
        assert not due or due in moved[partition][0].detail, moved[partition]
    assert later == [], "the same files, which were seen"


def test_rows_of_files_that_were_seen_are_not_read(local: SparkSession) -> None:
    """Their files are not even there; manifests and those that came are looked at."""
    table = Table(local, "local.db.unread")
    table.make()
    _, saw = table.audit(Earlier(), DONE)
    saw = saw.cache()
    assert saw.count() == 4
    old = files(local, table.name)
    table.append((0, 4), (1, 4))
    table.call("rewrite_manifests")
    with away(old):
        found, more = table.audit(Earlier(ends(DONE), saw), {0: 5, 1: 5})
        assert found == []
        assert more.count() == 6
        with pytest.raises(Exception, match=r"\.parquet"):
            table.audit(Earlier(ends(DONE)), {0: 5, 1: 5})
    with away(files(local, table.name) - old), pytest.raises(Exception, match=r"\.parquet"):
        table.audit(Earlier(ends(DONE), saw), {0: 5, 1: 5})


def test_a_file_of_which_rows_came_too_late_is_read_again(local: SparkSession) -> None:
    """The first audit compared up to offset 3: what lies behind in the same file was not judged."""
    table = Table(local, "local.db.late")
    table.make()
    upto = {0: 3, 1: 4}
    found, saw = table.audit(Earlier(), upto)
    facts = {(row["partition"], row["low"]): (row["rows"], row["whole"]) for row in saw.collect()}
    assert facts == {(0, 0): (2, True), (0, 2): (1, False), (1, 0): (2, True), (1, 2): (2, True)}
    found, saw = table.audit(Earlier(ends(upto), saw), DONE)
    assert found == []
    facts = {(row["partition"], row["low"]): (row["rows"], row["whole"]) for row in saw.collect()}
    assert set(facts.values()) == {(2, True)}


def test_lists_of_snapshots_that_were_seen_are_not_read(local: SparkSession) -> None:
    """But for the first one's, of which others may be a part by now; what new ones say is looked at."""
    table = Table(local, "local.db.listed")
    table.make()
    table.append((0, 4), (1, 4))
    seen_at = table.snapshot
    for low in (5, 6):
        table.append((0, low), (1, low))
    rows = local.sql(f"SELECT snapshot_id, manifest_list FROM {table.name}.snapshots ORDER BY committed_at")
    lists = {row["snapshot_id"]: Path(row["manifest_list"].removeprefix("file:")) for row in rows.collect()}
    first, *between = list(lists)[: list(lists).index(seen_at) + 1]
    of = pinned(local, "t", table.name)
    assert len(between) == 2
    with away({lists[each] for each in between}):
        assert _snapshots(local, of, seen_at) == []
        with pytest.raises(Exception, match=r"FileNotFound|NotFoundException|does not exist"):
            _snapshots(local, of)
    for each in (first, list(lists)[-2]):
        with (
            away({lists[each]}),
            pytest.raises(Exception, match=r"FileNotFound|NotFoundException|does not exist"),
        ):
            _snapshots(local, of, seen_at)
    assert _snapshots(local, of, 7) == [], "one that is kept no more: all are read"


def test_a_file_that_is_named_twice_is_read(local: SparkSession) -> None:
    """Its rows are there twice, though its entries are as they were."""
    told = local.createDataFrame(
        [("a", "1"), ("b", "1"), ("b", "1"), ("c", "2")], "path string, entry string"
    )
    rows = [(name, "1", 0, 0, 1, 2, 7, True) for name in ("a", "b", "c")]
    looked = seen.with_looked_at(told, local.createDataFrame(rows, seen.FACTS))
    assert {(row["path"], row[seen.LOOKED_AT]) for row in looked.collect()} == {
        ("a", False),
        ("b", True),
        ("c", True),
    }


def test_where_too_many_files_are_not_as_they_were_all_is_read(
    local: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(local, "local.db.many")
    table.make()
    _, saw = table.audit(Earlier(), DONE)
    saw = saw.cache()
    assert saw.count() == 4
    table.change("DELETE FROM {t} WHERE kafka.partition = 0")
    monkeypatch.setattr(seen, "MOVED_MAX", 1)
    assert seen.gone(seen.with_looked_at(saw.select("path", "entry").limit(0), saw), saw) is None
    found, facts = table.audit(Earlier(ends(DONE), saw), DONE)
    assert (found, facts.count()) == ([], 2), "which rows went is not known"


def test_what_was_seen_is_kept_of_equal_audits_and_counts_with_their_offsets_alone(
    local: SparkSession,
) -> None:
    table = Table(local, "local.db.kept")
    table.make()
    _, saw = table.audit(Earlier(), DONE)
    done = {partition: (0, end) for partition, end in DONE.items()}

    def keep(findings: int, snapshot: int | None, topic_id: str = "a") -> None:
        audits.keep(local, "t", topic_id, Outcome(done, findings, snapshot, saw), NAMESPACE)

    def known(of: Last, topic_id: str = "a") -> int | None:
        found = audits.files_seen(local, topic_id, of, NAMESPACE)
        return None if found is None else found.count()

    assert known(Last(DONE, 1)) is None, "there is no table yet"
    keep(1, table.snapshot)
    assert known(Last(DONE, table.snapshot)) is None, "something was found"
    keep(0, table.snapshot)
    keep(0, 7, "b")
    last = audits.last(local, "a", NAMESPACE)
    assert (last, known(last)) == (Last(DONE, table.snapshot), 4)
    keep(2, 99)
    assert known(last) == 4, "it stays as the equal one saw it"
    again = audits.last(local, "a", NAMESPACE)
    assert again == Last(dict.fromkeys(DONE, 0)), "what was found is looked at again, and no file is as seen"
    assert known(again) is None
    assert known(Last(DONE, 99)) is None
    assert known(Last({0: 4, 1: 3}, table.snapshot)) is None
    assert known(Last(DONE, None)) is None
    keep(0, 12)
    assert known(Last(DONE, 12)) == 4
    assert known(last) is None, "an audit that died before it kept its offsets"
    assert known(Last(DONE, 7), "b") == 4, "another topic's stays"


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM {t} WHERE partition = 0 AND low = 0",
        "UPDATE {t} SET form = form + 1",
        "ALTER TABLE {t} DROP COLUMN places",
    ],
)
def test_what_is_not_whole_or_of_another_version_counts_for_nothing(local: SparkSession, change: str) -> None:
    table = Table(local, "local.db.versions")
    table.change("DROP TABLE IF EXISTS {t}")
    table.make()
    _, saw = table.audit(Earlier(), DONE)
    done = {partition: (0, end) for partition, end in DONE.items()}
    for _ in range(2):
        audits.keep(local, "t", "v", Outcome(done, 0, table.snapshot, saw), "local.versions")
        last = Last(DONE, table.snapshot)
        assert audits.files_seen(local, "v", last, "local.versions") is not None
        local.sql(change.format(t=f"local.versions.{audits.FILES}"))
        assert audits.files_seen(local, "v", last, "local.versions") is None


def test_files_that_lie_across_the_log_start_are_not_compared() -> None:
    """Whether such a file left with its rows below the log start, or lies in another now, nobody can tell."""
    went = [Moved(0, 4, 1, 0, 9), Moved(0, 4, 2, 5, 14), Moved(0, 4, 4, 15, 19), Moved(1, 4, 8, 0, 9)]
    first = settled_from(went, {0: 8, 1: 0})
    assert first == {0: 15}
    came = [Moved(0, 4, 4, 15, 19), Moved(1, 4, 8, 0, 9)]
    assert list(unsettled(went, came, {0: 20, 1: 10}, first)) == []
    (problem,) = unsettled(went, came[:1], {0: 20, 1: 10}, first)
    assert problem[:2] == (1, 0)
    assert settled_from(went, {}) == {}
