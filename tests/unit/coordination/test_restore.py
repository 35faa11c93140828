"""A new log from a bucket: nothing acknowledged is missing, nothing that counts is given out twice."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from coordination import steps
from coordination.archive import shelf
from coordination.archive.keeper import ArchiveOptions, LogArchive
from coordination.clock import SystemClock
from coordination.commands import (
    AllocateProducerIds,
    CommitOffsets,
    EndTransaction,
    FenceIncarnation,
    InitTransactions,
    RegisterAgent,
)
from coordination.etcd import beginning
from coordination.etcd.beginning import Held
from coordination.etcd.rebased import RebasedLog
from coordination.log import Trimmed
from coordination.open import open_log
from coordination.replica import Replica, ReplicaOptions
from coordination.restore.found import FoundChunk, Reader, Unusable
from coordination.restore.report import Report
from coordination.restore.run import RestoreOptions, restore
from coordination.restore.source import CannotRestore
from coordination.snapshot_keeper import SnapshotKeeper, SnapshotOptions
from coordination.state import Done, Refused, State
from coordination.state.restored import PRODUCER_IDS_PASSED
from deploy.services import Etcd
from objectstore import fingerprint
from objectstore.adapters.memory import MemoryStore
from objectstore.batch import records, split
from objectstore.fingerprint import Fingerprint, ForeignBucket
from objectstore.naming import ChunkId, chunk_key, log_folder, piece_key
from tests.unit.coordination.conftest import until
from tests.unit.coordination.kit import A, B, Script
from tests.unit.coordination.lost import CLUSTER_ID, LOST, Lost, Sent

pytestmark = pytest.mark.services
NOW = RestoreOptions(settle_s=0.0, log_is_lost=True)
_numbers = itertools.count(1)


class Target:
    """A cluster's prefix of its own in an etcd, and the logs that were opened there."""

    def __init__(self, etcd: Etcd) -> None:
        self.url = f"etcd://{etcd.endpoint}/restore-{os.getpid()}-{next(_numbers)}"
        self.opened: list[RebasedLog] = []

    def log(self) -> RebasedLog:
        made = open_log(self.url, SystemClock())
        assert isinstance(made, RebasedLog)
        self.opened.append(made)
        return made


@pytest.fixture
async def target(etcd: Etcd) -> AsyncIterator[Target]:
    made = Target(etcd)
    yield made
    for each in made.opened:
        await each.close()


@pytest.fixture
async def lost(script: Script) -> Lost:
    made = Lost(MemoryStore(), script)
    script.topic(A, "t", partitions=2)
    await made.bind()
    return made


async def restored(lost: Lost, target: Target, options: RestoreOptions = NOW) -> Report:
    return await restore(lost.store, target.log(), SystemClock(), options)


async def started(lost: Lost, target: Target) -> Replica:
    """An agent on the new log."""
    log = target.log()
    await fingerprint.claim(lost.store, Fingerprint("main", CLUSTER_ID, await log.identity()))
    replica = Replica(log, lost.store, SystemClock(), ReplicaOptions(heartbeat_s=0.2, heartbeat_alone_s=0.2))
    level = 2
    await replica.start(RegisterAgent(name="new", node_id=-1, feature_min=1, feature_max=level))
    return replica


async def values(lost: Lost, state: State, topic: str = "t", index: int = 0) -> list[str]:
    """What a reader of the partition gets, in order; markers and aborted records are not told apart."""
    found: list[str] = []
    for ref in state.topics[topic].partitions[index].slices.plan(0, 1 << 40):
        if isinstance(ref.chunk, ChunkId):
            data = await lost.store.get_range(chunk_key(ref.chunk), ref.position, ref.length)
            for start, size in split(data):
                found += [(record.value or b"").decode() for record in records(data[start : start + size])]
    return found


async def contents(store: MemoryStore) -> dict[str, bytes]:
    keys = [meta.key async for page in store.list("") for meta in page]
    return {key: await store.get(key) for key in keys}


