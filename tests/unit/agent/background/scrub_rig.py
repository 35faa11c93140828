"""A small cluster of everything that lies in a bucket, damage of it, and what must come of a scrub.

What may be mended is told here by rules of its own, and not by asking the mender.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from agent.background.scrub.damage import Damage
from agent.background.scrub.job import Bucket, Run, Scrub, ScrubOptions
from agent.background.scrub.needs import Need
from agent.background.scrub.scrubber import Scrubber
from coordination.archive import piece as pieces
from coordination.archive.keeper import ArchiveOptions, LogArchive
from coordination.snapshot_keeper import SnapshotKeeper, SnapshotOptions
from coordination.state.types import SnapshotRecord
from iceberg.committer import Committer, Parts
from iceberg.options import CommitterOptions
from iceberg.warehouse import Warehouse
from objectstore.batch import records
from objectstore.fingerprint import Fingerprint
from objectstore.merged import MergedRanges
from objectstore.naming import FINGERPRINT_KEY, ChunkId, chunk_key, parse_chunk_key
from objectstore.reader import ChunkReader, patched
from objectstore.store import NotFound, ObjectStore
from tests.unit.agent.background.merging_rig import merge_rows, partition_of
from tests.unit.agent.background.test_merging import fill
from tests.unit.agent.kafka.damage_rig import forget
from tests.unit.agent.kafka.test_handlers_produce_fetch import create
from tests.unit.agent.rig import Agent

WAYS = ("flip", "truncate", "delete", "swap")
QUICK = ScrubOptions(bytes_per_s=1e12, round_s=3600.0, begin_s=0.0, repair=True, grace_s=3600.0)
WAREHOUSE = Warehouse("s3://bucket/floe")


@dataclass
class Cluster:
    """The parts that tests look at. `sound`: what lay under each key that is needed, when it was whole."""

    agent: Agent
    store: ObjectStore
    scrub: Scrub
    keeper: SnapshotKeeper
    archive: LogArchive
    values: list[list[bytes]]
    sound: dict[str, bytes] = field(default_factory=dict)
    snapshots: list[SnapshotRecord] = field(default_factory=list)

    async def run(self, *, repair: bool = True) -> Run:
        """A scrub of everything, to its end."""
        run = self.scrub.run_now(1e12, repair=repair)
        await run.wait()
        assert not run.error, run.error
        return run

    async def learn(self) -> None:
        """Note what is needed and whole: all that a scrub looks at, of which it finds nothing wrong."""
        seen: list[str] = []
        usual = Scrubber.look

        async def look(self: Scrubber, need: Need) -> bytes | None:
            seen.append(need.key)
            return await usual(self, need)

        Scrubber.look = look  # type: ignore[method-assign]  # watched
        try:
            run = await self.run(repair=False)
        finally:
            Scrubber.look = usual  # type: ignore[method-assign]  # watched
        counts = run.scrubber.round.counts
        assert (counts.found, counts.unread, counts.strays) == (0, 0, 0), "a false alarm"
        self.snapshots = list(self.agent.services.replica.state.snapshots)
        self.sound = {key: await self.store.get(key) for key in sorted(set(seen))}

    async def reset(self) -> None:
        """All as it was learnt: newer snapshots would be worse donors."""
        state = self.agent.services.replica.state
        new = [each.key for each in state.snapshots if each not in self.snapshots]
        state.snapshots[:] = self.snapshots
        await self.store.delete(new)
        for key, content in self.sound.items():
            await self.store.put(key, [content])

    async def read(self) -> list[list[bytes]]:
        """The records of both partitions, from the bucket alone; what is damaged is left out."""
        reader, ranges = ChunkReader(self.store, 0, cold_bytes_max=0), MergedRanges(self.store, 0)
        found: list[list[bytes]] = []
        for index in range(len(self.values)):
            partition, at = partition_of(self.agent, index=index), 0
            found.append([])
            while at < partition.high_watermark:
                plan = await ranges.slices(partition, at, 1 << 20)
                refs = plan.plan(at, 1 << 20)
                for data in await reader.read_each(refs):
                    if isinstance(data, memoryview):
                        found[-1] += [each.value or b"" for each in records(data)]
                at = refs[-1].end_offset
        await reader.close()
        return found

    async def warm(self) -> None:
        """Have this agent read its tails, so that they are in its memory."""
        for index in range(len(self.values)):
            slices = partition_of(self.agent, index=index).slices
            await self.agent.services.reader.read_each(slices.oldest(1000, 1 << 30))

    def slices(self, key: str) -> list[Any]:
        """The slices in a chunk."""
        chunk = parse_chunk_key(key)
        tails = [partition_of(self.agent, index=index).slices for index in range(len(self.values))]
        return [ref for tail in tails for ref in tail.oldest(1000, 1 << 30) if ref.chunk == chunk]

    def mendable(self, key: str, way: str, damaged: bytes | None) -> bool:
        """Whether what is left says all that was lost."""
        if key.startswith("tables/"):
            return way == "swap"
        if not key.startswith("chunks/") or way == "swap":
            return True
        return all(
            self.agent.services.reader.cached(ref) is not None or whole(damaged or b"", ref)
            for ref in self.slices(key)
        )


def whole(content: bytes, ref: Any) -> bool:
    """Whether the slice lies there as it was committed."""
    data = content[ref.position : ref.position + ref.length]
    try:
        patched(data, ref)
    except ValueError:
        return False
    return len(data) == ref.length


async def cluster(agent: Agent, store: ObjectStore, rows: int = 6) -> Cluster:
    """Two partitions with tails, segments and a table; snapshots; the archived log."""
    services, clock = agent.services, agent.services.clock
    replica, log = services.replica, agent.log
    fingerprint = Fingerprint("floe", bytes(16), await log.identity())
    await store.put(FINGERPRINT_KEY, [fingerprint.encode()])
    keeper = SnapshotKeeper(replica, log, store, SnapshotOptions())
    archive = LogArchive(replica, log, store, ArchiveOptions(seconds=0.0, piece_bytes=2048))
    await create(agent)
    await archive._look()
    await keeper.write()
    for half in range(2):
        for index in range(2):
            await fill(agent, rows, index=index, first=half * rows)
        await keeper.write()
        await archive._look()
        for index in range(2):
            await merge_rows(agent, store, rows // 2, index=index)
    options = CommitterOptions()
    parts = Parts(replica, services.reader, services.merged, store, WAREHOUSE, clock, options)
    committer = Committer(parts, "t", None)
    while await committer.run_once() is not None:
        pass
    await fill(agent, 2, index=0, first=2 * rows)
    await committer.run_once()
    await archive._look()
    bucket = Bucket(
        replica, store, services.merged, services.reader, WAREHOUSE, clock, fingerprint, keeper.write
    )
    made = Cluster(agent, store, Scrub(bucket, QUICK), keeper, archive, [[], []])
    made.values = await made.read()
    await made.learn()
    return made


async def damage(made: Cluster, random: Random) -> tuple[str, list[str]]:
    """Damage something that is needed; how, and the keys."""
    way = random.choice(WAYS)
    folder = random.choice(sorted({key.split("/", 1)[0] for key in made.sound}))
    key = random.choice([each for each in made.sound if each.split("/", 1)[0] == folder])
    content = bytearray(made.sound[key])
    if folder == "log":
        way = _way_of_piece(made, key, way, random)
    if way == "swap":
        other = random.choice([each for each in made.sound if each != key])
        await made.store.put(key, [made.sound[other]])
        await made.store.put(other, [bytes(content)])
        return way, [key, other]
    if way == "flip":
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    elif way == "truncate":
        del content[random.randrange(len(content)) :]
    elif way == "forge":
        content = bytearray(forged(bytes(content), random))
    await (made.store.delete([key]) if way == "delete" else made.store.put(key, [bytes(content)]))
    return way, [key]


def _way_of_piece(made: Cluster, key: str, way: str, random: Random) -> str:
    """Of the log's newest piece only the next one says that it is gone, or is another: there is none."""
    newest = key == max(each for each in made.sound if each.startswith("log/"))
    if newest:
        return "flip" if way == "delete" else way
    return random.choice((way, "forge"))


