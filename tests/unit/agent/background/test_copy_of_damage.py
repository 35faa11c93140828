"""`floe copy` of a bucket with a damaged object of each kind: told, and taken again once mended."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from coordination.copying.damaged import DamagedObject
from coordination.copying.run import Copying, CopyingOptions
from iceberg.contents import problem
from objectstore.adapters.memory import MemoryStore
from objectstore.copying import CopyOptions
from tests.sim.clock import SimClock, virtual_time
from tests.sim.loop import VirtualLoop
from tests.unit.agent.background.scrub_rig import Cluster
from tests.unit.agent.background.scrub_runs import seeded

URL, SEED = "s3://bucket/floe", 7
KINDS = {
    "chunk": ("chunks/", ".chunk"),
    "segment": ("segments/", ".seg"),
    "manifest": ("manifests/", ".manifest"),
    "snapshot": ("snapshots/", ".snap"),
    "piece": ("log/", ".log"),
    "rows": ("tables/", ".parquet"),
    "metadata": ("tables/", ".json"),
    "avro": ("tables/", ".avro"),
}


def test_one_of_each_kind_is_told_with_what_is_lost_and_taken_again() -> None:
    loop = VirtualLoop(SEED)
    asyncio.set_event_loop(loop)
    try:
        with virtual_time(loop, SEED):
            loop.run_until_complete(_damaged_copied_mended(SimClock(loop, SEED)))
            loop.put_away()
    finally:
        asyncio.set_event_loop(None)


async def _damaged_copied_mended(clock: SimClock) -> None:
    store, target = MemoryStore(clock.now_ms), MemoryStore(clock.now_ms)
    options = CopyingOptions(CopyOptions(check=problem))
    async with seeded(SEED, store, clock) as made:
        damaged = {kind: _one(made, *KINDS[kind]) for kind in KINDS}
        assert len(set(damaged.values())) == len(KINDS)
        for key in damaged.values():
            sound = made.sound[key]
            at = len(sound) // 2
            await store.put(key, [sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :]])
        found = await Copying(store, target, URL, clock, options).round()
        _judge_told({each.key: each for each in found.damaged}, damaged)
        assert (found.damaged_count, found.missing_count) == (len(KINDS), 0)
        for key in damaged.values():
            await store.put(key, [made.sound[key]])
        again = await Copying(store, target, URL, clock, options).round()
        assert (again.damaged, again.counts.objects) == ([], len(KINDS))
        for key in made.sound:
            assert key == "cluster.json" or await target.get(key) == made.sound[key], key


def _judge_told(told: Mapping[str, DamagedObject], damaged: Mapping[str, str]) -> None:
    assert set(told) == set(damaged.values())
    for kind in ("chunk", "segment", "manifest"):
        (place, *_) = told[damaged[kind]].places
        assert (place.topic, place.start < place.end) == ("t", True), kind
    for kind in ("rows", "metadata", "avro"):
        assert told[damaged[kind]].table == "floe.t", kind


def _one(made: Cluster, prefix: str, end: str) -> str:
    """The first of a kind that is needed; of segments the last, whose manifest is not damaged, too."""
    found = [key for key in sorted(made.sound) if key.startswith(prefix) and key.endswith(end)]
    return found[-1 if end == ".seg" else 0]