async def test_nothing_that_was_acknowledged_is_missing_and_revisions_go_on(
    lost: Lost, target: Target
) -> None:
    """Records of the snapshot, of archived entries and of chunks alone, once each; a new agent goes on."""
    producer = lost.script.state.next_producer_id
    await lost.commit(A, Sent(0, ["a", "b"], (producer, 0, 0)))
    await lost.snapshot()
    await lost.archive()
    await lost.commit(B, Sent(0, ["c"]), Sent(1, ["x"]))
    await lost.archive()
    await lost.commit(A, Sent(0, ["d"], (producer, 0, 2)))
    await lost.commit(A, Sent(0, ["e", "f"], (producer, 0, 3)))
    old = lost.script.state.revision
    report = await restored(lost, target)
    assert (report.found, report.in_doubt, report.certain < old < report.base) == (3, 0, True)
    assert [(p.partition, p.certain_end, p.end) for p in report.partitions] == [(0, 3, 6)]
    replica = await started(lost, target)
    state = replica.state
    assert await values(lost, state) == ["a", "b", "c", "d", "e", "f"]
    assert await values(lost, state, index=1) == ["x"]
    assert state.revision > report.base
    entry = state.topics["t"].partitions[0].producers[producer]
    assert (entry.last_sequence, entry.epoch) == (4, 0)  # its retry is known, its next batch is taken
    assert state.next_producer_id > producer + (1 << 31)
    await replica.stop()
    again = await started(lost, target)  # from the snapshot and the new log's own entries
    assert (await values(lost, again.state), again.state.revision > state.revision) == (
        ["a", "b", "c", "d", "e", "f"],
        True,
    )
    await again.stop()


async def test_the_archive_and_snapshots_of_the_new_log_go_on_behind_the_lost_one(
    lost: Lost, target: Target
) -> None:
    await lost.commit(A, Sent(0, ["a"]))
    await lost.archive()
    report = await restored(lost, target)
    replica, log = await started(lost, target), target.log()
    keeper = SnapshotKeeper(replica, log, lost.store, SnapshotOptions(poll_s=0.02))
    archive = LogArchive(replica, log, lost.store, ArchiveOptions(seconds=0.5))
    keeper.start()
    archive.start()
    await until(lambda: archive.head is not None and archive.counts.pieces)
    revisions = [await keeper.write() for _ in range(3)]
    await until(lambda: archive.head is not None and archive.head.last > revisions[-1])
    assert min(revisions) > report.base
    await until(lambda: replica.state.trimmed_through == revisions[1])
    await keeper.stop()
    await keeper.trim()
    await archive.stop()
    identity = await log.identity()
    found = await shelf.survey(lost.store, log_folder(identity), await shelf.snapshots(lost.store))
    assert (found.whole, found.identity) == (True, identity)
    assert await log.trimmed() == revisions[1]
    with pytest.raises(Trimmed):
        await anext(target.log().follow(revisions[0]))
    await replica.stop()


async def test_a_producer_that_changed_agents_keeps_its_order(lost: Lost, target: Target) -> None:
    """B's chunk came first, though A's name does: A's waits for it. Neither is archived."""
    await lost.archive()
    producer = 5
    await lost.commit(B, Sent(0, ["first"], (producer, 0, 0)))
    await lost.commit(A, Sent(0, ["second"], (producer, 0, 1)))
    await lost.commit(B, Sent(0, ["third"], (producer, 0, 2)))
    report = await restored(lost, target)
    assert (report.found, report.in_doubt) == (3, 0)
    replica = await started(lost, target)
    assert await values(lost, replica.state) == ["first", "second", "third"]
    await replica.stop()