def forged(content: bytes, random: Random) -> bytes:
    """A piece of the log that is whole, but with another entry in it."""
    piece = pieces.decode(content)
    entries = list(piece.entries())
    at = random.randrange(len(entries))
    entries[at] = replace(entries[at], payload=random.randbytes(1 + len(entries[at].payload)))
    return b"".join(list(pieces.encode_steps(piece.header, piece.identity, entries))[-1])


async def trial(made: Cluster, random: Random) -> str:
    """Damage one thing, scrub, and judge: found, mended if it can be, and nothing else touched.

    Returns what was damaged how, and what came of it.
    """
    if random.random() < 0.5:
        forget(made.agent)
    else:
        await made.warm()
    if random.random() < 0.5:  # nothing is known of manifests and indexes
        made.agent.services.merged._manifests._kept.clear()
        made.agent.services.merged._indexes._kept.clear()
    way, keys = await damage(made, random)
    named = f"{way} {keys}"
    left = {key: await _content(made.store, key) for key in keys}
    mendable = {key: made.mendable(key, way, left[key]) for key in keys}
    run = await made.run()
    counts, beyond = run.scrubber.round.counts, run.scrubber.round.beyond
    assert counts.found, f"{named}: nothing was found"
    assert not [meta async for page in made.store.list("scrub/spare/") for meta in page], named
    lost = {key for key in keys if not mendable[key]}
    assert set(beyond) == lost, f"{named}: {sorted(beyond)} cannot be mended, due were {sorted(lost)}"
    for key in lost:
        _judge_places(made, key, beyond[key])
        await made.store.put(key, [made.sound[key]])
    for key in set(keys) - lost:
        await _judge_mended(made, key, named)
    assert await made.read() == made.values, named
    assert not (await made.run(repair=False)).scrubber.round.counts.found, f"{named}: there is more"
    await made.reset()
    return f"{keys[0].split('/', 1)[0]} {way} {'beyond' if lost else 'mended'}"


def _judge_places(made: Cluster, key: str, found: Damage) -> None:
    """Of a chunk, exactly the offsets of damaged slices are named; batches of one are told apart."""
    if key.startswith("chunks/"):
        offsets = {(ref.base_offset, ref.end_offset) for ref in made.slices(key)}
        assert found.places, key
        for place in found.places:
            assert any(start <= place.start < place.end <= end for start, end in offsets), place


async def _judge_mended(made: Cluster, key: str, named: str) -> None:
    now = await _content(made.store, key)
    if key.startswith(("snapshots/", "log/")):
        return  # newer ones took their place
    if key.startswith("chunks/"):
        assert now is not None
        assert all(whole(now, ref) for ref in made.slices(key)), named
        return
    assert now == made.sound[key], f"{named}: it is not what it was"


async def _content(store: ObjectStore, key: str) -> bytes | None:
    try:
        return await store.get(key)
    except NotFound:
        return None


def chunk_of(made: Cluster, index: int = 0) -> str:
    """The key of the first chunk of a tail."""
    chunk = partition_of(made.agent, index=index).slices.oldest(1, 1)[0].chunk
    assert isinstance(chunk, ChunkId)
    return chunk_key(chunk)
