"""Times and sizes that apply computes, driven to their ends (test_bounds.py)."""

from __future__ import annotations

from coordination.commands import CommitOffsets, DeleteTopic
from coordination.state.bounds import DELETED_BYTES, EXPIRE_MS, LEADER_EPOCH
from coordination.state.types import Done
from tests.unit.coordination.kit import A, Script, swap


def deleted_bytes(script: Script) -> None:
    """What merged ranges say of their sizes is believed."""
    script.commit(A, (0, 1), (1, 1))
    merge = swap(script.state, 0, 1, 1)
    merge.merged.size_bytes = DELETED_BYTES.high
    assert script.one(A, merge) == Done()
    assert isinstance(script.one(A, DeleteTopic(name="t")), Done)
    (found,) = script.state.deleted.values()
    assert found.size_bytes == DELETED_BYTES.high


def expire_ms(script: Script) -> None:
    for retention, until in (
        (EXPIRE_MS.high, EXPIRE_MS.high),
        (1000, script.now_ms + 1000),
        (EXPIRE_MS.low, script.now_ms + EXPIRE_MS.low),
    ):
        message = CommitOffsets(group="g", generation=-1, partition=[0], offset=[5], retention_ms=retention)
        assert script.one(A, message) == Done()
        assert script.state.groups["g"].offsets.get(0).expire_ms == until


def leader_epoch(script: Script) -> None:
    script.state.leader_epoch = LEADER_EPOCH.high - 1
    assert [script.register(25), script.register(26)] == [Done(3), Done(4)]
    assert script.state.leader_epoch == LEADER_EPOCH.high
