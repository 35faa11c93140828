"""What a seed is made of. Swarm testing: each seed turns a random subset of features and faults on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from random import Random
from typing import Any

from coordination.state.data import FEATURE_LEVEL_MAX
from tests.sim.faults import FAULTS
from tests.sim.faults.copies import COPIES
from tests.sim.faults.liars import LIARS
from tests.sim.node import Ways

QUIET_S = 2.0
COMMON_FAULT_OF = 0.5
NEAR_OF, LIES_S = 0.1, (3.0, 9.0, 14.0)
"""When the zone's relay is not honest, or not quick, where there is one."""
RESTORED_OF, HURT_OF, BOUND_OF, REGISTRAR_OF, GATED_OF = 0.15, 0.15, 0.1, 0.1, 0.1
ARCHIVED_OF, SCRUBBED_OF, DIFFERING_OF = 0.3, 0.2, 0.15
DIFFERING_AGENTS = 3
FOLLOWED_OF = 0.4
"""Of the plans that archive."""
QUEUES_OF = 0.06
UPSERT_OF = 0.25
"""Of the plans with keepers, which are four of ten."""
UPGRADED_OF, UPGRADED_S = 0.1, (3.0, 10.0)
LEVEL_BEFORE = 1
"""Time that deletes was not agreed on yet: whose clock is off may do harm there."""
STORIES = {"late-ends": ((2.0, 15.0),), "pause-member-before-end": ((2.0, 8.5), (11.0, 8.5))}
"""Faults that mean something only to some clients, while their transactions stay open: at s, for s."""
STORY_TIMEOUT_MS = 20_000
STORES_S = ((0.0, 0.0), (0.002, 0.02), (0.0, 0.075))
LOGS_S = ((0.0, 0.0), (0.0, 0.004), (0.001, 0.002))
"""One way, s: nothing as in one process, near, and up to 150 ms there and back, or 8."""

LATEST = {"latest_age_s": 2, "latest_busy_percent": 100, "latest_bytes_max": 4096}
"""The table of newest rows has turns often, and takes what it lacks in pieces."""
TABLES = {"orphan_interval_s": 8, "orphan_grace_s": 6, "compaction_busy_percent": 100}


