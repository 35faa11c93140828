"""A bounded cache of slices: bytes by (chunk, position), least recently used out first. Pure."""

from __future__ import annotations

from collections import OrderedDict

from objectstore.naming import ChunkId, SegmentId

ENTRY_BYTES = 400  # what an entry costs beside its bytes, measured with tracemalloc
Key = tuple[ChunkId | SegmentId, int]


class SliceCache:
    """Holds at most `bytes_max` bytes. A slice is found by where it begins in its chunk."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._slices: OrderedDict[Key, tuple[int, memoryview]] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._slices)

    def get(self, key: Key, base_offset: int, length: int) -> memoryview | None:
        """The slice's bytes when they are here with that base offset and at least that length."""
        found = self._slices.get(key)
        if found is None or found[0] != base_offset:
            return None
        data = found[1]
        if len(data) < length:
            return None
        self._slices.move_to_end(key)
        return data if len(data) == length else data[:length]

    def put(self, key: Key, base_offset: int, data: memoryview) -> None:
        """Keep a slice; too large a one is not kept. A longer slice at the same place wins."""
        old = self._slices.get(key)
        if old is not None:
            if old[0] == base_offset and len(old[1]) >= len(data):
                return
            self.bytes -= len(old[1]) + ENTRY_BYTES
            del self._slices[key]
        size = len(data) + ENTRY_BYTES
        if size > self._bytes_max:
            return
        self._slices[key] = (base_offset, data)
        self.bytes += size
        while self.bytes > self._bytes_max:
            _, (_, evicted) = self._slices.popitem(last=False)
            self.bytes -= len(evicted) + ENTRY_BYTES
