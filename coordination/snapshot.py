"""Snapshots: the whole state as one object in the store, from which an agent starts (DESIGN §2).

File: header (magic, format, revision, length of the body, blake2b of all that), then the body: one zstd
stream of length-delimited Sections (coordination/proto/snapshot.proto). Encoding and decoding go in
steps of a few milliseconds, so that the event loop stays free with 100,000 partitions as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from struct import Struct, error

import zstandard
from google.protobuf.message import DecodeError

from coordination.proto import snapshot_pb2 as pb
from coordination.state import State
from coordination.state.freeze import Frozen, freeze_now, sections
from coordination.state.thaw import BadSnapshot, Thaw
from objectstore.varint import varint

MAGIC = b"FLOESNAP"
FORMAT = 1
SECTION_BYTES_MAX = 256 * 1024 * 1024  # a section announced larger than this is corruption
READ_BYTES = 256 * 1024  # decompressed at a time
COMPRESSION_LEVEL = 3

_HEADER = Struct("<8sIQQ32s")  # magic, format, revision, body length, checksum
_SIGNED = Struct("<8sIQQ")  # the part of the header that the checksum covers, with the body
_CHECKSUM_BYTES = 32


class CorruptSnapshot(Exception):
    """The object is no whole snapshot; the message says in what way. Use the one before it."""


def encode_steps(frozen: Frozen) -> Iterator[list[bytes]]:
    """Build the file in steps. The last item is the whole file as parts; earlier ones are not complete."""
    compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL).compressobj()
    body: list[bytes] = []
    for content in _delimited(frozen):
        body.append(compressor.compress(content))
        yield body
    body.append(compressor.flush())
    signed = _SIGNED.pack(MAGIC, FORMAT, frozen.head.revision, sum(map(len, body)))
    digest = blake2b(signed, digest_size=_CHECKSUM_BYTES)
    for part in body:
        digest.update(part)
        yield body
    yield [signed + digest.digest(), *body]


def encode(state: State) -> bytes:
    """The snapshot of a state that nobody changes meanwhile."""
    *_, parts = encode_steps(freeze_now(state))
    return b"".join(parts)


def canonical_digest(state: State) -> str:
    """A hash of everything in the state: for audits, where the rolling hash is not proof enough."""
    digest = blake2b(digest_size=_CHECKSUM_BYTES)
    for content in _delimited(freeze_now(state)):
        digest.update(content)
    return digest.hexdigest()


def decode_steps(content: bytes) -> Iterator[State]:
    """Load a file in steps. The state is complete with the last item.

    Raises CorruptSnapshot; StateError when the snapshot is of a newer version or feature level.
    """
    body = memoryview(content)[_HEADER.size :]
    revision, checksum = _header(content, body)
    thaw = Thaw()
    digest = blake2b(content[: _SIGNED.size], digest_size=_CHECKSUM_BYTES)
    for start in range(0, len(body), READ_BYTES):
        digest.update(body[start : start + READ_BYTES])
        yield thaw.state
    if digest.digest() != checksum:
        raise CorruptSnapshot(f"snapshot at revision {revision}: the checksum is wrong")
    try:
        for section in _sections(body):
            yield thaw.state
            for _ in thaw.steps(section) if section is not None else ():
                yield thaw.state
        yield thaw.state
    except (BadSnapshot, DecodeError, zstandard.ZstdError, error, KeyError, IndexError, ValueError) as cause:
        raise CorruptSnapshot(f"snapshot at revision {revision}: {cause}") from cause
    if not thaw.finished or thaw.state.revision != revision:
        raise CorruptSnapshot(f"snapshot at revision {revision} ends early")


def check(content: bytes) -> int:
    """Whether a file is whole, without loading it; the revision that it holds. Raises CorruptSnapshot."""
    body = memoryview(content)[_HEADER.size :]
    revision, checksum = _header(content, body)
    digest = blake2b(content[: _SIGNED.size], digest_size=_CHECKSUM_BYTES)
    digest.update(body)
    if digest.digest() != checksum:
        raise CorruptSnapshot(f"snapshot at revision {revision}: the checksum is wrong")
    return revision


def decode(content: bytes) -> State:
    """Load a file in one go. Raises as decode_steps."""
    *_, state = decode_steps(content)
    return state


def _header(content: bytes, body: memoryview) -> tuple[int, bytes]:
    """Revision and checksum, when magic, format and length are right."""
    if len(content) < _HEADER.size:
        raise CorruptSnapshot(f"{len(content)} bytes are no snapshot: the header has {_HEADER.size}")
    magic, form, revision, length, checksum = _HEADER.unpack_from(content)
    if magic != MAGIC or form != FORMAT:
        raise CorruptSnapshot(f"magic {magic!r}, format {form}: expected {MAGIC!r}, {FORMAT}")
    if length != len(body):
        raise CorruptSnapshot(f"snapshot at revision {revision}: {len(body)} bytes of {length}")
    return int(revision), bytes(checksum)


def _delimited(frozen: Frozen) -> Iterator[bytes]:
    for section in sections(frozen):
        content = section.SerializeToString(deterministic=True)
        if len(content) > SECTION_BYTES_MAX:  # nobody could load it: better no snapshot than this one
            kind, most = section.WhichOneof("kind"), SECTION_BYTES_MAX
            raise ValueError(f"section {kind} of {len(content)} bytes: no reader takes more than {most}")
        yield varint(len(content)) + content


def _sections(body: memoryview) -> Iterator[pb.Section | None]:
    """The sections of a compressed body; None after other steps of the work."""
    buffer = bytearray()
    with zstandard.ZstdDecompressor().stream_reader(body) as reader:
        while piece := reader.read(READ_BYTES):
            buffer += piece
            position = 0
            yield None
            while (found := _next(buffer, position)) is not None:
                start, position = found
                yield pb.Section.FromString(bytes(buffer[start:position]))
            del buffer[:position]
    if buffer:
        raise BadSnapshot(f"{len(buffer)} bytes after the last section")


def _next(buffer: bytearray, position: int) -> tuple[int, int] | None:
    """Start and end of the section that begins at `position`; None when it is not there whole."""
    length = shift = 0
    for start in range(position, min(position + 10, len(buffer))):
        length |= (buffer[start] & 0x7F) << shift
        shift += 7
        if buffer[start] < 0x80:
            if length > SECTION_BYTES_MAX:
                raise BadSnapshot(f"a section of {length} bytes; at most {SECTION_BYTES_MAX}")
            end = start + 1 + length
            return (start + 1, end) if end <= len(buffer) else None
    return None
