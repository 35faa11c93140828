"""Control batches: the markers that end transactions on a partition (KIP-98, EndTransactionMarker).

The state decides that a transaction ended; where its markers stand in the partitions is a row of the index
and nothing more. The 78 bytes that consumers and compaction see are made from that row, the same everywhere:
no object holds them until the partition is merged.
"""

from __future__ import annotations

import struct

from objectstore.batch import MAGIC, BatchHeader, seal
from objectstore.naming import MarkerId

COORDINATOR_EPOCH = 0  # one log orders all transactions: no coordinator ever fences another
_TRANSACTIONAL_CONTROL = 0x30
_record = struct.Struct(">BBBBBhhBhiB")  # length … headers of the one record, varints of one byte each
_RECORD_LENGTH = _record.size - 1
_HEADER_BYTES = 61
MARKER_BYTES = _HEADER_BYTES + _record.size


def marker_batch(marker: MarkerId, offset: int, stamp_ms: int) -> bytes:
    """The control batch at `offset`, MARKER_BYTES long; `stamp_ms`: when the transaction ended, Unix ms."""
    kind = 1 if marker.committed else 0
    record = _record.pack(
        _RECORD_LENGTH << 1, 0, 0, 0, 4 << 1, 0, kind, 6 << 1, 0, COORDINATOR_EPOCH, 0
    )  # fmt: skip
    header = BatchHeader(
        offset, 0, 0, MAGIC, 0, _TRANSACTIONAL_CONTROL, 0, stamp_ms, stamp_ms,
        marker.producer_id, marker.epoch, -1, 1,
    )  # fmt: skip
    return seal(header, record)
