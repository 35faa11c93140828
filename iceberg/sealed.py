"""Files whose names say what they hold, and reads that do not believe damaged bytes.

A table's metadata, manifest lists and manifests are read to be built upon: one byte that a read got wrong
would be copied into every later one. So the name of each that Floe writes ends with a checksum of its bytes
(`….x<16 hexadecimal digits>.avro`, `….metadata.json`, `….history`), and a read that does not match is made
again. So does that of a data file, since compaction copies rows (`….c<16 hexadecimal digits>.parquet`; `.x`
until November 2026). Those are the bulk of the bytes, so theirs is two CRCs, CRC-32C and CRC-32: as good
against damage as one of 64 bits, whose polynomial is the product of both, and a third of BLAKE2's CPU time.
An agent from before takes such a file for another engine's. Other engines write names without one: of theirs,
two reads must agree, and a manifest must have the length that its list says. Engines that read the tables do
not look at the names (Iceberg spec, "Table Metadata").
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import zlib
from collections.abc import Callable, Mapping

from crc32c import crc32c

from iceberg.warehouse import Warehouse
from objectstore.store import Buffer, ObjectStore, StoreError

READS_MAX = 3
"""Reads of one file before it is called damaged."""

_logger = logging.getLogger("floe.iceberg.sealed")
_NAME = re.compile(r"\.([xc])([0-9a-f]{16})\.(?:avro|metadata\.json|history|parquet)$")
_ENDS: Mapping[str, str] = {".metadata.json": "x", ".avro": "x", ".history": "x", ".parquet": "c"}
"""How names end, and by which of _CHECKSUMS they are sealed."""


class Damaged(StoreError):
    """A stored file is not what was written, or no two reads of it agree."""


def sealed(location: str, *content: Buffer) -> str:
    """The location with the content's checksum in its name. `location` ends with one of _ENDS."""
    for end, kind in _ENDS.items():
        if location.endswith(end):
            return f"{location.removesuffix(end)}.{kind}{_CHECKSUMS[kind](*content)}{end}"
    raise AssertionError(f"{location}: a sealed file ends with one of {', '.join(_ENDS)}")


async def read(store: ObjectStore, warehouse: Warehouse, location: str, length: int | None = None) -> bytes:
    """A file's bytes as they were written. `length`: what its parent says, bytes.

    Raises Damaged, and whatever else the store raises.
    """
    key = warehouse.key(location)
    seal = _NAME.search(location)
    before: bytes | None = None
    for _ in range(READS_MAX):
        content = await store.get(key)
        if length is not None and len(content) != length:
            problem = f"{len(content)} bytes, its manifest list says {length}"
        elif seal is None:
            if content == before:
                return content
            problem = "two reads of it differ" if before is not None else ""
            before = content
        elif await asyncio.to_thread(_CHECKSUMS[seal[1]], content) == seal[2]:
            return content
        else:
            problem = "its bytes do not have the checksum in its name"
        if problem:
            _logger.warning("%s: %s; reading it again", location, problem)
    raise Damaged(f"{location} is damaged: {problem}, in {READS_MAX} reads; restore the object from a backup")


def seal_of(location: str) -> tuple[str, str] | None:
    """The checksum in a file's name: which of `Sums`, and its digits; None where the name has none."""
    found = _NAME.search(location)
    return None if found is None else (found[1], found[2])


class Sums:
    """Both checksums of a file that is read piece by piece."""

    def __init__(self) -> None:
        self._castagnoli = self._ethernet = 0
        self._digest = hashlib.blake2b(digest_size=8)

    def add(self, piece: Buffer, kind: str) -> None:
        """Take the next bytes into the checksum of this kind."""
        if kind == "x":
            self._digest.update(piece)
        else:
            self._castagnoli = crc32c(piece, self._castagnoli)
            self._ethernet = zlib.crc32(piece, self._ethernet)

    def of(self, kind: str) -> str:
        """The digits, as names have them."""
        return self._digest.hexdigest() if kind == "x" else f"{self._castagnoli:08x}{self._ethernet:08x}"


def _digest(*content: Buffer) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in content:
        digest.update(part)
    return digest.hexdigest()


def _cyclic(*content: Buffer) -> str:
    castagnoli = ethernet = 0
    for part in content:
        castagnoli, ethernet = crc32c(part, castagnoli), zlib.crc32(part, ethernet)
    return f"{castagnoli:08x}{ethernet:08x}"


_CHECKSUMS: Mapping[str, Callable[..., str]] = {"x": _digest, "c": _cyclic}
