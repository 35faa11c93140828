"""Objects of the bucket are damaged while everything else goes on, and agents scrub.

Somebody flips a bit, cuts an object short, or takes it away, and brings it back from "the bucket's versions"
a while later where nobody has mended it. Every write is judged: under a name there may only ever be what was
written there first (of a chunk that was made again: its batches). Now and then another agent
scrubs beside the one that has the job. When all is healed some objects that are needed are damaged once more:
within a round or two each is whole again, or named as beyond repair; and once these are brought back,
everything that the state refers to is what it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from agent.background.collection import StateView
from agent.background.scrub import chain
from coordination.log import LogError
from coordination.replica import Replica
from objectstore.adapters.memory import MemoryStore
from objectstore.batch import split
from objectstore.chunk import CorruptChunk, verify
from objectstore.manifest import CorruptManifest, Manifest, decode
from objectstore.naming import (
    CHUNKS,
    FINGERPRINT_KEY,
    LOG,
    MANIFESTS,
    SEGMENTS,
    SNAPSHOTS,
    chunk_key,
    manifest_key,
    parse_chunk_key,
    parse_manifest_key,
    parse_piece_key,
    parse_segment_key,
    segment_key,
)
from objectstore.rebuilding import info_of
from objectstore.store import PLAIN, Buffer, PutMode, StoreError
from tests.checker.findings import Finding
from tests.sim.clients import Surroundings
from tests.sim.node import AgentNode

KINDS = (CHUNKS, SEGMENTS, MANIFESTS, SNAPSHOTS, LOG, FINGERPRINT_KEY)
WAYS = ("flip", "cut", "loss")
GAP_S, DAMAGED_S = 1.5, (0.2, 5.0)
"""Between two damages, and until one is undone by hand."""
BESIDE_OF = 0.25
"""Of the damages: how often another agent scrubs by somebody's word."""
LAST, DUE_S_MAX = 8, 300.0
"""Damages at the end, and how long two rounds may take: the store may be 150 ms away for each object."""
RETRY_S = 0.5


class Vandalism:
    """What lay under each name first, and what of it is damaged now. `on`: writes are judged."""

    def __init__(self, objects: MemoryStore, *, on: bool) -> None:
        self.objects, self.on = objects, on
        self.first: dict[str, bytes] = {}
        self.damaged: set[str] = set()
        self.counts = {"damaged": 0, "mended": 0, "gone": 0, "brought back": 0}
        self.by_fault: dict[str, list[str]] = {}
        """By fault of a plan what it has damaged (faults/objects.py)."""
        self.findings: list[Finding] = []
        self._put, self._delete = objects.put, objects.delete
        if on:
            objects.put = self.put  # type: ignore[method-assign]  # what is written is looked at
            objects.delete = self.delete  # type: ignore[method-assign]  # likewise

    async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
        """An agent writes."""
        data = b"".join(parts)
        etag = await self._put(key, [data], mode)
        if key.startswith(KINDS):
            before = self.first.setdefault(key, data)
            if not self.same(key, before, data):
                self.wrong("scrub-wrote-wrong", f"{key}: {len(data)} bytes that never were there")
            elif key in self.damaged:
                self.damaged.discard(key)
                self.counts["mended"] += 1
        return etag

    async def delete(self, keys: Sequence[str]) -> None:
        """An agent deletes."""
        await self._delete(keys)
        self.counts["gone"] += len(self.damaged.intersection(keys))
        self.damaged.difference_update(keys)

    async def damage(self, key: str, random: Any) -> None:
        """In one of the ways."""
        way, content = random.choice(WAYS), bytearray(self.first[key])
        if way == "flip":
            content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        elif way == "cut":
            del content[random.randrange(len(content)) :]
        await (self._delete([key]) if way == "loss" else self._put(key, [bytes(content)]))
        self.damaged.add(key)
        self.counts["damaged"] += 1

    async def bring_back(self, key: str) -> None:
        """From the bucket's versions, unless somebody was quicker."""
        if key in self.damaged:
            self.damaged.discard(key)
            self.counts["brought back"] += 1
            await self._put(key, [self.first[key]])

    def whole(self, key: str) -> bool:
        """Whether what lies under the name is what belongs there."""
        found = self.objects._objects.get(key)
        return found is not None and key in self.first and self.same(key, self.first[key], found.data)

    def same(self, key: str, before: bytes, now: bytes) -> bool:
        """Whether these bytes say what those did; see also the function of that name."""
        named = parse_manifest_key(key)
        if before == now or named is None:
            return same(key, before, now)
        try:
            return self._same_segments(decode(before, named), decode(now, named))
        except CorruptManifest:
            return False

    def _same_segments(self, before: Manifest, now: Manifest) -> bool:
        """Made again from segments, it may have offsets without records on the other side of a boundary."""
        rows, again = ([each[number] for number in range(len(each))] for each in (before, now))
        wide = [info._replace(base_offset=0, end_offset=0) for info in rows]
        if before.summary() != now.summary() or wide != [
            info._replace(base_offset=0, end_offset=0) for info in again
        ]:
            return False
        for one, other in zip(rows, again, strict=True):
            own = info_of(self.first[segment_key(one.segment)])
            inside = own is not None and all(
                info.base_offset <= own.base_offset and own.end_offset <= info.end_offset
                for info in (one, other)
            )
            if one != other and not inside:
                return False
        return True

    def wrong(self, anomaly: str, detail: str) -> None:
        """Note what must not be."""
        self.findings.append(Finding(anomaly, "", detail, ()))


