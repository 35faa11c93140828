"""How far consumer groups are behind, by what the log says: any agent can tell, whoever coordinates them.

Records: offsets between a group's stored position and the partition's high watermark, as Kafka's own tools
tell it (markers of transactions count too). Time: since when this agent has seen a record that the group has
not passed: never longer than it is so, and shorter just after the agent's start: ask for the most that any
agent says. A group without a position of a partition is not behind there: nobody knows where it would begin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import nlargest

from agent.telemetry.lag_history import LagHistory
from agent.telemetry.metrics import Metrics
from coordination.behind import Marks, marked
from coordination.clock import Clock
from coordination.replica import Replica
from coordination.state.group_types import OffsetTable
from coordination.state.types import Partition
from iceberg.looking import Looking

LOOK_S = 10.0
"""Between two looks at all groups, seconds."""
POSITIONS_STEP = 1_000
"""Groups and positions looked at before the event loop gets a turn: about a millisecond."""

Place = tuple[str, int]
"""A group, and a partition's handle."""


class GroupLags(Looking):
    """Looks at all groups every LOOK_S; `named_max` (telemetry.groups_max) groups and topics are told of.

    Of more are named those that are latest, and of these those with most records to read. 0: it never looks.
    """

    def __init__(
        self,
        replica: Replica,
        clock: Clock,
        metrics: Metrics,
        named_max: int,
        history: LagHistory | None = None,
    ) -> None:
        """`history`: who remembers what each look found."""
        super().__init__(replica, "lags of groups", LOOK_S)
        self._clock, self._history = clock, history
        self._now, self._metrics, self._named_max = clock.monotonic, metrics, named_max
        self._found: list[tuple[float, int, str, str]] = []  # seconds, records, group, topic
        self._marks: dict[Place, Marks] = {}
        self._looked = 0
        metrics.before_reading.append(self._refresh)

    def start(self) -> None:
        """See Looking."""
        if self._named_max:
            super().start()

    async def look(self) -> None:
        """See Looking."""
        marks: dict[Place, Marks] = {}
        found: list[tuple[float, int, str, str]] = []
        for name in list(self._replica.state.groups):
            await self._others()
            group = self._replica.state.groups.get(name)
            if group is not None:
                found += await self._group(name, group.offsets, marks)
        self._found, self._marks = nlargest(self._named_max, found), marks
        if self._history is not None:
            told = ((records, group, topic) for _, records, group, topic in found)
            self._history.note(told, self._now(), self._clock.now_ms())

    async def _group(
        self, name: str, table: OffsetTable, marks: dict[Place, Marks]
    ) -> list[tuple[float, int, str, str]]:
        """One group, by topic. Positions may come and go between two steps: they are looked up by handle."""
        topics: dict[str, tuple[float, int]] = {}
        for handle in list(table):
            await self._others()
            position, partition = table.get(handle), self._replica.state.partitions[handle]
            if position is None or partition is None:
                continue
            records, seconds = self._behind((name, handle), partition, position.offset, marks)
            worst_s, sum_ = topics.get(partition.topic.name, (0.0, 0))
            topics[partition.topic.name] = max(worst_s, seconds), sum_ + records
        return [(seconds, records, name, topic) for topic, (seconds, records) in topics.items()]

    async def _others(self) -> None:
        """Before one more group or position is looked at: others have their turn when it is time."""
        self._looked += 1
        if self._looked >= POSITIONS_STEP:
            self._looked = 0
            await asyncio.sleep(0)

    def _behind(
        self, place: Place, partition: Partition, offset: int, marks: dict[Place, Marks]
    ) -> tuple[int, float]:
        """(records, seconds)."""
        taken, end = max(offset, partition.log_start), partition.high_watermark
        if end <= taken:
            return 0, 0.0
        now_s = self._now()
        marks[place] = known = marked(self._marks.get(place, ()), taken, end, now_s, len(marks))
        return end - taken, now_s - known[0][0]

    def _refresh(self) -> None:
        records, seconds = self._metrics.group_lag_records, self._metrics.group_lag_seconds
        records.clear()
        seconds.clear()
        there: Callable[[str], bool] = self._replica.state.groups.__contains__
        for behind_s, behind, group, topic in self._found:
            if there(group):
                records.labels(group, topic).set(behind)
                seconds.labels(group, topic).set(behind_s)
