"""The ids of rows (lineage.py) as columns of Arrow, and which rows have which ones."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from iceberg.arrow_types import field
from iceberg.lineage import ROW_ID, ROW_ID_ID, SEQUENCE, SEQUENCE_ID

FIELDS = (field(ROW_ID, ROW_ID_ID, pa.int64()), field(SEQUENCE, SEQUENCE_ID, pa.int64()))
"""The columns of files whose rows were in the table before, behind all others."""
_FACTORS = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class Fingerprint(NamedTuple):
    """Which rows have which ids, in whatever order and files: sums of 32 bits each of a hash of every row."""

    low: int = 0
    high: int = 0

    def plus(self, other: Fingerprint) -> Fingerprint:
        """Of the rows of both."""
        return Fingerprint(self.low + other.low, self.high + other.high)


def fingerprint(offsets: pa.Array, ids: pa.Array, sequences: pa.Array) -> Fingerprint:
    """Of rows of one partition: of each its offset, its id and by which commit it came. At most 2³¹ rows."""
    mixed = pa.repeat(pa.scalar(0, pa.uint64()), len(offsets))
    for column in (offsets, ids, sequences):
        mixed = pc.bit_wise_xor(mixed, column.cast(pa.uint64()))
        for factor in _FACTORS:  # as splitmix64's end: it turns numbers beside each other into unlike ones
            mixed = pc.multiply(pc.bit_wise_xor(mixed, pc.shift_right(mixed, _word(30))), _word(factor))
        mixed = pc.bit_wise_xor(mixed, pc.shift_right(mixed, _word(31)))
    sums = pc.bit_wise_and(mixed, _word(0xFFFFFFFF)), pc.shift_right(mixed, _word(32))
    low, high = (pc.sum(each).as_py() or 0 for each in sums)
    return Fingerprint(low, high)


def _word(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.uint64())
