"""The replica over the logs that ship: SQLite here, etcd where services run. Same story on both."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordination.clock import SystemClock
from coordination.commands import Heartbeat, command
from coordination.log import Log
from coordination.open import open_log
from coordination.replica import Replica
from coordination.snapshot_keeper import SnapshotKeeper
from coordination.state import ChunkCommitted
from deploy.services import Etcd
from objectstore.adapters.memory import MemoryStore
from tests.unit.coordination.conftest import QUICK, registration
from tests.unit.coordination.kit import chunk
from tests.unit.coordination.test_replica import topic


async def story(logs: list[Log]) -> None:
    """Two agents write, agree, snapshot, trim; a third starts from the snapshot."""
    clock, store = SystemClock(), MemoryStore()
    a, b, c = [Replica(log, store, clock, QUICK) for log in logs]
    await a.start(registration("a"))
    await b.start(registration("b"))
    await a.propose(topic("t", 2))
    await b.barrier()
    futures = [r.submit([command(chunk(n, (0, 1), (1, 2)))]) for n in range(1, 51) for r in (a, b)]
    results = [(await future)[0] for future in futures]
    offsets = [r.base_offsets[0] for r in results if isinstance(r, ChunkCommitted)]
    assert sorted(offsets) == list(range(100))
    keeper = SnapshotKeeper(a, logs[0], store)
    for _ in range(2):
        await keeper.write()
        await b.propose(Heartbeat())
        await a.propose(Heartbeat())
    await b.barrier()
    await b.propose(Heartbeat())
    await a.propose(Heartbeat())
    assert await keeper.trim() == await logs[0].trimmed() > 0
    await c.start(registration("c"))
    assert c.state.partitions[1].high_watermark == 200
    for replica in (a, b, c):
        await replica.barrier()
    common = min(replica.state.revision for replica in (a, b, c))
    assert len({replica.state.hash_at(common) for replica in (a, b, c)}) == 1
    for replica, log in zip((a, b, c), logs, strict=True):
        await replica.stop()
        await log.close()


async def test_over_sqlite(tmp_path: Path) -> None:
    await story([open_log(f"sqlite://{tmp_path}/log.db", SystemClock()) for _ in range(3)])


@pytest.mark.services
async def test_over_etcd(etcd: Etcd) -> None:
    await story([open_log(f"etcd://{etcd.endpoint}/replica-story", SystemClock()) for _ in range(3)])
