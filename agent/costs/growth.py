"""Where a cluster ends: what each of its resources has to do under a load, and which is used up first.

Like the bill (reckoning.py) it holds no number of its own. All rates are a second's, all CPU is shares of a
core. docs/scale.md has what it says, and what it was held against.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from agent.config.limits import ProduceConfig
from agent.costs import coefficients as measured
from agent.costs.flushing import interval_s
from agent.costs.following import US, apply_cores, gathered
from agent.costs.units import GIB, MIB

GB = 1e9
HALVINGS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A cluster and its steady load, alike for all agents."""

    agents: int
    write: float
    """Bytes a second of record batches, of all agents."""
    zones: int = 3
    fanout: float = 3
    """How often each byte is read, at the tail."""
    batch_bytes: float = 16_384
    request_batches: float = 1
    """Batches of one request."""
    producers: int = 100
    """Connections that produce, of each agent."""
    partitions: int = 10_000
    relay: bool = False
    """`relay.enabled`: in each zone one agent follows etcd, the others follow it."""
    produce: ProduceConfig = field(default_factory=ProduceConfig)
    put_s: float = 0.042
    append_s: float = 0.003
    """The mean of a PUT of a chunk and of an append, as assumed by `floe cost`."""


@dataclass(frozen=True, slots=True)
class Use:
    """One resource: what is used and what there is, in one unit; `source` of what a piece of it costs."""

    name: str
    used: float
    limit: float
    unit: str
    source: str

    @property
    def share(self) -> float:
        """Of what there is; above 1 the load is not carried."""
        return self.used / self.limit


@dataclass(frozen=True, slots=True)
class Grown:
    """What a shape comes to."""

    shape: Shape
    entries: float
    slices: float
    log_bytes: float
    etcd_out: float
    """Bytes that etcd sends to agents."""
    etcd_cpu: float
    """Cores of all of its members."""
    puts: float
    gets: float
    """Of the tail, by the zones that did not write it."""
    apply: float
    """Of each agent's core: following and applying what the others wrote, and the batches of all."""
    agent: float
    """Of each agent's core, all of it."""
    uses: tuple[Use, ...]

    @property
    def every_s(self) -> float:
        """Between two chunks of one agent."""
        return self.shape.agents / self.entries

    @property
    def cpu_per_gb(self) -> float:
        """CPU seconds of all agents for each 10^9 bytes written."""
        return self.agent * self.shape.agents / (self.shape.write / GB)

    @property
    def first(self) -> Use:
        """The resource that is nearest to its end, or furthest beyond it."""
        return max(self.uses, key=lambda use: use.share)


def grown(shape: Shape) -> Grown:
    """What a shape comes to, whether it is carried or not."""
    every_s = interval_s(
        shape.produce,
        shape.write / shape.agents,
        shape.batch_bytes * shape.request_batches,
        shape.put_s + shape.append_s,
    )
    return counted(shape, shape.agents / every_s)


def counted(shape: Shape, entries: float) -> Grown:
    """The same for a rate of entries that is known, such as a measured one."""
    slices = shape.write / shape.batch_bytes
    log_bytes = entries * measured.ENTRY_BYTES.value + slices * measured.LOG_BYTES_PER_BATCH.value
    watches = shape.zones if shape.relay else shape.agents
    etcd_out = watches * (log_bytes + entries * measured.WATCH_BYTES.value)
    etcd_out += entries * measured.ANSWER_BYTES.value
    appended = entries * gathered(entries, measured.ETCD_APPEND.value * US, measured.ETCD_CROWD.value * US)
    events = entries * (watches - 1) * measured.ETCD_EVENT.value * US
    members = measured.LOG_MEMBERS.value  # agents watch them evenly; the leader sends the others the log
    apply = apply_cores(shape.agents, entries, slices)
    agent = measured.IDLE.value / 100 + apply + _served(shape, entries, slices) / shape.agents
    return Grown(
        shape=shape,
        entries=entries,
        slices=slices,
        log_bytes=log_bytes,
        etcd_out=etcd_out,
        etcd_cpu=appended + events,
        puts=entries,
        gets=entries * (shape.zones - 1) * measured.ZONE_GETS_PER_CHUNK.value if shape.fanout else 0.0,
        apply=apply,
        agent=agent,
        uses=tuple(
            _uses(
                shape,
                entries,
                agent,
                appended + events / members,
                etcd_out / members + log_bytes * (members - 1),
            )
        ),
    )


