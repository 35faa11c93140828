"""The model, held against sums made by hand, and against itself with twice the load."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from agent.config.limits import ProduceConfig, TablesConfig
from agent.costs import Bill, Load, LoadError, Prices, Settings, Side, reckoned
from agent.costs import coefficients as measured
from agent.costs.bill import Row, between_zones, total
from agent.costs.cores import on, produce_cores

MIB, GIB = 1024**2, 1024**3
MONTH_S = 730 * 3_600
SETTINGS, PRICES = Settings(), Prices()
LOAD = Load(write=30 * MIB, tables=0.0)


def bill(load: Load = LOAD, settings: Settings = SETTINGS, prices: Prices = PRICES) -> Bill:
    """The bill of a load with everything else as it is by default."""
    return reckoned(load, settings, prices)


def row(found: Bill, what: str, side: Side = Side.FLOE) -> Row:
    """The one row of this name."""
    (one,) = [each for each in found.rows if each.what == what and each.side is side]
    return one


INTERVAL_S = 0.045 + 16_384 / (10 * MIB)
"""A chunk's oldest byte comes one request behind the flush before it, and waits for as long as that takes."""


def test_a_bill_by_hand() -> None:
    """30 MiB/s on three agents: 10 MiB/s each; a chunk lasts 45 ms of PUT and append and one request."""
    found = bill()
    assert found.cluster.agents == 3
    chunks = 3 / INTERVAL_S * MONTH_S
    assert row(found, "PUT chunks").amount == pytest.approx(chunks / 1_000)
    assert row(found, "PUT chunks").cost == pytest.approx(chunks / 1_000 * 0.005)
    assert row(found, "GET the tail in other zones").cost == pytest.approx(2 * chunks / 1_000 * 0.0004)
    week = 30 * 7 * 86_400 / 1024  # GiB
    assert row(found, "segments").amount == pytest.approx(week)
    assert row(found, "segments").cost == pytest.approx(week * 0.023)
    disks = week * 3 / 0.7
    assert row(found, "3 replicas, disks in part free", Side.KAFKA).cost == pytest.approx(disks * 0.08)
    month = 30 * MONTH_S / 1024  # GiB
    assert row(found, "producers to leaders", Side.KAFKA).cost == pytest.approx(month * 2 / 3 * 0.02)
    assert row(found, "leaders to replicas", Side.KAFKA).cost == pytest.approx(month * 2 * 0.02)
    assert row(found, "brokers to consumers", Side.KAFKA).cost == 0
    assert row(found, "3 agents").cost == pytest.approx(3 * 2 * 730 * 0.0408)


def test_merging_by_hand() -> None:
    """100 partitions of 0.3 MiB/s: 936 slices of one 46.6 ms chunk of each zone and batch, then a segment."""
    found = bill().cluster.merging
    batches = 0.3 * MIB / 3 / 16_384 * INTERVAL_S  # in one chunk
    slices = 3 / INTERVAL_S * (1 - 2.718281828**-batches)
    assert found.slices_per_s == pytest.approx(100 * slices)
    assert found.every_s == pytest.approx(936 / slices)
    assert found.puts == pytest.approx(2 * 100 * slices / 936)
    assert 8**found.rewrites == pytest.approx(64 / (0.3 * 936 / slices))  # MiB of a full segment by a new one


@pytest.mark.parametrize(
    ("what", "side", "factor"),
    [
        ("segments", Side.FLOE, 2),
        ("PUT chunks", Side.FLOE, 1),  # larger ones, no more
        ("fetch, the tail", Side.FLOE, 2),
        ("produce", Side.FLOE, 2),
        ("etcd to its members and to agents", Side.FLOE, 2),
        ("leaders to replicas", Side.KAFKA, 2),
        ("3 replicas, disks in part free", Side.KAFKA, 2),
        ("rows", Side.TABLES, 2),
        ("PUT data files of commits", Side.TABLES, 1),
    ],
)
def test_twice_the_load(what: str, side: Side, factor: float) -> None:
    once, twice = (bill(replace(LOAD, tables=1.0, agents=6, write=write * MIB)) for write in (20, 40))
    assert row(twice, what, side).amount == pytest.approx(factor * row(once, what, side).amount, rel=1e-4)


def test_twice_the_retention_is_twice_the_segments_and_no_more_requests() -> None:
    once, twice = bill(), bill(replace(LOAD, retention_s=14 * 86_400))
    assert row(twice, "segments").amount == pytest.approx(2 * row(once, "segments").amount)
    assert row(twice, "PUT chunks") == row(once, "PUT chunks")


def test_twice_the_prices_is_twice_the_bill() -> None:
    doubled = {
        name: 2 * value
        for name, value in Prices().model_dump().items()
        if isinstance(value, float) and name != "block_mib_s_included"
    }
    found = bill(replace(LOAD, tables=1.0), prices=Prices(**doubled))
    for side in Side:
        assert found.total(side) == pytest.approx(2 * bill(replace(LOAD, tables=1.0)).total(side))


def test_a_longer_linger_buys_fewer_puts() -> None:
    rare = Settings(produce=ProduceConfig(linger_ms=250, quiet_ms=250))
    slow = replace(LOAD, put_s=0.3)
    assert bill(slow, rare).cluster.chunks_per_s < 0.3 * bill().cluster.chunks_per_s


