"""What one agent remembers of who took how much, as far as there are quotas for it.

Per agent, as Kafka's quotas are per broker. What is remembered is bounded by `quotas.entities_max`; whoever
was idle the longest is forgotten first, and then begins anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from agent.config.quotas import QuotasConfig
from agent.kafka.quotas.limits import Limit, Sharers, connection_rate_of, limit_of
from agent.net.rates import Paced, Rate, TokenBucket
from agent.telemetry.by_topic import ByTopic
from agent.telemetry.metrics import Metrics
from coordination.clock import Clock
from coordination.config_types import shown
from coordination.kafka_codes import Code
from coordination.state import quotas as keys
from coordination.state.quota_types import QuotaTable
from coordination.state.types import Refused

EXCEEDED: Final = Refused(Code.THROTTLING_QUOTA_EXCEEDED, "")  # as Kafka's, which says no more
PERCENT: Final = 100.0
ID_CHARS_MAX: Final = keys.NAME_LENGTH_MAX + 1


class Quotas:
    """Of one agent. Its clock is the agent's."""

    def __init__(
        self, config: QuotasConfig, clock: Clock, table: Callable[[], QuotaTable], metrics: Metrics
    ) -> None:
        self.clock = clock
        self._config, self._table, self._metrics = config, table, metrics
        self._taken: OrderedDict[Sharers, Rate | TokenBucket] = OrderedDict()
        self._limits: dict[tuple[str, str, str], Limit | None] = {}
        self._limits_of = -1
        self._by_entity = ByTopic(metrics.throttled_seconds)
        metrics.before_reading.append(self._forget_names)
        metrics.quota_entities.set_function(self._taken.__len__)

    def limits_addresses(self) -> bool:
        """Whether there are any quotas: then new connections are looked at."""
        return bool(self._table().entities)

    def charge(self, user: str, client_id: str | None) -> Charge:
        """For one request of a client. Ids too long to have a quota of their own share by how they begin."""
        return Charge(self, user, (client_id or "")[:ID_CHARS_MAX])

    def connection_rate(self, address: str) -> float | None:
        """How many connections an address may open per second; None: any number."""
        entities = self._table().entities
        return connection_rate_of(entities, address) if entities else None

    def limit(self, user: str, client_id: str, quota: str) -> Limit | None:
        """The quota in force for a client, from what was found before as long as no quota changes."""
        table = self._table()
        if self._limits_of != table.changes or len(self._limits) >= self._config.entities_max:
            self._limits.clear()
            self._limits_of = table.changes
        asked = (user, client_id, quota)
        if asked not in self._limits:
            self._limits[asked] = limit_of(table.entities, user, client_id, quota)
        return self._limits[asked]

    def rate(self, sharers: Sharers) -> Rate:
        """What they took, in windows."""
        config = self._config
        kind = Paced if sharers.quota in (keys.PRODUCE, keys.FETCH) else Rate
        found = self._find(sharers, lambda: kind(config.windows, config.window_ms))
        assert isinstance(found, Rate)
        return found

    def bucket(self, limit: Limit) -> TokenBucket:
        """What they may still change (KIP-599)."""
        burst_s = self._config.windows * self._config.window_ms / 1000
        found = self._find(limit.sharers, lambda: TokenBucket(burst_s, limit.bound, self.now_ms()))
        assert isinstance(found, TokenBucket)
        return found

    def _find(self, sharers: Sharers, make: Callable[[], Rate | TokenBucket]) -> Rate | TokenBucket:
        taken = self._taken
        found = taken.get(sharers)
        if found is None:
            found = taken[sharers] = make()
            while len(taken) > self._config.entities_max:
                taken.popitem(last=False)
        else:
            taken.move_to_end(sharers)
        return found

    def now_ms(self) -> int:
        """Milliseconds that only go on."""
        return int(self.clock.monotonic() * 1000)

    def capacity(self, limit: Limit) -> int:
        """What may be taken at once without being above the quota, were nothing taken before. Of who was
        above it lately: a window's worth."""
        rate, windows = self.rate(limit.sharers), self._config.windows - 1
        if isinstance(rate, Paced) and rate.paced(self.now_ms()):
            windows = 1
        full_s = windows * self._config.window_ms / 1000
        return int(min(limit.bound * max(full_s, 1.0), 2**31 - 1))

    def bounded(self, throttle_ms: int, quota: str) -> int:
        """No longer than is waited: of time as Kafka, one window; of the rest as configured."""
        most = self._config.window_ms if quota == keys.REQUEST else self._config.throttle_ms_max
        return min(throttle_ms, most)

    def throttled(self, sharers: Sharers, throttle_ms: int) -> None:
        """Somebody is slowed down."""
        self._metrics.throttled_requests.labels(sharers.quota).inc()
        self._by_entity.labels(shown(str(sharers)), sharers.quota).inc(throttle_ms / 1000)

    def _forget_names(self) -> None:
        known = {shown(str(sharers)) for sharers in self._taken}
        self._by_entity.keep(known.__contains__)


