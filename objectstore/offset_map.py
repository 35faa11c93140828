"""The newest offset of every key in a range of a partition: what compaction keeps.

Kafka's SkimpyOffsetMap holds 24 bytes a key; here it is a dict, about 150 bytes a key, and holds fewer for
the same memory. What does not fit is left for the next pass. A key stands for itself when it has fewer than
16 bytes, else for 16 bytes of BLAKE2b: two long keys of one hash would cost the older record, and are as good
as impossible to find (with Kafka's MD5 they are not).
"""

from __future__ import annotations

from hashlib import blake2b

from aiokafka.record.default_records import DefaultRecordBatch

from objectstore.batch import (
    BROKEN_RECORDS,
    OVERRUN_BYTES,
    BatchHeader,
    CorruptBatch,
    uncompressed,
)

KEY_BYTES_MAX = 16  # from this length on a key is hashed to as many bytes
ENTRY_BYTES = 150  # of memory for one key, measured
NOTHING = -1


def opened(
    batch: memoryview, header: BatchHeader, decoded_bytes_max: int
) -> tuple[bytearray, DefaultRecordBatch]:
    """The batch with its records uncompressed, and a reader over it. Raises CorruptBatch."""
    plain = uncompressed(batch, decoded_bytes_max)
    return plain, DefaultRecordBatch(memoryview(plain)[:-OVERRUN_BYTES])


class OffsetMap:
    """Key → newest offset, for offsets up to `latest`. At most `keys_max` keys."""

    __slots__ = ("_keys_max", "_newest", "latest")

    def __init__(self, keys_max: int) -> None:
        self._keys_max = keys_max
        self._newest: dict[bytes, int] = {}
        self.latest = NOTHING

    def __len__(self) -> int:
        return len(self._newest)

    def newest(self, key: bytes) -> int:
        """The newest offset of the key; -1 when the range has none."""
        if len(key) >= KEY_BYTES_MAX:
            key = blake2b(key, digest_size=KEY_BYTES_MAX).digest()
        return self._newest.get(key, NOTHING)

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
                    if len(key) >= KEY_BYTES_MAX:
                        key = blake2b(key, digest_size=KEY_BYTES_MAX).digest()
                    found[key] = offset
        except BROKEN_RECORDS as error:
            raise CorruptBatch(f"records of the batch at offset {header.base_offset}: {error}") from error
        if self._newest and len(self._newest) + len(found) > self._keys_max:
            return False
        self._newest.update(found)
        self.latest = last
        return True
