"""The job that proposes the ends of transactions past their timeout, and forgets ids that nobody uses.

A timeout is a proposal: "abort transaction n of this id if it still is n"
(coordination/state/transactions.py). Two agents that both propose it are harmless.

A transaction's time is over by the stamps of the log, or when this agent has seen it open for that long by
its own clock: agents whose clocks differ by an hour must not leave one open for an hour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice

from google.protobuf.message import Message

from coordination import broker_configs
from coordination.clock import Clock
from coordination.commands import AbortTransaction, ExpireTransactions, command
from coordination.jobs import Job
from coordination.replica import Replica
from coordination.replica.clock_watch import deletion_ms
from coordination.state.agreed_time import SKEW_MS
from coordination.state.transaction_types import Transaction
from coordination.state.transactions import expirable
from coordination.state.types import ClaimHolder

_Name = tuple[int, int]  # producer id and number: an id that expired and is made anew counts from 1 again
POLL_S = 0.5
LOOKS_PER_STEP = 1000  # ids looked at before the event loop gets its turn, and named in one entry
TIMEOUT_INTERVAL = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
EXPIRY_INTERVAL = "transaction.remove.expired.transaction.cleanup.interval.ms"
EXPIRATION = "transactional.id.expiration.ms"


class TransactionTimeouts(Job):
    """Looks at all ids at the intervals that Kafka's configs give."""

    claim = "transaction-timeouts"

    def __init__(self, replica: Replica, clock: Clock, *, poll_s: float = POLL_S) -> None:
        super().__init__(replica, poll_s)
        self._clock = clock
        self._timeouts_due_s = self._expiry_due_s = 0.0
        self._open_since_s: dict[_Name, float] = {}  # when it was first seen open

    async def step(self, held: ClaimHolder) -> None:
        """One pass of each kind when it is time for it."""
        now_s = self._clock.monotonic()
        if now_s >= self._timeouts_due_s:
            self._timeouts_due_s = now_s + self._config(TIMEOUT_INTERVAL) / 1000
            await self._abort(held)
        if now_s >= self._expiry_due_s:
            self._expiry_due_s = now_s + self._config(EXPIRY_INTERVAL) / 1000
            await self._expire(held)

    async def _abort(self, held: ClaimHolder) -> None:
        names = iter(list(self.replica.state.transactions))
        seen: dict[_Name, float] = {}
        try:
            while step := list(islice(names, LOOKS_PER_STEP)):
                over, now_ms = list[AbortTransaction](), self._now_ms()
                for each in self._known(step):
                    with self.item(f"transaction {each.transactional_id}", self._without(each)):
                        abort = self._over(each, seen, now_ms)
                        over += [abort] if abort is not None else []
                await self._propose(over, held)
        except BaseException:  # those that it did not come to are open for as long as before
            self._open_since_s |= seen
            raise
        self._open_since_s = seen

    def _over(self, each: Transaction, seen: dict[_Name, float], now_ms: int) -> AbortTransaction | None:
        """The proposal to abort it when its time is over. `seen`: takes since when it is open, seconds.

        `now_ms`: `_now_ms()`, which asks what all agents say: once for all that is looked at together.
        """
        if not each.ongoing:
            return None
        name, now_s = (each.producer_id, each.number), self._clock.monotonic()
        since_s = seen[name] = self._open_since_s.get(name, now_s)
        watched = (now_s - since_s) * 1000 >= each.timeout_ms
        if not watched and now_ms - each.started_ms < each.timeout_ms:
            return None
        return AbortTransaction(transactional_id=each.transactional_id, number=each.number, forced=watched)

    async def _expire(self, held: ClaimHolder) -> None:
        names = iter(list(self.replica.state.transactions))
        while step := list(islice(names, LOOKS_PER_STEP)):
            since_ms = self._now_ms() - self._config(EXPIRATION)
            idle: list[str] = []
            for each in self._known(step):
                with self.item(f"id {each.transactional_id}", self._without(each)):
                    idle += [each.transactional_id] if expirable(each, since_ms) else []
            expire = [ExpireTransactions(idle_since_ms=since_ms, transactional_id=idle)] if idle else []
            await self._propose(expire, held)

    def _without(self, each: Transaction) -> Callable[[], bool]:
        """Tells whether its transactional id is gone."""
        return lambda: each.transactional_id not in self.replica.state.transactions

    def _known(self, names: Sequence[str]) -> list[Transaction]:
        transactions = self.replica.state.transactions
        return [found for name in names if (found := transactions.get(name)) is not None]

    async def _propose(self, messages: Sequence[Message], held: ClaimHolder) -> None:
        if messages:
            await self.replica.submit(list(map(command, messages)), incarnation=held.incarnation)
        await asyncio.sleep(0)

    def _now_ms(self) -> int:
        """By which something is proposed; apply decides, by the log's clock, which stands in an idle log."""
        now_ms = self._clock.now_ms()
        return min(now_ms, deletion_ms(self.replica.state, now_ms) + SKEW_MS)

    def _config(self, name: str) -> int:
        return broker_configs.integer(self.replica.state.cluster_configs, name)
