"""The parts of a round, but for tables: each finds what is needed and has it looked at, in order.

What a walk yields is where to go on after. References count as the state of now has them: what was let go of
meanwhile is no loss, and what is listed is judged by a state that is newer than the listing (rule 9).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from agent.background.collection import StateView
from agent.background.scrub.damage import Counts
from agent.background.scrub.needs import Look, Need, OfManifest, OfPointer
from coordination.places import places_of
from coordination.replica import Replica
from coordination.state.deleted import existing
from coordination.state.types import Merged, Partition
from objectstore import fingerprint
from objectstore import manifest as manifests
from objectstore.collect import Candidate, Verdict, judge
from objectstore.collect_merged import MergedCollector
from objectstore.fingerprint import BrokenFingerprint, Fingerprint
from objectstore.manifest import CorruptManifest, Manifest, Summary
from objectstore.naming import (
    CHUNKS,
    FINGERPRINT_KEY,
    MANIFESTS,
    SEGMENTS,
    SNAPSHOTS,
    ChunkId,
    chunk_key,
    manifest_key,
    parse_chunk_key,
    segment_key,
)
from objectstore.store import ObjectStore
from objectstore.turns import Turns, in_turns

TURN = 256  # partitions, chunks or names looked at before the event loop gets its turn
STRAYS = (Verdict.STRANGER, Verdict.AUTHOR_UNKNOWN)
"""What nothing refers to and collection does not delete either."""


@dataclass(frozen=True, slots=True)
class World:
    """What the walks look at. `identity`: the log's name. `now_ms`: as collection counts its grace."""

    store: ObjectStore
    replica: Replica
    view: StateView
    collector: MergedCollector
    identity: str
    now_ms: Callable[[], int]
    grace_ms: int
    counts: Callable[[], Counts]
    fingerprint: Fingerprint


def always() -> bool:
    """Of what is needed as long as there is a cluster."""
    return True


async def own(world: World, _after: str, look: Look) -> AsyncIterator[str]:
    """The object that says whose bucket this is."""

    ours, changed = world.fingerprint, "it is not what this agent knows of its cluster"

    def problem(content: bytes) -> str:
        try:
            found = fingerprint.decode(content)
        except BrokenFingerprint as error:
            return str(error)
        if found == ours:
            return "" if content in (ours.encode(), ours.encode(summed=False)) else changed
        bound = (found.cluster, found.log_identity, found.restored_from)
        if bound != (ours.cluster, ours.log_identity, ""):
            return ""  # a restore has bound the bucket to another log: that is no damage, nor ours to undo
        return changed

    await look(Need(FINGERPRINT_KEY, always, check=problem))
    yield FINGERPRINT_KEY


async def chunks(world: World, after: str, look: Look) -> AsyncIterator[str]:
    """All chunks by name: those of the state are looked at, also where the listing does not have them."""
    await world.view.catch_up()
    due = await in_turns(behind(list(world.replica.state.chunks.serials), after))
    at = 0
    async for page in world.store.list(CHUNKS, start_after=after):
        await world.view.catch_up()
        for meta in page:
            stop = bisect_right(due, meta.key)
            for key in due[at:stop]:
                if key != meta.key:
                    await _chunk(world, key, 0, look)
            at = stop
            verdict = judge(meta, world.view, world.now_ms(), world.grace_ms)
            world.counts().strays += verdict in STRAYS
            if verdict is Verdict.REFERENCED:
                await _chunk(world, meta.key, meta.size, look)
            yield meta.key
    for key in due[at:]:
        await _chunk(world, key, 0, look)
        yield key


def behind(chunks: Sequence[ChunkId], after: str) -> Turns[list[str]]:
    """The names of chunks behind `after`, in order. Author by author: each one's are almost in order."""
    numbers: dict[int, list[int]] = {}
    for at, chunk in enumerate(chunks):
        numbers.setdefault(chunk.incarnation, []).append(chunk.number)
        if at % TURN == 0:
            yield
    names: list[str] = []
    for author in sorted(numbers):
        for at, number in enumerate(sorted(numbers[author])):
            if (name := chunk_key(ChunkId(author, number))) > after:
                names.append(name)
            if at % TURN == 0:
                yield
    return names


