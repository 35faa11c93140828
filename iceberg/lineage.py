"""Format version 3 of tables, and the ids that rows have there (the specification's Row Lineage). Pure.

A row has `_row_id`, unique in its table for ever, and `_last_updated_sequence_number`, by which commit it
came. New files say neither: a row's id is that of its file's first row and its place in the file, the file's
that of its manifest and the rows before it, the manifest's is given where a snapshot first lists it, from the
table's `next-row-id` on. What is moved into another file must keep both, so compaction writes them into
columns (merging.py), which count before all that is inherited.

Rows get ids with the first snapshot after a table became one of version 3. Snapshots from before have none,
and so has a base (history.py) that has files of such snapshots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordination.topic_configs import effective

CONFIG = "floe.table.format-version"
VERSION = 3
"""The format version from which on rows have ids."""
NEXT, FIRST, ADDED = "next-row-id", "first-row-id", "added-rows"
"""Of table metadata: the first id that no row has. Of a snapshot: where the ids begin that it gave, and how
many these are.
"""
ROW_ID, SEQUENCE = "_row_id", "_last_updated_sequence_number"
ROW_ID_ID, SEQUENCE_ID = 2147483540, 2147483539
"""The specification's reserved field ids."""


def wanted(topic: Mapping[str, str], cluster: Mapping[str, str]) -> int:
    """The format version that a topic's table shall have."""
    return int(effective(CONFIG, topic, cluster))


def upgraded(metadata: dict[str, Any], version: int) -> dict[str, Any]:
    """The metadata of the table as one of this version; as it is where it has this one or a higher one: there
    is no way back.
    """
    if metadata["format-version"] >= version:
        return metadata
    ids = {NEXT: 0} if version >= VERSION else {}
    return {**metadata, "format-version": version, **ids}


def problem(metadata: Mapping[str, Any], version: int) -> str:
    """What is wrong where a table shall have this version; empty for nothing."""
    own = metadata["format-version"]
    if own <= version:
        return ""
    return (
        f"the table has format version {own} and {CONFIG} says {version}: there is no way back, so it stays "
        f"while its topic lives; set the config to {own}"
    )


def next_row_id(metadata: Mapping[str, Any]) -> int | None:
    """The first id that no row of the table has; None where rows have none."""
    return int(metadata[NEXT]) if metadata["format-version"] >= VERSION else None


def given(first: int | None, end: int | None) -> dict[str, int]:
    """What a snapshot says that gave the ids from `first` on, up to `end`; nothing where there are none."""
    return {} if first is None or end is None else {FIRST: first, ADDED: end - first}


def end_of(snapshot: Mapping[str, Any] | None) -> int | None:
    """Behind which id a snapshot's rows end; None where they have no ids."""
    if snapshot is None or snapshot.get(FIRST) is None:
        return None
    return int(snapshot[FIRST]) + int(snapshot[ADDED])
