"""etcd is lost when the newest piece of the archive is missing or cut, too, and the next one was not written.

Nothing names the newest piece but itself, so one that is missing is told by how far behind the archive ends.
What was acknowledged in it is in chunks. And what no chunk has, the leader epoch: it is ahead of any that the
lost log can have told.
"""

from __future__ import annotations

import pytest

from coordination.restore import rebuild
from coordination.restore.report import Report
from coordination.state import State
from deploy.services import Etcd
from objectstore.adapters.memory import MemoryStore
from objectstore.naming import PieceId, piece_key
from objectstore.store import ObjectMeta, ObjectStore
from tests.unit.coordination.kit import A, B, Script
from tests.unit.coordination.lost import Lost, Sent
from tests.unit.coordination.test_restore import Target, restored, started, target, values

pytestmark = pytest.mark.services
__all__ = ["target"]
PASSED = 65_536
"""By so much a restored log's leader epoch is ahead of the archived one (docs/decisions/0047)."""
PIECE_MS = 5_000


class Time:
    """By which the store stamps."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
async def lost(script: Script, time: Time) -> Lost:
    made = Lost(MemoryStore(time), script)
    script.topic(A, "t", partitions=2)
    await made.bind()
    return made


async def two_pieces(lost: Lost, time: Time) -> tuple[int, PieceId]:
    """A snapshot, a piece, the newest piece, and chunks behind it: where the first ends, and the newest."""
    await lost.snapshot()
    await lost.commit(A, Sent(0, ["a"], (5, 0, 0)))
    await lost.archive()
    through = lost.archived
    await lost.commit(A, Sent(0, ["b"], (5, 0, 1)), Sent(1, ["x"]))
    await lost.commit(B, Sent(0, ["c"], (5, 0, 2)))
    time.ms += PIECE_MS
    newest = await lost.archive()
    await lost.commit(A, Sent(0, ["d"], (5, 0, 3)))
    time.ms += 1_000
    await lost.commit(B, Sent(0, ["e"], (5, 0, 4)))
    return through, newest


async def all_is_there(lost: Lost, target: Target) -> None:
    replica = await started(lost, target)
    assert await values(lost, replica.state) == ["a", "b", "c", "d", "e"]
    assert await values(lost, replica.state, index=1) == ["x"]
    assert replica.state.topics["t"].partitions[0].producers[5].last_sequence == 4
    await replica.stop()


async def test_the_newest_piece_is_there(lost: Lost, target: Target, time: Time) -> None:
    """What the others are compared with."""
    _, newest = await two_pieces(lost, time)
    report = await restored(lost, target)
    assert told(report) == (newest.last, [], [], 2)
    assert report.behind_s == 1
    await all_is_there(lost, target)


async def test_the_newest_piece_is_missing(lost: Lost, target: Target, time: Time) -> None:
    """Nobody can name it; the chunks are there, and the report says that they are a piece further."""
    through, newest = await two_pieces(lost, time)
    await lost.store.delete([piece_key(newest)])
    report = await restored(lost, target)
    assert told(report) == (through, [], [], 5)
    assert report.behind_s == 1 + PIECE_MS / 1000
    await all_is_there(lost, target)


@pytest.mark.parametrize("left", ["all but a byte", "half", "nothing", "another byte in it"])
async def test_the_newest_piece_is_cut(lost: Lost, target: Target, time: Time, left: str) -> None:
    """It is named, with the revisions that only it had."""
    through, newest = await two_pieces(lost, time)
    key = piece_key(newest)
    content = await lost.store.get(key)
    half = len(content) // 2
    changed = content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :]
    ways = {
        "all but a byte": content[:-1],
        "half": content[:half],
        "nothing": b"",
        "another byte in it": changed,
    }
    await lost.store.put(key, [ways[left]])
    report = await restored(lost, target)
    assert told(report) == (through, [key], [(through + 1, newest.last)], 5)
    await all_is_there(lost, target)


async def test_a_piece_before_the_newest_is_missing(lost: Lost, target: Target, time: Time) -> None:
    """The newest names it, so it is told; certain is what lies before it, the newest is not gone along."""
    through, missing = await two_pieces(lost, time)
    time.ms += PIECE_MS
    await lost.archive()
    await lost.store.delete([piece_key(missing)])
    report = await restored(lost, target)
    assert told(report) == (through, [], [(missing.first, missing.last)], 5)
    assert report.behind_s == 1 + PIECE_MS / 1000
    await all_is_there(lost, target)


async def test_the_only_piece_is_missing_behind_a_snapshot(lost: Lost, target: Target, time: Time) -> None:
    """Certain is the snapshot, and by it the age is told."""
    snapshot = await lost.snapshot()
    await lost.commit(A, Sent(0, ["a"]))
    time.ms += PIECE_MS
    await lost.store.delete([piece_key(await lost.archive())])
    await lost.commit(A, Sent(0, ["b"]))
    report = await restored(lost, target)
    assert (report.snapshot, report.certain, report.behind_s) == (snapshot, report.snapshot_revision, 5)
    replica = await started(lost, target)
    assert await values(lost, replica.state) == ["a", "b"]
    await replica.stop()


async def test_control_without_chunks_the_records_of_the_missing_piece_are_away(
    lost: Lost, target: Target, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That these tests would see it: what brings the records back is the listing of chunks, nothing else."""
    _, newest = await two_pieces(lost, time)
    await lost.store.delete([piece_key(newest)])

    async def none(store: ObjectStore, state: State, restorer: int) -> list[ObjectMeta]:
        return []

    monkeypatch.setattr(rebuild, "unknown_chunks", none)
    await restored(lost, target)
    with pytest.raises(AssertionError, match="'a'"):
        await all_is_there(lost, target)


async def test_no_leader_epoch_of_the_lost_log_comes_again(lost: Lost, target: Target) -> None:
    """Behind the archive agents came and went: clients know the epochs of that, and take no earlier one."""
    await lost.archive()
    archived = lost.script.state.leader_epoch
    for number in range(100, 200):
        lost.script.register(number)
    assert lost.script.state.leader_epoch == archived + 100
    await restored(lost, target)
    replica = await started(lost, target)
    told_now = replica.state.leader_epoch
    assert archived + PASSED < told_now < archived + PASSED + 10, "and the fences and the agent that starts"
    await replica.stop()


async def test_nor_does_one_of_a_log_that_was_restored_before(lost: Lost, target: Target, etcd: Etcd) -> None:
    """Each restore passes as many: the second loss is as the first."""
    await lost.archive()
    archived = lost.script.state.leader_epoch
    await restored(lost, target)
    again = Target(etcd)
    await restored(lost, again)
    replica = await started(lost, again)
    assert replica.state.leader_epoch > archived + 2 * PASSED
    await replica.stop()
    for log in again.opened:
        await log.close()


def told(report: Report) -> tuple[int, list[str], list[tuple[int, int]], int]:
    """Where certainty ends, what is damaged, what is missing, and how many records were found again."""
    return report.certain, [key for key, _ in report.damaged], report.missing_revisions, report.found