async def test_ids_of_producers_go_on_behind_what_was_given_and_not_what_a_client_made_up(
    lost: Lost, target: Target
) -> None:
    """One batch with the highest id there is would leave none to give, for good."""
    await lost.archive()
    given = lost.script.state.next_producer_id + 5_000
    await lost.commit(A, Sent(0, ["given"], (given, 0, 0)), Sent(1, ["made up"], ((1 << 63) - 1, 0, 0)))
    report = await restored(lost, target)
    assert report.found == 2
    replica = await started(lost, target)
    assert await replica.propose(AllocateProducerIds(count=1_000)) == Done(given + 1 + PRODUCER_IDS_PASSED)
    await replica.stop()


async def test_a_name_of_a_revision_that_no_log_comes_to_does_not_say_where_the_new_one_begins(
    lost: Lost, target: Target
) -> None:
    await lost.commit(A, Sent(0, ["a"]))
    await lost.archive()
    junk = f"snapshots/{'f' * 16}-{1:016x}.snap"
    await lost.store.put(junk, [b"junk"])
    report = await restored(lost, target)
    assert [key for key, _ in report.damaged] == [junk]
    assert report.base < 1 << 34
    replica = await started(lost, target)
    assert await values(lost, replica.state) == ["a"]
    await replica.stop()


async def test_a_retry_is_there_once_and_a_number_used_again_loses_nothing(
    lost: Lost, target: Target
) -> None:
    """A chunk whose PUT landed late, of which no entry told: its producer sent one batch again, and gave the
    other one's number to new records."""
    await lost.archive()
    await lost.chunk(A, Sent(0, ["again"], (5, 0, 0)), Sent(1, ["given up"], (6, 0, 0)))
    await lost.commit(A, Sent(0, ["again"], (5, 0, 0)), Sent(1, ["acknowledged"], (6, 0, 0)))
    report = await restored(lost, target)
    replica = await started(lost, target)
    assert await values(lost, replica.state) == ["again"]
    assert sorted(await values(lost, replica.state, index=1)) == ["acknowledged", "given up"]
    assert [(p.found, p.unsequenced, p.repeated) for p in report.partitions] == [(1, 0, 1), (2, 1, 0)]
    await replica.stop()


async def test_an_author_that_the_archive_never_met(lost: Lost, target: Target) -> None:
    await lost.archive()
    lost.script.register(77)
    await lost.commit(77, Sent(0, ["a"]))
    report = await restored(lost, target)
    assert (report.chunks_found, report.found, report.in_doubt) == (1, 1, 1)
    replica = await started(lost, target)
    assert await values(lost, replica.state) == ["a"]
    assert [one.live for one in replica.state.incarnations.values()].count(True) == 1
    await replica.stop()


async def test_records_of_a_topic_whose_creation_is_not_archived_are_kept(lost: Lost, target: Target) -> None:
    await lost.archive()
    lost.script.topic(A, "unarchived", partitions=2)
    await lost.commit(A, Sent(0, ["known"]), Sent(3, ["kept"]))
    report = await restored(lost, target)
    replica = await started(lost, target)
    assert await values(lost, replica.state) == ["known"]
    assert await values(lost, replica.state, report.rescued_topic, 1) == ["kept"]
    assert report.rescued_records == 1
    assert "unarchived" not in replica.state.topics
    await replica.stop()


async def test_what_a_fenced_author_left_uncommitted_stays_out(lost: Lost, target: Target) -> None:
    await lost.chunk(A, Sent(0, ["never committed"]))
    lost.script.one(B, FenceIncarnation(incarnation=A))
    await lost.archive()
    assert (await restored(lost, target)).chunks_found == 0


