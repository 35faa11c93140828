"""The chunk: one object that holds the record batches of many partitions.

    header 64 | batches of partition a | of partition b | … | footer (protobuf) | trailer 16

Partitions stand in the order of their handles; batches of one partition side by side, in the order
of their arrival, byte for byte as the producer sent them. Readers find slices through the replicated
state and need neither header nor footer; these make an object tell its own story: to which cluster and
author it belongs, and what is in it, with checksums.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c
from google.protobuf.message import DecodeError

from objectstore.naming import ChunkId, chunk_key
from objectstore.proto.chunk_pb2 import Footer

Buffer = bytes | bytearray | memoryview

VERSION = 1
HEADER_SIZE = 64  # the first batch begins here
TRAILER_SIZE = 16
CLUSTER_ID_BYTES = 16
CHUNK_BYTES_MAX = 1 << 30  # of the whole object; positions are uint32 in the log's commands
_HEADER_MAGIC = b"FLOECHNK"
_TRAILER_MAGIC = b"FLOEFOOT"
_header = struct.Struct(">8sHH16sQQ16xI")  # magic, version, header size, cluster, incarnation, number, crc
_trailer = struct.Struct(">II8s")  # footer length, footer crc, magic


class CorruptChunk(ValueError):
    """The object is not a sound chunk, or not the one that its key names."""


class PartitionBatches(NamedTuple):
    """The batches of one partition in a chunk to be written, in order."""

    partition: int
    batches: Sequence[Buffer]


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """A chunk ready to be put: the concatenation of `parts` is the object. The batches are not copied.

    `positions` has one byte position per batch, in the chunk's order.
    """

    chunk: ChunkId
    parts: Sequence[Buffer]
    size: int
    positions: Sequence[int]


class ChunkHeader(NamedTuple):
    """Whose chunk this is: 16 bytes of cluster id, and its own name."""

    cluster_id: bytes
    chunk: ChunkId


class FooterSlice(NamedTuple):
    """The batches of one partition in a stored chunk: bytes [position, position + length)."""

    partition: int
    position: int
    length: int
    batches: int
    crc: int


def encode(cluster_id: bytes, chunk: ChunkId, slices: Sequence[PartitionBatches]) -> EncodedChunk:
    """Lay out a chunk. Raises ValueError for partitions out of order, nothing to write or too much."""
    if not slices or not all(each.batches for each in slices):
        raise ValueError(
            "a chunk holds at least one partition, and each of its partitions at least one batch"
        )
    parts: list[Buffer] = [encode_header(cluster_id, chunk)]
    positions: list[int] = []
    rows: list[FooterSlice] = []
    position, last = HEADER_SIZE, -1
    for partition, batches in slices:
        if partition <= last:
            raise ValueError(f"partition handle {partition} after {last}: handles must rise")
        last = partition
        start, crc = position, 0
        for batch in batches:
            positions.append(position)
            crc = crc32c(batch, crc)
            position += len(batch)
        parts += batches
        rows.append(FooterSlice(partition, start, position - start, len(batches), crc))
    parts.append(encode_footer(rows))
    size = position + len(parts[-1])
    if size > CHUNK_BYTES_MAX:
        raise ValueError(f"a chunk of {size} bytes is above the limit of {CHUNK_BYTES_MAX}: flush earlier")
    return EncodedChunk(chunk, parts, size, positions)


class ChunkWriter:
    """Collects batches in the order of arrival and lays them out by partition.

    `add` returns a ticket, counting from 0; `order()` lists the tickets in the chunk's order, which is
    that of `positions` and of the columns of CommitChunk.
    """

    def __init__(self) -> None:
        self._batches: dict[int, list[Buffer]] = {}
        self._tickets: dict[int, list[int]] = {}
        self._count = 0
        self.bytes = 0

    def __len__(self) -> int:
        return self._count

    def add(self, partition: int, batch: Buffer) -> int:
        """Take one batch of the partition with this handle; it is not copied."""
        ticket = self._count
        if partition in self._batches:
            self._batches[partition].append(batch)
            self._tickets[partition].append(ticket)
        else:
            self._batches[partition] = [batch]
            self._tickets[partition] = [ticket]
        self._count += 1
        self.bytes += len(batch)
        return ticket

    def order(self) -> list[int]:
        """Tickets in the order in which their batches stand in the chunk."""
        return [ticket for partition in sorted(self._tickets) for ticket in self._tickets[partition]]

    def finish(self, cluster_id: bytes, chunk: ChunkId) -> EncodedChunk:
        """The chunk of everything added. Raises ValueError when that is nothing or too much."""
        slices = [
            PartitionBatches(partition, self._batches[partition]) for partition in sorted(self._batches)
        ]
        return encode(cluster_id, chunk, slices)


def encode_footer(slices: Sequence[FooterSlice]) -> bytes:
    """The last bytes of a chunk that holds these, in the order of their positions: footer and trailer."""
    footer = Footer()
    columns = (footer.partition, footer.position, footer.length, footer.batches, footer.crc32c)
    for column, values in zip(columns, zip(*slices, strict=True), strict=bool(slices)):
        column.extend(values)
    content = footer.SerializeToString(deterministic=True)
    return content + _trailer.pack(len(content), crc32c(content), _TRAILER_MAGIC)


def encode_header(cluster_id: bytes, chunk: ChunkId) -> bytes:
    """The first HEADER_SIZE bytes of a chunk."""
    if len(cluster_id) != CLUSTER_ID_BYTES:
        raise ValueError(f"a cluster id has {CLUSTER_ID_BYTES} bytes, not {len(cluster_id)}")
    front = _header.pack(_HEADER_MAGIC, VERSION, HEADER_SIZE, cluster_id, chunk.incarnation, chunk.number, 0)[
        :-4
    ]
    return front + struct.pack(">I", crc32c(front))


def decode_header(data: Buffer) -> ChunkHeader:
    """Who wrote this chunk. Raises CorruptChunk."""
    if len(data) < HEADER_SIZE:
        raise CorruptChunk(f"{len(data)} bytes are less than a chunk header of {HEADER_SIZE}")
    magic, version, _, cluster_id, incarnation, number, crc = _header.unpack_from(data)
    if magic != _HEADER_MAGIC:
        raise CorruptChunk(f"not a chunk: it begins with {magic!r}")
    if version != VERSION:
        raise CorruptChunk(f"chunk version {version}, this code reads {VERSION}: use a newer agent")
    if crc32c(memoryview(data)[: HEADER_SIZE - 4]) != crc:
        raise CorruptChunk("the chunk header's checksum does not match")
    return ChunkHeader(cluster_id, ChunkId(incarnation, number))


def footer_length(trailer: Buffer) -> int:
    """Bytes of the footer, from the last TRAILER_SIZE bytes of an object. Raises CorruptChunk."""
    if len(trailer) != TRAILER_SIZE:
        raise CorruptChunk(f"{len(trailer)} bytes are not a chunk trailer of {TRAILER_SIZE}")
    length, _, magic = _trailer.unpack(trailer)
    if magic != _TRAILER_MAGIC:
        raise CorruptChunk(f"the object ends with {magic!r}: not a chunk, or cut short")
    return int(length)


def decode_footer(tail: Buffer) -> list[FooterSlice]:
    """What is in a chunk, from its last bytes: at least the footer and the trailer. Raises CorruptChunk."""
    view = memoryview(tail)
    if len(view) < TRAILER_SIZE:
        raise CorruptChunk(f"{len(view)} bytes are less than a chunk trailer of {TRAILER_SIZE}")
    length = footer_length(view[-TRAILER_SIZE:])
    content = view[:-TRAILER_SIZE]
    if length > len(content):
        raise CorruptChunk(f"the footer has {length} bytes, {len(content)} are given")
    content = content[len(content) - length :]
    if crc32c(content) != _trailer.unpack(view[-TRAILER_SIZE:])[1]:
        raise CorruptChunk("the chunk footer's checksum does not match")
    return _slices(content)


def verify(data: Buffer, chunk: ChunkId, *, mended: bool = False) -> list[FooterSlice]:
    """Check a whole object against its name, its footer and every checksum. Raises CorruptChunk.

    `mended`: also one that was repaired (rebuilding.py), whose footer leaves out what nothing refers to.
    """
    view = memoryview(data)
    found = decode_header(view).chunk
    if found != chunk:
        raise CorruptChunk(f"the object says that it is {chunk_key(found)}, not {chunk_key(chunk)}")
    slices = decode_footer(view)
    position = HEADER_SIZE
    for each in slices:
        if each.position < position or (each.position > position and not mended):
            raise CorruptChunk(f"partition {each.partition} begins at byte {each.position}, not {position}")
        position = each.position + each.length
        if crc32c(view[each.position : position]) != each.crc:
            raise CorruptChunk(f"the batches of partition {each.partition} do not match their checksum")
    end = position + footer_length(view[-TRAILER_SIZE:]) + TRAILER_SIZE
    if end > len(view) or (end < len(view) and not mended):
        raise CorruptChunk(f"the batches end at byte {position} of {len(view)}, not where the footer begins")
    return slices


def _slices(content: memoryview) -> list[FooterSlice]:
    try:
        footer = Footer.FromString(bytes(content))
    except DecodeError as error:
        raise CorruptChunk(f"the chunk footer is not what it should be: {error}") from error
    columns = (footer.partition, footer.position, footer.length, footer.batches, footer.crc32c)
    sizes = [len(each) for each in columns]
    if len(frozenset(sizes)) != 1:
        raise CorruptChunk(f"the chunk footer's columns have lengths {sizes}")
    return list(map(FooterSlice, *columns))
