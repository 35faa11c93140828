"""What a handler may use: the agent's services, and the connection that a request came by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.cluster.zones import zone_of
from agent.kafka.fetch.deadlines import Deadlines
from agent.kafka.order import Turns
from agent.kafka.produce.firsts import Firsts
from agent.kafka.produce.gaps import Gaps
from agent.net.listening import ANONYMOUS
from agent.net.wire.errors import WireError
from agent.telemetry.trail import Actor
from coordination.log import Unavailable
from coordination.replica.errors import OutcomeUnknown
from coordination.state.acl_types import CLUSTER_NAME
from coordination.state.types import Broker, Result, serving_of

if TYPE_CHECKING:
    from agent.cluster.hints import LeaderHints
    from agent.cluster.lingering import Lingering
    from agent.config import Config
    from agent.health.standing import Standing
    from agent.kafka.authority.authority import Authority
    from agent.kafka.authority.needs import Need
    from agent.kafka.fetch.driver import FetchDriver
    from agent.kafka.fetch.redirect import Sent
    from agent.kafka.fetch.rewriting import Rewriting
    from agent.kafka.fetch.sessions import Sessions
    from agent.kafka.groups.consumer.driver import ConsumerGroups
    from agent.kafka.groups.coordinator import GroupCoordinator
    from agent.kafka.login.logins import Login, Logins
    from agent.kafka.produce.driver import ProduceDriver
    from agent.kafka.quotas.quotas import Charge, Quotas
    from agent.kafka.topic_bodies import TopicBodies
    from agent.rules.pool import RulesPool
    from agent.telemetry.damages import Damages
    from agent.telemetry.metrics import Metrics
    from agent.telemetry.refusals import Refusals
    from agent.telemetry.rule_figures import RuleFigures
    from agent.telemetry.trail import Trail
    from coordination.clock import Clock
    from coordination.replica import Replica
    from coordination.state.acl_types import ResourceType
    from coordination.state.state import State
    from coordination.state.types import Endpoint
    from objectstore.merged import MergedRanges
    from objectstore.reader import ChunkReader
    from schema.validator import ValidatorCache

BARRIER_S_MAX = 2.0  # how long a handler waits for the log before it answers from what it has
DEADLINE_S = 0.05  # how much too late a request may be told that its time is over, seconds
PRODUCER_ID_BLOCK = 1000  # producer ids taken from the log at once, as Kafka does


class ProducerIds:
    """Producer ids that this agent took from the log and has not given out."""

    def __init__(self) -> None:
        self.next = 0
        self.end = 0
        self.more: asyncio.Task[Result] | None = None
        """The log is being asked for more, for all who wait."""


@dataclass(slots=True)
class Services:
    """One agent's parts, made by the composition root (agent/app.py)."""

    config: Config
    clock: Clock
    replica: Replica
    reader: ChunkReader
    merged: MergedRanges
    produce: ProduceDriver
    fetch: FetchDriver
    sessions: Sessions
    rewriting: Rewriting
    hints: LeaderHints
    groups: GroupCoordinator
    consumer_groups: ConsumerGroups
    validators: ValidatorCache
    rules: RulesPool
    rule_figures: RuleFigures
    metrics: Metrics
    damages: Damages
    refusals: Refusals
    ranges: Mapping[int, tuple[int, int]]
    """First and last version served, by API key."""
    topic_bodies: TopicBodies
    standing: Standing
    """Whether clients are sent to this agent."""
    logins: Logins
    """What this agent knows of users who log in."""
    authority: Authority
    """Who may do what, by the ACLs."""
    quotas: Quotas
    """What clients take, as far as there are quotas."""
    gaps: Gaps
    """Batches of producers that are told of no gap yet."""
    lingering: Lingering
    """Which agents Metadata lists a moment longer than they serve."""
    trail: Trail
    """Who did what: the audit log."""
    producer_ids: ProducerIds = field(default_factory=ProducerIds)
    deadlines: Deadlines = field(default_factory=lambda: Deadlines(asyncio.get_running_loop(), DEADLINE_S))
    """Of requests that wait for the log: each may wait DEADLINE_S longer than it asked, for one timer."""
    listener_zones: Mapping[str, str] = field(default_factory=dict)
    """The zone that a listener's clients count to, by its name, where it has one."""
    hang_up: Callable[[int, WireError], None] = lambda connection, why: None
    """Ends a connection, by its number, for a request that was over as it seemed (agent/net/server.py)."""


class Admission:
    """A client's gate, for a Produce. One that ends by an exception, whichever, has failed like one refused.

    It is counted in the step that opens the gate: who waits behind it is woken later, and sees it. A class,
    not a generator: each Produce passes here.
    """

    __slots__ = ("_client",)

    def __init__(self, client: Client) -> None:
        self._client = client

    async def __aenter__(self) -> None:
        try:
            await self._client.gate.acquire()
        except BaseException:
            self._client.failures += 1
            raise

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._client.failures += 1
        self._client.gate.release()


