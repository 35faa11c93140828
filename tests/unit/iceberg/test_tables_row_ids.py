"""Format version 3: each row has an id for ever, whatever is done with its file (the spec's Row Lineage)."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from coordination.commands import AlterTopicConfigs, CommitTable
from coordination.state.types import Done
from iceberg import foreign, history, lineage, merging, metadata, row_ids, splicing
from iceberg.committer import Committer
from iceberg.parquet_footer import Footer
from iceberg.small_files import FileSizes
from iceberg.writers import ProcessWriter
from tests.unit.iceberg import latest, serving
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.keeping_little import fold_early, small
from tests.unit.iceberg.rig import KillAt, Killed, Rig
from tests.unit.iceberg.row_ids import Ids, Witness
from tests.unit.iceberg.test_tables_foreign import PATH, rewrite
from tests.unit.iceberg.test_tables_history import served
from tests.unit.iceberg.test_tables_retention import fill, move

V3 = {"floe__table__format-version": "3"}
FILES = FileSizes(merged_at=4, busy_percent_max=100)


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    """A cluster of one agent whose tables keep little and are compacted often."""
    fold_early(monkeypatch)
    async with rigs.running(tmp_path) as found:
        found.options = replace(small(), files=FILES, orphan_grace_s=0)
        yield found


async def configure(rig: Rig, name: str, value: str | None) -> None:
    """Set or unset a config of topic `t`."""
    kind = AlterTopicConfigs.Change
    operation = kind.DELETE if value is None else kind.SET
    change = kind(name=name, operation=operation, value=value or "")
    assert isinstance(await rig.replica.propose(AlterTopicConfigs(topic="t", changes=[change])), Done)


async def something(rig: Rig, committer: Committer, chance: random.Random) -> Committer:
    """One of the things that become of a table."""
    match chance.choice(("commit",) * 12 + ("compact",) * 8 + ("restart", "expire")):
        case "commit":
            for _ in range(chance.randint(1, 2)):
                values = [b"%d" % chance.randint(0, 99) for _ in range(chance.randint(1, 3))]
                await rig.produce(values, partition=chance.randint(0, 1))
            await rig.drain(committer)
        case "compact":
            await committer.compact()
        case "restart":
            return rig.committer()
        case "expire":
            partition = rig.replica.state.topics["t"].partitions[0]
            await move(rig, min(partition.log_start + 2, partition.last_stable))
            await committer.follow()
    return committer


@pytest.mark.parametrize(
    "configs",
    [
        {},
        {"floe__table__sort": "key.__raw__ desc"},
        {"floe__table__partition": "bucket(2, key.__raw__)", "floe__table__retention": "follow"},
    ],
    ids=["plain", "sorted", "partitioned"],
)
async def test_whatever_happens_to_a_table_every_row_keeps_its_id(rig: Rig, configs: dict[str, str]) -> None:
    chance, witness = random.Random(len(configs)), Witness()
    await rig.create_topic(floe__table__history__ms="0", **V3, **configs)
    committer = rig.committer()
    folded = False
    await rig.produce([b"first"])
    await rig.drain(committer)
    for _ in range(60):
        committer = await something(rig, committer, chance)
        found = await witness.look(rig)
        assert committer.problems == ()
        folded |= "floe.folded-through" in found["snapshots"][0]["summary"]
    assert folded, "else no history was ever folded"
    operations = {each["summary"]["operation"] for each in found["snapshots"]}
    assert operations >= {"append", "replace"}


async def test_ids_stay_in_row_groups_that_are_copied_as_they_are(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And in others, where a file is more rows than are read at once."""
    monkeypatch.setattr(splicing, "COPIED_BYTES_MIN", 1)
    monkeypatch.setattr(merging, "BATCH_ROWS", 2)
    copied: list[int] = []
    copy = splicing.Splicing.copy

    def counted(self: splicing.Splicing, content: memoryview, footer: Footer, reals: pa.Table) -> None:
        copied.append(footer.rows)
        copy(self, content, footer, reals)

    monkeypatch.setattr(splicing.Splicing, "copy", counted)
    await rig.create_topic(partitions=1, **V3)
    committer, witness = rig.committer(), Witness()
    for number in range(32):
        await rig.produce([b"x", b"y", b"z"])
        await rig.drain(committer)
        if number < 3 or await committer.compact():
            await witness.look(rig)
    assert copied, "else no row group was ever copied"


async def test_the_helper_process_writes_ids_too(rig: Rig) -> None:
    await rig.create_topic(**V3)
    writer = ProcessWriter()
    committer, witness = Committer(replace(rig.parts, writer=writer), "t"), Witness()
    try:
        await fill(rig, committer)
        await witness.look(rig)
        assert await committer.compact()
    finally:
        await writer.close()
    await witness.look(rig)
    assert all("_row_id" in row for row in await rig.rows())


