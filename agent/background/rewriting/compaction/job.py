"""The job that compacts topics with `cleanup.policy=compact`. Every agent runs it; they share the partitions.

Who compacts a partition holds the claim `compaction/<handle>`, so that two agents do not do the same work.
Two that both believe to hold it do no harm: one swap is refused. Each agent compacts one partition at a time,
in a helper process at low priority.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator

from agent.background.rewriting.compaction.choice import CLAIM, Due, Rules, all_due, claim_of
from agent.background.rewriting.compaction.partition import Compacted, Outrun, PartitionCompaction, Parts
from agent.background.rewriting.patience import PUT_OFF_S, names_of, patience_s
from agent.telemetry.logs import logger
from agent.telemetry.metrics import Metrics
from coordination import broker_configs
from coordination.commands import Claim, ReleaseClaim
from coordination.jobs import Job
from coordination.kafka_codes import Code
from coordination.log import LogError
from coordination.replica.clock_watch import deletion_ms
from coordination.state import ClaimHolder
from coordination.state.members import runs_jobs
from coordination.state.types import Done, Refused, Topic
from coordination.steps import reach
from objectstore.offset_map import ENTRY_BYTES

_log = logger("compaction")

POLL_S = 1.0
TOPICS_STEP = 200  # topics looked at before the event loop gets a turn, …
PARTITIONS_STEP = 50  # … and partitions of one
BACKOFF = "log.cleaner.backoff.ms"
MAP_BYTES = "log.cleaner.dedupe.buffer.size"
KEYS_MIN = 1_000  # whatever the setting says
PUT_OFF_MAX = 100_000  # partitions left alone that are remembered


class Compaction(Job):
    """Compacts whatever is due, the overdue and the dirtiest first."""

    claim = CLAIM

    def __init__(
        self, parts: Parts, metrics: Metrics, *, dirty_bytes_min: int, poll_s: float = POLL_S
    ) -> None:
        super().__init__(parts.replica, poll_s)
        self._parts = parts
        self._metrics = metrics
        self._dirty_bytes_min = dirty_bytes_min
        self._idle_s = -math.inf  # since when there has been nothing to do, by the event loop's time
        self._put_off: dict[int, float] = {}  # handle → until when, likewise
        self._asked: dict[int, int] = {}  # handle → the incarnation that asked for its claim and may hold it

    async def stop(self) -> None:
        """End the loop, wherever it is, and the helper process."""
        await super().stop()
        await self._parts.worker.close()

    async def step(self, held: ClaimHolder) -> None:
        """Not used: `_look` takes a claim for each partition instead of one for the job."""
        raise AssertionError("compaction claims partitions one by one")

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        await self._release_strays()
        backoff_ms = broker_configs.integer(self.replica.state.cluster_configs, BACKOFF)
        if not self._may_work() or loop.time() < self._idle_s + backoff_ms / 1000:
            return
        while self._may_work() and (chosen := await self._choose()) is not None:
            await self.compact(chosen.handle)
        await self._parts.worker.close()  # nothing to do for a while: its memory is given back
        self._idle_s = loop.time()

    def _may_work(self) -> bool:
        replica = self.replica
        return replica.ready and not replica.clock_watch.off and runs_jobs(replica.state, replica.incarnation)

    async def _choose(self) -> Due | None:
        """The partition that goes first of those that nobody compacts."""
        now_ms = deletion_ms(self.replica.state, self._parts.clock.now_ms())
        now_s = asyncio.get_running_loop().time()
        self._put_off = {handle: until for handle, until in self._put_off.items() if until > now_s}
        best: Due | None = None
        for number, name in enumerate(list(self.replica.state.topics)):
            topic = self.replica.state.topics.get(name)
            with self.item(f"topic {name}", self._without(name)):
                for looked, each in enumerate(self._due(topic, now_ms) if topic is not None else ()):
                    if looked % PARTITIONS_STEP == PARTITIONS_STEP - 1:
                        await asyncio.sleep(0)
                    if each is not None and each.handle not in self._put_off and not self._taken(each.handle):
                        best = max(best, each) if best is not None else each
            if number % TOPICS_STEP == TOPICS_STEP - 1:
                await asyncio.sleep(0)
        return best

    def _due(self, topic: Topic, now_ms: int) -> Iterator[Due | None]:
        state, tables = self.replica.state, self._parts.tables
        return all_due(state, topic, self._dirty_bytes_min, now_ms, tables=tables)

    def _without(self, topic: str) -> Callable[[], bool]:
        """Tells whether that topic is gone."""
        return lambda: topic not in self.replica.state.topics

    def _taken(self, handle: int) -> bool:
        """Whether another live agent compacts the partition."""
        holder = self.replica.state.claims.get(claim_of(handle))
        return holder is not None and holder.incarnation != self.replica.incarnation

    async def compact(self, handle: int) -> Compacted | None:
        """Compact one partition under its claim; None when there was nothing to do or it is another's."""
        incarnation = self.replica.incarnation
        reach("compact/claim")
        self._asked[handle] = incarnation
        claimed = await self.replica.propose(Claim(name=claim_of(handle)), incarnation=incarnation)
        if not isinstance(claimed, Done):
            del self._asked[handle]
            self._leave_alone(handle, PUT_OFF_S)
            if isinstance(claimed, Refused) and claimed.code is not Code.NOT_COORDINATOR:  # not another's
                self._tell(handle, ValueError(f"claim refused: {claimed.code.name}: {claimed.message}"))
            return None
        done: Compacted | None = None
        outrun = False
        begun_s = asyncio.get_running_loop().time()
        try:
            done = await self._compact(handle, incarnation)
            self.item_worked(f"partition {handle}")
        except Outrun:  # merging was first, and collection behind it
            outrun = True
        except LogError as error:
            _log.warning(
                "compaction given up for now", **names_of(self.replica.state, handle), error=repr(error)
            )
        except Exception as error:  # whatever it is, other partitions have nothing to do with it
            self._metrics.compactions_failed.inc()
            self._tell(handle, error)
        finally:
            took_s = asyncio.get_running_loop().time() - begun_s
            if outrun or (done is not None and not done.swapped):
                self._leave_alone(handle, min(PUT_OFF_S, took_s))  # half of the work counts
            elif done is None:
                failure = self.failures.get(f"partition {handle}")
                self._leave_alone(handle, patience_s(failure.count if failure is not None else 1))
            await self._release(handle, incarnation)
        return done

    async def _release_strays(self) -> None:
        """Give back what was not: the log was away, or an answer lost. Merging keeps off what is claimed."""
        if not self.replica.ready:
            return
        for handle, incarnation in list(self._asked.items()):
            await self._release(handle, incarnation)

    async def _release(self, handle: int, incarnation: int) -> None:
        """Give back a partition's claim; it is remembered until the log says so, or its holder ended."""
        replica = self.replica
        holder = replica.state.claims.get(claim_of(handle))
        if incarnation == replica.incarnation:
            if holder is None:
                return  # what was asked for may still be on its way
            if holder.incarnation == incarnation:
                release = ReleaseClaim(name=claim_of(handle), claim_revision=holder.revision)
                await replica.propose(release, incarnation=incarnation)
        self._asked.pop(handle, None)

    async def _compact(self, handle: int, incarnation: int) -> Compacted | None:
        partition = self.replica.state.partitions[handle]
        if partition is None:
            return None
        cluster = self.replica.state.cluster_configs
        keys_max = max(KEYS_MIN, broker_configs.integer(cluster, MAP_BYTES) // ENTRY_BYTES)
        rules = Rules.of(partition.topic.configs, cluster, self._dirty_bytes_min)
        done = await PartitionCompaction(self._parts, partition, rules, incarnation, keys_max).run()
        if done is not None and done.swapped:
            self._note(partition.topic.name, partition.index, done)
        return done

    def _tell(self, handle: int, error: Exception) -> None:
        """What failed again and again is seen in the status; of a row of failures few get a line."""
        gone = self.without_partition(handle)
        self.item_failed(f"partition {handle}", error, gone, fields=names_of(self.replica.state, handle))

    def _note(self, topic: str, index: int, done: Compacted) -> None:
        counts = done.counts
        self._metrics.compacted_bytes.inc(counts.bytes_in)
        self._metrics.compacted_away_bytes.inc(max(0, counts.bytes_in - counts.bytes_out))
        _log.info(
            "compacted",
            topic=topic,
            partition=index,
            to_offset=done.cleaned_to,
            records=counts.records_in,
            records_left=counts.records_out,
            bytes=counts.bytes_in,
            bytes_left=counts.bytes_out,
            unreadable_batches=counts.unreadable,
        )

    def _leave_alone(self, handle: int, seconds: float) -> None:
        while len(self._put_off) >= PUT_OFF_MAX:
            del self._put_off[next(iter(self._put_off))]
        self._put_off[handle] = asyncio.get_running_loop().time() + seconds
