"""One piece of the archived log: some entries as they were appended, sealed.

File: a header (magic, format, counts, the revisions that it covers, the snapshot from which its chain
begins, the checksum of the piece before it, and a blake2b of all that and the body), then the body: one
zstd frame of the log's identity and the entries, each with its revision, author, sequence and payload. A
piece's checksum is what the next one names, so that pieces form a chain that nobody can take one from, or
change, unseen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import Struct

import zstandard

from coordination.log import LogEntry
from objectstore.varint import varint

MAGIC = b"FLOELOGP"
FORMAT = 1
RAW_BYTES_MAX = 64 * 1024 * 1024  # of one piece, uncompressed: one announced larger is corruption
STEP_BYTES = 64 * 1024  # compressed or hashed at a time
COMPRESSION_LEVEL = 3
CHECKSUM_BYTES = 32
NONE = bytes(CHECKSUM_BYTES)
"""The checksum of no piece: with the piece that names it a chain begins."""

_SIGNED = Struct("<8sIIQQQQQQ32s")
"""Magic, format, entries, first, last, snapshot, gap, bytes of the body, uncompressed bytes, piece before."""
_CHECKSUM = Struct("<32s")
HEADER_BYTES = _SIGNED.size + _CHECKSUM.size
_AUTHOR = Struct("<Q")


class CorruptPiece(Exception):
    """The object is no whole piece of this log; the message says in what way."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a piece says of itself.

    It covers the revisions `first` to `last`; `last` is that of its last entry. `previous`: checksum of the
    piece before it, or NONE where a chain begins. Such a one names in `snapshot` the revision of a snapshot
    that was recorded and from which the chain goes on (0: from the log's beginning), and in `gap`
    the last revision archived before the entries that are missing (0: nothing is).
    """

    first: int
    last: int
    previous: bytes
    snapshot: int = 0
    gap: int = 0

    @property
    def begins(self) -> bool:
        """Whether a chain begins here."""
        return self.previous == NONE


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece that is whole. `size`: bytes of the object."""

    header: Header
    identity: str
    checksum: bytes
    count: int
    size: int
    _raw: memoryview = field(repr=False)

    def entries(self) -> Iterator[LogEntry]:
        """The entries in order. Raises CorruptPiece where they contradict the header."""
        header, raw, position = self.header, self._raw, 0
        length, position = _number(raw, position)
        position += length
        revision = header.first - 1
        for _ in range(self.count):
            step, position = _number(raw, position)
            revision += step
            if step < 1 or revision > header.last or len(raw) - position < _AUTHOR.size:
                raise CorruptPiece(f"an entry of revision {revision} in {header.first} to {header.last}")
            (author,) = _AUTHOR.unpack_from(raw, position)
            sequence, position = _number(raw, position + _AUTHOR.size)
            length, position = _number(raw, position)
            if length > len(raw) - position:
                raise CorruptPiece(f"the entry of revision {revision} ends early")
            yield LogEntry(revision, author, sequence, bytes(raw[position : position + length]))
            position += length
        if revision != header.last or position != len(raw):
            raise CorruptPiece(f"its entries end at {revision} and not at {header.last}")


def encode_steps(header: Header, identity: str, entries: Sequence[LogEntry]) -> Iterator[list[bytes]]:
    """Build a piece in steps; the last item is the whole object as parts, with the checksum in its header.

    `entries`: not empty, in order, within what the header says, up to `last`. The same input gives the same
    bytes: two agents that write the same piece write the same object.
    """
    assert header.first <= entries[0].revision, "a piece begins with an entry of its own"
    assert entries[-1].revision == header.last, "a piece ends with its last entry"
    compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL).compressobj()
    body: list[bytes] = []
    raw_bytes, pending = 0, bytearray()
    for part in _raw(header, identity, entries):
        pending += part
        if len(pending) >= STEP_BYTES:
            raw_bytes += len(pending)
            body.append(compressor.compress(bytes(pending)))
            pending.clear()
            yield body
    raw_bytes += len(pending)
    body += (compressor.compress(bytes(pending)), compressor.flush())
    signed = _SIGNED.pack(
        MAGIC, FORMAT, len(entries), header.first, header.last, header.snapshot, header.gap,
        sum(map(len, body)), raw_bytes, header.previous,
    )  # fmt: skip
    digest = blake2b(signed, digest_size=CHECKSUM_BYTES)
    for part in body:
        digest.update(part)
    yield [signed, digest.digest(), *body]


def checksum_of(parts: Sequence[bytes]) -> bytes:
    """Of a whole piece as encode_steps gives it."""
    return parts[1]


def decode(content: bytes) -> Piece:
    """Check a whole object and open it; its entries are read as they are asked for. Raises CorruptPiece."""
    if len(content) < HEADER_BYTES:
        raise CorruptPiece(f"{len(content)} bytes are no piece: the header has {HEADER_BYTES}")
    magic, form, count, first, last, snapshot, gap, size, raw_bytes, previous = _SIGNED.unpack_from(content)
    if magic != MAGIC or form != FORMAT:
        raise CorruptPiece(f"magic {magic!r}, format {form}: expected {MAGIC!r}, {FORMAT}")
    body = memoryview(content)[HEADER_BYTES:]
    if size != len(body):
        raise CorruptPiece(f"{len(body)} bytes of {size}")
    if raw_bytes > RAW_BYTES_MAX:
        raise CorruptPiece(f"{raw_bytes} bytes uncompressed; at most {RAW_BYTES_MAX}")
    checksum = content[_SIGNED.size : HEADER_BYTES]
    digest = blake2b(content[: _SIGNED.size], digest_size=CHECKSUM_BYTES)
    digest.update(body)
    if digest.digest() != checksum:
        raise CorruptPiece("the checksum is wrong")
    raw = _decompressed(body, raw_bytes)
    length, position = _number(raw, 0)
    identity = bytes(raw[position : position + length]).decode(errors="replace")
    return Piece(Header(first, last, previous, snapshot, gap), identity, checksum, count, len(content), raw)


def _raw(header: Header, identity: str, entries: Sequence[LogEntry]) -> Iterator[bytes]:
    name = identity.encode()
    yield varint(len(name)) + name
    before = header.first - 1
    for entry in entries:
        yield varint(entry.revision - before)
        yield _AUTHOR.pack(entry.incarnation)
        yield varint(entry.sequence) + varint(len(entry.payload))
        yield entry.payload
        before = entry.revision


def _decompressed(body: memoryview, raw_bytes: int) -> memoryview:
    """Exactly `raw_bytes`: a frame that holds more is not read on."""
    raw = bytearray()
    try:
        with zstandard.ZstdDecompressor().stream_reader(body) as reader:
            while len(raw) <= raw_bytes and (read := reader.read(STEP_BYTES)):
                raw += read
    except zstandard.ZstdError as error:
        raise CorruptPiece(str(error)) from error
    if len(raw) != raw_bytes:
        raise CorruptPiece(f"{len(raw)} bytes uncompressed of {raw_bytes}")
    return memoryview(bytes(raw))


def _number(raw: memoryview, position: int) -> tuple[int, int]:
    """A number and where the next thing begins."""
    number = shift = 0
    for at in range(position, min(position + 10, len(raw))):
        number |= (raw[at] & 0x7F) << shift
        if raw[at] < 0x80:
            return number, at + 1
        shift += 7
    raise CorruptPiece(f"no number at byte {position}")
