"""Counters of hot paths: read as any other."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from agent.telemetry.tally import Tally


def test_it_reads_as_a_counter() -> None:
    registry = CollectorRegistry()
    tally = Tally("floe_some", "some", registry)
    tally.inc()
    tally.inc(4)
    assert registry.get_sample_value("floe_some_total") == 5
    assert registry.get_sample_value("floe_some_total") == 5
    tally.inc(2)
    assert b"floe_some_total 7.0" in generate_latest(registry)
