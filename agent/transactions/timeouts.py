"""The job that proposes the ends of transactions past their timeout, and forgets ids that nobody uses.

A timeout is a proposal: "abort transaction n of this id if it still is n"
(coordination/state/transactions.py). Two agents that both propose it are harmless.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice

from google.protobuf.message import Message

from coordination import broker_configs
from coordination.clock import Clock
from coordination.commands import AbortTransaction, ExpireTransactions, command
from coordination.jobs import Job
from coordination.replica import Replica
from coordination.state.transaction_types import Transaction
from coordination.state.transactions import expirable
from coordination.state.types import ClaimHolder

POLL_S = 0.5
LOOKS_PER_STEP = 2000  # ids looked at before the event loop gets its turn, and named in one entry
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
        while step := list(islice(names, LOOKS_PER_STEP)):
            now_ms = self._clock.now_ms()
            over = [t for t in self._known(step) if t.ongoing and now_ms - t.started_ms >= t.timeout_ms]
            await self._propose(
                [AbortTransaction(transactional_id=t.transactional_id, number=t.number) for t in over], held
            )

    async def _expire(self, held: ClaimHolder) -> None:
        names = iter(list(self.replica.state.transactions))
        while step := list(islice(names, LOOKS_PER_STEP)):
            since_ms = self._clock.now_ms() - self._config(EXPIRATION)
            idle = [t.transactional_id for t in self._known(step) if expirable(t, since_ms)]
            expire = [ExpireTransactions(idle_since_ms=since_ms, transactional_id=idle)] if idle else []
            await self._propose(expire, held)

    def _known(self, names: Sequence[str]) -> list[Transaction]:
        transactions = self.replica.state.transactions
        return [found for name in names if (found := transactions.get(name)) is not None]

    async def _propose(self, messages: Sequence[Message], held: ClaimHolder) -> None:
        if messages:
            await self.replica.submit(list(map(command, messages)), incarnation=held.incarnation)
        await asyncio.sleep(0)

    def _config(self, name: str) -> int:
        return broker_configs.integer(self.replica.state.cluster_configs, name)
