"""What an object says of itself: whether it is whole under its name, and under which name it belongs.

Every kind names itself in its header, but for files of tables, whose names hold the checksum of their bytes.
CPU work only, but for `Owners`.
"""

from __future__ import annotations

from coordination import snapshot
from coordination.archive import piece as pieces
from iceberg.sealed import Sums, seal_of
from objectstore import chunk, fingerprint, manifest, segment
from objectstore.naming import (
    FINGERPRINT_KEY,
    LOG,
    SNAPSHOTS,
    PieceId,
    chunk_key,
    log_folder,
    manifest_key,
    parse_chunk_key,
    parse_manifest_key,
    parse_piece_key,
    parse_segment_key,
    parse_snapshot_key,
    piece_key,
    segment_key,
)
from objectstore.store import ObjectStore

_ERRORS = (
    chunk.CorruptChunk,
    segment.CorruptSegment,
    manifest.CorruptManifest,
    snapshot.CorruptSnapshot,
    pieces.CorruptPiece,
    fingerprint.BrokenFingerprint,
)
_PARQUET = b"PAR1"


def problem(key: str, content: bytes) -> str:
    """Why this is not what lies under such a name; empty when it is."""
    try:
        return _problem(key, content)
    except _ERRORS as error:
        return str(error)


def _problem(key: str, content: bytes) -> str:
    if key == FINGERPRINT_KEY:
        fingerprint.decode(content)
    elif (named := parse_chunk_key(key)) is not None:
        chunk.verify(content, named, mended=True)
    elif parse_segment_key(key) is not None:
        if (found := segment_key(segment.described(content).segment)) != key:
            return f"the object says that it is {found}"
    elif (of := parse_manifest_key(key)) is not None:
        manifest.decode(content, of)
        return manifest.front_problem(content, of)
    elif (snap := parse_snapshot_key(key)) is not None:
        if (revision := snapshot.check(content)) != snap.revision:
            return f"it is the snapshot of revision {revision}"
    elif (piece := parse_piece_key(key)) is not None:
        if (own := _piece_of(content)) != piece:
            return f"the object says that it is {piece_key(own)}"
    else:
        return _file_problem(key, content)
    return ""


def _piece_of(content: bytes) -> PieceId:
    found = pieces.decode(content)
    return PieceId(log_folder(found.identity), found.header.first, found.header.last)


def _file_problem(key: str, content: bytes) -> str:
    """Of a table's file. Of other engines' only the form is known."""
    seal = seal_of(key)
    if seal is not None:
        sums = Sums()
        sums.add(content, seal[0])
        return "" if sums.of(seal[0]) == seal[1] else "its bytes do not have the checksum in its name"
    if key.endswith(".parquet") and not (content.startswith(_PARQUET) and content.endswith(_PARQUET)):
        return "not a Parquet file: it begins or ends otherwise, or was cut short"
    return "" if content else "it is empty"


class Owners:
    """Finds under which name bytes belong. `tables`: the folder of tables, below the store's root."""

    def __init__(self, store: ObjectStore, tables: str) -> None:
        self._store = store
        self._tables = tables

    async def of(self, content: bytes) -> str:
        """The key that these bytes are whole under; empty when there is none. Raises StoreError."""
        try:
            named = self._by_header(content)
            if named:
                return named if not problem(named, content) else ""
            if content.startswith(snapshot.MAGIC):
                return await self._listed(f"{SNAPSHOTS}{snapshot.check(content):016x}-", ".snap")
        except _ERRORS:
            return ""
        for kind in ("x", "c"):
            sums = Sums()
            sums.add(content, kind)
            found = await self._listed(f"{self._tables}/", "", f".{kind}{sums.of(kind)}.")
            if found:
                return found
        return ""

    def _by_header(self, content: bytes) -> str:
        """The key that the object's header names; empty where it has none."""
        if content.startswith(b"FLOECHNK"):
            return chunk_key(chunk.decode_header(content).chunk)
        if content.startswith(b"FLOESEGM"):
            return segment_key(segment.decode_header(content)[1])
        if content.startswith(b"FLOEMANI"):
            return manifest_key(manifest.name_of(content))
        if content.startswith(pieces.MAGIC):
            return piece_key(_piece_of(content))
        return FINGERPRINT_KEY if content.startswith(b'{\n  "format"') and b'"cluster_id"' in content else ""

    async def _listed(self, prefix: str, end: str, part: str = "") -> str:
        async for page in self._store.list(prefix):
            for meta in page:
                if meta.key.endswith(end) and part in meta.key:
                    return meta.key
        return ""


def kind_of(key: str) -> str:
    """What an object is, in a word or two."""
    folder = key.split("/", 1)[0]
    if folder in ("chunks", "segments", "manifests", "snapshots"):
        return folder.removesuffix("s")
    if folder == LOG.rstrip("/"):
        return "log"
    if key == FINGERPRINT_KEY:
        return "fingerprint"
    return "data" if key.endswith(".parquet") else "metadata"