@dataclass(frozen=True, slots=True)
class Plan:
    """One run. `faults` are (at s, for s, fault, target numbers); all else is who takes part and how."""

    seed: int
    seconds: float
    agents: int
    partitions: int
    writers: int
    readers: int
    transactors: tuple[str, ...]
    """Versions of transactions, one per client."""
    relay: str
    """The version that the copying client speaks; none without."""
    keepers: bool
    """Whether there are clients of the compacted topic."""
    rate: float
    fetch_bytes: int
    timeout_ms: int
    """Of transactions."""
    snapshot_entries: int
    table_ms: int
    latency_s: tuple[float, float]
    skews_ms: tuple[int, ...]
    faults: tuple[tuple[float, float, str, tuple[int, ...]], ...]
    live_keys: int
    """How many keys are written at a time, at least `partitions`."""
    key_writes: int
    """After how many writes a key is retired; 0: never."""
    micro_max: int
    """Micro-operations of a transaction."""
    members: int
    """Of the group that subscribes."""
    member_kind: str
    """How they commit: `plain` or in transactions of `v2`."""
    changes: bool
    """Whether an administrator changes topics that nobody else uses."""
    seeks_back: bool
    """Whether consumers go back to where a transaction began that did not succeed (KAFKA-17582)."""
    entry_bytes: int
    """Largest entry of the log: what is larger travels in parts."""
    store_s: tuple[float, float] = (0.0, 0.0)
    """The least and the most that one way to the store takes."""
    log_s: tuple[float, float] = (0.0, 0.0)
    """Likewise to the log."""
    pipeliners: int = 0
    """Producers with several batches under way."""
    solo: bool = False
    """Whether a consumer without a group's members commits its positions."""
    operator: bool = False
    """Whether somebody looks at everything and changes configs and features."""
    mortal: bool = False
    """Whether a topic is deleted and made again, and its records are deleted."""
    modern: int = 0
    """Members of a group of KIP-848."""
    static: bool = False
    """Whether members of groups are static."""
    sick: bool = False
    """Whether clients and agents are judged while one agent is sick (sick/)."""
    restored: bool = False
    """Whether the log goes back to a backup, when all else is over and judged."""
    binder: bool = False
    """Whether a topic is bound to one schema after the other while records are written to it."""
    registrar: bool = False
    """Whether schemas are registered and deleted while a topic follows their subjects."""
    flat: bool = False
    """Whether that topic's table is flat. No seed draws it: what other topics live through would change."""
    beginners: bool = False
    """Whether producers begin while their topic is bound anew. No seed draws it: it asks for many chunks."""
    gated: bool = False
    """Whether bad records of a topic are set aside, and brought back."""
    hurt: bool = False
    """Whether records of a topic are damaged for good, and passed over."""
    merges_files: bool = False
    """Whether small files of tables become large ones."""
    upsert: bool = False
    """Whether the compacted topic has a table of the newest row of each key beside its own."""
    archived: bool = False
    """Whether agents copy the log to the bucket."""
    scrubbed: bool = False
    """Whether agents scrub, and objects are damaged."""
    follows: str = ""
    """What a replica follows (replicas.py): the cluster's `bucket`, a `copy`, or a `replicated` one."""
    queues: bool = False
    """Whether queues are copied to a second cluster, exactly once (queues.py)."""
    near: bool = False
    """Whether all agents are of one zone, and follow one of them."""
    level: int = FEATURE_LEVEL_MAX
    """The feature level at which the cluster begins."""
    pair: str = ""
    """The two kinds of faults that were added to the seed's own, as one+other (pairs/)."""

    @property
    def name(self) -> str:
        """Of what the run leaves behind."""
        return f"{self.seed}-{self.pair}" if self.pair else str(self.seed)

    @property
    def called(self) -> str:
        """How it is run again."""
        return f"seed {self.seed} --pair {self.pair}" if self.pair else f"seed {self.seed}"

    def ways(self) -> Ways:
        """What lies between an agent and what it depends on."""
        return Ways(self.entry_bytes, self.store_s, self.log_s)

    def tables(self) -> dict[str, int]:
        """How agents keep tables. Files that nobody names do not stay for long; small ones become one soon,
        or never in a run.
        """
        at = 3 if self.merges_files else 1000
        return {
            "interval_ms": self.table_ms,
            "compacted_at_files": at,
            **TABLES,
            **(LATEST if self.upsert else {}),
        }

    def kept(self) -> dict[str, str]:
        """What else the compacted topic is configured with."""
        return {"floe.table.mode": "upsert"} if self.upsert else {}

    def bound(self) -> dict[str, str]:
        """What the bound topic is configured with."""
        return {"floe.table.layout": "flat"} if self.flat else {}

    def dump(self) -> str:
        """As JSON that `load` reads."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def load(cls, text: str) -> Plan:
        """The plan of such JSON; what older ones do not name takes no part. Raises TypeError."""
        raw = json.loads(text)
        return cls(**{each.name: _frozen(raw[each.name]) for each in fields(cls) if each.name in raw})


def _frozen(value: Any) -> Any:
    return tuple(_frozen(each) for each in value) if isinstance(value, list) else value


def plan_of(seed: int, seconds: float = 20.0) -> Plan:
    """The seed's own plan."""
    random = Random(seed ^ 0x5EED)
    agents = random.choice((2, 3, 3))
    plan = Plan(
        seed=seed,
        seconds=seconds,
        agents=agents,
        partitions=random.choice((1, 2, 4)),
        writers=random.choice((0, 1, 2)),
        readers=random.choice((1, 1, 2)),
        transactors=random.choice((("v1",), ("v2",), ("v1", "v2"), ("v1", "v1", "v2"), ("v2", "v2"))),
        relay=random.choice(("", "", "v1", "v2")),
        keepers=random.random() < 0.4,
        rate=random.choice((3.0, 6.0, 12.0)),
        fetch_bytes=random.choice((1 << 20, 300)),
        timeout_ms=random.choice((1000, 1000, 5000)),
        snapshot_entries=random.choice((8, 60)),
        table_ms=random.choice((1000, 2000, 5000)),
        latency_s=random.choice(((0.0002, 0.002), (0.001, 0.05))),
        skews_ms=tuple(random.choice((0, 0, 0, 5000, -90_000)) for _ in range(agents)),
        faults=_faults(Random(seed ^ 0xFA17), seconds, agents),
        live_keys=random.choice((0, 4, 10)),
        key_writes=random.choice((0, 15, 40)),
        micro_max=random.choice((4, 4, 8)),
        members=random.choice((0, 0, 2, 3)),
        member_kind=random.choice(("plain", "v2", "v2")),
        changes=random.random() < 0.4,
        seeks_back=random.random() < 0.75,
        entry_bytes=random.choice((1 << 20, 1 << 20, 512)),
        store_s=random.choice(STORES_S),
        log_s=random.choice(LOGS_S),
        pipeliners=random.choice((0, 1, 1)),
        solo=random.random() < 0.5,
        operator=random.random() < 0.4,
        mortal=random.random() < 0.3,
        modern=random.choice((0, 0, 0, 2)),
        static=random.random() < 0.3,
        restored=random.random() < RESTORED_OF,
    )
    return _maybe_more(_with_story(_maybe_upgraded(plan, random), random.choice(("", "", "", *STORIES))))


