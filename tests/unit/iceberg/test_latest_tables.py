"""Latest tables: the newest row of each key, exactly once, whatever ends a turn and wherever."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordination.commands import DropTable, ReleaseClaim
from coordination.state.types import Done
from iceberg import ledger
from iceberg.committer import CommitterOptions, LostRace
from iceberg.latest_ids import SOURCE_PROPERTY, claim_name, latest_id
from iceberg.pointer_commit import CommitError
from iceberg.small_files import FileSizes
from iceberg.upsert import committer as committers
from iceberg.upsert import folding
from iceberg.upsert.committer import SKIPPED_KEYLESS
from iceberg.upsert.steps import STEPS as EVERY_STEP
from iceberg.upsert.steps import UpsertSteps
from objectstore import batch
from objectstore.store import Buffer
from tests.unit.iceberg import latest
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.latest import UPSERT, KillAt, Oracle
from tests.unit.iceberg.rig import Killed, Rig
from tests.unit.iceberg.test_tables_renamed import call, tables

SMALL = CommitterOptions(latest_file_bytes=400)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent whose latest tables have many small files."""
    async with rigs.running(tmp_path, SMALL) as found:
        yield found


@pytest.mark.parametrize("seed", range(2))
async def test_random_histories_end_as_a_dictionary_would(rig: Rig, seed: int) -> None:
    chance, oracle = random.Random(seed), Oracle()
    topic = await rig.create_topic(partitions=2, **UPSERT)
    known = latest.committer(rig)
    for number in range(8):
        for _ in range(chance.randint(1, 5)):
            await latest.random_batch(rig, chance, oracle, 2, keys=40)
        own = known if number % 3 else latest.committer(rig)
        await latest.catch_up(rig, known=own)
        await oracle.assert_is(rig)
    found = ledger.next_offsets((await latest.head(rig)).metadata, topic.topic_id)
    assert found == ledger.next_offsets((await rig.head()).metadata, topic.topic_id)
    assert len(await latest.files(rig)) > 2, "several files of a run were merged into"


STEPS = (
    "claim",
    "load-table",
    "store-first-metadata",
    "create-table",
    "plan",
    "read-records",
    "fold-rows",
    "read-file",
    "merge-rows",
    "store-file",
    "store-manifests",
    "store-manifest-list",
    "store-metadata",
    "commit-table",
    "remember-head",
)


RARE = ("create-namespace", "rename-table", "set-old-table-aside", "merge-manifests")
"""Steps that need a story of their own, below."""


def test_each_step_is_one_that_somebody_dies_before() -> None:
    assert sorted((*STEPS, *RARE)) == sorted(EVERY_STEP)


async def test_killed_before_any_step_the_next_one_goes_on(rig: Rig) -> None:
    """Rows and ledger are one snapshot: before the pointer moves nothing is seen, then all of it."""
    chance, oracle, kept = random.Random(7), Oracle(), set()
    await rig.create_topic(partitions=1, **UPSERT)
    for again in range(2):  # a new table, and one that has files
        for step in STEPS:
            await latest.random_batch(rig, chance, oracle, 1, keys=12)
            await rig.drain(rig.committer())
            try:
                await latest.committer(rig, steps=KillAt(step)).run_once()
            except Killed:
                kept.add(step)
            if again:
                await latest.catch_up(rig)
                await oracle.assert_is(rig)
    assert kept == set(STEPS)
    await latest.catch_up(rig)
    await oracle.assert_is(rig)


async def put(rig: Rig, oracle: Oracle, key: bytes, partition: int = 0) -> None:
    """A record, which is in the topic's own table."""
    oracle.take(partition, await rig.produce([key], partition, keys=[key]), [key], [key])
    await rig.drain(rig.committer())


async def killed(rig: Rig, step: str) -> None:
    """A turn that ends there."""
    with pytest.raises(Killed, match=step):
        await latest.committer(rig, steps=KillAt(step)).run_once()


