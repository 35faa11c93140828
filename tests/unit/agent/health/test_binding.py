"""An agent whose bucket was bound to another log: it stops, and no chunk of it is committed meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from agent.cli.restore import SETTLE_S
from agent.health import binding
from agent.health.binding import FRESH_S, LOOK_S, Binding
from coordination.restore.run import RestoreOptions
from objectstore import fingerprint
from objectstore.adapters.memory import MemoryStore
from objectstore.fingerprint import Fingerprint, ForeignBucket
from objectstore.naming import FINGERPRINT_KEY, ChunkId
from objectstore.store import Buffer, Retryable

OURS = Fingerprint("main", bytes(16), "etcd:1:/floe/main/")
CHUNK = ChunkId(1, 0)


class SlowStore(MemoryStore):
    """Reads of the fingerprint fail while it is `away`."""

    away = False
    looks = 0

    async def get(self, key: str) -> bytes:
        self.looks += key == FINGERPRINT_KEY
        if self.away:
            raise Retryable("away")
        return await super().get(key)


class Rig:
    def __init__(self) -> None:
        self.store = SlowStore()
        self.lost: list[ForeignBucket] = []
        self.binding = Binding(self.store, self.lost.append)
        self.put = self.binding.guarding(self._put)

    async def _put(self, chunk: ChunkId, parts: Sequence[Buffer]) -> int:
        return 0

    async def bind(self, identity: str) -> None:
        """What a restore does."""
        found, etag = await fingerprint.stored(self.store)
        await fingerprint.replace(
            self.store, replace(found, log_identity=identity, restored_from=found.log_identity), etag
        )


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig()
    await fingerprint.claim(made.store, OURS)
    made.binding.start(OURS)
    yield made
    await made.binding.stop()


async def test_the_agent_stops_soon_and_commits_nothing_any_more(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binding, "LOOK_S", 0.01)
    await rig.binding.stop()
    rig.binding.start(OURS)
    assert await rig.put(CHUNK, []) == 0
    await rig.bind("etcd:2:/floe/main/")
    while not rig.lost:  # noqa: ASYNC110 - the look has no event
        await asyncio.sleep(0.01)
    with pytest.raises(Retryable, match="not finished"):
        await rig.put(CHUNK, [])
    assert len(rig.lost) == 1


async def test_a_chunk_is_committed_only_while_a_look_is_fresh(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first chunk looks itself, those that follow do not; one after a long silence does again."""
    assert await rig.put(CHUNK, []) == 0
    assert await rig.put(CHUNK, []) == 0
    assert rig.store.looks == 1
    rig.store.away = True
    assert await rig.put(CHUNK, []) == 0
    monkeypatch.setattr(binding, "FRESH_S", 0.0)
    with pytest.raises(Retryable, match="away"):
        await rig.put(CHUNK, [])
    assert not rig.lost
    rig.store.away = False
    monkeypatch.undo()
    await rig.bind("etcd:2:/floe/main/")
    monkeypatch.setattr(binding, "FRESH_S", 0.0)
    with pytest.raises(Retryable, match="not finished"):
        await rig.put(CHUNK, [])


async def test_a_fingerprint_that_is_gone_is_no_restore(rig: Rig) -> None:
    await rig.store.delete([FINGERPRINT_KEY])
    assert await rig.put(CHUNK, []) == 0


def test_a_restore_waits_longer_than_a_look_is_good_for() -> None:
    assert LOOK_S < FRESH_S < min(RestoreOptions().settle_s, SETTLE_S)