class Charge:
    """What one request takes, and for how long its client is slowed down for it."""

    __slots__ = ("_client_id", "_mutations_at_ms", "_quotas", "_throttles", "_user")

    def __init__(self, quotas: Quotas, user: str, client_id: str) -> None:
        self._quotas, self._user, self._client_id = quotas, user, client_id
        self._throttles: dict[Sharers, int] = {}
        self._mutations_at_ms = 0

    def limit(self, quota: str) -> Limit | None:
        """What is in force for this client."""
        return self._quotas.limit(self._user, self._client_id, quota)

    def take(self, quota: str, value: float, *, throttle: bool = True) -> None:
        """So much was taken. Whoever is above the quota then is slowed down, unless that is for later."""
        limit = self.limit(quota)
        if limit is None:
            return
        rate, now_ms = self._quotas.rate(limit.sharers), self._quotas.now_ms()
        rate.record(value, now_ms)
        if throttle:
            self._note(limit.sharers, rate.throttle_ms(limit.bound, now_ms))

    def may_fetch(self) -> bool:
        """Whether the client may have records now; else it waits for them.

        Kafka reads them, and sends none when they are too many: nobody has to read what nobody gets.
        """
        limit = self.limit(keys.FETCH)
        if limit is None:
            return True
        throttle_ms = self._quotas.rate(limit.sharers).throttle_ms(limit.bound, self._quotas.now_ms())
        self._note(limit.sharers, throttle_ms)
        return not throttle_ms

    def fetch_bytes_max(self) -> int | None:
        """The most that one answer should hold; None: no bound."""
        limit = self.limit(keys.FETCH)
        return None if limit is None else max(self._quotas.capacity(limit), 1)

    def spent(self, seconds: float, *, throttle: bool = True) -> None:
        """The event loop was held for so long."""
        self.take(keys.REQUEST, seconds * PERCENT, throttle=throttle)

    def mutate(self, partitions: int, *, strict: bool) -> Refused | None:
        """Partitions are to be made or deleted. Why not, where the client knows that answer (KIP-599)."""
        limit = self.limit(keys.MUTATION)
        if limit is None:
            return None
        bucket, now_ms = self._quotas.bucket(limit), self._quotas.now_ms()
        owed_ms = bucket.throttle_ms(limit.bound, now_ms)
        if not (strict and owed_ms):
            bucket.take(partitions, limit.bound, now_ms)
        if not strict:
            owed_ms = bucket.throttle_ms(limit.bound, now_ms)
        self._note(limit.sharers, owed_ms)
        self._mutations_at_ms = now_ms
        return EXCEEDED if strict and owed_ms else None

    def settle(self) -> int:
        """For how long the client is slowed down by now, milliseconds."""
        most = 0
        for sharers, noted_ms in self._throttles.items():
            throttle_ms = noted_ms
            if sharers.quota == keys.MUTATION:  # the change itself took its time
                throttle_ms = max(throttle_ms - (self._quotas.now_ms() - self._mutations_at_ms), 0)
            most = max(most, throttle_ms)
        for sharers, noted_ms in self._throttles.items():
            self._quotas.throttled(sharers, min(noted_ms, most))
        self._throttles.clear()
        return most

    def _note(self, sharers: Sharers, throttle_ms: int) -> None:
        if throttle_ms:
            bounded = self._quotas.bounded(throttle_ms, sharers.quota)
            self._throttles[sharers] = max(bounded, self._throttles.get(sharers, 0))