def same(key: str, before: bytes, now: bytes) -> bool:
    """Whether these bytes say what those did: of a chunk, the batches of the slices that are left.

    But for what a reader sets itself, base offset and leader epoch: made again from memory they have it.
    """
    chunk = parse_chunk_key(key)
    if before == now or chunk is None:
        return before == now
    try:
        slices = verify(now, chunk, mended=True)
    except CorruptChunk:
        return False
    spans = [slice(each.position, each.position + each.length) for each in slices]
    return all(_batches(now[span]) == _batches(before[span]) for span in spans)


def _batches(data: bytes) -> list[tuple[bytes, bytes]]:
    return [(data[at + 8 : at + 12], data[at + 16 : at + size]) for at, size in split(data)]


class Vandal:
    """Damages one object after the other; what a life before has left is undone first."""

    def __init__(self, around: Surroundings, done: Vandalism, agents: Sequence[AgentNode]) -> None:
        self._around, self._done, self._agents = around, done, agents

    async def live(self) -> None:
        """Until told to stop."""
        random, done = self._around.loop.random, self._done
        for key in sorted(done.damaged):
            await done.bring_back(key)
        while not self._around.stopping.is_set():
            await asyncio.sleep(random.expovariate(1 / GAP_S))
            if self._around.stopping.is_set():
                return  # nobody would bring back what is damaged now, and the last reads wait for it
            kind = random.choice(KINDS)
            keys = sorted(key for key in done.objects._objects if key.startswith(kind) and done.whole(key))
            if not keys:
                continue
            key = random.choice(keys)
            await done.damage(key, random)
            if random.random() < BESIDE_OF:
                scrubbed_beside(random.choice(self._agents))
            await asyncio.sleep(random.uniform(*DAMAGED_S))
            await done.bring_back(key)


def scrubbed_beside(agent: AgentNode) -> None:
    """Somebody asks an agent to scrub, whoever else does."""
    if not agent.alive or not agent.ready or agent.app is None or agent.app.background.scrub is None:
        return
    scrub = agent.app.background.scrub

    async def asked() -> None:
        scrub.run_now(1e9, repair=True)

    agent.spawn(asked())


async def judged(around: Surroundings, done: Vandalism, agents: Sequence[AgentNode]) -> None:
    """The end, when all is healed; nothing where nobody damages anything. Findings are noted in `done`."""
    if not done.on:
        return
    for key in sorted(done.damaged):
        await done.bring_back(key)
    app = agents[0].app
    assert app is not None, "healed before it is judged"
    replica = app.replica
    keys = sorted(key for key in needed(replica, done) if done.whole(key))
    for key in around.loop.random.sample(keys, min(LAST, len(keys))):
        await done.damage(key, around.loop.random)
    scrubbed_beside(around.loop.random.choice(agents))
    await _found(around, replica, done, agents)
    around.counts["damages beyond repair at the end"] += len(done.damaged)
    for key in sorted(done.damaged):
        await done.bring_back(key)
    with suppress(LogError, StoreError):
        await agents[0].spawn(replica.barrier())
    for key in sorted(needed(replica, done)):
        if not done.whole(key) and key in needed(replica, done):
            done.wrong("scrub-lost", f"{key} is referred to, and is not what it was")
    around.counts.update({f"scrub {name}": number for name, number in done.counts.items()})


async def _found(
    around: Surroundings, replica: Replica, done: Vandalism, agents: Sequence[AgentNode]
) -> None:
    """Within two rounds what is damaged is whole, needed no more, or told. Of a segment that only a manifest
    beyond repair names nobody knows: that one is brought back as the docs say, and then it has to be told.
    """

    def told() -> set[str]:
        return {each.key for agent in agents for each in _scrub(agent).beyond}

    def left() -> list[str]:
        return [key for key in sorted(done.damaged - told()) if key in needed(replica, done)]

    try:
        async with asyncio.timeout(DUE_S_MAX):
            while found := left():
                for key in sorted(set(_named_by(replica, found)) & told()):
                    around.counts["manifests brought back for their segments"] += key in done.damaged
                    await done.bring_back(key)
                await asyncio.sleep(RETRY_S)
    except TimeoutError:
        done.wrong("scrub-missed", f"{left()} were damaged {DUE_S_MAX:.0f} s ago, and nobody says so")


def _named_by(replica: Replica, keys: Sequence[str]) -> Iterator[str]:
    """The manifests of the segments among these."""
    view = StateView(replica)
    for segment in filter(None, map(parse_segment_key, keys)):
        named = view.manifest_of(segment.partition)
        if named is not None:
            yield manifest_key(named)


def _scrub(agent: AgentNode) -> Any:
    assert agent.app is not None, "healed before it is judged"
    return agent.app.background.scrub


def needed(replica: Replica, done: Vandalism) -> set[str]:
    """What the state refers to, of what was ever written."""
    state = replica.state
    found = {FINGERPRINT_KEY, *map(chunk_key, state.chunks.serials)}
    found |= {each.key for each in state.snapshots}
    found |= set(_merged(replica, done))
    pieces = {key: parse_piece_key(key) for key in done.objects._objects if key.startswith(LOG)}
    return found | {key for key, each in pieces.items() if each and chain.goes_on(replica, each)}


def _merged(replica: Replica, done: Vandalism) -> Iterator[str]:
    view = StateView(replica)
    for handle in range(len(replica.state.partitions)):
        named = view.manifest_of(handle)
        if named is None:
            continue
        yield manifest_key(named)
        partition = replica.state.partitions[handle]
        manifest = decode(done.first[manifest_key(named)], named)
        for info in (manifest[number] for number in range(len(manifest))):
            if partition is not None and info.end_offset > partition.held_start:
                yield segment_key(info.segment)
