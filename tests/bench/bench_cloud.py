"""Latencies with the delays of S3 Standard and S3 Express, open loop, beside the plans of others.

Measured: an agent in each of two zones, etcd of three members with a millisecond between, MinIO behind the
drawn delays (tests/bench/cloud); consumers at the agent that is written to, and in the other zone. Every plan
has agents of its own, all at once, and they take turns. In virtual time: the same delays and the produce
path's own code with infinitely fast processors (tests/bench/cloud/virtual.py): what a busy machine hides.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import uvloop

from agent.config.limits import FetchConfig, ProduceConfig
from deploy.services.floe import FloeAgent
from tests.bench.cloud.load import PARTITIONS, PERIODS_S, Load, percentiles, run
from tests.bench.cloud.servers import Cloud
from tests.bench.cloud.virtual import reading, waits
from tests.bench.figure import Figure
from tests.bench.load import create_topic

MB = 1e6
RATES_MB = (1, 10, 50)
SECONDS, VIRTUAL_SECONDS, ROUNDS = 23.0, 123.0, 3
PUTS_PER_S, READS_PER_S = 25, 10
ZONES = ("a", "b")
OURS: dict[str, dict[str, Any]] = {"standard": {"puts_per_s_max": PUTS_PER_S - 0.1}, "express": {}}
OTHERS: dict[str, dict[str, Any]] = {
    "250 ms, 8 MiB": {"linger_ms": 250, "quiet_ms": 250, "chunk_bytes_max": 8 << 20},
    "100 ms": {"linger_ms": 100, "quiet_ms": 100, "chunk_bytes_max": 8 << 20},
}
"""By their published settings, with Floe's hedges and all else as it is."""
GOALS_MS = {"standard": (75, 250, 500), "express": (20, 50, None)}
NAMES = {"standard": "S3 Standard's delays", "express": "S3 Express' delays"}
CUTS = ("p50", "p99", "p99.9")
_topics = count(1)


@dataclass(slots=True)
class Runs:
    """What one plan took under one load, all rounds: ms, requests of chunks, MiB and seconds."""

    acknowledged: list[float] = field(default_factory=list)
    near: list[float] = field(default_factory=list)
    far: list[float] = field(default_factory=list)
    puts: int = 0
    gets: int = 0
    mib: float = 0.0
    seconds: float = 0.0

    def add(self, cloud: Cloud, agents: list[FloeAgent], load: Load) -> None:
        """One more round, on a topic of its own."""
        topic = f"cloud-{next(_topics)}"
        uvloop.run(create_topic(agents[0].bootstrap, topic, PARTITIONS))
        before = cloud.delays.counts()
        found = uvloop.run(run(agents[0].bootstrap, [each.bootstrap for each in agents], topic, load))
        assert not found.failed, f"{found.failed} requests were refused"
        after = cloud.delays.counts()
        self.acknowledged += found.acknowledged
        self.near += found.ends[0]
        self.far += found.ends[1]
        self.puts += after.get("PUT chunk", 0) - before.get("PUT chunk", 0)
        self.gets += after.get("GET chunk", 0) - before.get("GET chunk", 0)
        self.mib += load.rate * load.seconds / 2**20
        self.seconds += load.seconds


def measured(profile: str) -> Iterator[Figure]:
    """With real servers."""
    with Cloud(profile) as cloud:
        plans = {"": OURS[profile], **OTHERS}
        agents = {
            plan: cloud.cluster(f"plan-{number}", ZONES, settings)
            for number, (plan, settings) in enumerate(plans.items())
        }
        middle = {plan: Runs() for plan in plans}
        for turn in range(ROUNDS):
            for plan in list(plans) if turn % 2 == 0 else reversed(plans):
                middle[plan].add(cloud, agents[plan], Load(10 * MB, 16, SECONDS, seed=turn + 1))
        yield from of_middle(profile, middle)
        for rate in RATES_MB:
            for producers in PERIODS_S:
                runs = Runs()
                runs.add(cloud, agents[""], Load(rate * MB, producers, SECONDS))
                yield from of_load(profile, rate, producers, runs)


