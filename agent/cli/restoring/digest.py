"""What two partitions are compared by: how many records, and a digest of all of them in their order."""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Final

from objectstore.batch import Record

_NONE: Final = -1
_head = struct.Struct(">qiii").pack
_length = struct.Struct(">i").pack


class Digest:
    """Of timestamps, keys, values and headers, each by its length and bytes. Offsets do not count."""

    def __init__(self) -> None:
        self.count = 0
        self._hash = blake2b(digest_size=16)

    def add(self, one: Record) -> None:
        """The next record."""
        key, value, headers = one.key, one.value, one.headers
        self.count += 1
        self._hash.update(_head(one.timestamp, _size(key), _size(value), len(headers)))
        self._hash.update(key or b"")
        self._hash.update(value or b"")
        for name, content in headers:
            encoded = name.encode()
            self._hash.update(_length(len(encoded)) + encoded + _length(_size(content)) + (content or b""))

    def text(self) -> str:
        """In hexadecimal."""
        return self._hash.hexdigest()


def _size(content: bytes | None) -> int:
    return _NONE if content is None else len(content)
