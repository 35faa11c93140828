"""Damage that readers met: which offsets of which partition cannot be read any more, and why.

Told once per range and then at most every TOLD_AGAIN_S; listed by /status until the records are gone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.telemetry.by_topic import ByTopic
from agent.telemetry.logs import logger
from objectstore.offset_ranges import covered

if TYPE_CHECKING:
    from agent.telemetry.metrics import Metrics
    from coordination.clock import Clock
    from coordination.state.state import State
    from coordination.state.types import Partition

_log = logger("damage")

RANGES_MAX = 1_000  # that are remembered; the one not met for longest is forgotten first
TOLD_AGAIN_S = 60.0
LINES_PER_MINUTE_MAX = 20  # log lines of all ranges together
TEXT_MAX = 500  # characters of the reason


@dataclass(slots=True)
class DamagedRange:
    """Offsets [start, end) of a partition. Times are Unix ms and, `told_s`, the clock's monotonic seconds."""

    handle: int
    topic: str
    partition: int
    start: int
    end: int
    reason: str
    since_ms: int
    last_ms: int
    count: int = 0
    told_s: float = 0.0


class Damages:
    """What this agent's readers met since it started."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._reads = ByTopic(metrics.damaged_reads)
        self._newest = ByTopic(metrics.newest_damaged_read)
        self._ranges: OrderedDict[tuple[int, int], DamagedRange] = OrderedDict()
        self._minute_s = 0.0  # when the present minute of log lines began
        self._lines = 0

    def note(self, partition: Partition, start: int, end: int, reason: str) -> None:
        """Somebody met it: count it, and say so if that was not said of late."""
        topic, now_s, now_ms = partition.topic.name, self._clock.monotonic(), self._clock.now_ms()
        self._reads.labels(topic).inc()
        self._newest.labels(topic).set(now_ms / 1000)
        key = (partition.handle, start)
        found = self._ranges.get(key)
        if found is None:
            named = (partition.handle, topic, partition.index)
            found = DamagedRange(*named, start, end, reason[:TEXT_MAX], now_ms, now_ms)
            self._ranges[key] = found
            if len(self._ranges) > RANGES_MAX:
                self._ranges.popitem(last=False)
        self._ranges.move_to_end(key)
        found.count += 1
        found.end, found.last_ms, found.reason = end, now_ms, reason[:TEXT_MAX]
        if found.count == 1 or now_s - found.told_s >= TOLD_AGAIN_S:
            self._tell(found, now_s)

    def keep(self, wanted: Callable[[str], bool]) -> None:
        """Have the metrics name no topic any more that is not wanted."""
        self._reads.keep(wanted)
        self._newest.keep(wanted)

    def ranges(self, state: State) -> list[DamagedRange]:
        """The damaged ranges that are in the way of readers, by topic, partition and offset."""
        left = [each for each in self._ranges.values() if _remains(state, each)]
        return sorted(left, key=lambda each: (each.topic, each.partition, each.start))

    def _tell(self, found: DamagedRange, now_s: float) -> None:
        if now_s - self._minute_s >= TOLD_AGAIN_S:
            self._minute_s, self._lines = now_s, 0
        self._lines += 1
        if self._lines > LINES_PER_MINUTE_MAX:
            return
        found.told_s = now_s
        _log.error(
            "records are damaged or lost",
            topic=found.topic,
            partition=found.partition,
            from_offset=found.start,
            to_offset=found.end,
            reason=found.reason,
            met=found.count,
            remedy=f"restore the object from the bucket's versions, or go on without these records: "
            f"floe topic skip-damaged {found.topic} --partition {found.partition}",
        )


def _remains(state: State, found: DamagedRange) -> bool:
    partition = state.partitions[found.handle] if found.handle < len(state.partitions) else None
    if partition is None or partition.held_start >= found.end:
        return False
    return not covered(max(found.start, partition.held_start), found.end, partition.skipped)
