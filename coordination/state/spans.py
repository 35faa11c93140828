"""Which schemas a partition's records were judged by: spans of offsets, each with the binding in force there.

A binding says nothing of the records before it. So the first record behind a change of its topic's binding
begins a span (chunks.py); a change between two records leaves none. Batches that were judged by another
binding are refused, so the topic's at apply is the one that counts. Markers of transactions have no schema,
and begin none. Of spans that end below the log start nothing is kept. `schemas.spans_between` is for readers.

Nothing here looks at the feature level: below BINDING_SPANS (levels.py) no partition is told to begin a span.
"""

from __future__ import annotations

from bisect import bisect_right

from coordination.kafka_codes import Code
from coordination.state.types import UNBOUND, Partition, Refused, Span, Topic

SPANS_MAX = 1_024  # of one partition, in the state


def begins(partition: Partition) -> bool:
    """Whether the partition's next record has to begin a span, as `Partition.begins_span` says of it."""
    return _newest(partition) != partition.topic.binding


def expect(topic: Topic) -> None:
    """After a change of the topic's binding: the next record of each partition begins a span, or none."""
    binding = topic.binding
    for partition in topic.partitions:
        partition.begins_span = _newest(partition) != binding


def begin(partition: Partition, offset: int) -> None:
    """From this offset on the topic's binding of now counts: a record is appended there."""
    partition.spans = (*partition.spans, Span(offset, *partition.topic.binding))
    partition.begins_span = False


def enter(topic: Topic) -> None:
    """On entering the level: what a bound topic holds counts as judged by its binding, as was believed."""
    expect(topic)
    for partition in topic.partitions:
        if partition.begins_span and partition.log_start < partition.high_watermark:
            begin(partition, partition.log_start)


def forget_below(partition: Partition, offset: int) -> None:
    """Leave out spans that end at or below the offset; what is below it is let go of."""
    spans = partition.spans
    if len(spans) > 1 and spans[1].first_offset <= offset:
        newest_below = bisect_right(spans, offset, key=lambda span: span.first_offset) - 1
        partition.spans = spans[newest_below:]


def refusal(topic: Topic, binding: tuple[int, int]) -> Refused | None:
    """POLICY_VIOLATION where a record behind this change of the binding could be one span too many."""
    for partition in topic.partitions:
        spans = partition.spans
        if len(spans) >= SPANS_MAX and _newest(partition) != binding:
            return Refused(
                Code.POLICY_VIOLATION,
                f"topic {topic.name!r}: the binding changed {len(spans):,} times between the records of "
                f"partition {partition.index}, the most that is remembered of one ({SPANS_MAX:,}): delete "
                f"its records below offset {spans[1].first_offset} and ask again, or make a new topic",
            )
    return None


def _newest(partition: Partition) -> tuple[int, int]:
    """The schemas of keys and values that the newest span names."""
    spans = partition.spans
    return spans[-1][1:] if spans else UNBOUND