@pytest.mark.parametrize("step", RARE[:2])
async def test_killed_before_it_has_its_new_name_the_next_one_gives_it(rig: Rig, step: str) -> None:
    oracle = Oracle()
    await rig.create_topic(partitions=1, **UPSERT)
    await put(rig, oracle, b"a")
    await latest.catch_up(rig)
    await call(rig, "other.name")
    await killed(rig, step)
    assert "floe.t__latest" in tables(rig)
    await put(rig, oracle, b"b")
    await latest.catch_up(rig)
    assert tables(rig) == ["other.name", "other.name__latest"]
    await oracle.assert_is(rig)


async def test_killed_before_the_table_of_an_older_topic_is_set_aside(rig: Rig) -> None:
    await rig.create_topic(partitions=1, **UPSERT)
    await put(rig, Oracle(), b"old")
    await latest.catch_up(rig)
    await rig.delete_topic()
    oracle = Oracle()
    await rig.create_topic(partitions=1, **UPSERT)
    await put(rig, oracle, b"new")
    await killed(rig, RARE[2])
    await latest.catch_up(rig)
    await oracle.assert_is(rig)


async def test_killed_before_small_manifests_become_one(rig: Rig) -> None:
    rig.options = replace(SMALL, manifests_merged_at=2)
    oracle = Oracle()
    await rig.create_topic(partitions=4, **UPSERT)
    for partition in range(2):
        await put(rig, oracle, b"a", partition)
        await latest.catch_up(rig)
    await put(rig, oracle, b"a", 2)
    await killed(rig, RARE[3])
    assert len((await latest.head(rig)).manifests) == 2
    await latest.catch_up(rig)
    assert len((await latest.head(rig)).manifests) == 2, "of three turns"
    await oracle.assert_is(rig)


