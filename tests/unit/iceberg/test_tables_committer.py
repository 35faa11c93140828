"""The committer: every record once, whatever ends it and wherever."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coordination.commands import CommitTable
from coordination.log import LogError
from coordination.replica.errors import OutcomeUnknown
from iceberg import committer as committers
from iceberg import ledger, metadata
from iceberg.committer import CommitError, Committer, CommitterOptions, LostRace
from iceberg.ledger import LedgerError
from iceberg.metadata import Retention
from iceberg.plan import CommitPlan, fitting
from iceberg.pointer_commit import TableConflict
from iceberg.rows import UNREADABLE_HEADER
from objectstore import batch
from objectstore.compression import Compression
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import KillAt, Killed, Rig
from tests.unit.iceberg.serving import ask, catalog_of
from tests.unit.schema import samples

FLIGHT = samples.message_type(samples.FLIGHTS, "nyc.Flight").message_class


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent."""
    async with rigs.running(tmp_path) as found:
        yield found


async def test_records_become_rows(rig: Rig) -> None:
    await rig.create_topic()
    await rig.produce([b"a", None, b"c"], partition=1)
    await rig.produce([b"d"])
    assert await rig.drain(rig.committer()) == 4
    await rig.assert_table_is_topic({0: [b"d"], 1: [b"a", None, b"c"]})
    row = next(row for row in await rig.rows() if value_of_is(row, b"a"))
    assert row["kafka"]["timestamp"].timestamp() * 1000 == 1_700_000_000_000
    assert (row["key"]["__raw__"], row["headers"]) == (b"k0", [{"key": "h", "value": b"0"}])


def value_of_is(row: dict[str, object], value: bytes) -> bool:
    return rigs.value_of(row) == value


async def test_commits_go_on_from_the_ledger(rig: Rig) -> None:
    await rig.create_topic()
    committer = rig.committer()
    for number in range(5):
        await rig.produce([b"%d" % number])
        assert await rig.drain(committer) == 1
    await rig.assert_table_is_topic({0: [b"%d" % number for number in range(5)]})
    assert await rig.committer().run_once() is None


async def test_a_batch_that_nobody_can_open_does_not_hold_up_its_table(rig: Rig) -> None:
    """Garbage under a good CRC: one row keeps its bytes and says why, the records behind it follow."""
    await rig.create_topic()
    sound = batch.peek(batch.build([batch.NewRecord(1, None, b"x"), batch.NewRecord(2, None, b"y")]))
    garbage = batch.seal(sound._replace(attributes=int(Compression.GZIP)), b"\x55" * 100)
    await rig.produce([b"before"])
    assert await rig.store_batch(garbage) == 1
    await rig.produce([b"after"])
    assert await rig.drain(rig.committer()) == 3
    rows = {row["kafka"]["offset"]: row for row in await rig.rows()}
    assert [rows[0]["value"]["__raw__"], rows[3]["value"]["__raw__"]] == [b"before", b"after"]
    (mark,) = rows[1]["headers"]
    assert mark["key"] == UNREADABLE_HEADER
    assert mark["value"].startswith(b"batch of offsets 1 to 2 cannot be opened: ")
    assert rows[1]["value"]["__raw__"].endswith(b"\x55" * 100)


async def test_a_topic_without_records_has_an_empty_table(rig: Rig) -> None:
    await rig.create_topic()
    assert await rig.committer().run_once() is None
    assert await rig.rows() == []


async def steps_of_a_commit(folder: Path) -> list[str]:
    """The names of the steps that one full commit takes, from nothing."""
    async with rigs.running(folder, MERGING) as rig:
        return await scenario(rig, KillAt())


MERGING = CommitterOptions(manifests_merged_at=1, bytes_per_commit_max=1)


