"""Which agents Metadata names for a partition, per zone. Hints: any agent serves anything.

Rendezvous hashing over the live agents of the client's zone keeps a partition's writers and readers on one
agent per zone, so that tail reads come from its memory, and moves only the partitions of an agent that came
or went: one that comes back under its node id gets its own partitions back.

Roles are kept apart here: leaders are agents with the role produce, readers those with the role fetch.
Where a zone has none, the whole cluster's count. docs/zones.md has the rules for operators.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping

from agent.cluster.places import Places
from coordination.state.types import FETCH, PRODUCE, Broker, serving_of

NO_BROKER = -1
COORDINATORS_REMEMBERED_MAX = 20_000  # keys; others are computed each time
KEY_CHARS_MAX = 255  # of one that is remembered: clients choose them
ANYWHERE = ""  # the zone of a client that names none, or one without agents

_MASK = (1 << 64) - 1
Seeds = list[tuple[int, int]]  # (node id, seed)


def mix(value: int) -> int:
    """splitmix64's finalizer: every bit of the input moves every bit of the output."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def rendezvous(key: int, nodes: Iterable[tuple[int, int]]) -> int:
    """The node of the highest weight for `key` among (node id, seed); NO_BROKER when there is none."""
    best, best_weight = NO_BROKER, -1
    for node, seed in nodes:
        weight = mix(key ^ seed)
        if weight > best_weight:
            best, best_weight = node, weight
    return best


def seeds(nodes: Iterable[int]) -> Seeds:
    """What `rendezvous` chooses from, in an order that every agent gives them."""
    return [(node, mix((node + 1) * 0x9E3779B97F4A7C15 & _MASK)) for node in sorted(nodes)]


class Choices:
    """The nodes of partitions among some, remembered.

    Weights never tie (`mix` is one to one), so a node that was chosen `before` and is still there is beaten
    by nobody but those that came since: a partition costs as many weights as came, not as many as there are.
    """

    def __init__(self, nodes: Seeds, before: Choices | None = None) -> None:
        self.nodes = nodes
        self.weighed = 0
        """How many weights were computed."""
        self._seeds = dict(nodes)
        self._chosen: dict[int, int] = {}
        self._before: Choices | None = before if before is None or before._chosen else before._before
        if self._before is not None:
            self._before._before = None  # one is remembered, not all that there ever were
        known = frozenset(() if self._before is None else self._before.nodes)
        self._came = [each for each in nodes if each not in known]

    def of(self, handle: int) -> int:
        """The node of a partition; NO_BROKER when there is none. What was chosen before is used up."""
        chosen = self._chosen.get(handle)
        if chosen is None:
            among = self.nodes
            if self._before is not None:
                older = self._before._chosen.pop(handle, NO_BROKER)
                seed = self._seeds.get(older)
                among = among if seed is None else [(older, seed), *self._came]
            self.weighed += len(among)
            chosen = self._chosen[handle] = rendezvous(mix(handle + 1), among)
        return chosen


class ZoneView:
    """The cluster as one zone's clients should use it. `before`: the same zone's view until now."""

    def __init__(self, zone: str, brokers: Iterable[Broker], before: ZoneView | None = None) -> None:
        serving = serving_of(brokers)
        near = [broker for broker in serving if zone in (ANYWHERE, broker.zone)]
        self.nodes = [broker.node_id for broker in near]
        writers = seeds(_with(PRODUCE, near) or _with(PRODUCE, serving) or self.nodes or _all(serving))
        readers = seeds(_with(FETCH, near))
        self.writers: Choices = Choices(writers, None if before is None else before.writers)
        self.readers: Choices = self.writers
        if readers != writers:
            others = before is not None and before.readers is not before.writers
            self.readers = Choices(readers, before.readers if before is not None and others else None)

    def leader(self, handle: int) -> int:
        """The node that a partition's producers are sent to."""
        return self.writers.of(handle)

    def reader(self, handle: int) -> int:
        """The node that a partition's consumers are sent to; NO_BROKER when none here is for fetching."""
        return self.readers.of(handle)


