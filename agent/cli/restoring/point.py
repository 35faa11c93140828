"""The point of `--at`: a time, an offset of each partition, or the end."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from agent.cli.failures import refused, usage

END: Final = "end"
_OFFSETS: Final = re.compile(r"\d{1,9}:\d{1,18}(,\d{1,9}:\d{1,18})*")
_MS: Final = re.compile(r"\d{1,15}")
GRAMMAR: Final = (
    "end; a time, ISO 8601 (UTC unless it says otherwise) or Unix ms; or offsets of all partitions, "
    "PARTITION:OFFSET[,…], each the first that is left out"
)


@dataclass(frozen=True, slots=True)
class Point:
    """`time_ms`: records up to it, Unix ms; `offsets`: those below, by partition; neither: all there is."""

    time_ms: int | None = None
    offsets: Mapping[int, int] | None = None

    def require_known(self, topic: str, partitions: Collection[int]) -> None:
        """Raises Failure where it names a partition that the topic has not: perhaps another one is meant."""
        unknown = sorted(set(self.offsets or ()) - set(partitions))
        if unknown:
            raise refused(f"--at names partition {unknown[0]}: {topic} has {len(partitions)}, from 0 on")


def point_of(text: str) -> Point:
    """What `--at` says. Raises Failure."""
    if text == END:
        return Point()
    if _OFFSETS.fullmatch(text):
        pairs = [
            (int(one), int(offset)) for one, _, offset in (each.partition(":") for each in text.split(","))
        ]
        offsets = dict(pairs)
        if len(offsets) < len(pairs):
            raise usage(f"--at {text!r} names a partition twice")
        return Point(offsets=offsets)
    if _MS.fullmatch(text):
        return Point(time_ms=int(text))
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise usage(f"--at {text!r} is none of: {GRAMMAR}") from None
    return Point(time_ms=int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000))
