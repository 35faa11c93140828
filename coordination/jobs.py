"""Jobs that one agent does for the cluster: held by a claim in the state, fenced like everything else.

Every agent runs every job's loop; a claim decides who acts. A claim ends with its holder's incarnation,
so another agent takes the job over after a death. Agents without the role background take none while one
with it lives. Two agents may act for a moment (the old holder has
not heard yet), so each job's effects must be safe under that: they go through the log.

What a job may catch: whatever concerns one item of its work (a partition, a topic, a group, a kind of
object) is noted against that item, and the pass goes on to the others: `Job.item`. The log concerns all of
them, and so does a store that fails for many in a row: these end the pass, which is tried again. An item for
which it failed before does not count among these: objects that never can be read must not keep each pass from
what stands behind them.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from coordination.broker_configs import integer
from coordination.clock import Clock
from coordination.commands import Claim, ExpireProducers, ReleaseClaim
from coordination.log import LogError
from coordination.replica import Replica
from coordination.replica.clock_watch import deletion_ms
from coordination.state import ClaimHolder
from coordination.state.data import HANDLE_RANGE
from coordination.state.levels import NAMED_PRODUCERS
from coordination.state.members import runs_jobs
from coordination.state.producers import is_idle
from coordination.state.types import Partition
from coordination.trouble import Trouble, Troubles
from objectstore import coalesced, tasks
from objectstore.store import Ambiguous, Denied, Retryable, StoreError

_logger = logging.getLogger("floe.coordination.jobs")

FAILURES_MAX = 1_000  # items whose failure is remembered, of one job; the oldest are forgotten
STORE_FAILURES_MAX = 3  # items in a row that the store begins to fail for before a pass ends: it is away
TEXT_MAX = 500  # characters of an error

_NO_FIELDS: Mapping[str, object] = {}


@dataclass(slots=True)
class ItemFailure:
    """An item that failed at every try since then: how often, and with what at last.

    `since_s`, `last_s`: the event loop's time of the first and the last of these failures, seconds.
    `gone`: whether the item is there no more, so that nobody will work on it again.
    """

    since_s: float
    last_s: float
    count: int
    error: str
    gone: Callable[[], bool]


def _stays() -> bool:
    """Of an item that can always be worked on again."""
    return False


class Job(ABC):
    """A loop that holds `claim` when nobody else does, and calls step() while it holds it."""

    claim: str
    expected: tuple[type[Exception], ...] = (StoreError, ValueError, TimeoutError)
    """Failures of an item that are told without where in the code they came from."""

    def __init__(self, replica: Replica, poll_s: float) -> None:
        self.replica = replica
        self._poll_s = poll_s
        self._task: asyncio.Task[None] | None = None
        self._store_failures = 0  # items in a row that the store failed for, and had not failed for before
        self.failures: dict[str, ItemFailure] = {}
        """Items that failed when they were last worked on, by name."""
        self.troubles: Troubles | None = None
        """Is told of every failure, and of the success after it."""

    @abstractmethod
    async def step(self, held: ClaimHolder) -> None:
        """One look at what is to be done. LogError and StoreError are logged and tried again."""

    def start(self) -> None:
        """Begin the loop."""
        self._task = tasks.kept(self._run, f"job {self.claim}")

    async def stop(self) -> None:
        """End the loop, wherever it is. The claim goes with the incarnation."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def held(self) -> ClaimHolder | None:
        """This agent's hold on the job, as far as it knows."""
        holder = self.replica.state.claims.get(self.claim)
        if holder is None or not self.replica.ready or holder.incarnation != self.replica.incarnation:
            return None
        return holder

    @contextmanager
    def item(self, name: str, gone: Callable[[], bool] = _stays) -> Iterator[None]:
        """Work on one item: its failure is noted and goes no further, unless it concerns all items.

        `gone`: see ItemFailure.
        """
        try:
            yield
        except LogError:
            raise
        except Exception as error:
            known = name in self.failures
            self.item_failed(name, error, gone)
            away = isinstance(error, Retryable | Ambiguous | Denied | TimeoutError)
            self._store_failures = self._store_failures + (not known) if away else 0
            if self._store_failures >= STORE_FAILURES_MAX:
                self._store_failures = 0
                raise
        else:
            self._store_failures = 0
            self.item_worked(name)

    def without_partition(self, handle: int) -> Callable[[], bool]:
        """Tells whether that partition is gone: `gone` of an item that is about it."""
        return lambda: self.replica.state.partitions[handle] is None

    def item_worked(self, name: str) -> None:
        """Forget that an item failed, and tell that it does no more, or that it is there no more."""
        failure = self.failures.pop(name, None)
        if failure is not None:
            lasted_s = round(asyncio.get_running_loop().time() - failure.since_s, 1)
            told = {"job": self.claim, "item": name, "times": failure.count, "lasted_s": lasted_s}
            gone = failure.gone()
            event = "an item that failed is there no more" if gone else "an item fails no more"
            _logger.info(event, extra={"fields": told})

    def item_failed(
        self,
        name: str,
        error: Exception,
        gone: Callable[[], bool] = _stays,
        *,
        level: int = logging.WARNING,
        fields: Mapping[str, object] = _NO_FIELDS,
    ) -> None:
        """Note that an item failed; `item` does it.

        The first, second, fourth, eighth … failure in a row is a line of the log, with `fields`; not so with
        level 0: the caller tells it.
        """
        text = f"{type(error).__name__}: {error}"[:TEXT_MAX]
        failure, now_s = self.failures.get(name), asyncio.get_running_loop().time()
        if failure is None:
            while len(self.failures) >= FAILURES_MAX:
                del self.failures[next(iter(self.failures))]
            failure = self.failures[name] = ItemFailure(now_s, now_s, 0, text, gone)
        failure.count, failure.error, failure.last_s = failure.count + 1, text, now_s
        if level and failure.count.bit_count() == 1:
            told = {"job": self.claim, "item": name, **fields, "error": text, "times": failure.count}
            where = None if isinstance(error, self.expected) else error
            _logger.log(level, "an item is passed over", exc_info=where, extra={"fields": told})

    async def _run(self) -> None:
        while True:
            try:
                await self._look()
                self._outcome(None)
            except (LogError, StoreError, TimeoutError) as error:
                if self.troubles is None:
                    _logger.warning("job %s: %s: %s", self.claim, type(error).__name__, error)
                self._outcome(error)
            except Exception as error:  # a defect: it is told, and the job does not end in silence
                _logger.exception("job %s: this should not happen", self.claim)
                self._outcome(error)
            await asyncio.sleep(coalesced.pause_s(self._poll_s))

    def _outcome(self, error: Exception | None) -> None:
        """Note how a look ended."""
        if self.troubles is None:
            return
        if error is None:
            self.troubles.worked(self.claim)
        else:
            self.troubles.failed(self.claim, error)

    def failing_items(self, now_ms: int) -> Iterator[Trouble]:
        """The items that failed when they were last worked on. `now_ms`: the wall clock, Unix ms.

        What is there no more fails nobody any more: it is forgotten.
        """
        for name in [name for name, item in self.failures.items() if item.gone()]:
            self.item_worked(name)
        now_s = asyncio.get_running_loop().time()
        for name, item in self.failures.items():
            since_ms, last_ms = (now_ms - int((now_s - at) * 1000) for at in (item.since_s, item.last_s))
            yield Trouble(f"{self.claim}: {name}", since_ms, last_ms, item.count, item.error)

    async def _look(self) -> None:
        if self.replica.clock_watch.off or not runs_jobs(self.replica.state, self.replica.incarnation):
            await self._give_up()
            return
        if self.claim not in self.replica.state.claims and self.replica.ready:
            await self.replica.propose(Claim(name=self.claim), incarnation=self.replica.incarnation)
        held = self.held()
        if held is not None:
            await self.step(held)
        elif self.replica.ready:  # whoever holds it tells what fails
            self.failures.clear()

    async def _give_up(self) -> None:
        """Leave the job to agents whose role it is."""
        self.failures.clear()
        held = self.held()
        if held is not None:
            release = ReleaseClaim(name=self.claim, claim_revision=held.revision)
            await self.replica.propose(release, incarnation=held.incarnation)


