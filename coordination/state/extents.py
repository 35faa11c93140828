"""Which offsets of a topic one committed transaction takes, so that its table shows all of them or none.

Kept for topics with a table, from a commit until the table has the transaction. When there are too many,
neighbours are joined: the table then takes them together, which is coarser and as true.
"""

from __future__ import annotations

from collections.abc import Sequence

from coordination.state.data import StateData
from coordination.state.transaction_types import Extent
from coordination.state.types import Partition, Topic
from coordination.topic_configs import effective_bool

SPANS_MAX = 4_096  # of partitions, over all extents of one topic; about 200 bytes each
LOOKED_AT = 64  # extents between two looks at the bound; one with more spans than this is one by itself


def note(state: StateData, ended: Sequence[tuple[Partition, int]]) -> None:
    """Note a committed transaction: its partitions with their first offsets; their markers are the last."""
    topics: dict[bytes, Topic] = {}  # by id: one that is deleted may come back, another may have its name
    found: dict[bytes, Extent] = {}
    for partition, first in ended:
        topic = partition.topic
        if not effective_bool("floe.table.enabled", topic.configs, state.cluster_configs):
            topic.extents = []
            continue
        topics[topic.topic_id] = topic
        found.setdefault(topic.topic_id, {})[partition.index] = (first, partition.high_watermark - 1)
    for topic_id, extent in found.items():
        known = topics[topic_id].extents
        known.append(extent)
        if len(known) % LOOKED_AT == 0 or len(extent) > LOOKED_AT:
            shorten(topics[topic_id])


def shorten(topic: Topic) -> None:
    """Join neighbours until the bound holds, or one extent is left."""
    while len(topic.extents) > 1 and sum(map(len, topic.extents)) > SPANS_MAX:
        pairs = [topic.extents[at : at + 2] for at in range(0, len(topic.extents), 2)]
        topic.extents = [_joined(pair) for pair in pairs]


def forget(topic: Topic, next_offsets: Sequence[int]) -> None:
    """The table has everything below these offsets, by partition index."""
    topic.extents = [
        extent
        for extent in topic.extents
        if any(
            index >= len(next_offsets) or marker >= next_offsets[index]
            for index, (_, marker) in extent.items()
        )
    ]


def _joined(pair: Sequence[Extent]) -> Extent:
    joined: Extent = {}
    for extent in pair:
        for index, (first, marker) in extent.items():
            known = joined.get(index, (first, marker))
            joined[index] = (min(known[0], first), max(known[1], marker))
    return joined
