"""The job that merges small slices into segments. Every agent runs it; they share the partitions by ranges.

A range is RANGE partition handles side by side, so that a chunk, in which partitions stand in the order of
their handles, is read in few requests. Who works on a range holds the claim `merging/<range>`; the agent that
the rendezvous hash names goes first, the others wait some looks, so that the work spreads and still outlives
any agent. A claim only saves doing the work twice: what a swap may do is decided when it is applied.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from itertools import groupby

from agent.background.rewriting.decisions import NOWHERE
from agent.background.rewriting.merging.merge import Outcome, Parts, Work, merge, plan, portions
from agent.background.rewriting.merging.planner import RANGE, Due, batches_of_work, due
from agent.background.rewriting.merging.spared import Unreadable
from agent.background.rewriting.patience import PUT_OFF_S, is_told, names_of, patience_s
from agent.background.rewriting.worker import Corrupt
from agent.cluster.hints import mix, rendezvous, seeds
from agent.telemetry.logs import logger
from agent.telemetry.metrics import Metrics
from coordination.commands import Claim, ReleaseClaim
from coordination.helper import HelperDied
from coordination.jobs import STORE_FAILURES_MAX, Job
from coordination.log import LogError
from coordination.state import ClaimHolder
from coordination.state.members import job_runners, runs_jobs
from coordination.state.types import Done
from coordination.steps import steps
from objectstore.merged import DamagedIndex
from objectstore.naming import SliceRef
from objectstore.reader import ChunkMissing
from objectstore.store import StoreError

_log = logger("merging")

TOLD_MAX = 20  # partitions that one line of the log names
PATIENCE = 3  # looks for which an agent leaves an unclaimed range to the one that goes first
OF_ONE = (Corrupt, HelperDied, ChunkMissing, DamagedIndex)  # errors that one partition's bytes can cause


class Merging(Job):
    """Looks at all partitions every `poll_s` and merges what is due in the ranges that are this agent's."""

    claim = "merging"  # with a range's number behind it

    def __init__(self, parts: Parts, metrics: Metrics, *, poll_s: float) -> None:
        super().__init__(parts.replica, poll_s)
        self._parts = parts
        self._spared = parts.spared
        self._metrics = metrics
        self._waited: dict[int, int] = {}  # range → looks for which it was due and nobody's
        self._put_off: dict[int, float] = {}  # handle → until when, by the event loop's time
        self._resting: dict[int, float] = {}  # range → until when it is left to other agents, likewise
        self._ranges_before: set[int] = set()  # in which there were partitions at the last look
        self._alone: set[int] = set()  # handles that failed among others: next time each by itself
        self._seen: dict[int, tuple[int, float]] = {}  # handle → its tail's first offset, since when

    async def stop(self) -> None:
        """End the loop, wherever it is, and the helper process."""
        await super().stop()
        await self._parts.worker.close()

    async def step(self, held: ClaimHolder) -> None:
        """Not used: `_look` takes a claim for each range of partitions instead of one for the job."""
        raise AssertionError("merging claims ranges one by one")

    async def _look(self) -> None:
        if not self.replica.ready:
            return
        for number in self._ranges():
            with self.item(f"range {number}"):
                await self._look_at(number)
            await asyncio.sleep(0)

    def _ranges(self) -> list[int]:
        """Ranges in which there are partitions now, and those in which there were some at the last look."""
        live = {number for number, count in enumerate(self.replica.state.live_in_range) if count}
        ranges, self._ranges_before = sorted(live | self._ranges_before), live
        return ranges

    async def _look_at(self, number: int) -> None:
        """Merge what is due in one range, if it is this agent's to do."""
        if not self.replica.state.live_in_range[number]:
            await self._forget(number)
            return
        now_s = asyncio.get_running_loop().time()
        claim = self.replica.state.claims.get(_claim_name(number))
        mine = claim is not None and claim.incarnation == self.replica.incarnation
        if claim is not None and not mine:  # another's: what is due there is for that one to find
            self._waited.pop(number, None)
            return
        found = self.due(number, now_s)
        if mine and self._chosen(number) != self.replica.node_id:
            await self._release(number)
        elif not found or self._resting.get(number, 0.0) > now_s:
            self._waited.pop(number, None)
        elif mine or (self._my_turn(number) and await self._claim(number)):
            await self._work(number, found)

    async def _forget(self, number: int) -> None:
        """All partitions of the range were deleted: nothing of them is kept here or in the claims."""
        self._waited.pop(number, None)
        self._resting.pop(number, None)
        for handle in range(number * RANGE, (number + 1) * RANGE):
            self._seen.pop(handle, None)
            self._spared.keep(handle, NOWHERE, NOWHERE)
            self._put_off.pop(handle, None)
            self._alone.discard(handle)
            self.item_worked(_item_name(handle))
        await self._release(number)

    def due(self, number: int, now_s: float) -> list[Due]:
        """What is to be merged in a range, in the order of the handles."""
        state, rules = self.replica.state, self._parts.rules
        threshold = rules.threshold(state.partition_count)
        found = []
        for handle in range(number * RANGE, min((number + 1) * RANGE, len(state.partitions))):
            partition = state.partitions[handle]
            if partition is None:
                self._seen.pop(handle, None)
                self.item_worked(_item_name(handle))
                continue
            first = partition.slices.first_offset
            if self._spared.keep(handle, partition.held_start, first, partition.skipped):
                self.item_worked(_item_name(handle))
            if not len(partition.slices):
                self._seen.pop(handle, None)
                continue
            if self._put_off.get(handle, 0.0) > now_s or self._spared.tail_until(handle, now_s) <= first:
                continue
            seen = self._seen.get(handle)
            if seen is None or seen[0] != first:
                seen = self._seen[handle] = (first, now_s)
            one = due(partition, threshold, rules, now_s - seen[1])
            if one is not None:
                found.append(one)
        return found

    def _chosen(self, number: int) -> int:
        """The node that goes first for a range."""
        willing = [each.node_id for each in job_runners(self.replica.state)]
        return rendezvous(mix(number + 1), seeds(willing))

    def _my_turn(self, number: int) -> bool:
        if not runs_jobs(self.replica.state, self.replica.incarnation):
            return False
        if self._chosen(number) == self.replica.node_id:
            return True
        self._waited[number] = self._waited.get(number, 0) + 1
        return self._waited[number] > PATIENCE

    async def _release(self, number: int) -> None:
        """Let another agent have the range."""
        claim = self.replica.state.claims.get(_claim_name(number))
        if claim is not None and claim.incarnation == self.replica.incarnation:
            release = ReleaseClaim(name=_claim_name(number), claim_revision=claim.revision)
            await self.replica.propose(release, incarnation=claim.incarnation)

    @steps("merge/claim")
    async def _claim(self, number: int) -> bool:
        """Take a range that nobody has; False when another agent was quicker."""
        claim = Claim(name=_claim_name(number))
        self._waited.pop(number, None)
        return isinstance(await self.replica.propose(claim, incarnation=self.replica.incarnation), Done)

    async def _work(self, number: int, found: Sequence[Due]) -> None:
        """Merge what is due, group by group. A range in which nothing succeeds is left to another agent."""
        incarnation, bytes_max = self.replica.incarnation, self._parts.rules.segment_bytes
        good = bad = away = 0
        for group in batches_of_work(found, bytes_max, frozenset(self._alone)):
            handles = [each.handle for each in group]
            try:
                for works in portions(await plan(self._parts, group, incarnation), bytes_max):
                    handles = [work.partition.handle for work in works]
                    outcome = await merge(self._parts, works, incarnation)
                    self._note(outcome)
                    self._merged([work for work in works if work.partition.handle not in outcome.failed])
                    bad += self._refused(outcome)
                    good, away = good + (len(outcome.failed) < len(works)), 0
            except LogError:
                raise
            except Unreadable as error:  # the next look goes around it
                self._spare(error)
                away = 0
            except Exception as error:  # whatever it is, other partitions have nothing to do with it
                away = self._failed(handles, error, away)
                if away == STORE_FAILURES_MAX:
                    bad += 1
                    break
                bad += self._set_aside(handles)
        if bad and not good:
            self._resting[number] = asyncio.get_running_loop().time() + PUT_OFF_S
            await self._release(number)

    def _failed(self, handles: Sequence[int], error: Exception, away: int) -> int:
        """Tell it. How many in a row the store begins to fail for (coordination/jobs.py); `away`: before."""
        known = all(_item_name(handle) in self.failures for handle in handles)
        self._tell(handles, error)
        return away + (not known) if isinstance(error, StoreError) and not isinstance(error, OF_ONE) else 0

    def _refused(self, outcome: Outcome) -> int:
        """Tell and put off what the log would refuse at the next look as well. How many."""
        for handle, error in outcome.failed.items():
            self._tell([handle], error)
            self._set_aside([handle])
        return len(outcome.failed)

    def _set_aside(self, handles: Sequence[int]) -> bool:
        """Find out whose bytes are wrong: they must not keep the others from merging. Whether it is known."""
        if len(handles) > 1:
            self._alone.update(handles)
            return False
        failure = self.failures.get(_item_name(handles[0]))
        wait_s = patience_s(failure.count if failure is not None else 1)
        self._put_off[handles[0]] = asyncio.get_running_loop().time() + wait_s
        return True

    def _merged(self, works: Sequence[Work]) -> None:
        """These partitions' pieces were read: what is known against them, and what is left of that."""
        for work in works:
            handle = work.partition.handle
            self._alone.discard(handle)
            self._spared.read(handle, work.refs[0].base_offset, work.step.taken.end_offset)
            if not self._spared.holds_up(handle):
                self.item_worked(_item_name(handle))

    def _spare(self, error: Unreadable) -> None:
        """Leave these pieces where they are. One that is gone was perhaps swapped by another agent."""
        self._metrics.merges_failed.inc()
        now_s = asyncio.get_running_loop().time()
        for handle, found in groupby(sorted(error.pieces, key=_place), key=lambda each: each[0]):
            refs = [ref for _, ref in found]
            self.item_failed(_item_name(handle), error, self.without_partition(handle), level=0)
            partition = self.replica.state.partitions[handle]
            if partition is None:
                continue
            count = max(self._spared.note(handle, ref, now_s, partition.skipped) for ref in refs)
            if is_told(count):
                level = _log.info if error.gone and count == 1 else _log.warning
                level(
                    "records cannot be read, and stay as they are",
                    topic=partition.topic.name,
                    partition=partition.index,
                    from_offset=refs[0].base_offset,
                    to_offset=refs[-1].end_offset,
                    reason=str(error),
                    tries=count,
                )

    def _tell(self, handles: Sequence[int], error: Exception) -> None:
        """Objects that are gone were swapped by another; everything else is worth a look."""
        self._metrics.merges_failed.inc()
        state, level = (
            self.replica.state,
            logging.INFO if isinstance(error, ChunkMissing) else logging.WARNING,
        )
        if len(handles) == 1:
            names, gone = names_of(state, handles[0]), self.without_partition(handles[0])
            self.item_failed(_item_name(handles[0]), error, gone, level=level, fields=names)
            return
        partitions = [names_of(state, handle) for handle in handles[:TOLD_MAX]]
        text = f"{type(error).__name__}: {error}"
        _log.log(level, "merging given up for now", partitions=partitions, of=len(handles), error=text)

    def _note(self, done: Outcome) -> None:
        metrics = self._metrics
        metrics.merge_swaps.inc(len(done.swapped))
        metrics.merge_refused.inc(len(done.refused) + len(done.failed))
        metrics.merge_rows.inc(done.rows)
        metrics.merge_bytes.inc(done.read_bytes)
        metrics.merge_rewritten_bytes.inc(done.rewritten_bytes)
        metrics.merge_gets.inc(done.gets)
        _log.debug("merged", partitions=len(done.swapped), rows=done.rows, bytes=done.read_bytes)


def _place(piece: tuple[int, SliceRef]) -> tuple[int, int]:
    return piece[0], piece[1].base_offset


def _item_name(handle: int) -> str:
    return f"partition {handle}"


def _claim_name(number: int) -> str:
    return f"{Merging.claim}/{number}"
