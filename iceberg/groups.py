"""Where the rows of a file stand in the table's own partitioning (partitioning.py). Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

FILES_MAX = 1_000
"""Data files that one commit makes, about: one that would make more takes only as many rows."""

Values = tuple[Any, ...]
"""Partition values of a row or a file, one for each field of its spec."""


class Group(NamedTuple):
    """What the rows of a file have in common: their spec's id and their partition values under it."""

    spec_id: int = 0
    values: Values = ()


UNPARTITIONED = Group()
