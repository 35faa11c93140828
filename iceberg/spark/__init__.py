"""Spark over Floe's tables: the session, increments and jobs for their users; pipelines and audits.

`from iceberg.spark import session, read_since, …`: the names below are what users of Spark may count on. They
need pyspark and nothing else of Floe (an import contract in pyproject.toml), and are loaded when they are
asked for, so that what needs no Spark can be imported without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from iceberg.spark.session import S3Access, session

if TYPE_CHECKING:
    from iceberg.spark.backfill import Repaired, Span, rebuild, repair
    from iceberg.spark.decoding import decoder
    from iceberg.spark.flat import value_type
    from iceberg.spark.jobs import (
        Given,
        Progress,
        Source,
        at_once,
        exactly_once,
        exactly_once_from,
        exactly_once_rows,
        watermark_of,
    )
    from iceberg.spark.maintenance import Outcome, Upkeep, maintain
    from iceberg.spark.reading import Increment, read_since, stream
    from iceberg.spark.replay import Replayed, replay_quarantine, values_by
    from iceberg.spark.sinks import merge_into, newest
    from iceberg.spark.watermark import (
        JobError,
        MissingColumns,
        NotSoFar,
        OtherTopic,
        RowsGone,
        TargetMoved,
        UnknownTable,
        Unmarked,
        Watermark,
    )

_HOMES = {
    "jobs": (
        "Progress", "Source", "Given", "exactly_once", "exactly_once_from", "exactly_once_rows", "at_once",
        "watermark_of",
    ),
    "reading": ("Increment", "read_since", "stream"),
    "sinks": ("merge_into", "newest"),
    "watermark": (
        "Watermark", "JobError", "UnknownTable", "OtherTopic", "NotSoFar", "RowsGone", "Unmarked",
        "MissingColumns", "TargetMoved",
    ),
    "backfill": ("rebuild", "repair", "Span", "Repaired"),
    "decoding": ("decoder",),
    "flat": ("value_type",),
    "maintenance": ("maintain", "Upkeep", "Outcome"),
    "replay": ("replay_quarantine", "values_by", "Replayed"),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


__all__ = [
    "session", "S3Access",
    "read_since", "Increment", "stream",
    "merge_into", "newest",
    "exactly_once", "exactly_once_from", "exactly_once_rows", "at_once", "Progress", "Source", "Given",
    "watermark_of",
    "Watermark", "JobError", "UnknownTable", "OtherTopic", "NotSoFar", "RowsGone", "Unmarked",
    "MissingColumns", "TargetMoved",
    "rebuild", "repair", "Span", "Repaired", "decoder", "value_type",
    "maintain", "Upkeep", "Outcome",
    "replay_quarantine", "values_by", "Replayed",
]  # fmt: skip