def _served(shape: Shape, entries: float, slices: float) -> float:
    """Of all agents: producing and fetching.

    bench_cost's two sizes of batches, what their PUTs cost taken off: a batch, its bytes, and a flush.
    """
    flush = measured.FLUSH.value * US
    large = measured.PRODUCE_LARGE.value - measured.PUTS_LARGE.value * GB / MIB * flush
    default = measured.PRODUCE_DEFAULT.value - measured.PUTS_DEFAULT.value * GB / MIB * flush
    few, many = GB / measured.BATCH_LARGE, GB / measured.BATCH_DEFAULT
    a_batch = max(0.0, (default - large) / (many - few))
    a_gb = max(0.0, large - few * a_batch)
    fetched = shape.write * shape.fanout / GB * measured.FETCH_TAIL.value
    return shape.write / GB * a_gb + slices * a_batch + entries * flush + fetched


def _uses(shape: Shape, entries: float, agent: float, leader: float, told: float) -> Iterator[Use]:
    """All that may end; `leader`: cores of etcd's, `told`: bytes that it sends."""
    yield Use("an agent's event loop", agent, 1.0, "cores", measured.FOLLOW_ENTRY.source)
    if shape.relay:
        handed = entries * max(0.0, shape.agents / shape.zones - 1) * measured.RELAYED.value * US
        yield Use("the loop of a zone's relay", agent + handed, 1.0, "cores", measured.RELAYED.source)
    yield Use("cores of etcd's leader", leader, measured.LOG_CORES.value, "cores", measured.ETCD_EVENT.source)
    yield Use("network of etcd's leader", told, measured.NETWORK.value, "B/s", measured.WATCH_BYTES.source)
    sent = shape.write / shape.agents * (1 + shape.fanout)
    yield Use("network of an agent", sent, measured.NETWORK.value, "B/s", measured.NETWORK.source)
    puts = entries / shape.agents
    yield Use("PUTs of an agent", puts, shape.produce.puts_per_s_max, "1/s", "produce.puts_per_s_max")
    state = shape.partitions * measured.STATE_PARTITION.value
    state += shape.producers * shape.agents * measured.STATE_PRODUCER.value
    most = measured.STATE_MAX.value * GIB
    yield Use("memory of the state", state, most, "B", measured.STATE_PARTITION.source)


def settled(shape: Shape) -> Grown:
    """What a cluster comes to that cannot have so many entries: chunks wait for each other, and get larger.

    As many entries as its resources let there be, down to full chunks (`produce.chunk_bytes_max`): what that
    costs is time. Where those are still too many, the load is not carried, and `first.share` is above 1.
    """
    wished = grown(shape)
    if wished.first.share <= 1:
        return wished
    low, high = shape.write / shape.produce.chunk_bytes_max, wished.entries
    if low >= high or counted(shape, low).first.share > 1:
        return counted(shape, min(low, high))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if counted(shape, middle).first.share <= 1 else (low, middle)
    return counted(shape, low)


def end(shape: Shape) -> Grown:
    """The same cluster, settled, with the most that it writes before a resource is used up."""
    low, high = 0.0, shape.write
    while settled(replace(shape, write=high)).first.share <= 1:
        low, high = high, high * 2
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        carried = settled(replace(shape, write=middle)).first.share <= 1
        low, high = (middle, high) if carried else (low, middle)
    return settled(replace(shape, write=low))
