"""docs/metrics.md: fresh, whole, and each name with one meaning and one unit."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from agent.telemetry.docs import PAGE, own, render
from agent.telemetry.figures import FIGURES, QUEUES, READS
from tests.unit.agent.test_app import World, http

UNITS = ("bytes", "seconds", "ms", "ratio", "revisions")


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run python -m agent.telemetry.docs"


def test_each_name_stands_there_once_and_says_what_it_means() -> None:
    rows = own()
    assert len({row.name for row in rows}) == len(rows)
    assert not [row.name for row in rows if len(row.meaning) < 8]
    assert not [row.name for row in rows if re.search(r"\b(of|than) these\b|\bit left\b", row.meaning)]


def test_no_labels_value_changes_the_unit() -> None:
    """`…{kind="gets"}` beside `…{kind="get_bytes"}` could not be added, nor drawn on one axis."""
    for figure, labels in [*READS.values(), *QUEUES.values()]:
        assert len(FIGURES[figure].labels) == len(labels), figure
        assert not [each for each in labels if each.rpartition("_")[2] in UNITS], figure
    for names in (READS, QUEUES):
        for name, (figure, _) in names.items():
            assert ("bytes" in name) == ("bytes" in figure), f"{name} is shown as {figure}"


async def test_what_an_agent_shows_is_what_the_page_names() -> None:
    world = World()
    app = await world.start("a")
    text = (await http(app, "/metrics")).text
    counted = {*app._reads(), *app._queues()}
    await app.stop()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    shown = {name for name in families if name.startswith("floe_")}
    page = {row.name.removesuffix("_total"): row for row in own()}
    assert shown <= page.keys(), "the page lacks them"
    assert {"floe_dependency_up", "floe_memory_needed_bytes", "floe_read_slices"} <= shown
    samples = [
        (sample, page[name])
        for name, family in families.items()
        if name in page
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    ]
    for sample, row in samples:
        assert set(sample.labels) == set(row.labels), sample
    elsewhere = {"connections", "request_bytes", "tail_hits", "cold_hits", "cold_reads", "fetch_parked"}
    assert counted <= READS.keys() | QUEUES.keys() | elsewhere, "counted, and shown nowhere"


ROOT = PAGE.parents[1]
HISTORY = {ROOT / "docs" / "decisions", ROOT / "docs" / "proofs"}
"""What was written down once, and stays."""
OTHERS = {"floe_zone"}
"""What begins as a metric and is none: a client id says it."""
NAME = re.compile(r"(?<![\w.])floe_[a-z0-9_]*[a-z0-9](?:_?[…*])?(?![a-z])")
"""Also the beginning of several names, as `floe_latest_…`."""


def pages() -> list[Path]:
    """All that tell users of metrics: they write them into their own rules."""
    docs = [each for each in (ROOT / "docs").rglob("*.md") if not HISTORY & set(each.parents)]
    chart = [
        each
        for each in (ROOT / "helm").rglob("*")
        if each.suffix in {".md", ".yaml", ".tpl", ".txt", ".json"}
    ]
    return [*docs, *chart, ROOT / "README.md", ROOT / "deploy" / "alerts.yaml"]


def test_each_metric_that_users_are_told_of_is_there() -> None:
    known = {row.name for row in own()} | OTHERS
    seen, wrong = set[str](), []
    for page in pages():
        for found in NAME.findall(page.read_text(encoding="utf-8")):
            seen.add(found)
            name = re.sub(r"_(bucket|sum|count)$", "", found)
            start = found.rstrip("…*")
            if start == found and not {found, name} & known:
                wrong.append(f"{page.relative_to(ROOT)}: {found}")
            if start != found and not any(each.startswith(start) for each in known):
                wrong.append(f"{page.relative_to(ROOT)}: {found}")
    assert not wrong, "no agent shows these"
    assert {"floe_produce_buffered_bytes", "floe_append_seconds_bucket", "floe_process_up"} <= seen
