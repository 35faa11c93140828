"""What a handler may use: the agent's services, and the connection that a request came by."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coordination.log import Unavailable
from coordination.replica.errors import OutcomeUnknown

if TYPE_CHECKING:
    from agent.cluster import LeaderHints
    from agent.config import Config
    from agent.fetch.driver import FetchDriver
    from agent.metrics import Metrics
    from agent.produce.driver import ProduceDriver
    from coordination.clock import Clock
    from coordination.replica import Replica
    from coordination.state.state import State
    from coordination.state.types import Broker, Endpoint
    from objectstore.reader import ChunkReader
    from schema.validator import ValidatorCache

BARRIER_S_MAX = 2.0  # how long a handler waits for the log before it answers from what it has
PRODUCER_ID_BLOCK = 1000  # producer ids taken from the log at once, as Kafka does


class ProducerIds:
    """Producer ids that this agent took from the log and has not given out."""

    def __init__(self) -> None:
        self.next = 0
        self.end = 0
        self.lock = asyncio.Lock()


@dataclass(slots=True)
class Services:
    """One agent's parts, made by the composition root (agent/app.py)."""

    config: Config
    clock: Clock
    replica: Replica
    reader: ChunkReader
    produce: ProduceDriver
    fetch: FetchDriver
    hints: LeaderHints
    validators: ValidatorCache
    metrics: Metrics
    ranges: Mapping[int, tuple[int, int]]
    """First and last version served, by API key."""
    producer_ids: ProducerIds = field(default_factory=ProducerIds)


@dataclass(slots=True, eq=False)
class Client:
    """One Kafka connection as handlers see it.

    `gate` admits its Produce requests one by one, in order; `pauses` counts the pauses of this process that
    were over when the connection was first seen.
    """

    connection: int
    listener: str
    pauses: int = 0
    gate: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True)
class Context:
    """One request's surroundings."""

    services: Services
    client: Client

    @property
    def state(self) -> State:
        """The replicated state as applied by now. It changes whenever the handler awaits."""
        return self.services.replica.state

    async def barrier(self) -> bool:
        """Apply everything acknowledged before this call (rule 5); False when the log does not answer."""
        try:
            async with asyncio.timeout(BARRIER_S_MAX):
                await self.services.replica.barrier()
        except (Unavailable, OutcomeUnknown, TimeoutError):
            return False
        return True

    def brokers(self) -> list[Broker]:
        """The live brokers by node id."""
        brokers = self.state.brokers
        return [brokers[node] for node in sorted(brokers)]

    def endpoint(self, broker: Broker) -> Endpoint:
        """Where a client of this connection's listener reaches the broker."""
        for endpoint in broker.listeners:
            if endpoint.name == self.client.listener:
                return endpoint
        return broker.listeners[0]

    def leader(self, handle: int) -> int:
        """The node that Metadata names for a partition; -1 when no broker lives."""
        hints = self.services.hints
        hints.update(tuple(self.state.brokers))
        return hints.leader(handle)

    def controller(self) -> int:
        """The node that admin requests go to; any agent serves them. -1 when no broker lives."""
        return min(self.state.brokers, default=-1)
