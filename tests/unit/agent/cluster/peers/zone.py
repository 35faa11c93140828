"""Agents of zones as far as reading goes: real sockets, readers and state; a store that counts and fails."""

from __future__ import annotations

import asyncio

from agent.cluster.peers.client import PeerClient
from agent.cluster.peers.near import Near, Patience
from agent.cluster.peers.owners import Owners
from agent.cluster.peers.server import PeerServer
from agent.cluster.peers.whole import WholeChunks
from coordination.clock import SystemClock
from coordination.commands import CommitChunk, RegisterAgent
from coordination.state.data import FEATURE_LEVEL_MAX
from objectstore.adapters.memory import MemoryStore
from objectstore.batch import NewRecord, build, peek, records
from objectstore.chunk import ChunkWriter
from objectstore.faulty import FaultyStore
from objectstore.naming import ChunkId, SliceRef, chunk_key
from objectstore.reader import ChunkReader
from tests.unit.coordination.kit import Script

MIB = 1 << 20
BEAT_S = 60.0  # who does not serve is silent
SECRET = b"s" * 32
PATIENCE = Patience(hedge_s=0.2, timeout_s=5.0)
CALM = Patience(hedge_s=30.0, timeout_s=60.0)  # where reads are counted, on a machine that does other things


class Pausable(PeerServer):
    """Says nothing while `running` is cleared, as a process that is paused; its kernel still takes bytes."""

    running: asyncio.Event

    async def _shake_hands(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.running.wait()
        await super()._shake_hands(reader, writer)


class Member:
    """One agent: what it reads, answers and counts."""

    def __init__(self, place: Zones, incarnation: int, zone: str, secret: bytes, patience: Patience) -> None:
        self.incarnation = incarnation
        self.zone = zone
        self.store = FaultyStore(place.memory)
        self.reader = ChunkReader(self.store, 8 * MIB)
        self.whole = WholeChunks(self.store, 8 * MIB, 4)
        self.owners = Owners(lambda: place.script.state, lambda: incarnation, zone, place.recent_max)
        self.client = PeerClient(secret, SystemClock())
        self.near = Near(self.reader, self.owners, self.client, self.whole, patience, self._catch_up)
        self.caught_up = 0
        self.late: list[
            tuple[ChunkId, int, list[bytes], int]
        ] = []  # own flushes, committed, not heard of yet
        self.reader.near = self.near
        self.server = Pausable(self._serve, secret, SystemClock(), 8 * MIB, beat_s=place.beat_s)
        self.address = ""
        self.hears = True  # False: it has not applied what was committed
        self.serving = asyncio.Event()  # cleared: it takes requests and does not answer
        self.serving.set()
        self.server.running = self.serving

    async def _catch_up(self) -> None:
        self.caught_up += 1
        for each in self.late:
            self.reader.put_own(*each)

    async def _serve(self, slices, recent):
        await self.serving.wait()
        return await self.near.serve(slices, recent)

    @property
    def gets(self) -> int:
        """Requests that read from the bucket."""
        calls = self.store.calls
        return calls.get("get", 0) + calls.get("get_range", 0)

    async def stop(self) -> None:
        await self.server.stop()
        await self.near.close()
        await self.reader.close()


class Zones:
    """One state and one bucket, and the agents over them."""

    def __init__(self, *, recent_max: int = 100, beat_s: float = BEAT_S) -> None:
        self.recent_max = recent_max
        self.beat_s = beat_s
        self.script = Script()
        self.memory = MemoryStore()
        self.members: list[Member] = []
        self.handles: list[int] = []

    async def add(self, zone: str, *, secret: bytes = SECRET, patience: Patience = PATIENCE) -> Member:
        """Another agent, registered and listening."""
        member = Member(self, 11 + len(self.members), zone, secret, patience)
        self.members.append(member)
        member.address = f"127.0.0.1:{await member.server.start('127.0.0.1', 0)}"
        self.script.one(
            member.incarnation,
            RegisterAgent(
                name=f"agent-{member.incarnation}",
                node_id=-1,
                feature_max=FEATURE_LEVEL_MAX,
                zone=zone,
                peer_address=member.address,
            ),
        )
        if not self.handles:
            self.handles = self.script.topic(member.incarnation, "t", 8)
        return member

    async def chunk(self, author: Member, *, keep: bool = True) -> list[SliceRef]:
        """A chunk with a batch per partition, stored and committed; its slices."""
        number = self.script.chunks[author.incarnation] = self.script.chunks.get(author.incarnation, 0) + 1
        writer, batches = ChunkWriter(), []
        for handle in self.handles:
            text = b"%d-%d-%d" % (author.incarnation, number, handle)
            batches.append(build([NewRecord(5, None, text.ljust(200, b"."))] * 2))
            writer.add(handle, batches[-1])
        chunk = ChunkId(author.incarnation, number)
        encoded = writer.finish(bytes(16), chunk)
        await self.memory.put(chunk_key(chunk), encoded.parts)
        message = CommitChunk(number=number, size=encoded.size, first_position=encoded.positions[0])
        for handle, batch in zip(self.handles, batches, strict=True):
            message.partition.append(handle)
            message.length.append(len(batch))
            message.offsets.append(peek(batch).record_count)
            message.max_timestamp_ms.append(5)
        applied = self.script.apply(author.incarnation, message)
        slices = []
        committed = applied.results[0]
        for place, (position, batch) in enumerate(zip(encoded.positions, batches, strict=True)):
            base = committed.base_offsets[place]
            slices.append(SliceRef(base, base + 2, chunk, position, len(batch), 5))
            if not author.hears:
                author.late.append((chunk, position, [batch], base))
            elif keep:
                author.reader.put_own(chunk, position, [batch], base)
        for member in self.members:
            if member.hears:
                member.owners.applied(applied)
        return slices

    async def stop(self) -> None:
        for member in self.members:
            await member.stop()


def check(data: memoryview, wanted: SliceRef) -> None:
    """Both records are there, as `chunk` wrote them."""
    found = list(records(data))
    assert [record.offset for record in found] == [wanted.base_offset, wanted.base_offset + 1]
    assert found[0].value is not None
    assert found[0].value.startswith(b"%d-%d-" % wanted.chunk[:2])
