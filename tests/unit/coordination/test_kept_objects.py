"""An old snapshot or piece that the store does not let go of keeps no other one, and no job from its work."""

from __future__ import annotations

from coordination.archive.keeper import LogArchive
from coordination.snapshot_keeper import SnapshotKeeper, SnapshotOptions
from objectstore.faulty import FaultyStore
from objectstore.naming import LOG, SNAPSHOTS, parse_snapshot_key
from tests.unit.coordination.conftest import Agents
from tests.unit.coordination.test_archive import SOON
from tests.unit.coordination.test_replica import topic


async def keys(store: FaultyStore, prefix: str) -> list[str]:
    return [meta.key async for page in store.list(prefix) for meta in page]


async def test_held_objects_stay_alone_and_are_asked_for_once_for_each_snapshot(agents: Agents) -> None:
    one = await agents.start("one")
    store = FaultyStore(agents.store)
    archive = LogArchive(one, agents.logs["one"], store, SOON)
    keeper = SnapshotKeeper(one, agents.logs["one"], store, SnapshotOptions())
    for number in range(7):
        for other in range(3):
            await one.propose(topic(f"t{number}.{other}"))
            await archive._look()
        await keeper.write()
        await keeper.trim()
        if not store.held:
            store.held = {(await keys(store, LOG))[0], (await keys(store, SNAPSHOTS))[0]}
        await archive._look()
        calls = store.calls.get("delete", 0)
        await archive._look()
        assert store.calls.get("delete", 0) == calls, "not at each look"
    assert set(keeper.failures) == {"old snapshots"}
    assert set(archive.failures) == {"old pieces"}
    bound = one.state.snapshots[0].revision
    old = [key for key in await keys(store, SNAPSHOTS) if parse_snapshot_key(key).revision < bound]  # type: ignore[union-attr]  # all are snapshots
    old += [key for key in await keys(store, LOG) if int(key[-20:-4], 16) <= bound]
    assert set(old) == store.held
    store.held.clear()
    await one.propose(topic("more"))
    await keeper.write()
    await archive._look()
    assert (keeper.failures, archive.failures) == ({}, {})
    assert not set(old) & {*await keys(store, LOG), *await keys(store, SNAPSHOTS)}