async def test_rows_of_a_table_that_became_v3_get_ids_with_the_next_snapshot(rig: Rig) -> None:
    chance, witness = random.Random(3), Witness()
    await rig.create_topic(floe__table__history__ms="0")
    committer = rig.committer()
    for _ in range(25):
        committer = await something(rig, committer, chance)
    head = await rig.head()
    assert (head.metadata["format-version"], committer.problems) == (2, ())
    await configure(rig, lineage.CONFIG, "3")
    assert await rig.drain(committer) == 0
    upgraded = (await rig.head()).metadata
    assert (upgraded["format-version"], upgraded["next-row-id"]) == (3, 0)
    assert upgraded["current-snapshot-id"] == head.metadata["current-snapshot-id"]
    for number in range(60):
        committer = await something(rig, committer, chance)
        assert committer.problems == (), "all files can be merged"
        if number > 20:
            found = await witness.look(rig, upgraded=True)
    assert "first-row-id" in found["snapshots"][0], "once the base was made anew its rows have ids"


@pytest.mark.parametrize("first", ["compact", "follow"])
async def test_a_first_v3_snapshot_that_removes_files_numbers_those_that_stay(rig: Rig, first: str) -> None:
    await rig.create_topic(floe__table__retention="follow")
    committer = rig.committer()
    await fill(rig, committer)
    await configure(rig, lineage.CONFIG, "3")
    await rig.drain(committer)
    if first == "compact":
        assert await committer.compact()
    else:
        await move(rig, 3)
        assert await committer.follow() == 2
    witness = Witness()
    await witness.look(rig, upgraded=True)
    assert witness.next == len(witness.ids) == (16 if first == "compact" else 14)
    await rig.produce([b"z"])
    await rig.drain(committer)
    await witness.look(rig, upgraded=True)


async def test_a_history_begun_anew_at_the_first_v3_snapshot_has_no_ids_before_it(rig: Rig) -> None:
    """As an agent of an older version leaves it, which keeps the newest snapshots and knows of no base."""
    await rig.create_topic()
    committer = rig.committer()
    await fill(rig, committer)
    await configure(rig, lineage.CONFIG, "3")
    await fill(rig, committer, 1)
    head = await rig.head()
    old = history.cut(history.with_history(head.metadata, history.History()), 1)
    assert [each["first-row-id"] for each in old["snapshots"]] == [0]
    location = f"{head.metadata['location']}/metadata/99999-older.metadata.json"
    await rig.store.put(rig.warehouse.key(location), [metadata.encode(old)])
    message = CommitTable(namespace="floe", name="t", expected=head.location, metadata_location=location)
    assert isinstance(await rig.replica.propose(message), Done)
    await fill(rig, rig.committer(), 2)
    found = await Witness().look(rig, upgraded=True)
    base = found["snapshots"][0]
    assert (base["summary"]["added-records"], "first-row-id" in base) == ("16", False)


async def test_there_is_no_way_back_and_operators_are_told(rig: Rig) -> None:
    await rig.create_topic(partitions=1, **V3)
    committer = rig.committer()
    await rig.produce([b"x"])
    await rig.drain(committer)
    assert committer.problems == ()
    await configure(rig, lineage.CONFIG, None)
    await rig.produce([b"y"])
    await rig.drain(committer)
    (problem,) = committer.problems
    assert "has format version 3 and floe.table.format-version says 2" in problem
    witness = Witness()
    await witness.look(rig)
    assert sorted(witness.ids.values()) == [Ids(0, 1), Ids(1, 2)]


async def test_a_table_of_version_2_has_nothing_of_ids(rig: Rig) -> None:
    await rig.create_topic(partitions=1)
    committer = rig.committer()
    for _ in range(4):
        await rig.produce([b"x"])
        await rig.drain(committer)
    assert await committer.compact()
    found = await served(rig)
    assert (found["format-version"], "next-row-id" in found) == (2, False)
    assert not any("first-row-id" in each or "added-rows" in each for each in found["snapshots"])
    assert not any("_row_id" in row for row in await rig.rows())


async def story(rig: Rig, steps: KillAt) -> list[str]:
    """Commits, compactions and folds until all steps were taken; whoever is killed has a successor."""
    await rig.create_topic(partitions=1, floe__table__history__ms="0", **V3)
    committer = rig.committer(steps=steps)
    for number in range(30):
        await rig.produce([b"%d" % number, b"x"])
        try:
            await rig.drain(committer)
            await committer.compact()
        except Killed:
            committer = rig.committer()
    await rig.drain(rig.committer())
    return steps.seen


