"""How far every table is behind its topic, by what the log says: any agent can tell, whoever commits.

Also of a table that was never made, and of one that nobody commits. Rows: committed offsets that the table
has not taken (markers of transactions count too). Time: since when this agent has seen a record that the
table lacks: never longer than it has, and a part shorter while it goes on and stays far behind. An agent that
has just started knows nothing of before: ask for the most that any agent says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coordination.behind import Marks, marked
from coordination.clock import Clock
from coordination.state.types import Partition, Table, Topic
from iceberg.head import enabled, place
from iceberg.looking import Looking

if TYPE_CHECKING:
    from coordination.replica import Replica

LOOK_S = 10.0
"""Between two looks at all tables, seconds."""
PARTITIONS_STEP = 1_000
"""Partitions looked at before the event loop gets a turn: about a millisecond."""


@dataclass(frozen=True, slots=True)
class Lag:
    """A topic's table, `made` or not. `seconds`: age of the oldest record it lacks; 0 when it lacks none."""

    table: str
    made: bool
    rows: int
    seconds: float


class TableLags(Looking):
    """Looks at all tables every LOOK_S. What it remembers is no more than the state's partitions."""

    def __init__(self, replica: Replica, clock: Clock, name: str = "lags of tables") -> None:
        self.now: dict[str, Lag] = {}
        """By topic that wants a table: as it was at the last look."""
        super().__init__(replica, name, LOOK_S)
        self._clock = clock
        self._marks: dict[int, Marks] = {}  # by handle, of partitions that are behind
        self._looked = 0

    async def look(self) -> None:
        """See Looking."""
        state = self._replica.state
        found: dict[str, Lag] = {}
        marks: dict[int, Marks] = {}
        for topic in list(state.topics.values()):
            wanted = self._wanted(topic)
            if wanted is not None:
                found[topic.name] = await self._lag(topic, *wanted, marks)
        self.now, self._marks = found, marks

    def _wanted(self, topic: Topic) -> tuple[tuple[str, str], Table | None] | None:
        """The name of the table that the topic shall have, and that table once it is made; None for none."""
        state = self._replica.state
        if not enabled(topic, state.cluster_configs):
            return None
        key = place(state, topic)
        table = state.tables.get(key)
        own = table is not None and table.topic == topic.name and table.topic_id in (topic.topic_id, b"")
        return key, table if own else None

    async def _lag(
        self, topic: Topic, key: tuple[str, str], table: Table | None, marks: dict[int, Marks]
    ) -> Lag:
        done = table.next_offsets if table is not None else ()
        rows, oldest_s, now_s = 0, None, self._clock.monotonic()
        for start in range(0, len(topic.partitions), PARTITIONS_STEP):
            some = topic.partitions[start : start + PARTITIONS_STEP]
            self._looked += len(some) + 1
            if self._looked > PARTITIONS_STEP:
                self._looked = 0
                await asyncio.sleep(0)
            for partition in some:
                lacked, since_s = self._partition(partition, done, now_s, marks)
                rows += lacked
                if lacked and (oldest_s is None or since_s < oldest_s):
                    oldest_s = since_s
        return Lag(".".join(key), table is not None, rows, 0.0 if oldest_s is None else now_s - oldest_s)

    def _partition(
        self, partition: Partition, done: Sequence[int], now_s: float, marks: dict[int, Marks]
    ) -> tuple[int, float]:
        """(rows that the table lacks, since when one of them has been seen)."""
        taken = max(done[partition.index] if partition.index < len(done) else 0, partition.log_start)
        end = partition.last_stable
        if end <= taken:
            return 0, now_s
        known = marked(self._marks.get(partition.handle, ()), taken, end, now_s, len(marks))
        marks[partition.handle] = known
        return end - taken, known[0][0]
