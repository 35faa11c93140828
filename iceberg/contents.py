"""What an object says of itself: whether it is whole under its name, and under which name it belongs.

Every kind names itself in its header, but for files of tables, whose names hold the checksum of their bytes.
CPU work only, but for `Owners`, which does it in a thread.
"""

from __future__ import annotations

from functools import partial

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
from objectstore.turns import off_loop

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
    """Of a table's file."""
    found = InPieces(key)
    found.add(content)
    return found.problem()


def is_file(key: str) -> bool:
    """Whether it is a table's file: what is wrong with it shows piece by piece, too."""
    return kind_of(key) in ("data", "metadata")


class InPieces:
    """What is wrong with a table's file, once all was added. Of other engines' only the form is known."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._seal = seal_of(key)
        self._sums = Sums()
        self._first = self._last = b""

    def add(self, piece: bytes) -> None:
        """The next bytes of it."""
        if self._seal is not None:
            self._sums.add(piece, self._seal[0])
        self._first = (self._first + piece[: len(_PARQUET)])[: len(_PARQUET)]
        self._last = (self._last + piece[-len(_PARQUET) :])[-len(_PARQUET) :]

    def problem(self) -> str:
        """Why this is not the file, empty when it is, or may be."""
        if self._seal is not None:
            kind, told = self._seal
            return "" if self._sums.of(kind) == told else "its bytes do not have the checksum in its name"
        if self._key.endswith(".parquet") and (self._first, self._last) != (_PARQUET, _PARQUET):
            return "not a Parquet file: it begins or ends otherwise, or was cut short"
        return "" if self._first else "it is empty"


class Owners:
    """Finds under which name bytes belong. `tables`: the folder of tables, below the store's root."""

    def __init__(self, store: ObjectStore, tables: str) -> None:
        self._store = store
        self._tables = tables

    async def of(self, content: bytes) -> str:
        """The key that these bytes are whole under; empty when there is none. Raises StoreError."""
        try:
            named = await off_loop(len(content), partial(_named, content))
            if named is not None:
                return named
            if content.startswith(snapshot.MAGIC):
                revision = await off_loop(len(content), partial(snapshot.check, content))
                return await self._listed(f"{SNAPSHOTS}{revision:016x}-", ".snap")
        except _ERRORS:
            return ""
        for kind in ("x", "c"):
            told = await off_loop(len(content), partial(_sum, content, kind))
            found = await self._listed(f"{self._tables}/", "", f".{kind}{told}.")
            if found:
                return found
        return ""

    async def _listed(self, prefix: str, end: str, part: str = "") -> str:
        async for page in self._store.list(prefix):
            for meta in page:
                if meta.key.endswith(end) and part in meta.key:
                    return meta.key
        return ""


def _named(content: bytes) -> str | None:
    """The key that the object's header names, empty where it is not whole there; None where it has none."""
    named = _by_header(content)
    if not named:
        return None
    return named if not problem(named, content) else ""


def _sum(content: bytes, kind: str) -> str:
    sums = Sums()
    sums.add(content, kind)
    return sums.of(kind)


def _by_header(content: bytes) -> str:
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
