"""Several agents' metrics as one page: families once, a label more on every sample, nothing else changed."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from agent.processes.exposition import LABEL, merged
from agent.telemetry.docs import own
from agent.telemetry.supervised import SupervisorMetrics

ODD = 'a "quoted" \\ {brace} and\nline, # HELP x'


def page(number: int) -> str:
    """One agent's, with what is hard to read."""
    registry = CollectorRegistry()
    Gauge("plain", "A help with {braces}", registry=registry).set(number)
    Counter("named", "Help", ["text"], registry=registry).labels(ODD).inc(number)
    Histogram("times", "Help", ["api"], buckets=(1, 2), registry=registry).labels("x").observe(1.5)
    if number == 2:
        Gauge("only_here", "Help", registry=registry).set(float("inf"))
    return generate_latest(registry).decode()


def test_every_sample_is_there_once_with_its_process() -> None:
    pages = {str(number): page(number) for number in (1, 2)}
    families = list(text_string_to_metric_families(merged(pages)))
    names = [each.name for each in families]
    assert len(names) == len(set(names))
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }
    expected = {
        (sample.name, tuple(sorted({**sample.labels, LABEL: process}.items()))): sample.value
        for process, text in pages.items()
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found == expected
    types = {each.name: each.type for each in families}
    assert (types["plain"], types["named"], types["times"]) == ("gauge", "counter", "histogram")
    assert len(expected) > 12


def test_help_and_type_stand_once_before_all_of_a_family() -> None:
    lines = merged({"0": page(1), "1": page(2)}).splitlines()
    begin = lines.index("# TYPE plain gauge")
    assert lines[begin - 1 : begin + 3] == [
        "# HELP plain A help with {braces}",
        "# TYPE plain gauge",
        'plain{process="0"} 1.0',
        'plain{process="1"} 2.0',
    ]
    assert merged({}) == ""


def test_no_agent_has_the_label_itself() -> None:
    ours = {"floe_process_up", "floe_process_replaced_total"}
    assert [each.name for each in own() if LABEL in each.labels and each.name not in ours] == []
    assert {each.name for each in own()} >= ours
    assert generate_latest(SupervisorMetrics().registry)
