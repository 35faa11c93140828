"""Jobs that one agent does for the cluster: held by a claim in the state, fenced like everything else.

Every agent runs every job's loop; a claim decides who acts. A claim ends with its holder's incarnation,
so another agent takes the job over after a death. Agents without the role background take none while one
with it lives. Two agents may act for a moment (the old holder has
not heard yet), so each job's effects must be safe under that: they go through the log.

What a job may catch: whatever concerns one item of its work (a partition, a topic, a group, a kind of
object) is noted against that item, and the pass goes on to the others: `Job.item`. The log concerns all of
them, and so does a store that fails for many in a row: these end the pass, which is tried again.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from coordination.broker_configs import integer
from coordination.clock import Clock
from coordination.commands import Claim, ExpireProducers, ReleaseClaim
from coordination.log import LogError
from coordination.replica import Replica
from coordination.replica.clock_watch import deletion_ms
from coordination.state import ClaimHolder
from coordination.state.members import runs_jobs
from coordination.trouble import Trouble, Troubles
from objectstore import tasks
from objectstore.store import Ambiguous, Denied, Retryable, StoreError

_logger = logging.getLogger("floe.coordination.jobs")

FAILURES_MAX = 1_000  # items whose failure is remembered, of one job; the oldest are forgotten
STORE_FAILURES_MAX = 3  # items in a row that the store fails for before a pass ends: it is away
TOLD_EVERY = 100  # failures of one item between two log lines about it
TEXT_MAX = 500  # characters of an error


@dataclass(slots=True)
class ItemFailure:
    """An item that failed at every try since then: how often, and with what at last.

    `since_s`, `last_s`: the event loop's time of the first and the last of these failures, seconds.
    """

    since_s: float
    last_s: float
    count: int
    error: str


class Job(ABC):
    """A loop that holds `claim` when nobody else does, and calls step() while it holds it."""

    claim: str

    def __init__(self, replica: Replica, poll_s: float) -> None:
        self.replica = replica
        self._poll_s = poll_s
        self._task: asyncio.Task[None] | None = None
        self._store_failures = 0  # items in a row that the store failed for
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
    def item(self, name: str) -> Iterator[None]:
        """Work on one item: its failure is noted and goes no further, unless it concerns all items."""
        try:
            yield
        except LogError:
            raise
        except Exception as error:
            self.item_failed(name, error)
            away = isinstance(error, Retryable | Ambiguous | Denied | TimeoutError)
            self._store_failures = self._store_failures + 1 if away else 0
            if self._store_failures >= STORE_FAILURES_MAX:
                self._store_failures = 0
                raise
        else:
            self._store_failures = 0
            self.failures.pop(name, None)

    def item_failed(self, name: str, error: Exception) -> None:
        """Note and tell that an item failed; `item` does it."""
        text = f"{type(error).__name__}: {error}"[:TEXT_MAX]
        failure, now_s = self.failures.get(name), asyncio.get_running_loop().time()
        if failure is None:
            while len(self.failures) >= FAILURES_MAX:
                del self.failures[next(iter(self.failures))]
            failure = self.failures[name] = ItemFailure(now_s, now_s, 0, text)
        failure.count, failure.error, failure.last_s = failure.count + 1, text, now_s
        if failure.count % TOLD_EVERY == 1:
            expected = isinstance(error, StoreError | ValueError | TimeoutError)
            said = "job %s: %s is passed over (failure %d): %s"
            _logger.warning(said, self.claim, name, failure.count, text, exc_info=None if expected else error)

    async def _run(self) -> None:
        while True:
            try:
                await self._look()
                self._outcome(None)
            except (LogError, StoreError, TimeoutError) as error:
                _logger.warning("job %s: %s: %s", self.claim, type(error).__name__, error)
                self._outcome(error)
            except Exception as error:  # a defect: it is told, and the job does not end in silence
                _logger.exception("job %s: this should not happen", self.claim)
                self._outcome(error)
            await asyncio.sleep(self._poll_s)

    def _outcome(self, error: Exception | None) -> None:
        """Note how a look ended."""
        if self.troubles is None:
            return
        if error is None:
            self.troubles.worked(self.claim)
        else:
            self.troubles.failed(self.claim, error)

    def failing_items(self, now_ms: int) -> Iterator[Trouble]:
        """The items that failed when they were last worked on. `now_ms`: the wall clock, Unix ms."""
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

    async def _give_up(self) -> None:
        """Leave the job to agents whose role it is."""
        held = self.held()
        if held is not None:
            release = ReleaseClaim(name=self.claim, claim_revision=held.revision)
            await self.replica.propose(release, incarnation=held.incarnation)


class ProducerExpiry(Job):
    """Forgets idempotent producers that wrote nothing for the cluster's producer.id.expiration.ms.

    Goes over the partitions in ranges, so that no single command holds up apply.
    """

    claim = "producer-expiry"
    RANGE = 2000  # partitions in one command

    def __init__(self, replica: Replica, clock: Clock, *, poll_s: float = 600.0) -> None:
        super().__init__(replica, poll_s)
        self._clock = clock

    async def step(self, held: ClaimHolder) -> None:
        """One pass over all partitions."""
        idle_ms = integer(self.replica.state.cluster_configs, "producer.id.expiration.ms")
        since = deletion_ms(self.replica.state, self._clock.now_ms()) - idle_ms
        for first in range(0, len(self.replica.state.partitions), self.RANGE):
            await self.replica.propose(
                ExpireProducers(idle_since_ms=since, first_partition=first, partitions=self.RANGE),
                incarnation=held.incarnation,
            )