async def test_what_is_stored_is_octets(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of S3 takes no other buffers; Arrow's are of signed bytes."""
    oracle, formats, put_plain = Oracle(), set(), rig.store.put

    async def put_noted(key: str, parts: Sequence[Buffer], *more: Any) -> str:
        formats.update(memoryview(each).format for each in parts)
        return await put_plain(key, parts, *more)

    monkeypatch.setattr(rig.store, "put", put_noted)
    await rig.create_topic(partitions=1, **UPSERT)
    for key in (b"a", b"b"):
        await put(rig, oracle, key)
        await latest.catch_up(rig)
    assert formats == {"B"}


async def test_two_agents_at_once_do_not_undo_each_other(tmp_path: Path) -> None:
    chance, oracle = random.Random(3), Oracle()
    async with (
        rigs.running(tmp_path, SMALL) as first,
        rigs.running(tmp_path, SMALL, server=first.server, name="second") as second,
    ):
        await first.create_topic(partitions=2, **UPSERT)
        await second.replica.barrier()
        own = [latest.committer(first), latest.committer(second)]
        for number in range(8):
            await latest.random_batch(first, chance, oracle, 2, keys=30)
            await first.drain(first.committer())
            await second.replica.barrier()
            done = await asyncio.gather(*(each.run_once() for each in own))
            assert [each is not None for each in done].count(True) == 1, "one holds the claim"
            await oracle.assert_is(first)
            await own[number % 2].release()
            await asyncio.gather(first.replica.barrier(), second.replica.barrier())


async def test_who_lost_the_claim_meanwhile_changes_nothing(tmp_path: Path) -> None:
    oracle = Oracle()
    async with (
        rigs.running(tmp_path, SMALL) as first,
        rigs.running(tmp_path, SMALL, server=first.server, name="second") as second,
    ):
        await first.create_topic(partitions=1, **UPSERT)
        oracle.take(0, await first.produce([b"1", b"2"], keys=[b"a", b"b"]), [b"a", b"b"], [b"1", b"2"])
        await first.drain(first.committer())
        slow = Slow()
        late = asyncio.create_task(latest.committer(first, steps=slow).run_once())
        await slow.there.wait()
        holder = first.replica.state.claims[claim_name("t")]
        free = ReleaseClaim(name=claim_name("t"), claim_revision=holder.revision)
        await first.replica.propose(free, incarnation=holder.incarnation)
        await second.replica.barrier()
        assert await latest.committer(second).run_once() is not None
        before = (await latest.head(second)).location
        slow.go.set()
        with pytest.raises(LostRace):
            await late
        await second.replica.barrier()
        assert (await latest.head(second)).location == before
        await oracle.assert_is(second)


class Slow(UpsertSteps):
    """Stands still before the pointer moves."""

    def __init__(self) -> None:
        self.there, self.go = asyncio.Event(), asyncio.Event()

    async def before(self, step: str) -> None:
        await super().before(step)
        if step == "commit-table":
            self.there.set()
            await self.go.wait()


async def test_who_lags_takes_pieces_and_ends_at_the_same_rows(rig: Rig) -> None:
    chance, oracle = random.Random(11), Oracle()
    await rig.create_topic(partitions=3, **UPSERT)
    rig.options = replace(SMALL, latest_bytes_max=4_000)
    committer = rig.committer()
    for _ in range(20):
        await latest.random_batch(rig, chance, oracle, 3, keys=40)
        await rig.drain(committer)
    own = latest.committer(rig)
    assert (done := await own.run_once()) is not None
    assert done.more
    turns = await latest.catch_up(rig, known=own)
    assert turns > 2
    await oracle.assert_is(rig)


async def test_compaction_of_the_append_table_changes_nothing(rig: Rig) -> None:
    chance, oracle = random.Random(5), Oracle()
    await rig.create_topic(partitions=1, **UPSERT)
    rig.options = replace(SMALL, files=FileSizes(merged_at=4, busy_percent_max=100))
    committer, own = rig.committer(), latest.committer(rig)
    merged = 0
    for number in range(12):
        await latest.random_batch(rig, chance, oracle, 1, keys=30)
        await rig.drain(committer)
        merged += await committer.compact() is not None
        if number % 3 == 1:  # in the middle of what was merged
            await own.run_once()
    assert merged
    await latest.catch_up(rig, known=own)
    await oracle.assert_is(rig)


async def test_files_of_a_partitioned_append_table_lie_across_each_other(rig: Rig) -> None:
    chance, oracle = random.Random(13), Oracle()
    spec = {"floe__table__partition": "bucket(3, kafka.offset)"}
    await rig.create_topic(partitions=1, **UPSERT, **spec)
    rig.options = replace(SMALL, latest_bytes_max=1)
    committer, own = rig.committer(), latest.committer(rig)
    for _ in range(6):
        await latest.random_batch(rig, chance, oracle, 1, keys=20)
        await rig.drain(committer)
    assert await latest.catch_up(rig, known=own) >= 6
    await oracle.assert_is(rig)


async def test_more_rows_than_memory_is_meant_for_are_taken_in_smaller_steps(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "FOLDED_BYTES_MAX", 2_000)
    oracle = Oracle()
    await rig.create_topic(partitions=1, **UPSERT)
    keys, values = [b"%03d" % at for at in range(64)], [b"x" * 40] * 64
    oracle.take(0, await rig.produce(values, keys=keys), keys, [*values])
    assert await latest.catch_up(rig) > 2
    await oracle.assert_is(rig)


async def test_a_record_without_key_is_passed_over_and_counted(rig: Rig) -> None:
    await rig.create_topic(partitions=1, **UPSERT)
    content = batch.build([batch.NewRecord(1, None, b"none"), batch.NewRecord(2, b"", b"empty")])
    await rig.store_batch(content)
    await rig.drain(rig.committer())
    done = await latest.committer(rig).run_once()
    assert done is not None
    assert (done.read, done.keyless, done.unusable) == (2, 1, 0)
    assert [row["key"]["__raw__"] for row in await latest.rows(rig)] == [b""], "an empty key is a key"
    summary = (await latest.head(rig)).metadata["snapshots"][-1]["summary"]
    assert summary[SKIPPED_KEYLESS] == "1"


async def test_only_files_whose_keys_are_touched_are_made_anew(rig: Rig) -> None:
    rig.options = replace(SMALL, latest_file_bytes=2_000)
    await rig.create_topic(partitions=1, **UPSERT)
    keys = [b"%04d" % at for at in range(400)]
    noise = random.Random(1)
    await rig.produce([noise.randbytes(100) for _ in keys], keys=keys)
    await latest.catch_up(rig)
    before = await latest.files(rig)
    assert len(before) > 10
    await rig.produce([b"new", None, None], keys=[keys[200], b"nobody", keys[205]])
    await latest.catch_up(rig)
    after = await latest.files(rig)
    gone = [at for at, each in enumerate(before) if each not in after]
    assert gone == [
        at
        for at, each in enumerate(before)
        if each.low <= keys[205] and (at + 1 == len(before) or before[at + 1].low > keys[200])
    ]
    head = await latest.head(rig)
    assert head.metadata["snapshots"][-1]["summary"]["operation"] == "overwrite"
    await rig.produce([None], keys=[b"nobody"])
    await latest.catch_up(rig)
    assert await latest.files(rig) == after, "nothing was there to be deleted"
    assert (await latest.head(rig)).location != head.location, "its offset is in the ledger all the same"


async def test_keys_that_are_one_for_a_kilobyte_stay_together(rig: Rig) -> None:
    oracle = Oracle()
    await rig.create_topic(partitions=1, **UPSERT)
    keys = [b"k" * 5_000 + b"%03d" % at for at in range(30)] + [b"k" * 10 + b"%03d" % at for at in range(9)]
    values: list[bytes | None] = [b"1"] * len(keys)
    for some in (keys[::2], keys[1::2], keys[::3]):
        first = await rig.produce(values[: len(some)], keys=some)
        oracle.take(0, first, some, values[: len(some)])
        await latest.catch_up(rig)
        await oracle.assert_is(rig)
    lows = [each.low for each in await latest.files(rig)]
    assert len(lows) > 1
    assert lows[-1] == b"k" * 1_024
    assert lows.count(b"k" * 1_024) == 1


async def test_a_table_of_the_topic_that_was_made_anew_is_another_one(rig: Rig) -> None:
    """Its columns' ids are given anew: rows of before would show other columns' values."""
    topic = await rig.create_topic(**UPSERT)
    await rig.produce([b"a"], keys=[b"k"])
    known = latest.committer(rig)
    await latest.catch_up(rig, known=known)
    uuid = (await rig.head()).metadata["table-uuid"]
    assert (await latest.head(rig)).metadata["properties"][SOURCE_PROPERTY] == uuid
    assert isinstance(await rig.replica.propose(DropTable(namespace="floe", name="t")), Done)
    await rig.drain(rig.committer())
    await rig.produce([b"b"], keys=[b"l"])
    before = await latest.rows(rig)
    for own in (known, None):
        with pytest.raises(CommitError, match=f"follows the topic's table {uuid}, .* drop this table"):
            await latest.catch_up(rig, known=own)
    assert await latest.rows(rig) == before
    named = rig.replica.state.tables_by_topic[latest_id(topic.topic_id)]
    assert isinstance(await rig.replica.propose(DropTable(namespace=named[0], name=named[1])), Done)
    assert await latest.catch_up(rig)
    oracle = Oracle()
    oracle.take(0, 0, [b"k", b"l"], [b"a", b"b"])
    await oracle.assert_is(rig)


async def test_a_table_of_before_that_was_told_follows_the_one_that_is_there(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.create_topic(**UPSERT)
    await rig.produce([b"a"], keys=[b"k"])
    with monkeypatch.context() as before:
        before.setattr(committers, "SOURCE_PROPERTY", "told-by-nobody")
        await latest.catch_up(rig)
    assert SOURCE_PROPERTY not in (await latest.head(rig)).metadata["properties"]
    await rig.produce([b"b"], keys=[b"k"])
    assert await latest.catch_up(rig) == 1
    told = (await latest.head(rig)).metadata["properties"][SOURCE_PROPERTY]
    assert told == (await rig.head()).metadata["table-uuid"]
