"""Where a cluster ends: the model by hand, against runs of real agents, and the page that it writes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from agent.costs import coefficients as measured
from agent.costs.growth import Shape, counted, end, grown, settled
from tests.bench import scale_page
from tests.bench.plot import Curve, Plot

MIB, GIB = 1024**2, 1024**3
NEAR = 1.5
"""How far the model may be off from what was measured: on a machine whose load was 5 to 40 meanwhile."""
PLAIN = Shape(agents=10, write=100 * MIB, zones=1, fanout=0, batch_bytes=MIB, partitions=1_000, producers=0)


def share(shape: Shape, name: str) -> float:
    """Of one resource."""
    (found,) = [use for use in grown(shape).uses if use.name == name]
    return found.share


def test_a_cluster_by_hand() -> None:
    found = counted(PLAIN, 200.0)
    each = measured.ENTRY_BYTES.value + measured.LOG_BYTES_PER_BATCH.value / 2
    assert found.slices == 100
    assert found.log_bytes == pytest.approx(200 * each)
    watched = 200 * (each + measured.WATCH_BYTES.value)
    assert found.etcd_out == pytest.approx(10 * watched + 200 * measured.ANSWER_BYTES.value)
    alone, crowd = measured.FOLLOW_ENTRY.value / 1e6, measured.FOLLOW_CROWD.value / 1e6
    entry = crowd + (alone - crowd) / (1 + 180 * alone) + 10 * measured.LIVE_AGENT.value / 1e9
    assert found.apply == pytest.approx(180 * entry + 100 / measured.APPLY.value)
    assert (found.puts, found.gets) == (200, 0)
    assert counted(replace(PLAIN, zones=3, fanout=1), 200.0).gets == 400
    near = counted(replace(PLAIN, zones=2, relay=True), 200.0)
    assert near.etcd_out == pytest.approx(2 * watched + 200 * measured.ANSWER_BYTES.value)
    handed = 200 * 4 * measured.RELAYED.value / 1e6
    assert [use.used for use in near.uses if "relay" in use.name] == [pytest.approx(near.agent + handed)]


def test_what_producing_costs_is_what_was_measured() -> None:
    """Batches of 16 kB and a PUT as often as in that bench: the row of bench_cost, once more."""
    shape = replace(PLAIN, write=1e9, batch_bytes=16_000)
    found = counted(shape, 1e9 / MIB * measured.PUTS_DEFAULT.value)
    served = (found.agent - found.apply - measured.IDLE.value / 100) * 10
    assert served == pytest.approx(measured.PRODUCE_DEFAULT.value, rel=0.15)


def test_more_agents_follow_more_and_etcd_sends_by_the_square() -> None:
    """Twenty chunks a second of each."""
    shapes = [Shape(agents=agents, write=MIB) for agents in (25, 50, 100)]
    few, more, many = (counted(shape, 20 * shape.agents) for shape in shapes)
    assert few.apply < more.apply < many.apply < 4 * few.apply, "an entry is cheaper in a crowd"
    assert many.etcd_out == pytest.approx(4 * more.etcd_out, rel=0.05)
    assert more.etcd_out == pytest.approx(4 * few.etcd_out, rel=0.05)
    near = [counted(replace(shape, relay=True), 20 * shape.agents) for shape in shapes]
    assert near[2].etcd_out == pytest.approx(4 * near[0].etcd_out, rel=0.05)
    assert near[2].apply == many.apply, "who follows a relay follows as much"


def test_what_is_too_much_comes_in_fewer_chunks_until_they_are_full() -> None:
    shape = Shape(agents=300, write=GIB)
    wished, found = grown(shape), settled(shape)
    assert wished.first.share > 1
    assert found.first.share == pytest.approx(1, rel=1e-6)
    assert found.entries < wished.entries
    assert found.every_s > wished.every_s
    assert found.shape.write / found.entries <= shape.produce.chunk_bytes_max
    full = settled(replace(shape, write=20 * GIB))
    assert full.first.share > 1
    assert full.shape.write / full.entries == pytest.approx(shape.produce.chunk_bytes_max)
    few = Shape(agents=12, write=MIB)
    assert settled(few) == grown(few)


def test_the_end_is_where_the_first_resource_is_used_up() -> None:
    shape = Shape(agents=12, write=MIB)
    found = end(shape)
    assert found.first.share == pytest.approx(1, rel=1e-3)
    assert found.first.source
    assert settled(replace(shape, write=found.shape.write * 1.05)).first.share > 1
    assert settled(replace(shape, write=found.shape.write * 0.8)).first.share <= 1


def test_memory_goes_with_partitions_and_producers() -> None:
    name = "memory of the state"
    few = share(replace(PLAIN, partitions=100_000), name)
    assert share(replace(PLAIN, partitions=200_000), name) == pytest.approx(2 * few)
    producers = share(replace(PLAIN, partitions=100_000, producers=1_000), name) - few
    assert producers == pytest.approx(10_000 * measured.STATE_PRODUCER.value / GIB)


def test_the_model_is_near_what_real_agents_took() -> None:
    runs = scale_page.measured_runs()
    assert [run.asked.agents for run in runs] == list(scale_page.RUNS)
    for run in runs:
        for name, (found, told) in scale_page.pairs(run).items():
            assert found / NEAR <= told <= found * NEAR, (run.asked.agents, name, found, told)


def test_the_page_and_its_plots_are_what_the_model_says() -> None:
    """`python -m tests.bench.scale_page` writes them."""
    assert scale_page.PAGE.read_text() == scale_page.rendered()
    for file, plot in scale_page.plots().items():
        assert (scale_page.DOCS / file).read_text() == plot.svg(), file
        assert f"({file})" in scale_page.PAGE.read_text()


def test_a_plot_has_its_points_where_they_belong() -> None:
    text = Plot("t", "x", "y", [Curve("a < b", [(1, 1), (10, 10), (100, 100)])], mark=10).svg()
    (found,) = re.findall(r'points="([^"]*)"', text)
    points = [tuple(map(float, each.split(","))) for each in found.split()]
    assert points[1][0] - points[0][0] == pytest.approx(points[2][0] - points[1][0], abs=0.2)
    assert points[0][1] - points[1][1] == pytest.approx(points[1][1] - points[2][1], abs=0.2)
    assert f"H{530}" in text
    assert f" {points[1][1]:.1f}H" in text, "the mark goes through the middle point"
    assert "a &lt; b" in text
