"""The names of objects, and what names a run of records inside one.

All keys are relative to the store's root (bucket and cluster prefix). A chunk's key carries its
author's incarnation, so that one listing per incarnation finds all that a dead agent left behind.
Numbers are fixed-width hexadecimal: key order is number order.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import NamedTuple

CHUNKS = "chunks/"
SEGMENTS = "segments/"
MANIFESTS = "manifests/"
SNAPSHOTS = "snapshots/"
TABLES = "tables/"
LOG = "log/"
SCRUB = "scrub/"
FINGERPRINT_KEY = "cluster.json"

NUMBER_MAX = (1 << 64) - 1  # incarnations, chunk numbers and revisions are written in 16 hex digits
KEY_BYTES_MAX = 1024  # S3's limit, root prefix included; ours are far shorter

_CHUNK = re.compile(r"chunks/([0-9a-f]{16})/([0-9a-f]{16})\.chunk")
_SNAPSHOT = re.compile(r"snapshots/([0-9a-f]{16})-([0-9a-f]{16})\.snap")
_PIECE = re.compile(r"log/([0-9a-f]{32})/([0-9a-f]{16})-([0-9a-f]{16})\.log")
_MERGED = re.compile(r"(?:segments|manifests)/([0-9a-f]{16})/([0-9a-f]{8})-([0-9a-f]{16})\.(seg|manifest)")
_FOLDER = re.compile(r"[0-9a-f]{16}")


class ChunkId(NamedTuple):
    """Names one chunk object: its author's incarnation and the author's own count of chunks."""

    incarnation: int
    number: int


class SegmentId(NamedTuple):
    """Names one segment object: its author's incarnation, its partition's handle, and a random number."""

    incarnation: int
    partition: int
    number: int


class ManifestId(NamedTuple):
    """Names one manifest object, as SegmentId does a segment. The two are never kept in one collection."""

    incarnation: int
    partition: int
    number: int


class MarkerId(NamedTuple):
    """The marker that ends a transaction on one partition: in no object, made by objectstore/markers.py."""

    producer_id: int
    epoch: int
    committed: bool


class SliceRef(NamedTuple):
    """Records of one partition in one object: offsets [base_offset, end_offset), bytes [position, +length).

    In a chunk the batches are as they were sent and their offsets dense. In a segment (a block of it) they
    have their offsets, there may be gaps, and `crc` is the CRC-32C of the bytes; -1 in a chunk. A marker is
    a slice of one batch of which the reference says everything.
    """

    base_offset: int
    end_offset: int
    chunk: ChunkId | SegmentId | MarkerId
    position: int
    length: int
    max_timestamp_ms: int
    crc: int = -1


class SnapshotId(NamedTuple):
    """Names one state snapshot: the revision it holds and the incarnation that wrote it."""

    revision: int
    incarnation: int


class PieceId(NamedTuple):
    """Names one piece of the archived log: its log's folder, the revisions that it covers, both counted in.

    A piece covers from behind the one before it up to its own last entry.
    """

    folder: str
    first: int
    last: int


def marker_as_chunk(marker: MarkerId) -> ChunkId:
    """The name of a marker's row where chunks are named in the log: no incarnation is 0."""
    return ChunkId(0, marker.producer_id << 1 | marker.committed)


def chunk_key(chunk: ChunkId) -> str:
    """The key of a chunk object."""
    return f"chunks/{chunk.incarnation:016x}/{chunk.number:016x}.chunk"


def segment_key(segment: SegmentId) -> str:
    """The key of a segment object."""
    return f"segments/{segment.incarnation:016x}/{segment.partition:08x}-{segment.number:016x}.seg"


def manifest_key(manifest: ManifestId) -> str:
    """The key of a manifest object."""
    return f"manifests/{manifest.incarnation:016x}/{manifest.partition:08x}-{manifest.number:016x}.manifest"