class LeaderHints:
    """Leaders, readers and coordinators for the brokers of now; `brokers` gives them by node id."""

    def __init__(
        self, brokers: Callable[[], Mapping[int, Broker]], now: Callable[[], float] = lambda: 0.0
    ) -> None:
        """`now`: the monotonic clock, seconds, for who asks `places`."""
        self.places = Places(now)
        self.changes = 0
        """How often the agents that serve, or their roles or zones, became others: leaders moved."""
        self._placed: list[tuple[int, str, tuple[str, ...]]] = []
        self._brokers = brokers
        self._seen: list[Broker] = []
        self._views: dict[str, ZoneView] = {ANYWHERE: ZoneView(ANYWHERE, ())}
        self._serving: Seeds = []
        self._replicas: dict[str, dict[int, tuple[int, ...]]] = {ANYWHERE: {}}
        self._coordinators: dict[str, int] = {}

    @property
    def views(self) -> Mapping[str, ZoneView]:
        """One per zone that has serving agents, and ANYWHERE for all of them; sorted by zone."""
        brokers = list(self._brokers().values())
        if brokers != self._seen:  # compares identities first: next to nothing while nobody came or went
            self._seen = brokers
            self.places.see(brokers)
            serving = serving_of(brokers)
            zones = sorted({broker.zone for broker in serving} | {ANYWHERE})
            self._views = {zone: ZoneView(zone, brokers, self._views.get(zone)) for zone in zones}
            places = [(broker.node_id, broker.zone, broker.roles) for broker in serving]
            self.changes += bool(self._placed) and places != self._placed  # the first are no change
            self._placed = places
            self._serving = seeds(broker.node_id for broker in serving)
            self._replicas = {zone: {} for zone in zones}
            self._coordinators = {}
        return self._views

    def known(self, zone: str) -> str:
        """The zone itself when serving agents are in it, else ANYWHERE."""
        return zone if zone in self.views else ANYWHERE

    def view(self, zone: str = ANYWHERE) -> ZoneView:
        """The view of a zone; that of the whole cluster when no serving agent is in it."""
        views = self.views
        return views.get(zone) or views[ANYWHERE]

    def leader(self, handle: int, zone: str = ANYWHERE) -> int:
        """The node id that Metadata names for the partition; NO_BROKER when no broker lives."""
        return self.view(zone).leader(handle)

    def reader(self, handle: int, zone: str = ANYWHERE) -> int:
        """The node id that the partition's consumers are sent to; NO_BROKER: stay with the leader."""
        return self.view(zone).reader(handle)

    def replicas(self, handle: int, zone: str = ANYWHERE) -> tuple[int, ...]:
        """The leader for clients of `zone`, then each zone's leader and reader: Metadata's replicas.

        Rack-aware assignors find an agent of every zone in it (KIP-881), and clients follow a preferred
        read replica only when it is in the list (KIP-392).
        """
        return self.chooser(zone)(handle)

    def chooser(self, zone: str = ANYWHERE) -> Callable[[int], tuple[int, ...]]:
        """`replicas` by handle for clients of `zone`; right until a broker comes or goes."""
        views = self.views
        here = self.known(zone)
        known, own, others = self._replicas[here], views[here], tuple(views.values())

        def choose(handle: int) -> tuple[int, ...]:
            chosen = known.get(handle)
            if chosen is None:
                nodes = [own.leader(handle)]
                for view in others:
                    nodes += (view.leader(handle), view.reader(handle))
                chosen = known[handle] = tuple(node for node in dict.fromkeys(nodes) if node != NO_BROKER)
            return chosen

        return choose

    def coordinator(self, key: str) -> int:
        """The node id that a group or transactional id is sent to; NO_BROKER when no broker serves.

        The same for clients of all zones: the members of a group must meet.
        """
        views = self.views  # looks whether the brokers have changed, which forgets what was chosen
        found = self._coordinators.get(key)
        if found is None:
            chosen = mix(zlib.crc32(key.encode()) + (1 << 33))
            found = rendezvous(chosen, self._serving) if views else NO_BROKER
            if len(key) <= KEY_CHARS_MAX and len(self._coordinators) < COORDINATORS_REMEMBERED_MAX:
                self._coordinators[key] = found
        return found


def _with(role: str, brokers: Iterable[Broker]) -> list[int]:
    return [broker.node_id for broker in brokers if role in broker.roles]


def _all(brokers: Iterable[Broker]) -> list[int]:
    return [broker.node_id for broker in brokers]
