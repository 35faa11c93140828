"""Apache Kafka's rows of the bill: brokers with block storage, replicas in other zones.

Without tiered storage. A replica costs its leader what a consumer does, and its own broker what a produce
does; consumers read from the replica of their zone where clients say theirs (KIP-392).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from agent.costs import coefficients as measured
from agent.costs.bill import Row, Side, between_zones, busy, sent, stored
from agent.costs.cores import produce_cores
from agent.costs.load import Load
from agent.costs.prices import HOURS_PER_MONTH, Prices
from agent.costs.units import MIB

GB = 1e9


def rows(load: Load, prices: Prices) -> Iterator[Row]:
    """Storage, cores, network."""
    side, replicas = Side.KAFKA, load.kafka_replicas
    brokers = brokers_of(load)
    kept = 1 - load.compacted * (1 - load.survives)
    size = load.write * kept * load.retention_s * replicas / (1 - load.disk_free)
    yield stored(
        side,
        f"{replicas} replicas, disks in part free",
        size,
        prices.block_gib_month,
        "--kafka-replicas, --disk-free",
    )
    per_broker = (load.write * replicas + load.cold_read) / brokers / MIB
    more = brokers * max(0.0, per_broker / load.busy_max - prices.block_mib_s_included)
    yield Row(
        side, "storage", "throughput of disks", more, "MiB/s", prices.block_mib_s_month, "--write, --busy"
    )
    yield from _cores(load, brokers, prices)
    yield from _network(load, prices)


def _cores(load: Load, brokers: int, prices: Prices) -> Iterator[Row]:
    side, hour = Side.KAFKA, prices.vcpu_hour * HOURS_PER_MONTH
    produced, copied, fetched = busy_cores(load)
    yield busy(side, "produce", produced, measured.KAFKA_PRODUCE_DEFAULT.source)
    yield busy(side, "replicas fetch and append", copied, "derived: a fetch and a produce for each")
    yield busy(side, "fetch", fetched, measured.KAFKA_FETCH.source)
    paid = brokers * load.cores_each
    yield Row(
        side, "cores", f"{brokers} brokers", paid, "vCPU", hour, "--busy, --cores-each, --kafka-replicas"
    )
    members = measured.LOG_MEMBERS
    yield Row(
        side, "cores", "controllers", members.value * measured.LOG_CORES.value, "vCPU", hour, members.source
    )
    disks = members.value * measured.LOG_DISK.value
    yield Row(
        side, "storage", "controllers' disks", disks, "GiB", prices.block_gib_month, measured.LOG_DISK.source
    )


def busy_cores(load: Load) -> tuple[float, float, float]:
    """Of produces, of replicas and of consumers."""
    produced = produce_cores(load, measured.KAFKA_PRODUCE_LARGE.value, measured.KAFKA_PRODUCE_DEFAULT.value)
    a_read = load.write / GB * measured.KAFKA_FETCH.value
    return produced, (load.kafka_replicas - 1) * (produced + a_read), load.fanout * a_read


def brokers_of(load: Load) -> int:
    """As many as the cores need, one for each replica and zone at least."""
    needed = math.ceil(sum(busy_cores(load)) / load.busy_max / load.cores_each)
    return max(load.kafka_replicas, load.zones, needed)


def _network(load: Load, prices: Prices) -> Iterator[Row]:
    side, price, away = Side.KAFKA, prices.between_zones_gib, (load.zones - 1) / load.zones
    yield sent(side, "producers to leaders", load.write * away, price, "leaders are in any zone")
    copies = load.write * between_zones(load.kafka_replicas, load.zones)
    yield sent(side, "leaders to replicas", copies, price, "replicas are spread over the zones")
    far = max(0.0, 1 - load.kafka_replicas / load.zones) if load.zoned else away
    told = "the zone's replica (KIP-392, --zoned)" if load.zoned else "leaders (--unzoned)"
    yield sent(side, "brokers to consumers", load.write * load.fanout * far, price, told)
