"""What the HTTP side may see of an agent; the composition root (agent/app.py) fills it in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from agent.config import Config
from agent.net.tokens.identity import Bearers
from agent.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from agent.health.files import Files
    from agent.health.health import Health
    from agent.health.standing import Standing
    from agent.http.needs import Need
    from agent.rules.pool import RulesPool
    from agent.telemetry.damages import Damages
    from agent.telemetry.lag_history import LagHistory
    from agent.telemetry.refusals import Refusals
    from agent.telemetry.rule_figures import RuleFigures
    from agent.telemetry.shadow import Shadow
    from agent.telemetry.shown import GroupMember, RecordLife, RecordsRead, ShownGroup
    from agent.telemetry.tracing import Traces
    from agent.telemetry.trail import Actor, Trail
    from coordination.archive.keeper import LogArchive
    from coordination.clock import Clock
    from coordination.kafka_codes import Code
    from coordination.replica import Replica
    from coordination.state.acl_types import Operation, ResourceType
    from coordination.state.group_types import Group
    from coordination.state.types import Topic
    from iceberg.publish.publisher import Publisher
    from iceberg.rest_access import Access
    from iceberg.service import CommitterService
    from iceberg.upsert.service import UpsertService
    from objectstore.store import ObjectStore


class Scrubbing(Protocol):
    """The job that scrubs, as far as it is asked for by HTTP (agent/background/scrub)."""

    @property
    def bytes_per_s(self) -> float:
        """Its own pace."""
        ...

    def status(self) -> dict[str, object]:
        """How far it is, what it found, and the run that was asked for."""
        ...

    def run_now(self, bytes_per_s: float, *, repair: bool) -> object:
        """Begin a run of everything, unless one goes on."""
        ...


class Catalog(Protocol):
    """The Iceberg REST catalog's logic (iceberg/catalog.py), without HTTP."""

    def handle(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes,
        access: Access | None = None,
        delegation: str = "",
    ) -> Awaitable[tuple[int, object | None]]:
        """Answer one request: status and JSON value (None: no body). `path` begins with /v1.

        `access`: what whoever asks may; `delegation`: the header of that name (iceberg/rest_lending.py).
        """
        ...


class Passwords(Protocol):
    """What is known of users (agent/kafka/login/passwords.py)."""

    async def fit(self, user: str, password: str) -> bool | None:
        """Whether it is the user's; None: too many wait for that. A no takes as long whether or not there is
        such a user."""
        ...

    def failed_from(self, address: str) -> int:
        """Note a failed login; how many there were from there."""
        ...


