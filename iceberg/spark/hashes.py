"""The hash of a record, and sums of such: what audits compare first, and what they keep as digests.

It is of the place (partition, offset) and of what is compared of a record: key, value and headers by their
own hashes (tables.XXHASH), which of them are null, the timestamp to the microsecond and its type. No decoded
column is in it, so that it stays the same while columns come, go and are renamed.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from iceberg.spark.tables import COMPARED

FORM = 1
"""Of digests that are kept, for ever; another meaning of any of it takes another number."""
_LOW_BITS = 0xFFFF_FFFF


def hashed() -> Column:
    """A record's hash, over the columns of a history of 64-bit hashes."""
    null_bits = [F.when(F.col(each).isNull(), F.lit(1 << bit)) for bit, each in enumerate(COMPARED)]
    nulls = reduce(Column.__add__, (F.coalesce(each, F.lit(0)) for each in null_bits))
    return F.xxhash64("partition", "offset", nulls, *COMPARED)  # nulls alone leave a hash as it was


def halves(name: str, where: Column) -> tuple[Column, Column]:
    """Sums of a hash's lower and upper 32 bits, which 2³¹ rows do not overflow."""
    value = F.col(name)
    lower, upper = value.bitwiseAND(F.lit(_LOW_BITS)), F.shiftrightunsigned(value, 32)
    return (
        F.coalesce(F.sum(F.when(where, lower)), F.lit(0)).alias(f"{name}_lower"),
        F.coalesce(F.sum(F.when(where, upper)), F.lit(0)).alias(f"{name}_upper"),
    )
