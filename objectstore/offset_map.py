"""The newest offset of every key in a range of a partition: what compaction keeps.

Kafka's SkimpyOffsetMap holds 24 bytes a key; here it is a dict, about 150 bytes a key, and holds fewer for
the same memory. What does not fit is left for the next pass. A key stands for itself when it has fewer than
40 bytes (a UUID as text has 36), else for as many bytes of BLAKE2b: two long keys of one hash would cost the
older record, and are as good as impossible to find (with Kafka's MD5 they are not).
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from aiokafka.record.default_records import DefaultRecordBatch

from objectstore.batch import (
    BROKEN_RECORDS,
    OVERRUN_BYTES,
    BatchHeader,
    CorruptBatch,
    uncompressed,
)

KEY_BYTES_MAX = 40  # from this length on a key is hashed to as many bytes
ENTRY_BYTES = 150  # of memory for one key, measured
NOTHING = -1


def opened(
    batch: memoryview, header: BatchHeader, decoded_bytes_max: int
) -> tuple[bytearray, DefaultRecordBatch]:
    """The batch with its records uncompressed, and a reader over it. Raises CorruptBatch."""
    plain = uncompressed(batch, decoded_bytes_max)
    return plain, DefaultRecordBatch(memoryview(plain)[:-OVERRUN_BYTES])


def hashed(key: bytes) -> bytes:
    """What stands for a key of KEY_BYTES_MAX or more."""
    return blake2b(key, digest_size=KEY_BYTES_MAX).digest()


class OffsetMap:
    """Key → newest offset, for offsets up to `latest`. At most `keys_max` keys."""

    __slots__ = ("_keys_max", "_newest", "latest")

    def __init__(self, keys_max: int) -> None:
        self._keys_max = keys_max
        self._newest: dict[bytes, int] = {}
        self.latest = NOTHING

    def __len__(self) -> int:
        return len(self._newest)

    @property
    def find(self) -> Callable[[bytes, int], int]:
        """(what stands for a key, default) → its newest offset: a function for loops over records."""
        return self._newest.get

    def pass_over(self, header: BatchHeader) -> None:
        """Cover a batch whose records count for nothing: markers, aborted or unreadable ones."""
        self.latest = header.last_offset

    def add(self, batch: memoryview, header: BatchHeader, decoded_bytes_max: int) -> bool:
        """Cover one batch; False, and nothing changed, when its keys do not fit beside the others.

        The first batch always fits. Raises CorruptBatch for one that cannot be read; nothing is changed.
        """
        found: dict[bytes, int] = {}
        previous, last = header.base_offset - 1, header.last_offset
        try:
            for record in opened(batch, header, decoded_bytes_max)[1]:
                offset, key = record.offset, record.key
                if not previous < offset <= last:
                    raise CorruptBatch(f"offset {offset} after {previous} in a batch that ends at {last}")
                previous = offset
                if key is not None:
                    found[key if len(key) < KEY_BYTES_MAX else hashed(key)] = offset
        except BROKEN_RECORDS as error:
            raise CorruptBatch(f"records of the batch at offset {header.base_offset}: {error}") from error
        if self._newest and len(self._newest) + len(found) > self._keys_max:
            return False
        self._newest.update(found)
        self.latest = last
        return True
