"""A bucket whose log is lost: real chunks, a snapshot, an archive that ends somewhere, a fingerprint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from coordination.archive.piece import NONE, Header, checksum_of, encode_steps
from coordination.restore.found import FoundBatch
from coordination.restore.rebuild import commit_of
from coordination.snapshot import encode
from coordination.state import ChunkCommitted
from objectstore import fingerprint
from objectstore.batch import NewRecord, build, peek
from objectstore.chunk import ChunkWriter
from objectstore.fingerprint import Fingerprint
from objectstore.naming import ChunkId, PieceId, chunk_key, log_folder, piece_key, snapshot_key
from objectstore.store import ObjectStore
from tests.unit.coordination.kit import Script

CLUSTER_ID = bytes(range(16))
LOST = "etcd:0123:/floe/main/"


@dataclass(frozen=True)
class Sent:
    """One batch of a producer: `values` of its records."""

    handle: int
    values: Sequence[str]
    producer: tuple[int, int, int] | None = None
    transactional: bool = False

    def data(self) -> bytes:
        """As it was sent."""
        producer_id, epoch, sequence = self.producer or (-1, -1, -1)
        records = [NewRecord(1_700_000_000_000, None, value.encode(), ()) for value in self.values]
        return build(
            records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence,
            transactional=self.transactional,
        )  # fmt: skip


@dataclass
class Lost:
    """What the log did is in `script`; how far it is archived the test says."""

    store: ObjectStore
    script: Script
    archived: int = 0
    checksum: bytes = NONE
    numbers: dict[int, int] = field(default_factory=dict)

    async def chunk(self, author: int, *sent: Sent) -> ChunkId:
        """A chunk in the bucket that no log knows."""
        number = self.numbers.get(author, 0)
        self.numbers[author] = number + 1
        writer = ChunkWriter()
        for each in sent:
            writer.add(each.handle, each.data())
        chunk = ChunkId(author, number)
        encoded = writer.finish(CLUSTER_ID, chunk)
        await self.store.put(chunk_key(chunk), list(encoded.parts))
        return chunk

    async def commit(self, author: int, *sent: Sent) -> ChunkCommitted:
        """A chunk in the bucket and its entry in the log."""
        chunk = await self.chunk(author, *sent)
        in_order = sorted(sent, key=lambda one: one.handle)
        batches = [_found(each) for each in in_order]
        size = (await self.store.head(chunk_key(chunk))).size
        result = self.script.one(author, commit_of(chunk.number, size, batches, self.script.state.revision))
        assert isinstance(result, ChunkCommitted), result
        return result

    async def archive(self) -> PieceId:
        """Everything that the log did since the last piece, as the next one."""
        entries = [entry for entry in self.script.entries if entry.revision > self.archived]
        header = Header(self.archived + 1, entries[-1].revision, self.checksum)
        *_, parts = encode_steps(header, LOST, entries)
        piece = PieceId(log_folder(LOST), header.first, header.last)
        await self.store.put(piece_key(piece), list(parts))
        self.archived, self.checksum = header.last, checksum_of(parts)
        return piece

    async def snapshot(self) -> str:
        """Of the state as it is now."""
        key = snapshot_key(self.script.state.revision, 11)
        await self.store.put(key, [encode(self.script.state)])
        return key

    async def bind(self) -> None:
        """The bucket is that log's."""
        await fingerprint.claim(self.store, Fingerprint("main", CLUSTER_ID, LOST))


def _found(sent: Sent) -> FoundBatch:
    header: Any = peek(sent.data())
    return FoundBatch(
        sent.handle, 0, header.size, header.last_offset_delta + 1, header.record_count, header.max_timestamp,
        header.producer_id, header.producer_epoch, header.base_sequence, header.crc, header.transactional,
    )  # fmt: skip
