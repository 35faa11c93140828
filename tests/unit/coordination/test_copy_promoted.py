"""A copy is promoted with the command that restores: the new log has what the source's had."""

from __future__ import annotations

import pytest

from coordination.clock import SystemClock
from coordination.commands import CommitOffsets
from coordination.copying.run import Copying
from coordination.restore.run import RestoreOptions, restore
from coordination.state import Done
from objectstore import fingerprint
from objectstore.adapters.memory import MemoryStore
from objectstore.copied import NotOurCopy
from objectstore.fingerprint import Fingerprint, ForeignBucket
from tests.unit.coordination.kit import A, B, Script
from tests.unit.coordination.lost import CLUSTER_ID, LOST, Lost, Sent
from tests.unit.coordination.test_restore import Target, contents, started, target, values

pytestmark = pytest.mark.services
__all__ = ["target"]
OPTIONS = RestoreOptions(settle_s=0.0)


async def test_offsets_producers_and_positions_are_kept_and_the_copier_ends(
    script: Script, target: Target
) -> None:
    lost = Lost(MemoryStore(), script)
    script.topic(A, "t", partitions=2)
    await lost.bind()
    await lost.commit(A, Sent(0, ["a", "b"], (5, 0, 0)))
    await lost.snapshot()
    position = CommitOffsets(group="g", generation=-1, partition=[0], offset=[2], leader_epoch=[-1])
    assert isinstance(script.one(A, position), Done)
    await lost.commit(B, Sent(0, ["c"]), Sent(1, ["x"]))
    await lost.archive()
    copy = MemoryStore()
    copying = Copying(lost.store, copy, "s3://source", SystemClock())
    made = await copying.round()
    await lost.commit(A, Sent(0, ["later"], (5, 0, 2)))
    await lost.archive()
    report = await restore(copy, target.log(), SystemClock(), OPTIONS)
    assert (report.certain, report.found, report.missing_chunks) == (made.revision, 0, [])
    found, _ = await fingerprint.stored(copy)
    assert (found.log_identity, found.restored_from) == (report.new_log, "")
    lost.store = copy
    replica = await started(lost, target)
    assert await values(lost, replica.state) == ["a", "b", "c"]
    assert await values(lost, replica.state, index=1) == ["x"]
    assert replica.state.topics["t"].partitions[0].producers[5].last_sequence == 1
    offset = replica.state.groups["g"].offsets.get(0)
    assert offset is not None
    assert offset.offset == 2
    with pytest.raises(NotOurCopy, match="promoted"):
        await copying.round()
    await replica.stop()


async def test_a_source_that_lives_is_not_asked_nor_touched_and_its_agents_do_not_start_on_the_copy(
    script: Script, target: Target
) -> None:
    lost = Lost(MemoryStore(), script)
    script.topic(A, "t", partitions=2)
    await lost.bind()
    await lost.commit(A, Sent(0, ["a"]))
    await lost.archive()
    copy = MemoryStore()
    await Copying(lost.store, copy, "s3://source", SystemClock()).round()
    await lost.commit(A, Sent(0, ["of the source alone"]))  # a moment ago, and no --log-is-lost
    before = await contents(lost.store)
    report = await restore(copy, target.log(), SystemClock(), OPTIONS)
    assert (report.found, report.moved) == (0, [])
    assert await contents(lost.store) == before
    own = Fingerprint("main", CLUSTER_ID, LOST)
    await fingerprint.claim(lost.store, own)
    with pytest.raises(ForeignBucket):
        await fingerprint.claim(copy, own)
    await lost.commit(B, Sent(0, ["after it"]))
    lost.store = copy
    replica = await started(lost, target)
    assert await values(lost, replica.state) == ["a"]
    await replica.stop()