async def test_a_transaction_without_an_archived_end_is_aborted_and_nobody_hears_otherwise(
    lost: Lost, target: Target
) -> None:
    """The one that was ongoing, and what was sent later: a late commit is not answered with success."""
    pair = lost.script.one(A, InitTransactions(transactional_id="x", timeout_ms=60_000))
    assert isinstance(pair, Done)
    producer, epoch = pair.value  # type: ignore[misc]  # a pair
    await lost.commit(A, Sent(0, ["open"], (producer, epoch, 0), transactional=True))
    await lost.archive()
    await lost.commit(A, Sent(0, ["later"], (producer, epoch, 1), transactional=True))
    ended = EndTransaction(transactional_id="x", producer_id=producer, producer_epoch=epoch, commit=True)
    lost.script.one(A, ended)
    report = await restored(lost, target)
    assert (report.aborted, report.unended, report.found) == (["x"], 1, 0)
    replica = await started(lost, target)
    partition = replica.state.topics["t"].partitions[0]
    assert partition.last_stable == partition.high_watermark
    assert len(partition.aborted(0, partition.high_watermark)) == 1
    assert isinstance(await replica.propose(ended), Refused)
    late = InitTransactions(transactional_id="x", timeout_ms=1, producer_id=producer, producer_epoch=epoch)
    given = await replica.propose(late)
    assert isinstance(given, Refused) or given.value[0] > producer + (1 << 31)  # type: ignore[index]  # a pair
    fresh = await replica.propose(
        InitTransactions(transactional_id="x", timeout_ms=1, producer_id=-1, producer_epoch=-1)
    )
    assert isinstance(fresh, Done)
    assert fresh.value[0] > producer + (1 << 31)  # type: ignore[index]  # a pair that nobody had
    await replica.stop()


async def test_a_damaged_snapshot_and_the_last_piece_cut(lost: Lost, target: Target) -> None:
    await lost.commit(A, Sent(0, ["a"]))
    await lost.snapshot()
    await lost.archive()
    await lost.commit(A, Sent(0, ["b"]))
    newest = await lost.snapshot()
    last = piece_key(await lost.archive())
    await lost.commit(A, Sent(0, ["c"]))
    for key in (newest, last):
        await lost.store.put(key, [(await lost.store.get(key))[:-1]])
    report = await restored(lost, target)
    assert {key for key, _ in report.damaged} == {newest, last}
    assert [(p.certain_end, p.found) for p in report.partitions] == [(1, 2)]
    replica = await started(lost, target)
    assert await values(lost, replica.state) == ["a", "b", "c"]
    await replica.stop()


async def test_a_damaged_chunk_is_named_and_the_others_are_found(lost: Lost, target: Target) -> None:
    await lost.archive()
    key = chunk_key(await lost.chunk(A, Sent(0, ["lost"])))
    await lost.commit(A, Sent(0, ["found"]))
    await lost.store.put(key, [(await lost.store.get(key))[:-1]])
    report = await restored(lost, target)
    assert ([name for name, _ in report.damaged], report.found) == ([key], 1)


async def test_a_chunk_is_read_once_unless_it_is_another_object_now(lost: Lost) -> None:
    """Both plans of a restore ask one reader; what was put between them is read, also under a known name."""
    store, asked = CountingStore(), list[str]()
    store.asked = asked
    other = Lost(store, lost.script)
    first, second = chunk_key(await other.chunk(A, Sent(0, ["a"]))), chunk_key(ChunkId(A, 1))
    reader = Reader(store, CLUSTER_ID)
    (known,) = await reader.read([await store.head(first)])
    await other.chunk(A, Sent(0, ["b"]))
    both = await reader.read([await store.head(first), await store.head(second)])
    assert (asked, both[0] is known, isinstance(both[1], FoundChunk)) == ([first, second], True, True)
    await store.put(second, [(await store.get(second))[:-1]])
    asked.clear()
    again = await reader.read([await store.head(first), await store.head(second)])
    assert (asked, again[0] is known, isinstance(again[1], Unusable)) == ([second], True, True)


class CountingStore(MemoryStore):
    """Says what was read of it."""

    asked: list[str]

    async def get(self, key: str) -> bytes:
        self.asked.append(key)
        return await super().get(key)