def _maybe_more(plan: Plan) -> Plan:
    """Tables are compacted; at times with bindings, a registry, newest rows, a quarantine, or damage: to pass
    it over is of the newest level, as the three before it are, and no backup brings it back.
    """
    hurt = Random(plan.seed ^ 0xDA3A).random() < HURT_OF and not plan.restored
    bound = Random(plan.seed ^ 0xB18D).random() < BOUND_OF
    upsert = plan.keepers and Random(plan.seed ^ 0x0B5E).random() < UPSERT_OF
    registrar = Random(plan.seed ^ 0x5C4E).random() < REGISTRAR_OF
    newest = plan.level == FEATURE_LEVEL_MAX
    gated = newest and not plan.restored and Random(plan.seed ^ 0x6A7E).random() < GATED_OF
    hurt, upsert, registrar = (each and newest for each in (hurt, upsert, registrar))
    plan = replace(plan, hurt=hurt, binder=bound, registrar=registrar, merges_files=True, upsert=upsert)
    archived = not plan.restored and Random(plan.seed ^ 0xA2C4).random() < ARCHIVED_OF
    plan = _maybe_near(replace(plan, gated=gated, archived=archived))
    scrubs = not plan.hurt and Random(f"scrub{plan.seed}").random() < SCRUBBED_OF
    return _maybe_queues(_maybe_followed(_maybe_differing(replace(plan, scrubbed=scrubs))))


def _maybe_queues(plan: Plan) -> Plan:
    """At times a plan whose log does not go back with a second cluster. No other draw follows from it."""
    queues = Random(f"queues{plan.seed}").random() < QUEUES_OF and not plan.restored and not plan.hurt
    return replace(plan, queues=queues)


def _maybe_followed(plan: Plan) -> Plan:
    """At times a plan that archives with a replica. What is damaged for a while is copied so, for good."""
    random = Random(f"follow{plan.seed}")
    if not plan.archived or random.random() >= FOLLOWED_OF:
        return plan
    return replace(
        plan, follows=random.choice(("bucket", "bucket" if plan.scrubbed else "copy", "replicated"))
    )


def scrubbed(plan: Plan) -> Plan:
    """The plan with damage of objects, and agents that scrub, for controls: without what only takes time."""
    return replace(plan, scrubbed=True, archived=False, hurt=False, restored=False)


def _maybe_near(plan: Plan) -> Plan:
    """At times a plan of one zone whose agents lie to those that follow them."""
    random = Random(plan.seed ^ 0x2EA2)
    if random.random() >= NEAR_OF:
        return plan
    agents = tuple(range(plan.agents))
    lies = tuple((at, random.uniform(0.5, 4.0), random.choice(LIARS).name, agents) for at in LIES_S)
    return replace(plan, near=True, faults=tuple(sorted((*plan.faults, *lies))))


def _maybe_differing(plan: Plan) -> Plan:
    """At times a member of the log has another log, and an agent starts at it. With two agents nobody could
    tell which is right; agents of one zone follow each other, and a log that goes back asks another question.
    """
    random = Random(f"copies{plan.seed}")
    if random.random() >= DIFFERING_OF or plan.agents < DIFFERING_AGENTS or plan.near or plan.restored:
        return plan
    at, one = random.uniform(3.0, 14.0), random.randrange(plan.agents)
    differs = (at, random.uniform(0.5, 4.0), COPIES[0].name, (one,))
    return replace(plan, faults=tuple(sorted((*plan.faults, differs))))


def _maybe_upgraded(plan: Plan, random: Random) -> Plan:
    """At times the plan on an older level, whose agents are replaced in its course."""
    if random.random() >= UPGRADED_OF:
        return plan
    upgrade = (random.uniform(*UPGRADED_S), 2.0 * plan.agents, "upgrade", (0,))
    others = (each for each in plan.faults if not each[2].startswith("clock-"))
    return replace(plan, level=LEVEL_BEFORE, faults=tuple(sorted((*others, upgrade))))


def _with_story(plan: Plan, story: str) -> Plan:
    """The plan with a story that its clients can live; else as it is."""
    v1 = "v1" in (*plan.transactors, plan.relay)
    lived = {"late-ends": v1, "pause-member-before-end": plan.members > 1 and plan.member_kind == "v2"}
    if not lived.get(story, False):
        return plan
    told = ((at, for_s, story, (0,)) for at, for_s in STORIES[story])
    faults = tuple(sorted((*plan.faults, *told)))
    return replace(plan, timeout_ms=STORY_TIMEOUT_MS, faults=faults)


def _faults(
    random: Random, seconds: float, agents: int
) -> tuple[tuple[float, float, str, tuple[int, ...]], ...]:
    kinds: Sequence[str] = [fault.name for fault in FAULTS if random.random() < COMMON_FAULT_OF]
    kinds = kinds or [random.choice(FAULTS).name]
    faults = []
    at = QUIET_S
    while at < seconds - 1:
        if random.random() < 0.75:
            count = random.choice((1, 1, 1, 2, agents))
            targets = tuple(sorted(random.sample(range(agents), min(count, agents))))
            faults.append((at, random.uniform(0.3, 6.0), random.choice(kinds), targets))
        at += random.uniform(0.5, 3.0)
    return tuple(faults)