class ProducerExpiry(Job):
    """Forgets idempotent producers that wrote nothing for the cluster's producer.id.expiration.ms.

    Looks for them itself, in steps, and names a bounded number in each command.
    """

    claim = "producer-expiry"
    NAMED_MAX = 1000  # producers that one command names
    LOOKED_AT = 4096  # producers and partitions between two moments at which others run
    RANGE = 2000  # below level 2: partitions in one command

    def __init__(self, replica: Replica, clock: Clock, *, poll_s: float = 600.0) -> None:
        super().__init__(replica, poll_s)
        self._clock = clock
        self._looked_at = 0

    async def step(self, held: ClaimHolder) -> None:
        """One pass over all partitions."""
        state = self.replica.state
        idle_ms = integer(state.cluster_configs, "producer.id.expiration.ms")
        since = deletion_ms(state, self._clock.now_ms()) - idle_ms
        if state.feature_level < NAMED_PRODUCERS:
            for first in range(0, len(state.partitions), self.RANGE):
                ranged = ExpireProducers(idle_since_ms=since, first_partition=first, partitions=self.RANGE)
                await self.replica.propose(ranged, incarnation=held.incarnation)
            return
        named = ExpireProducers(idle_since_ms=since)
        async for handle, producer_id in self._idle(since):
            named.partition.append(handle)
            named.producer_id.append(producer_id)
            if len(named.producer_id) == self.NAMED_MAX:
                await self.replica.propose(named, incarnation=held.incarnation)
                named = ExpireProducers(idle_since_ms=since)
        if named.producer_id:
            await self.replica.propose(named, incarnation=held.incarnation)

    async def _idle(self, since_ms: int) -> AsyncIterator[tuple[int, int]]:
        """Handle and id of producers that are idle. The state goes on meanwhile: apply looks again."""
        for number in range(len(self.replica.state.live_in_range)):
            if not self.replica.state.live_in_range[number]:
                continue
            for handle in range(number * HANDLE_RANGE, (number + 1) * HANDLE_RANGE):
                partition = self._partition(handle)
                ids = list(partition.producers) if partition is not None else []
                await self._others(1)
                for start in range(0, len(ids), self.LOOKED_AT):
                    some = ids[start : start + self.LOOKED_AT]
                    await self._others(len(some))
                    partition = self._partition(handle)
                    found = [one for one in some if partition and is_idle(partition, one, since_ms)]
                    for producer_id in found:
                        yield handle, producer_id

    def _partition(self, handle: int) -> Partition | None:
        known = self.replica.state.partitions
        return known[handle] if handle < len(known) else None

    async def _others(self, more: int) -> None:
        """Let others run before so many more are looked at, if it is time."""
        if self._looked_at + more > self.LOOKED_AT:
            self._looked_at = 0
            await asyncio.sleep(0)
        self._looked_at += more