async def test_a_position_beyond_the_end_is_set_to_it(lost: Lost, target: Target) -> None:
    await lost.commit(A, Sent(0, ["a"]))
    beyond = CommitOffsets(group="g", generation=-1, partition=[0], offset=[9], leader_epoch=[-1])
    assert isinstance(lost.script.one(A, beyond), Done)
    await lost.archive()
    report = await restored(lost, target)
    assert [tuple(each) for each in report.positions] == [("g", "t", 0, 9, 1)]
    replica = await started(lost, target)
    position = replica.state.groups["g"].offsets.get(0)
    assert position is not None
    assert position.offset == 1
    await replica.stop()


async def test_a_dry_run_changes_nothing(lost: Lost, target: Target) -> None:
    await lost.archive()
    await lost.commit(A, Sent(0, ["a"]))
    before, log = await contents(lost.store), target.log()
    report = await restored(lost, target, replace(NOW, dry_run=True))
    assert (report.dry_run, report.found) == (True, 1)
    assert await contents(lost.store) == before
    assert await beginning.look(log.inner) == Held("", False)


@pytest.mark.parametrize("step", steps.RESTORE_STEPS)
async def test_it_is_killed_before_each_step_and_run_again(
    lost: Lost, target: Target, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lost.archive()
    await lost.chunk(A, Sent(0, ["given up"], (6, 0, 0)))
    await lost.commit(A, Sent(0, ["acknowledged"], (6, 0, 0)), Sent(1, ["plain"]))
    before = await contents(lost.store)

    def die(reached: str) -> None:
        if reached == step:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(steps, "_hooks", [die])
        with pytest.raises(Died):
            await restored(lost, target)
    if step in ("restore/begin", "restore/bind"):
        assert await contents(lost.store) == before
    elif step != "restore/finished":
        with pytest.raises(ForeignBucket, match="not finished"):
            await started(lost, target)
    if step == "restore/finished":
        with pytest.raises(CannotRestore, match="start the agents"):
            await restored(lost, target)
    else:
        await restored(lost, target)
    replica = await started(lost, target)
    assert sorted(await values(lost, replica.state)) == ["acknowledged", "given up"]
    assert await values(lost, replica.state, index=1) == ["plain"]
    with pytest.raises(ForeignBucket):
        await fingerprint.claim(lost.store, Fingerprint("main", CLUSTER_ID, LOST))
    await replica.stop()


class Died(Exception):
    """The process ends here."""


async def test_what_is_in_the_way_is_refused_with_its_remedy(lost: Lost, target: Target) -> None:
    await lost.commit(A, Sent(0, ["a"]))
    await lost.archive()
    before = await contents(lost.store)
    other = target.log()
    chain = await other.register(1, b"", 5.0)
    await chain.append(b"of another cluster")
    with pytest.raises(CannotRestore, match="--replace-log"):
        await restored(lost, target)
    with pytest.raises(CannotRestore, match=r"no cluster\.json"):
        await restore(MemoryStore(), target.log(), SystemClock(), NOW)
    assert await contents(lost.store) == before
    report = await restored(lost, target, replace(NOW, replace_log=True))
    assert report.new_log.endswith(target.url.rpartition("/")[2] + "/")
    replica = await started(lost, target)
    assert await values(lost, replica.state) == ["a"]
    await replica.stop()


async def test_a_log_that_may_live_is_not_given_up(script: Script, target: Target) -> None:
    clock = SystemClock()
    lost = Lost(MemoryStore(clock.now_ms), script)
    await lost.bind()
    await lost.archive()
    with pytest.raises(CannotRestore, match="--log-is-lost"):
        await restored(lost, target, replace(NOW, log_is_lost=False))


async def test_nothing_is_restored_without_a_beginning(lost: Lost, target: Target) -> None:
    await lost.commit(A, Sent(0, ["a"]))
    first = piece_key(await lost.archive())
    await lost.commit(A, Sent(0, ["b"]))
    await lost.archive()
    await lost.store.delete([first])
    with pytest.raises(CannotRestore, match="snapshots/"):
        await restored(lost, target)
