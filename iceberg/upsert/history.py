"""Which snapshots a latest table keeps (pure): by time and number, and those that a tag or branch names.

Its rows change, so older snapshots are not folded into a first one, as those of append tables are: they go.
Nobody streams from it; changes are streamed from the topic's own table.
"""

from __future__ import annotations

from iceberg.metadata import Metadata

SNAPSHOTS_MAX = 200
"""Snapshots that a latest table keeps, however young they are. Each is some 700 bytes of its metadata."""


def kept(metadata: Metadata, age_ms: int, now_ms: int) -> Metadata:
    """The metadata without snapshots that are older than `age_ms` or beyond the newest SNAPSHOTS_MAX.

    `now_ms`: by which time they may be too old, Unix ms.
    """
    snapshots = metadata["snapshots"]
    named = {ref["snapshot-id"] for ref in metadata["refs"].values()}
    named.add(metadata["current-snapshot-id"])
    newest = {each["snapshot-id"] for each in snapshots[-SNAPSHOTS_MAX:]}
    stay = [
        each
        for each in snapshots
        if each["snapshot-id"] in named
        or (each["snapshot-id"] in newest and now_ms - each["timestamp-ms"] <= age_ms)
    ]
    numbers = {each["snapshot-id"] for each in stay}
    log = [each for each in metadata["snapshot-log"] if each["snapshot-id"] in numbers]
    return {**metadata, "snapshots": stay, "snapshot-log": log}