async def _chunk(world: World, key: str, size: int, look: Look) -> None:
    chunk = parse_chunk_key(key)
    assert chunk is not None, key
    known: ChunkId = chunk

    def needed() -> bool:
        return world.view.is_referenced(known)

    if needed():
        await look(Need(key, needed, size, known))


async def merged(world: World, after: str, look: Look) -> AsyncIterator[str]:
    """Manifests and what they name, partition by partition. Marks are `handle/segments of it`."""
    first, done = (int(each) for each in after.split("/")) if after else (0, -1)
    await world.view.catch_up()
    for handle in range(first, len(world.replica.state.partitions)):
        if handle % TURN == 0:
            await asyncio.sleep(0)
        partition = partition_of(world.replica, handle)
        if partition is None or partition.merged is None:
            continue
        manifest = await _manifest(world, handle, partition.merged, look)
        for number in range(done + 1 if handle == first else 0, len(manifest or ())):
            assert manifest is not None, "it has segments"
            await look(_segment(world, handle, partition.merged, manifest, number))
            yield f"{handle}/{number}"
        yield f"{handle}/{len(manifest or ())}"


async def _manifest(world: World, handle: int, pointer: Merged, look: Look) -> Manifest | None:
    named = pointer.manifest

    def problem(content: bytes) -> str:
        try:
            found = manifests.decode(content, named)
        except CorruptManifest as error:
            return str(error)
        return "" if found.summary() == summary_of(pointer) else "it is not what the state says of it"

    need = Need(
        manifest_key(named),
        lambda: world.view.manifest_of(handle) == named,
        pointer.manifest_bytes,
        OfPointer(handle, pointer),
        problem,
        places=places_of(world.replica.state, handle, pointer.start_offset, pointer.end_offset),
    )
    content = await look(need)
    return None if content is None else await asyncio.to_thread(manifests.decode, content, named)


def summary_of(pointer: Merged) -> Summary:
    """What the state keeps of a manifest, as the manifest itself says it."""
    told = pointer._asdict()
    return Summary(**{name: told[name] for name in Summary._fields})


def _segment(world: World, handle: int, pointer: Merged, manifest: Manifest, number: int) -> Need:
    info = manifest[number]

    def needed() -> bool:
        partition = partition_of(world.replica, handle)
        return (
            partition is not None
            and partition.merged is not None
            and partition.merged.manifest == pointer.manifest
            and partition.held_start < info.end_offset
        )

    def problem(content: bytes) -> str:
        if len(content) != info.size:
            return f"it has {len(content)} bytes, its manifest says {info.size}"
        return ""

    places = places_of(world.replica.state, handle, info.base_offset, info.end_offset)
    return Need(
        segment_key(info.segment), needed, info.size, OfManifest(handle, info), problem, places=places
    )


def partition_of(replica: Replica, handle: int) -> Partition | None:
    """The partition of this handle, if it is there; also of a deleted topic that can come back."""
    return existing(replica.state, handle) if handle < len(replica.state.partitions) else None


async def strays(world: World, after: str, _look: Look) -> AsyncIterator[str]:
    """Segments and manifests that nothing refers to, and that collection leaves alone. Marks are folders."""
    for kind in (MANIFESTS, SEGMENTS):
        for folder in sorted(await world.store.list_folders(kind)):
            if kind + folder <= after:
                continue
            async for each in world.collector.survey(kind, folder):
                world.counts().strays += _is_stray(each)
            yield kind + folder


def _is_stray(found: Candidate) -> bool:
    return found.verdict in STRAYS


async def snapshots(world: World, after: str, look: Look) -> AsyncIterator[str]:
    """The snapshots that the state names."""
    await world.view.catch_up()
    for record in sorted(world.replica.state.snapshots, key=lambda each: each.key):
        if record.key > after and record.key.startswith(SNAPSHOTS):
            known = record
            await look(
                Need(
                    record.key,
                    lambda known=known: known in world.replica.state.snapshots,  # type: ignore[misc]  # a default binds the loop's value
                    record.size,
                    record,
                )
            )
            yield record.key
