"""The names of objects, and what names a run of records inside one.

All keys are relative to the store's root (bucket and cluster prefix). A chunk's key carries its
author's incarnation, so that one listing per incarnation finds all that a dead agent left behind.
Numbers are fixed-width hexadecimal: key order is number order.
"""

from __future__ import annotations

import re
from typing import NamedTuple

CHUNKS = "chunks/"
SNAPSHOTS = "snapshots/"
TABLES = "tables/"
FINGERPRINT_KEY = "cluster.json"

NUMBER_MAX = (1 << 64) - 1  # incarnations, chunk numbers and revisions are written in 16 hex digits
KEY_BYTES_MAX = 1024  # S3's limit, root prefix included; ours are far shorter

_CHUNK = re.compile(r"chunks/([0-9a-f]{16})/([0-9a-f]{16})\.chunk")
_SNAPSHOT = re.compile(r"snapshots/([0-9a-f]{16})-([0-9a-f]{16})\.snap")
_FOLDER = re.compile(r"[0-9a-f]{16}")


class ChunkId(NamedTuple):
    """Names one chunk object: its author's incarnation and the author's own count of chunks."""

    incarnation: int
    number: int


class SliceRef(NamedTuple):
    """Records of one partition in one chunk: offsets [base_offset, end_offset), bytes [position, +length)."""

    base_offset: int
    end_offset: int
    chunk: ChunkId
    position: int
    length: int
    max_timestamp_ms: int


class SnapshotId(NamedTuple):
    """Names one state snapshot: the revision it holds and the incarnation that wrote it."""

    revision: int
    incarnation: int


def chunk_key(chunk: ChunkId) -> str:
    """The key of a chunk object."""
    return f"chunks/{chunk.incarnation:016x}/{chunk.number:016x}.chunk"


def parse_chunk_key(key: str) -> ChunkId | None:
    """The chunk that `key` names; None when it does not look like a chunk's."""
    match = _CHUNK.fullmatch(key)
    return ChunkId(int(match[1], 16), int(match[2], 16)) if match else None


def incarnation_prefix(incarnation: int) -> str:
    """The folder that holds every chunk of an incarnation, ending with a slash."""
    return f"chunks/{incarnation:016x}/"


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


def check_key(key: str) -> None:
    """Refuse a key that some store could not hold, or that would leave the root. Raises ValueError."""
    segments = key.split("/")
    if any(segment in ("", ".", "..") for segment in segments) or "\0" in key:
        raise ValueError(f"object key {key!r}: segments between slashes are neither empty nor dots")
    if len(key.encode()) > KEY_BYTES_MAX:
        raise ValueError(f"object key of {len(key)} letters: the limit is {KEY_BYTES_MAX} bytes")