async def scenario(rig: Rig, steps: KillAt) -> list[str]:
    """Two commits, of two partitions each, the second merging manifests."""
    await rig.create_topic()
    committer = rig.committer(steps=steps)
    for value in (b"first", b"second"):
        for partition in (0, 1):
            await rig.produce([value, value], partition=partition)
        try:
            await rig.drain(committer)
        except Killed:
            committer = rig.committer(steps=KillAt())
    await rig.drain(rig.committer())
    return steps.seen


async def test_killed_between_any_two_steps_no_row_is_lost_or_doubled(tmp_path: Path) -> None:
    names = await steps_of_a_commit(tmp_path / "whole")
    assert {"claim", "store-file", "merge-manifests", "commit-table", "remember-head"} <= set(names)
    for number, name in enumerate(names):
        async with rigs.running(tmp_path / str(number), MERGING) as rig:
            await scenario(rig, KillAt(number))
            expected = {partition: [b"first"] * 2 + [b"second"] * 2 for partition in (0, 1)}
            try:
                await rig.assert_table_is_topic(expected)
            except AssertionError as error:
                raise AssertionError(f"killed before step {number} ({name})") from error


class Racing(KillAt):
    """Lets another committer do all the work just before this one's pointer moves."""

    def __init__(self, other: Committer, rig: Rig) -> None:
        super().__init__()
        self._other = other
        self._rig = rig

    async def before(self, step: str) -> None:
        await super().before(step)
        if step == "commit-table" and self._other is not None:
            await self._rig.drain(self._other)


async def test_of_two_committers_with_the_same_offsets_one_loses(rig: Rig) -> None:
    await rig.create_topic()
    await rig.committer().run_once()
    await rig.produce([b"a", b"b"])
    slow = rig.committer(steps=Racing(rig.committer(), rig))
    with pytest.raises(LostRace, match="load it and try again"):
        await slow.run_once()
    assert await slow.run_once() is None
    await rig.assert_table_is_topic({0: [b"a", b"b"]})


async def test_a_claim_that_moved_on_fences_the_commit(rig: Rig) -> None:
    await rig.create_topic()
    await rig.produce([b"a"])

    class LosesClaim(KillAt):
        async def before(self, step: str) -> None:
            await super().before(step)
            if step == "commit-table":
                holder = rig.replica.state.claims["committer/t"]
                await release(rig, holder.revision)

    with pytest.raises(LostRace, match="is not held"):
        await rig.committer(steps=LosesClaim()).run_once()
    assert await rig.rows() == []
    assert await rig.drain(rig.committer()) == 1


async def release(rig: Rig, revision: int) -> None:
    from coordination.commands import ReleaseClaim

    await rig.replica.propose(ReleaseClaim(name="committer/t", claim_revision=revision))