async def test_killed_before_each_step_rows_have_the_ids_of_one_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold_early(monkeypatch)
    options = replace(small(), files=FILES, orphan_grace_s=0)
    async with rigs.running(tmp_path / "whole", options) as rig:
        names = await story(rig, KillAt())
        assert {"store-base", "store-history", "store-merged-file", "merge-manifests"} <= set(names)
    for name in dict.fromkeys(names):
        often = [at for at, each in enumerate(names) if each == name]
        number = often[len(often) // 2]
        async with rigs.running(tmp_path / name, options) as rig:
            await story(rig, KillAt(number))
            witness = Witness()
            await witness.look(rig)
            assert sorted(witness.ids) == [(0, at) for at in range(60)], f"killed before {name}"


def swapped(rows: pa.Table) -> pa.Table:
    """Two rows with each other's ids."""
    at = rows.schema.get_field_index("_row_id")
    numbers = rows.column(at).to_pylist()
    return rows.set_column(at, rows.schema.field(at), [[numbers[1], numbers[0], *numbers[2:]]])


def changed(rows: pa.Table) -> pa.Table:
    """A row that says to have come by another commit."""
    at = rows.schema.get_field_index("_last_updated_sequence_number")
    numbers = rows.column(at).to_pylist()
    return rows.set_column(at, rows.schema.field(at), [[numbers[0] + 1, *numbers[1:]]])


def anew(rows: pa.Table) -> pa.Table:
    """No row says its id."""
    return rows.drop_columns(["_row_id"])


@pytest.mark.parametrize(
    ("how", "refused"),
    [
        (None, ""),
        (anew, "does not say which _row_id its rows have"),
        (swapped, "rows would have another _row_id"),
        (changed, "rows would have another _row_id or _last_updated_sequence_number"),
    ],
    ids=["kept", "anew", "swapped", "changed"],
)
async def test_an_engines_rewrite_keeps_ids_or_is_refused(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, how: Callable[[pa.Table], pa.Table] | None, refused: str
) -> None:
    monkeypatch.setattr(foreign, "HASHED_ROWS", 4)
    await rig.create_topic(partitions=1, **V3)
    committer = rig.committer()
    for number in range(3):
        await rig.produce([b"%d" % number, None])
        await rig.drain(committer)
    witness = Witness()
    await witness.look(rig)
    given = await rewrite(rig)
    numbers = [witness.ids[0, at] for at in range(6)]
    rows = given.rows
    for at, field in enumerate(row_ids.FIELDS):
        rows = rows.append_column(field, [[each[at] for each in numbers]])
    given = replace(given, rows=rows if how is None else how(rows), row_id=6)
    status, answer = await given.commit()
    assert status == (403 if refused else 200), answer
    assert refused in str(answer)
    await rig.produce([b"later"])
    await rig.drain(rig.committer())
    await witness.look(rig)
    if how is None:
        assert witness.next == 6 + 6 + 1, "of the file that came, whose rows say their own, and the last one"


async def test_tags_and_properties_of_engines_leave_ids_alone(rig: Rig) -> None:
    await rig.create_topic(floe__table__history__ms="0", **V3)
    committer, witness = rig.committer(), Witness()
    await fill(rig, committer)
    found = await witness.look(rig)
    number = found["snapshots"][2]["snapshot-id"]
    updates = [
        {"action": "set-properties", "updates": {"mine": "1"}},
        {"action": "set-snapshot-ref", "ref-name": "tag", "type": "tag", "snapshot-id": number},
    ]
    status, answer = await serving.ask(
        serving.catalog_of(rig), "POST", PATH, {"requirements": [], "updates": updates}
    )
    assert status == 200, answer
    assert (await witness.look(rig))["next-row-id"] == found["next-row-id"]
    await fill(rig, rig.committer(), 30)
    found = await witness.look(rig)
    assert "floe.folded-through" in found["snapshots"][0]["summary"]
    assert number in {each["snapshot-id"] for each in found["snapshots"]}


async def test_the_newest_rows_are_in_a_table_of_version_2(rig: Rig) -> None:
    """Its rows come and go by copy-on-write; it reads a table whose files have ids in columns."""
    chance, oracle = random.Random(7), latest.Oracle()
    await rig.create_topic(**V3, **latest.UPSERT)
    for _ in range(6):
        await latest.random_batch(rig, chance, oracle, 2, keys=5)
        await latest.catch_up(rig)
        committer = rig.committer()
        await rig.drain(committer)
        await committer.compact()
    assert any("_row_id" in row for row in await rig.rows())
    await oracle.assert_is(rig)
    assert (await latest.head(rig)).metadata["format-version"] == 2
    assert (await rig.head()).metadata["format-version"] == 3
