"""Iceberg's partition transforms over Arrow columns (specification, "Partition Transforms").

A file that stands under another value than its rows have is left out of queries without a word, so hashes and
truncation are pyiceberg's. Times are reckoned here: those of records reach beyond the years that Python's
calendar has. Tests compare with the specification's examples, pyiceberg and Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyiceberg.transforms import BucketTransform, TruncateTransform
from pyiceberg.types import BinaryType, LongType, PrimitiveType, StringType

_SIZED = re.compile(r"(bucket|truncate)\[(\d+)\]")
_KINDS: Mapping[str, tuple[str, ...]] = {
    "identity": ("boolean", "int", "long", "string", "binary", "timestamptz"),
    "bucket": ("int", "long", "string", "binary", "timestamptz"),
    "truncate": ("int", "long", "string", "binary"),
    "year": ("timestamptz",),
    "month": ("timestamptz",),
    "day": ("timestamptz",),
    "hour": ("timestamptz",),
}
"""By transform the Iceberg types of columns that it takes here. Not reals, which have NaN and two zeroes, and
not decimals.
"""
_HOUR_US = 3_600_000_000
_DAY_US = 24 * _HOUR_US
_INT_MAX = (1 << 31) - 1  # hours are an int, and µs reach beyond it


def takes(transform: str) -> tuple[str, ...]:
    """The types of columns that a transform takes; none of one that nobody knows."""
    return _KINDS.get(transform.partition("[")[0], ())


def applied(transform: str, column: pa.Array) -> list[Any]:
    """Of each value of a column its partition value, as Iceberg's manifests have it; None of null."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if transform == "identity":
        return list(column.to_pylist())
    of = _function(transform, column.type)
    encoded = column.dictionary_encode()
    values = [of(each) for each in encoded.dictionary.to_pylist()]
    return [None if at is None else values[at] for at in encoded.indices.to_pylist()]


def array_of(transform: str, column: pa.Array) -> pa.Array:
    """The same as an array, for sorting."""
    if transform == "identity":
        return column
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    text = pa.types.is_string(column.type) or pa.types.is_binary(column.type)
    kind = column.type if text and transform.startswith("truncate") else pa.int64()
    of = _function(transform, column.type)
    encoded = column.dictionary_encode()
    return pa.array([of(each) for each in encoded.dictionary.to_pylist()], kind).take(encoded.indices)


def _function(transform: str, kind: pa.DataType) -> Callable[[Any], Any]:
    """The transform of one value, not null. Times are µs."""
    sized = _SIZED.fullmatch(transform)
    if sized is None:
        return _TIMES[transform]
    of, size = _primitive(kind), int(sized[2])
    function: Callable[[Any], Any]
    if sized[1] == "bucket":
        function = BucketTransform(size).transform(of)
    else:
        truncated: Callable[[Any], Any] = TruncateTransform(size).transform(of)
        whole = pa.types.is_integer(kind)
        function = (lambda value: _wrapped(truncated(value), kind.bit_width)) if whole else truncated
    return function


def _wrapped(value: int, bits: int) -> int:
    """The lowest numbers are truncated to lower ones than there are, which Iceberg's Java wraps around."""
    half = 1 << bits - 1
    return (value + half) % (half << 1) - half


def _primitive(kind: pa.DataType) -> PrimitiveType:
    """Integers of all kinds, and times, are partitioned as longs."""
    if pa.types.is_string(kind):
        return StringType()
    return BinaryType() if pa.types.is_binary(kind) else LongType()


def _months(micros: int) -> int:
    """Months from January 1970 on, by the proleptic Gregorian calendar, of any year."""
    days = micros // _DAY_US + 719_468  # from the first of March of the year 0 on
    era, day = divmod(days, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    month = (5 * (day - (365 * year + year // 4 - year // 100)) + 2) // 153  # 0: March
    return (era * 400 + year - 1970) * 12 + month + 2


_TIMES: Mapping[str, Callable[[int], int]] = {
    "year": lambda micros: _months(micros) // 12,
    "month": _months,
    "day": lambda micros: micros // _DAY_US,
    "hour": lambda micros: max(-_INT_MAX, min(_INT_MAX, micros // _HOUR_US)),
}