def object_key(named: ChunkId | SegmentId | MarkerId) -> str:
    """The key of the object that a slice lies in; a marker lies in none."""
    assert not isinstance(named, MarkerId), f"{named} lies in no object"
    return segment_key(named) if isinstance(named, SegmentId) else chunk_key(named)


def parse_segment_key(key: str) -> SegmentId | None:
    """The segment that `key` names; None when it does not look like a segment's."""
    match = _MERGED.fullmatch(key)
    if match is None or not key.startswith(SEGMENTS) or match[4] != "seg":
        return None
    return SegmentId(int(match[1], 16), int(match[2], 16), int(match[3], 16))


def parse_manifest_key(key: str) -> ManifestId | None:
    """The manifest that `key` names; None when it does not look like a manifest's."""
    match = _MERGED.fullmatch(key)
    if match is None or not key.startswith(MANIFESTS) or match[4] != "manifest":
        return None
    return ManifestId(int(match[1], 16), int(match[2], 16), int(match[3], 16))


def parse_chunk_key(key: str) -> ChunkId | None:
    """The chunk that `key` names; None when it does not look like a chunk's."""
    match = _CHUNK.fullmatch(key)
    return ChunkId(int(match[1], 16), int(match[2], 16)) if match else None


def incarnation_prefix(incarnation: int, kind: str = CHUNKS) -> str:
    """The folder of an incarnation's chunks, or of `kind` (SEGMENTS, MANIFESTS), ending with a slash."""
    return f"{kind}{incarnation:016x}/"


def parse_incarnation_folder(segment: str) -> int | None:
    """The incarnation that a folder name below `chunks/` stands for; None for a stranger."""
    return int(segment, 16) if _FOLDER.fullmatch(segment) else None


def snapshot_key(revision: int, incarnation: int) -> str:
    """The key of a snapshot of the state at `revision` written by `incarnation`."""
    return f"snapshots/{revision:016x}-{incarnation:016x}.snap"


def parse_snapshot_key(key: str) -> SnapshotId | None:
    """The snapshot that `key` names; None when it does not look like a snapshot's."""
    match = _SNAPSHOT.fullmatch(key)
    return SnapshotId(int(match[1], 16), int(match[2], 16)) if match else None


def log_folder(identity: str) -> str:
    """The folder of a log's pieces below `log/`, without slashes: the log's own name may hold any letters."""
    return blake2b(identity.encode(), digest_size=16).hexdigest()


def piece_key(piece: PieceId) -> str:
    """The key of a piece of the archived log."""
    return f"{LOG}{piece.folder}/{piece.first:016x}-{piece.last:016x}.log"


def parse_piece_key(key: str) -> PieceId | None:
    """The piece that `key` names; None when it does not look like a piece's."""
    match = _PIECE.fullmatch(key)
    return PieceId(match[1], int(match[2], 16), int(match[3], 16)) if match else None


def key_below(root: str, location: str) -> str | None:
    """The key of a file by its full URL; None of one that is not below `root`, a URL without a last slash."""
    plain = location
    if root.startswith("file:///") and location.startswith("file:/"):
        plain = "file:///" + location.removeprefix("file:").lstrip("/")  # Java writes file:/abs
    if root.startswith("s3://") and location.startswith(("s3a://", "s3n://")):
        plain = "s3://" + location.split("://", 1)[1]
    if not plain.startswith(f"{root}/") or "/../" in plain:
        return None
    return plain.removeprefix(f"{root}/")


def check_key(key: str) -> None:
    """Refuse a key that some store could not hold, or that would leave the root. Raises ValueError."""
    segments = key.split("/")
    if any(segment in ("", ".", "..") for segment in segments) or "\0" in key:
        raise ValueError(f"object key {key!r}: segments between slashes are neither empty nor dots")
    if len(key.encode()) > KEY_BYTES_MAX:
        raise ValueError(f"object key of {len(key)} letters: the limit is {KEY_BYTES_MAX} bytes")
