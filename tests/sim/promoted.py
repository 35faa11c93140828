"""What a bucket was at a moment is promoted: all that its log names must be there, as the cluster had it.

No etcd is here, so of `floe restore cluster` it is what decides: the newest state that snapshots and archived
entries give (coordination/restore/source.py), and what chunks have behind it (rebuild.py). A copy has to be
whole at every moment, also in the midst of a round; a bucket that the store replicates when all has arrived
(before that, what has not is told of), and the cluster's own when it is at rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coordination.restore.found import Reader, missing_chunks
from coordination.restore.merged import merged_of
from coordination.restore.rebuild import Means, rebuild
from coordination.restore.report import Report
from coordination.restore.run import ENTRIES_MAX
from coordination.restore.source import CannotRestore, Source, source_of
from coordination.restore.stages import Stages
from coordination.state import State
from objectstore import copied
from objectstore.adapters.memory import MemoryStore
from objectstore.fingerprint import stored
from objectstore.merged import MergedRanges
from objectstore.naming import chunk_key, parse_manifest_key, parse_segment_key
from objectstore.reader import ChunkReader
from objectstore.store import ObjectStore, StoreError
from tests.checker.findings import Finding
from tests.sim import served
from tests.sim.archived import IDENTITY
from tests.sim.audit import CACHE_BYTES, Readers
from tests.sim.clock import SimClock
from tests.sim.relay import COPIES
from tests.sim.replicated import REPLICATED

if TYPE_CHECKING:
    from tests.sim.world import World

RESTORER = 7
"""An incarnation that no agent has."""
Contents = Mapping[tuple[str, int], Mapping[int, bytes | None]]
"""By topic and partition the values by offset."""


async def judged(world: World, buckets: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """All of a run's; the last one is of the end. What is wrong with what would be promoted."""
    around, app = world.around, world.agents[0].app
    assert around is not None, "the world ran"
    assert app is not None, "healed before it is judged"
    topics = sorted({COPIES, *(key.topic for key in around.keys.every)})
    have = await contents(world.objects, app.replica.state, topics)
    findings: list[Finding] = []
    for number, objects in enumerate(buckets, start=1):
        bucket = MemoryStore()
        bucket._objects = dict(objects)
        findings += await _promoted(world, bucket, have, number == len(buckets))
    return findings


async def _promoted(world: World, bucket: MemoryStore, have: Contents, last: bool) -> list[Finding]:
    """One bucket's."""
    try:
        source = await source_of(bucket, IDENTITY)
    except CannotRestore as error:
        began = any(key.startswith("snapshots/") for key in bucket._objects)
        return [_wrong("promoted-nothing", str(error))] if began or last else []
    world.seen.counts["replica buckets promoted"] += 1
    mark = await copied.marked(bucket)
    if mark is not None and mark.revision > source.certain:
        told = f"copy.json says {mark.revision}, {source.certain} is there"
        return [_wrong("promoted-behind", told)]
    digest = world.witness.digest(source.certain)
    if digest not in (source.state.digest, None):
        return [_wrong("promoted-differs", f"at revision {source.certain}")]
    merged = await merged_of(bucket, source.state)
    missing = await missing_chunks(bucket, source.state)
    missing += [key for key in merged.missing if _judged(source.state, key, have)]
    damaged = [key for key, _ in merged.damaged if _judged(source.state, key, have)]
    if missing and not last and world.plan.follows == REPLICATED:
        world.seen.counts["replica buckets promoted before all had arrived, and told so"] += 1
        return []
    if missing or damaged:
        told = f"{source.certain} names {missing[:3]} of {len(missing)}, damaged {damaged[:3]}"
        return [_wrong("promoted-incomplete", told)]
    findings = await _same(bucket, source.state, have)
    if not findings and last:
        findings += await _rebuilt(world, bucket, source, have)
    return findings


def _judged(state: State, key: str, have: Contents) -> bool:
    """Whether it is a manifest or segment of a topic that is judged: the one that is hurt lacks some."""
    named = parse_segment_key(key) or parse_manifest_key(key)
    assert named is not None, key
    topics = {topic for topic, _ in have if topic in state.topics}
    handles = {each.handle for topic in topics for each in state.topics[topic].partitions}
    return named.partition in handles


async def _same(bucket: ObjectStore, state: State, have: Contents) -> list[Finding]:
    """Below each last stable offset the bucket has what the cluster has, where both have it."""
    findings: list[Finding] = []
    try:
        found = await contents(bucket, state, sorted({topic for topic, _ in have}))
    except StoreError as error:
        return [_wrong("promoted-incomplete", f"at revision {state.revision}: {error!r}")]
    for (topic, index), values in found.items():
        partition = state.topics[topic].partitions[index]
        due = have[topic, index]
        for at in sorted(at for at in {*values, *due} if partition.log_start <= at < partition.last_stable):
            if values.get(at, b"no record") != due.get(at, b"no record"):
                told = f"{topic}-{index} at {at}: {values.get(at)!r}, the cluster has {due.get(at)!r}"
                findings.append(_wrong("promoted-differs", told))
    return findings


async def _rebuilt(world: World, bucket: MemoryStore, source: Source, have: Contents) -> list[Finding]:
    """With what chunks have behind its archive, nothing that was there is gone."""
    clock = SimClock(world.loop, RESTORER)
    found, _ = await stored(bucket)
    means = Means(bucket, Reader(bucket, found.cluster_id), found.cluster_id, RESTORER, Stages(clock))
    ends = {
        (topic, each.index): each.last_stable
        for topic, _ in have
        if topic in source.state.topics
        for each in source.state.topics[topic].partitions
    }
    report = Report(found.cluster, found.log_identity, base=source.begin + ENTRIES_MAX)
    made = await rebuild(means, source, report)
    world.seen.counts["replica chunks found behind the archive"] += made.report.chunks_found
    for copy in made.copies:
        await bucket.put(chunk_key(copy.chunk), copy.parts)
    again = await contents(bucket, made.state, sorted({topic for topic, _ in have}))
    findings = [
        _wrong("promoted-lost", f"{topic}-{index} at {at}: {value!r} was there before it was rebuilt")
        for (topic, index), end in ends.items()
        for at, value in have[topic, index].items()
        if at < end and again[topic, index].get(at, b"no record") != value
    ]
    return findings or await served.judged(world, bucket, made.state, again)


async def contents(objects: ObjectStore, state: State, topics: Sequence[str]) -> Contents:
    """Every committed record of these topics, of those that the state has. Raises StoreError."""
    ranges, chunks = MergedRanges(objects), ChunkReader(objects, CACHE_BYTES)
    readers = Readers(ranges, chunks)
    found: dict[tuple[str, int], Mapping[int, bytes | None]] = {}
    try:
        for topic in (each for each in topics if each in state.topics):
            for partition in state.topics[topic].partitions:
                records = await readers.all(partition)
                found[topic, partition.index] = {each.offset: each.value for each in records}
    finally:
        await ranges.close()
        await chunks.close()
    return found


def _wrong(anomaly: str, detail: str) -> Finding:
    return Finding(anomaly, "", detail, ())