def of_middle(profile: str, middle: dict[str, Runs]) -> Iterator[Figure]:
    """The load that goals are set for."""
    title, ours = f"{NAMES[profile]}, 10 MB/s of 16", middle[""]
    for cut, value, goal in zip(CUTS, percentiles(ours.near), GOALS_MS[profile], strict=True):
        yield Figure(f"{title}: end to end, {cut}", value, "ms", goal=goal, better="less")
    for cut, value in zip(CUTS, percentiles(ours.far), strict=True):
        yield Figure(f"{title}: end to end in the other zone, {cut}", value, "ms", better="less")
    for plan in OTHERS:
        theirs = percentiles(middle[plan].near)[1]
        yield Figure(
            f"{title}: end to end, p99, and {plan}",
            percentiles(ours.near)[1],
            "ms",
            plan,
            theirs,
            0.6,
            "less",
        )
    goal = PUTS_PER_S if profile == "standard" else None
    yield Figure(f"{title}: PUTs", ours.puts / ours.seconds, "PUTs/s", goal=goal, better="less")


def of_load(profile: str, rate: float, producers: int, runs: Runs) -> Iterator[Figure]:
    """One of the other loads."""
    title = f"{NAMES[profile]}, {rate} MB/s of {producers}"
    for what, values in (("acknowledged", runs.acknowledged), ("end to end", runs.near)):
        for cut, value in zip(CUTS, percentiles(values), strict=True):
            yield Figure(f"{title}: {what}, {cut}", value, "ms", better="less")
    yield Figure(f"{title}: PUTs", runs.puts / runs.mib, "PUTs/MiB", better="less")
    yield Figure(f"{title}: GETs", runs.gets / runs.mib, "GETs/MiB", better="less")


def virtual(profile: str) -> Iterator[Figure]:
    """Without a machine: five seeds each, their medians; how many producers send hardly matters there."""

    def taken(settings: dict[str, Any]) -> tuple[list[float], float]:
        runs = [
            waits(
                profile, ProduceConfig.model_validate(settings), Load(1 * MB, 1, VIRTUAL_SECONDS, seed=seed)
            )
            for seed in range(1, 6)
        ]
        cuts = zip(*(percentiles(each.taken_ms) for each in runs), strict=True)
        return [statistics.median(cut) for cut in cuts], statistics.median(each.puts_per_s for each in runs)

    title = f"{NAMES[profile]}, in virtual time"
    ours, puts_per_s = taken(OURS[profile])
    for cut, value, goal in zip(CUTS, ours, GOALS_MS[profile], strict=True):
        yield Figure(f"{title}: acknowledged, {cut}", value, "ms", goal=goal, better="less")
    goal = PUTS_PER_S if profile == "standard" else None
    yield Figure(f"{title}: PUTs", puts_per_s, "PUTs/s", goal=goal, better="less")
    bare = {f"{name}, no hedges": {**plan, "hedge_ms": 0} for name, plan in OTHERS.items()}
    for name, change in {"no hedges": {**OURS[profile], "hedge_ms": 0}, **OTHERS, **bare}.items():
        theirs, _ = taken(change)
        ratio = 0.6 if "ms" in name else None
        yield Figure(f"{title}: acknowledged, p99, and {name}", ours[1], "ms", name, theirs[1], ratio, "less")


def reads(profile: str) -> Iterator[Figure]:
    """Consumers' reads of the bucket in virtual time, with and without hedges: medians of five seeds."""

    def taken(hedge_ms: int) -> tuple[list[float], float]:
        runs = [reading(profile, hedge_ms, READS_PER_S, VIRTUAL_SECONDS, seed) for seed in range(1, 6)]
        cuts = zip(*(percentiles(each.taken_ms) for each in runs), strict=True)
        return [statistics.median(cut) for cut in cuts], statistics.median(each.gets for each in runs)

    title = f"{NAMES[profile]}, in virtual time"
    hedged, gets = taken(FetchConfig().hedge_ms)
    bare, _ = taken(0)
    for cut, ours, theirs in zip(CUTS, hedged, bare, strict=True):
        yield Figure(f"{title}: a read of the bucket, {cut}", ours, "ms", "no hedges", theirs, better="less")
    yield Figure(f"{title}: a read of the bucket", gets, "GETs", better="less")


def figures() -> Iterable[Figure]:
    """Without a machine first."""
    for profile in NAMES:
        yield from virtual(profile)
        yield from reads(profile)
    for profile in NAMES:
        yield from measured(profile)