@pytest.mark.parametrize("landed", [True, False])
async def test_an_unknown_outcome_is_looked_up_before_anything_else(
    rig: Rig, landed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.create_topic()
    committer = rig.committer()
    await committer.run_once()
    await rig.produce([b"a"])
    submit = rig.replica.submit

    def lose_the_answer(commands: Any, *, incarnation: int | None = None) -> object:
        async def lost() -> object:
            if landed:
                await submit(commands, incarnation=incarnation)
            raise OutcomeUnknown("the answer was lost")

        return lost()

    with monkeypatch.context() as patch:
        patch.setattr(rig.replica, "submit", lose_the_answer)
        with pytest.raises(OutcomeUnknown):
            await committer.run_once()
    assert committer.unsure
    assert await rig.drain(committer) == (0 if landed else 1)
    assert not committer.unsure
    await rig.assert_table_is_topic({0: [b"a"]})


async def test_pieces_are_bounded_and_shared_between_partitions(rig: Rig) -> None:
    rig.options = CommitterOptions(rows_per_commit_max=4)
    await rig.create_topic()
    for partition in (0, 1):
        await rig.produce([b"%d" % number for number in range(5)], partition=partition)
    committer = rig.committer()
    done = [await committer.run_once() for _ in range(3)]
    assert [(each.rows, each.files, each.more) for each in done if each] == [
        (4, 2, True),
        (4, 2, True),
        (2, 2, False),
    ]
    await rig.assert_table_is_topic({number: [b"%d" % at for at in range(5)] for number in (0, 1)})


async def test_a_bound_topic_gets_columns_and_bad_rows_keep_their_bytes(rig: Rig) -> None:
    await rig.create_topic()
    schema_id = await rig.bind(samples.FLIGHTS, "nyc.Flight", tombstones=True)
    good = FLIGHT(year=2013, carrier="UA", dep_delay=-1.5).SerializeToString()
    framed = b"\x00" + schema_id.to_bytes(4, "big") + b"\x00" + good
    await rig.produce([b"\x08", good, None, framed])
    await rig.drain(rig.committer())
    rows = sorted(await rig.rows(), key=lambda row: row["kafka"]["offset"])
    assert rows[0]["value"]["__err__"] == "field `year`: truncated varint at byte 1"
    assert rows[0]["value"]["year"] is None
    assert rows[2]["value"] is None
    for row in (rows[1], rows[3]):
        value = row["value"]
        assert (value["year"], value["carrier"], value["dep_delay"]) == (2013, "UA", -1.5)
        assert (value["dep_time"], value["__err__"]) == (None, None)
    assert rows[3]["value"]["__raw__"] == framed


async def test_a_new_binding_changes_the_table_without_new_records(rig: Rig) -> None:
    await rig.create_topic()
    committer = rig.committer()
    await committer.run_once()
    await rig.bind(samples.FLIGHTS, "nyc.Flight")
    done = await committer.run_once()
    assert done is not None
    assert (done.rows, done.snapshot_id) == (0, None)
    assert await committer.run_once() is None
    fields = metadata.current_fields((await rig.head()).metadata)
    names = [each["name"] for each in fields[2]["type"]["fields"]]
    assert names[:4] == ["__raw__", "__err__", "year", "month"]


async def test_a_topic_created_again_gets_a_table_of_its_own(rig: Rig) -> None:
    first = await rig.create_topic()
    await rig.produce([b"old", b"older"])
    committer = rig.committer()
    await rig.drain(committer)
    await rig.delete_topic()
    await rig.create_topic()
    await rig.produce([b"new"])
    await rig.drain(committer)
    await rig.assert_table_is_topic({0: [b"new"]})
    assert ("floe", f"t__{first.topic_id.hex()[:12]}") in rig.replica.state.tables


async def test_what_moved_while_it_was_planned_is_planned_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it was merged between two steps: no record that comes in later may be what it waits for."""
    await rig.create_topic()
    await rig.produce([b"a"])
    plans = [CommitPlan((), more=True)]

    async def moving(*given: Any) -> CommitPlan | None:
        return plans.pop() if plans else await fitting(*given)

    monkeypatch.setattr(committers, "fitting", moving)
    assert await rig.drain(rig.committer()) == 1


@pytest.mark.parametrize("topic_id", ["not one", "00", 7])
async def test_a_foreign_table_with_an_odd_topic_id_is_no_topics(rig: Rig, topic_id: object) -> None:
    """Somebody registered it under the name of a topic's: it is left alone, and the catalog serves it."""
    location = f"{rig.warehouse.location}/floe/x/metadata/00000-x.metadata.json"
    made = metadata.new_table("x", f"{rig.warehouse.location}/floe/x", [], 0, {}, 0)
    made["properties"][ledger.TOPIC_ID_PROPERTY] = topic_id
    await rig.store.put(rig.warehouse.key(location), [metadata.encode(made)])
    catalog = catalog_of(rig)
    await ask(catalog, "POST", "/v1/namespaces", {"namespace": ["floe"]})
    body = {"name": "t", "metadata-location": location}
    assert (await ask(catalog, "POST", "/v1/namespaces/floe/register", body))[0] == 200
    await rig.create_topic()
    with pytest.raises(TableConflict, match="is no topic's"):
        await rig.committer().run_once()
    assert (await ask(catalog, "DELETE", "/v1/namespaces/floe/tables/t"))[0] == 204
    await rig.produce([b"a"])
    assert await rig.drain(rig.committer()) == 1


@pytest.mark.parametrize("content", [b"{}", b"no json", b'{"format-version":2,"current-snapshot-id":5}'])
async def test_a_foreign_table_that_cannot_be_read_is_told(rig: Rig, content: bytes) -> None:
    await rig.create_topic()
    await rig.drain(rig.committer())
    head = await rig.head()
    location = head.metadata["location"] + "/metadata/99999-foreign.metadata.json"
    await rig.store.put(rig.warehouse.key(location), [content])
    await rig.replica.propose(
        CommitTable(namespace="floe", name="t", expected=head.location, metadata_location=location)
    )
    with pytest.raises((CommitError, LedgerError), match=r"99999-foreign|is not among its snapshots"):
        await rig.committer().run_once()


async def test_a_table_that_is_no_topics_is_left_alone(rig: Rig) -> None:
    await rig.create_topic("a-b")
    await rig.drain(rig.committer("a-b"))
    await rig.create_topic("a_b")
    with pytest.raises(TableConflict, match="is that of topic 'a-b'"):
        await rig.committer("a_b").run_once()


async def test_metadata_keeps_a_bounded_history(rig: Rig) -> None:
    rig.options = CommitterOptions(
        retention=Retention(snapshots=3, previous_versions=4), manifests_merged_at=5
    )
    await rig.create_topic()
    committer = rig.committer()
    for number in range(12):
        await rig.produce([b"%d" % number])
        await rig.drain(committer)
    head = await rig.head()
    assert 2 <= len(head.metadata["snapshots"]) == len(head.metadata["snapshot-log"]) <= 4
    assert len(head.metadata["metadata-log"]) == 4
    assert len(head.manifests) <= 5
    assert len(await rig.rows()) == 12
    totals = head.metadata["snapshots"][-1]["summary"]
    assert (totals["total-records"], totals["total-data-files"]) == ("12", "12")


async def test_a_foreign_snapshot_on_the_table_stops_the_committer(rig: Rig) -> None:
    topic = await rig.create_topic()
    await rig.produce([b"a"])
    await rig.drain(rig.committer())
    head = await rig.head()
    forged = {**head.metadata["snapshots"][-1], "snapshot-id": 7, "summary": {"operation": "append"}}
    damaged = metadata.with_snapshot(head.metadata, forged)
    location = head.metadata["location"] + "/metadata/99999-forged.metadata.json"
    await rig.store.put(rig.warehouse.key(location), [metadata.encode(damaged)])
    await rig.replica.propose(
        CommitTable(namespace="floe", name="t", expected=head.location, metadata_location=location)
    )
    await rig.produce([b"b"])
    with pytest.raises(ledger.LedgerError, match=topic.topic_id.hex()):
        await rig.committer().run_once()


async def test_nothing_is_committed_while_the_log_is_away(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.create_topic()
    committer = rig.committer()
    await committer.run_once()
    await rig.produce([b"a"])

    def refuse(commands: object, *, incarnation: int | None = None) -> object:
        async def fail() -> object:
            raise LogError("the log is away")

        return fail()

    with monkeypatch.context() as patch:
        patch.setattr(rig.replica, "submit", refuse)
        with pytest.raises(LogError):
            await committer.run_once()
    assert await rig.rows() == []
    assert await rig.drain(committer) == 1


async def test_raw_bytes_can_be_left_out_where_they_were_decoded(rig: Rig) -> None:
    rig.options = CommitterOptions(raw_bytes=False)
    await rig.create_topic()
    await rig.bind(samples.FLIGHTS, "nyc.Flight")
    good = FLIGHT(year=2013).SerializeToString()
    await rig.produce([good, b"\x08"])
    await rig.drain(rig.committer())
    rows = sorted(await rig.rows(), key=lambda row: row["kafka"]["offset"])
    assert [(row["value"]["year"], row["value"]["__raw__"]) for row in rows] == [
        (2013, None),
        (None, b"\x08"),
    ]