def test_clients_that_say_no_zone_pay_for_the_way() -> None:
    found = bill(replace(LOAD, zoned=False))
    away = 30 * MONTH_S / 1024 * 2 / 3
    assert row(found, "producers to agents").amount == pytest.approx(away)
    assert row(found, "agents to consumers").amount == pytest.approx(3 * away)
    assert row(found, "brokers to consumers", Side.KAFKA).amount == pytest.approx(3 * away)


def test_one_zone_sends_nothing_to_another() -> None:
    found = bill(replace(LOAD, zones=1, zoned=False))
    assert [each.what for each in found.rows if each.kind == "network" and each.amount] == []
    assert row(found, "GET the tail in other zones").amount == 0


@pytest.mark.parametrize(
    ("replicas", "zones", "expected"), [(3, 3, 2), (3, 2, 4 / 3), (3, 1, 0), (1, 3, 0), (4, 3, 2.5)]
)
def test_copies_between_zones(replicas: int, zones: int, expected: float) -> None:
    assert between_zones(replicas, zones) == pytest.approx(expected)


def test_readers_of_old_data_ask_the_store() -> None:
    found = bill(replace(LOAD, read_cold=0.1))
    reads = 30 * MIB * 3 * 0.1 / MIB + 30 * MIB * 3 * 0.1 / (64 * MIB)
    assert row(found, "GET old data").amount == pytest.approx(reads * MONTH_S / 1_000)


def test_compaction_keeps_less_and_writes_it_again() -> None:
    found, without = bill(replace(LOAD, compacted=1.0, survives=0.25)), bill()
    assert row(found, "segments").amount == pytest.approx(0.25 * row(without, "segments").amount)
    assert found.cluster.compaction.read == pytest.approx(60 * MIB)  # as much that is clean as that is new
    assert found.cluster.compaction.written == pytest.approx(37.5 * MIB)
    assert row(found, "compaction").amount == pytest.approx(60 * MIB / 1e6 / measured.COMPACT.value)


def test_cores_of_the_two_measured_batches_are_those_of_the_rows() -> None:
    for size, told in (
        (measured.BATCH_LARGE, measured.PRODUCE_LARGE),
        (measured.BATCH_DEFAULT, measured.PRODUCE_DEFAULT),
    ):
        load = replace(LOAD, write=1e9, batch_bytes=size)
        found = produce_cores(load, measured.PRODUCE_LARGE.value, measured.PRODUCE_DEFAULT.value)
        assert found == pytest.approx(told.value)


def test_agents_are_as_many_as_the_cores_need() -> None:
    load = replace(LOAD, write=2_000 * MIB, batch_bytes=262_144)
    found = bill(load).cluster
    assert found.agents > 3
    assert found.carries(load, 0.6)
    assert not on(load, Settings(), found.agents - 1).carries(load, 0.6)


def test_loads_that_nothing_carries_are_refused() -> None:
    with pytest.raises(LoadError, match=r"--agents 3 do not carry the load: .* leave --agents out"):
        bill(replace(LOAD, write=2_000 * MIB, agents=3))
    with pytest.raises(LoadError, match="applying the log alone takes"):
        bill(replace(LOAD, write=900_000 * MIB))
    with pytest.raises(LoadError, match="--agents 2 is below --zones 3"):
        replace(LOAD, agents=2)
    with pytest.raises(LoadError, match="--topics 200 is above --partitions 100"):
        replace(LOAD, topics=200)
    with pytest.raises(LoadError, match="a batch holds one message at least"):
        replace(LOAD, message_bytes=1e6)


@pytest.mark.parametrize("write", [1, 1_000, 1e6, 1e8])
@pytest.mark.parametrize("more", [{}, {"partitions": 20_000}, {"zones": 1, "partitions": 1, "topics": 1}])
def test_any_load_has_a_bill_without_negative_rows(write: float, more: dict[str, int]) -> None:
    found = bill(replace(LOAD, write=write, tables=1.0, compacted=0.5, **more))
    assert [each for each in found.rows if not each.amount >= 0] == []
    assert total(found.rows, *Side) == pytest.approx(sum(each.cost or 0 for each in found.rows))
    assert json.loads(json.dumps(found.as_json()))["per_month"].keys() == {side.value for side in Side}


def test_small_commits_of_many_topics_are_made_rarer() -> None:
    load = replace(LOAD, write=100_000, partitions=10_000, topics=1_000, tables=1.0)
    found = on(load, Settings(), 3).tables
    assert found is not None
    assert found.interval_s == pytest.approx(1_000 * (10 + 3.39) / (30 * 3))
    assert found.data_puts + found.metadata_puts == pytest.approx(90)
    unbound = on(load, Settings(tables=TablesConfig(objects_per_s_max=0)), 3).tables
    assert unbound is not None
    assert unbound.interval_s == 4.5


def test_sizes_are_bytes_and_gib() -> None:
    assert row(bill(replace(LOAD, write=GIB / (7 * 86_400))), "segments").amount == pytest.approx(1)