class Authority(Protocol):
    """The ACLs (agent/kafka/authority)."""

    off: bool

    def allows(
        self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        """Whether it is allowed by now, whatever the mode."""
        ...

    def may(self, principal: str, host: str, need: Need, name: str) -> bool:
        """Whether a request goes on. `principal` without its type."""
        ...


class KafkaShown(Protocol):
    """What the console is shown of Kafka's side (agent/kafka/showing.py)."""

    async def read(
        self, actor: Actor, topic: str, index: int, offset: int, bytes_max: int
    ) -> RecordsRead | None:
        """Committed batches as this reader gets them; None: there is no such partition."""
        ...

    async def as_written(
        self, actor: Actor, handle: int, offset: int, bytes_max: int, *, held: bool = False
    ) -> tuple[Code, list[memoryview]] | None:
        """Batches as they lie in the log, also of a deleted topic; None: there is no such partition.

        `held`: also below the log start what is held there.
        """
        ...

    def reads_all(self, actor: Actor, topic: Topic) -> bool:
        """Whether nothing of its records is kept from whoever asks."""
        ...

    async def offset_at(self, topic: str, index: int, at_ms: int) -> int | None:
        """The offset of the first record at or after a time, also where a transaction that is open keeps it
        back; None: there is none. Raises OSError."""
        ...

    async def life(self, topic: str, index: int, offset: int) -> RecordLife | None:
        """Where the record at an offset is and how it came; None: there is no such partition."""
        ...

    def group(self, group_id: str) -> ShownGroup | None:
        """As this agent knows it; None: there is none."""
        ...

    def members(self, group: Group) -> list[GroupMember]:
        """Of a group."""
        ...


class KafkaAsked(Protocol):
    """What the console asks of Kafka's side in somebody's name (agent/kafka/asking.py)."""

    async def ask(self, actor: Actor, key: int, request: Any, *, rehearse: bool = False) -> Any:
        """The response to a request of the API's newest version; `rehearse`: nothing is changed."""
        ...

    def coordinator(self, group_id: str) -> int:
        """The node that looks after a group."""
        ...


class Asks(Protocol):
    """What asks other agents (agent/cluster/peers/client.py)."""

    async def figures(self, address: str) -> bytes:
        """What the agent at a peer address says of itself (agent/telemetry/told_figures.py).

        Raises PeerError, OSError, EOFError.
        """
        ...


class TokenGiver(Protocol):
    """The catalog's own tokens (agent/net/tokens/issued.py)."""

    @property
    def lifetime_s(self) -> int:
        """How long one holds, seconds."""
        ...

    def issue(self, user: str) -> str:
        """A new one."""
        ...

    def takes(self, token: str) -> bool:
        """Whether it looks like one of these."""
        ...

    def subject(self, token: str) -> str:
        """Whose it is or was. Raises TokenRefused."""
        ...


def _nobody() -> None:
    """Kafka's side before there is one."""


def _nothing() -> Mapping[str, int]:
    return {}


@dataclass(frozen=True, slots=True)
class Parts:
    """One agent's parts. `config.http` bounds what is served."""

    config: Config
    metrics: Metrics
    replica: Replica
    store: ObjectStore
    clock: Clock
    health: Health
    standing: Standing | None = None
    """Whether clients are sent to this agent; None: nobody can change it."""
    catalog: Catalog | None = None
    """None: /iceberg answers 404."""
    damages: Damages | None = None
    """What readers met that is damaged or lost; shown by /status."""
    refusals: Refusals | None = None
    """The newest batches that were refused; shown by /status."""
    rules: RulesPool | None = None
    """What tries the rules of a message that is to be bound; None: nobody does."""
    rule_figures: RuleFigures | None = None
    """The newest batches that broke rules and were kept; shown by /status."""
    passwords: Passwords | None = None
    """Whose passwords are known; None: nobody's."""
    bearers: Bearers = field(default_factory=Bearers)
    """Whose tokens are."""
    tokens: TokenGiver | None = None
    """What gives users of the catalog tokens; None: nobody does."""
    authority: Authority | None = None
    """Who may do what; None: everybody everything."""
    trail: Trail | None = None
    """Who did what; None: nobody asks."""
    shadow: Shadow | None = None
    """What no ACL allows, as shadow mode saw it; `floe acl review` asks for it."""
    committers: CommitterService | None = None
    """The tables that this agent commits, and how far all are behind; None: it does not look at tables."""
    latest: UpsertService | None = None
    """The tables of topics' newest rows that this agent keeps; None likewise."""
    publishers: Sequence[Publisher] = ()
    """What tells other catalogs of tables."""
    archive: LogArchive | None = None
    """What copies the log to the bucket; None: this agent does not."""
    scrub: Callable[[], Scrubbing | None] = field(default=_nobody)
    """What reads the bucket again and mends it; None: this agent does not."""
    lags: LagHistory | None = None
    """How far groups were behind, over time; None: nobody looks."""
    traces: Traces | None = None
    """Where requests are told of; None: nobody wants to know."""
    files: Files | None = None
    """The files that settings name, and which of them changed without effect."""
    memory_bytes: int | None = None
    """What this agent may use, bytes; None: no limit is known."""
    kafka: Callable[[], KafkaShown | None] = field(default=_nobody)
    """Kafka's side, for the console; None until clients are served."""
    asked: Callable[[], KafkaAsked | None] = field(default=_nobody)
    """The same for the console's changes."""
    peers: Callable[[], Asks | None] = field(default=_nobody)
    """What asks other agents; None where this one has no peers, or before it starts."""
    queues: Callable[[], Mapping[str, int]] = field(default=_nothing)
    """Sizes of queues and caches by name, units in the names; shown by /status."""
    reads: Callable[[], Mapping[str, int]] = field(default=_nothing)
    """What was read from where since the start, by name; counters in /metrics (telemetry/figures.py)."""
