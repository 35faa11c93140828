"""The job that moves log starts by `retention.ms` and `retention.bytes`. One agent holds the claim.

A pass begins with a read barrier, so that a config that was changed through another agent counts. It looks at
the first piece of each partition and goes further only where that one goes; a manifest is read only then.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Iterable, Mapping

from agent.background.retention.planner import Piece, Rules, merged_pieces, new_start, rules_of, tail_pieces
from agent.telemetry.logs import logger
from agent.telemetry.metrics import Metrics
from coordination import broker_configs
from coordination.clock import Clock
from coordination.commands import MoveLogStart
from coordination.jobs import Job
from coordination.replica import Replica
from coordination.replica.clock_watch import deletion_ms
from coordination.state import ClaimHolder
from coordination.state.topics import MOVES_MAX
from coordination.state.types import Done, Merged, Partition, Refused
from objectstore.merged import DamagedIndex, MergedRanges
from objectstore.reader import ChunkMissing
from objectstore.store import StoreError

_log = logger("retention")

POLL_S = 1.0  # how often the interval is looked at
LOOKS_MAX = 500  # topics and partitions looked at before the event loop gets a turn
INTERVAL = "log.retention.check.interval.ms"


class LogRetention(Job):
    """One pass over all topics each `log.retention.check.interval.ms`."""

    claim = "retention"

    def __init__(
        self,
        replica: Replica,
        ranges: MergedRanges,
        clock: Clock,
        metrics: Metrics,
        *,
        poll_s: float = POLL_S,
    ) -> None:
        super().__init__(replica, poll_s)
        self._ranges = ranges
        self._clock = clock
        self._metrics = metrics
        self._now_ms = 0  # by which a pass judges
        self._passed_s = -math.inf  # when the last pass was made, by the event loop's time

    async def step(self, held: ClaimHolder) -> None:
        """A pass when it is time for one."""
        now_s = asyncio.get_running_loop().time()
        interval_ms = broker_configs.integer(self.replica.state.cluster_configs, INTERVAL)
        if now_s < self._passed_s + interval_ms / 1000:
            return
        await self.run(held)
        self._passed_s = now_s

    async def run(self, held: ClaimHolder) -> None:
        """One pass. Raises LogError and StoreError."""
        await self.replica.barrier()
        state = self.replica.state
        self._now_ms = deletion_ms(state, self._clock.now_ms())
        moves: dict[int, int] = {}
        try:
            await self._look_through(moves, held)
        except (StoreError, TimeoutError):  # it is away; what was found without it goes all the same
            await self._move(moves, held)
            raise
        await self._move(moves, held)

    async def _look_through(self, moves: dict[int, int], held: ClaimHolder) -> None:
        """Find what moves, and move it as soon as it is enough for a command; `moves` holds the rest."""
        looks = 0
        for name in list(self.replica.state.topics):
            looks = await self._looked(looks)
            topic = self.replica.state.topics.get(name)
            if topic is None:
                continue
            rules = rules_of(topic.configs, self.replica.state.cluster_configs)
            for partition in [] if rules.keeps_all else list(topic.partitions):
                with self.item(f"{name}-{partition.index}", self.without_partition(partition.handle)):
                    start = await self._new_start(partition, rules)
                    if start > partition.log_start:
                        moves[partition.handle] = start
                if len(moves) == MOVES_MAX:
                    await self._move(moves, held)
                    moves.clear()
                looks = await self._looked(looks)

    async def _looked(self, looks: int) -> int:
        """One more; others have their turn when it is time."""
        if (looks + 1) % LOOKS_MAX == 0:
            await asyncio.sleep(0)
        return looks + 1

    async def _new_start(self, partition: Partition, rules: Rules) -> int:
        """How far the partition's log start moves; the manifest is read when its first segment goes."""
        now_ms, merged = self._now_ms, partition.merged
        if merged is None:
            return new_start(tail_pieces(partition), partition.log_start, partition.size_bytes, rules, now_ms)
        if merged.segments and not _first_goes(partition, merged, rules, now_ms):
            return partition.log_start
        manifest_item = f"manifest of {partition.topic.name}-{partition.index}"
        try:
            manifest = await self._ranges.manifest(merged.manifest)
            older: Iterable[Piece] = merged_pieces(manifest)
            self.item_worked(manifest_item)
        except (ChunkMissing, DamagedIndex) as error:
            # Replaced meanwhile, and the next pass sees the new one; or lost, and goes as a whole.
            if partition.merged is merged:
                self.item_failed(manifest_item, error, self.without_partition(partition.handle))
            older = [Piece(merged.end_offset, merged.size_bytes, merged.max_timestamp_ms)]
        if partition.merged is not merged:
            return partition.log_start
        pieces = itertools.chain(older, tail_pieces(partition))  # one by one: it looks at few of a million
        return new_start(pieces, partition.log_start, partition.size_bytes, rules, now_ms)

    async def _move(self, moves: Mapping[int, int], held: ClaimHolder) -> None:
        if not moves:
            return
        move = MoveLogStart(partition=list(moves), offset=list(moves.values()), judged_ms=self._now_ms)
        result = await self.replica.propose(move, incarnation=held.incarnation)
        if isinstance(result, Refused):
            _log.warning("log starts stay", reason=result.message)
        moved = len(moves) if isinstance(result, Done) else 0
        self._metrics.log_starts_moved.inc(moved)
        _log.info("moved log starts", partitions=moved)


def _first_goes(partition: Partition, merged: Merged, rules: Rules, now_ms: int) -> bool:
    """Whether the first segment goes, from what the state knows of it; one without a timestamp may, and where
    it is held it says nothing of those behind it.
    """
    first = Piece(merged.first_end_offset, merged.first_size_bytes, merged.first_max_timestamp_ms)
    if first.max_timestamp_ms < 0 or first.end_offset <= partition.log_start:
        return True
    return new_start([first], -1, partition.size_bytes, rules, now_ms) >= 0
