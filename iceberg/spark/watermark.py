"""Watermarks: up to which offset of each partition somebody has read a topic's table. Pure.

Offsets, not snapshots: snapshots are folded and expire, files are compacted, and both may hold rows from
either side of a reader's place. An offset is given to one record for ever, so that a row either is below the
watermark or is not, whatever became of the table. The topic's id tells a topic from one that was made later
under its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_IS_TOPIC_ID = re.compile(r"[0-9a-f]{32}")


class JobError(ValueError):
    """A table, a watermark or a column is not what a job needs; the message names it, its value and the
    remedy.
    """


class UnknownTable(JobError):
    """There is no such table, or it is no topic's."""


class OtherTopic(JobError):
    """The watermark is that of another topic, or of an earlier one of this name."""


class NotSoFar(JobError):
    """The watermark is beyond what the table holds."""


class RowsGone(JobError):
    """Rows behind the watermark left the table before they were read."""


class Unmarked(JobError):
    """A target has rows, and none of its snapshots tells up to where they were read."""


class MissingColumns(JobError):
    """A target or the rows for it lack columns, or a key has nulls."""


class TargetMoved(JobError):
    """Somebody else committed to the target while a job ran."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """Offsets below `offsets[p]` of partition p were read. `topic_id`: 32 hexadecimal digits.

    Partitions that it does not name were not there yet: they are read from 0.
    """

    topic_id: str
    offsets: tuple[int, ...] = ()

    def __str__(self) -> str:
        """The form that `parse` reads: `<topic id>:<offset>,<offset>…`."""
        return f"{self.topic_id}:{','.join(map(str, self.offsets))}"

    @classmethod
    def parse(cls, text: str) -> Watermark:
        """Inverse of str(). Raises JobError."""
        topic_id, colon, offsets = text.partition(":")
        parts = offsets.split(",") if offsets else []
        if not colon or not _IS_TOPIC_ID.fullmatch(topic_id) or not all(each.isdecimal() for each in parts):
            raise JobError(f"watermark {text!r}: write <topic id>:<offset>,<offset>…, as str(watermark) does")
        return cls(topic_id, tuple(map(int, parts)))

    def at(self, partition: int) -> int:
        """The first offset of the partition that was not read."""
        return self.offsets[partition] if partition < len(self.offsets) else 0

    def ranges(self, until: Watermark) -> Iterator[tuple[int, int, int]]:
        """(partition, first offset, end) of what lies between this one and a later one."""
        for partition, end in enumerate(until.offsets):
            if self.at(partition) < end:
                yield partition, self.at(partition), end

    def limited(self, since: Watermark, offsets_max: int) -> Watermark:
        """At most `offsets_max` offsets of each partition beyond `since`."""
        ends = (min(end, since.at(partition) + offsets_max) for partition, end in enumerate(self.offsets))
        return Watermark(self.topic_id, tuple(ends))

    def raised(self, offsets: Sequence[int]) -> Watermark:
        """Not below these offsets in any partition."""
        count = max(len(offsets), len(self.offsets))
        floors = [*offsets, *([0] * (count - len(offsets)))]
        return Watermark(self.topic_id, tuple(max(self.at(at), floors[at]) for at in range(count)))

    def check(self, table: str, topic: str, end: Watermark) -> None:
        """Raises OtherTopic and NotSoFar unless this can be a watermark of `table`, which goes up to
        `end`.
        """
        if self.topic_id != end.topic_id:
            raise OtherTopic(
                f"watermark {self}: table {table} is that of topic {topic!r} with id {end.topic_id}. Either "
                "it is "
                "another topic's, or the topic was deleted and made again: then what was read before has "
                "nothing "
                "to do with it; write to a new target, or begin anew with begin=Watermark"
                f"({end.topic_id!r})"
            )
        ahead = [p for p, offset in enumerate(self.offsets) if offset > end.at(p)]
        if ahead:
            raise NotSoFar(
                f"watermark {self}: partition {ahead[0]} of table {table} goes up to offset "
                f"{end.at(ahead[0])}. "
                "Either it was restored from a backup, or the watermark is not that of this cluster: give "
                "one "
                f"that is not beyond {end}"
            )