@dataclass(slots=True, eq=False)
class Client:
    """One Kafka connection as handlers see it.

    `turns`: the order of its requests' effects. `gate` admits those that overlap one by one; `pauses` counts
    the pauses of this process that were over when the connection was first seen. `host`: the client's
    address. `software`: what the client says it is (KIP-511). `stamp`: what it proves of the requests that
    come behind its first `stamped` ones (agent/kafka/transactions/stamps.py); None: nothing yet.
    """

    connection: int
    listener: str
    firsts: Firsts
    """Where producers begin that partitions do not know yet."""
    pauses: int = 0
    host: str = ""
    software: str = ""
    stamp: int | None = None
    stamped: int = 0
    turns: Turns = field(default_factory=Turns)
    gate: asyncio.Lock = field(default_factory=asyncio.Lock)
    failures: int = 0
    """How many of its Produce requests failed before they came into the buffer, to be sent again."""
    login: Login | None = None
    """Where its listener asks for one."""
    principal: str = ANONYMOUS
    """Whose requests these are, without `User:`: by the login, else by the certificate."""
    welcome: Callable[[str], None] = lambda principal: None
    """Tells the connection that the login is done."""
    mute: Callable[[float], None] = lambda seconds: None
    """Stops reading the connection for so many seconds."""
    repeat: object | None = None
    """Its newest Fetch, if that found nothing (agent/kafka/repeats.py)."""
    sent_away: dict[int, Sent] = field(default_factory=dict)
    """For a partition (handle) where this connection was told to read it (agent/kafka/fetch/redirect.py)."""
    told: float = float("-inf")
    """When it got an answer of Metadata last, by the monotonic clock, seconds."""

    def admission(self) -> Admission:
        """The gate, for a Produce: `async with`."""
        return Admission(self)


@dataclass(slots=True)
class Context:
    """One request's surroundings."""

    services: Services
    client: Client
    client_id: str | None = None
    charge: Charge | None = None
    """What the request takes of the client's quotas, while there are any."""
    stamp: int | None = None
    """What its connection proved of it when it was read."""
    waited_s: float = 0.0
    """How long the request has waited already, seconds."""
    nothing: object | None = None
    """Set by Fetch where it found nothing: what that depended on (agent/kafka/repeats.py)."""

    @property
    def state(self) -> State:
        """The replicated state as applied by now. It changes whenever the handler awaits."""
        return self.services.replica.state

    @property
    def actor(self) -> Actor:
        """Whose request this is, as the audit log tells it."""
        client = self.client
        return Actor(client.principal, client.host, self.client_id or "", client.listener)

    def may(self, need: Need, name: str = CLUSTER_NAME) -> bool:
        """Whether this client may, by the ACLs as applied by now (agent/kafka/authority)."""
        return self.services.authority.may(self.client.principal, self.client.host, need, name)

    def allows(self, need: Need, name: str = CLUSTER_NAME) -> bool:
        """Whether the ACLs allow it, whatever the mode: of needs of which one is enough, the first."""
        client, authority = self.client, self.services.authority
        return authority.off or authority.allows(
            client.principal, client.host, need.operation, need.resource, name
        )

    def may_any(self, need: Need) -> bool:
        """Whether there is any name on which this client may."""
        return self.services.authority.may_any(self.client.principal, self.client.host, need)

    def operations(self, resource: ResourceType, name: str = CLUSTER_NAME) -> int:
        """The operations that this client may do, as a sum of bits (KIP-430)."""
        return self.services.authority.operations(self.client.principal, self.client.host, resource, name)

    async def barrier(self, seconds: float = BARRIER_S_MAX) -> bool:
        """Apply everything acknowledged before this call (rule 5); False when it takes longer."""
        try:
            async with asyncio.timeout(seconds):
                await self.services.replica.barrier()
        except (Unavailable, OutcomeUnknown, TimeoutError):
            return False
        return True

    @contextmanager
    def over_when_failed(self) -> Iterator[None]:
        """For what comes after the answer, or instead of one: where it fails, by a defect too, the connection
        ends and nothing behind it begins."""
        try:
            yield
        except BaseException as error:
            self.client.turns.fail()
            why = error if isinstance(error, WireError) else WireError("a request failed in the agent")
            self.services.hang_up(self.client.connection, why)
            if why is not error:
                raise

    @property
    def zone(self) -> str:
        """The client's zone as far as its id or its listener tells; empty: not known."""
        return zone_of(self.client_id, self.services.listener_zones.get(self.client.listener, ""))

    def brokers(self) -> list[Broker]:
        """The live brokers that clients are sent to, by node id."""
        return sorted(serving_of(self.services.standing.brokers().values()), key=lambda each: each.node_id)

    def listed(self) -> list[Broker]:
        """Those and the ones that were a moment ago, by node id: Metadata's brokers."""
        return self.services.lingering.listed(self.brokers())

    def endpoint(self, broker: Broker) -> Endpoint:
        """Where a client of this connection's listener reaches the broker."""
        for endpoint in broker.listeners:
            if endpoint.name == self.client.listener:
                return endpoint
        return broker.listeners[0]

    def leader(self, handle: int) -> int:
        """The node that Metadata names for a partition to this client; -1 when no broker lives."""
        return self.services.hints.leader(handle, self.zone)

    def replicas(self, handle: int) -> tuple[int, ...]:
        """That node and one or two of each zone, as Metadata's replicas; empty when no broker lives."""
        return self.services.hints.replicas(handle, self.zone)

    def controller(self) -> int:
        """The node that admin requests go to, in the client's zone; any serves them. -1: no broker lives."""
        return min(self.services.hints.view(self.zone).nodes, default=-1)

    def away(self) -> bool:
        """Whether this agent leaves or is not well while others serve: clients are told to go there."""
        return self.services.standing.away()
