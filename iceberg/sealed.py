"""Files whose names say what they hold, and reads that do not believe damaged bytes.

A table's metadata, manifest lists and manifests are read to be built upon: one byte that a read got wrong
would be copied into every later one. So the name of each that Floe writes ends with a checksum of its bytes
(`….x<16 hexadecimal digits>.avro`, `….metadata.json`, `….history`, and `….parquet`, since compaction copies
rows), and a read that does not match is made
again. Other engines write names without one: of theirs, two reads must agree, and a manifest must have the
length that its list says. Engines that read the tables do not look at the names (Iceberg spec, "Table
Metadata").
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re

from iceberg.warehouse import Warehouse
from objectstore.store import Buffer, ObjectStore, StoreError

READS_MAX = 3
"""Reads of one file before it is called damaged."""

_logger = logging.getLogger("floe.iceberg.sealed")
_NAME = re.compile(r"\.x([0-9a-f]{16})\.(?:avro|metadata\.json|history|parquet)$")
_ENDS = (".metadata.json", ".avro", ".history", ".parquet")


class Damaged(StoreError):
    """A stored file is not what was written, or no two reads of it agree."""


def sealed(location: str, *content: Buffer) -> str:
    """The location with the content's checksum in its name. `location` ends with one of _ENDS."""
    for end in _ENDS:
        if location.endswith(end):
            return f"{location.removesuffix(end)}.x{_digest(*content)}{end}"
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
        elif await asyncio.to_thread(_digest, content) == seal[1]:
            return content
        else:
            problem = "its bytes do not have the checksum in its name"
        if problem:
            _logger.warning("%s: %s; reading it again", location, problem)
    raise Damaged(f"{location} is damaged: {problem}, in {READS_MAX} reads; restore the object from a backup")


def _digest(*content: Buffer) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in content:
        digest.update(part)
    return digest.hexdigest()
