"""How far latest tables are behind their topics, by what the log says, as iceberg/lag.py of topics' own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordination.clock import Clock
from coordination.state.types import Table, Topic
from iceberg.lag import TableLags
from iceberg.latest_ids import latest_id, latest_key, wanted

if TYPE_CHECKING:
    from coordination.replica import Replica


class LatestLags(TableLags):
    """Of all topics that shall have a latest table, made or not."""

    def __init__(self, replica: Replica, clock: Clock) -> None:
        super().__init__(replica, clock, "lags of latest tables")

    def _wanted(self, topic: Topic) -> tuple[tuple[str, str], Table | None] | None:
        state, own = self._replica.state, latest_id(topic.topic_id)
        if not wanted(topic, state.cluster_configs, state.feature_level):
            return None
        key = state.tables_by_topic.get(own, latest_key(topic))
        table = state.tables.get(key)
        return key, table if table is not None and table.topic_id == own else None
