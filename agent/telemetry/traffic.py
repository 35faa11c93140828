"""Bytes and records by topic: counted for all, shown of those that have most (telemetry.topics_max)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import nlargest

from prometheus_client.core import Metric

from agent.telemetry.figures import FIGURES

COUNTED_MAX = 100_000
"""Topics that are counted; beyond, those that come new are not. Some 200 bytes each."""


@dataclass(slots=True)
class Counts:
    """Of one topic since this agent started, or since the topic was made."""

    bytes_in: int = 0
    records_in: int = 0
    bytes_out: int = 0


class Traffic:
    """What came for each topic and what was read of it, at this agent."""

    def __init__(self) -> None:
        self._topics: dict[str, Counts] = {}
        self._beyond = Counts()

    def _of(self, topic: str) -> Counts:
        known = self._topics.get(topic)
        if known is None:
            if len(self._topics) >= COUNTED_MAX:
                return self._beyond
            known = self._topics[topic] = Counts()
        return known

    def stored(self, topic: str, size: int, records: int) -> None:
        """A batch of `size` bytes was accepted."""
        counts = self._of(topic)
        counts.bytes_in += size
        counts.records_in += records

    def sent(self, topic: str, size: int) -> None:
        """`size` bytes of record batches were sent to a consumer."""
        self._of(topic).bytes_out += size

    def keep(self, wanted: Callable[[str], bool]) -> None:
        """Forget topics that are not wanted; one that comes again counts from 0."""
        self._topics = {name: counts for name, counts in self._topics.items() if wanted(name)}

    def families(self, named_max: int) -> Iterator[Metric]:
        """The `named_max` topics of most bytes, both ways together."""
        most = nlargest(
            named_max, self._topics.items(), key=lambda each: (each[1].bytes_in + each[1].bytes_out, each[0])
        )
        figures: dict[str, Callable[[Counts], int]] = {
            "topic_produce_bytes": lambda counts: counts.bytes_in,
            "topic_produce_records": lambda counts: counts.records_in,
            "topic_fetch_bytes": lambda counts: counts.bytes_out,
        }
        for figure, read in figures.items():
            yield FIGURES[figure].family(((name,), read(counts)) for name, counts in most)
