"""Grafana's dashboards ask for what agents show, as what it is, and Prometheus understands each query."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.telemetry.docs import Row, around, own
from deploy.dashboards.__main__ import FOLDER, text_of
from deploy.dashboards.boards import BOARDS, LEFT_OUT, SILENT
from deploy.dashboards.panels import COLUMNS, Board, built, metrics_in
from deploy.services.floe import FloeAgent
from deploy.services.prometheus import Prometheus
from tests.deploy.test_chart import CHART, render, resources

each_board = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
TARGET = {"namespace", "job", "instance"}
"""Labels that Prometheus gives what it scrapes."""
SCRAPED_S_MAX = 120
LABELS = {"process": set[str](), "python": {"generation"}}


def queries(board: Board) -> list[str]:
    return [query.promql for row in board.rows for panel in row.panels for query in panel.queries]


def metrics() -> dict[str, Row]:
    """By every name under which a sample is shown."""
    known: dict[str, Row] = {}
    for row in [*own(), *around()]:
        endings = ("_bucket", "_sum", "_count") if row.kind == "histogram" else ("",)
        known |= {row.name + ending: row for ending in endings}
    return known


@each_board
def test_the_file_is_what_the_script_writes(board: Board) -> None:
    path = FOLDER / f"{board.uid}.json"
    assert path.read_text() == text_of(board), "run `python -m deploy.dashboards`"
    assert {each.name for each in FOLDER.glob("*.json")} == {f"{each.uid}.json" for each in BOARDS}


@each_board
def test_queries_ask_for_what_agents_show_as_what_it_is(board: Board) -> None:
    known = metrics()
    for promql in queries(board):
        for name in metrics_in(promql):
            assert name in known, f"{promql}: agents show no {name}"
            grown = re.search(rf"(?:rate|increase)\({name}\{{", promql) is not None
            counted = known[name].kind in ("counter", "histogram")
            assert grown == counted, f"{promql}: {name} is a {known[name].kind}"
        labels = {label for name in metrics_in(promql) for label in known[name].labels}
        asked = {each.strip() for by in re.findall(r"by \(([^)]*)\)", promql) for each in by.split(",")}
        assert asked <= labels | TARGET | {"le"}, f"{promql}: {asked - labels - TARGET} are no labels"
        assert ("le" in asked) == promql.startswith("histogram_quantile"), promql


@each_board
def test_legends_name_labels_that_are_left(board: Board) -> None:
    """What `sum by (api)` leaves is `api`: a legend of another label is empty."""
    for row in board.rows:
        for panel in row.panels:
            for query in panel.queries:
                named = set(re.findall(r"\{\{(\w+)\}\}", query.legend))
                left = {e.strip() for by in re.findall(r"by \(([^)]*)\)", query.text) for e in by.split(",")}
                assert named == left - {"le"}, f"{panel.title}: {query.text} leaves {left}, shows {named}"


def test_every_metric_is_shown_or_left_out_by_name() -> None:
    shown = {name for board in BOARDS for promql in queries(board) for name in metrics_in(promql)}
    known = metrics()
    missing = {row.name for name, row in known.items()} - {known[name].name for name in shown}
    assert missing == set(LEFT_OUT)


@each_board
def test_panels_fill_the_grid_and_none_covers_another(board: Board) -> None:
    taken: set[tuple[int, int]] = set()
    shown = built(board)
    for panel in shown["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= COLUMNS
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, f"{panel['title']} covers another panel"
        taken |= cells
    assert len(taken) == COLUMNS * (1 + max(y for _, y in taken)), "a line has a hole: see the row's widths"
    assert len({panel["id"] for panel in shown["panels"]}) == len(shown["panels"])
    assert all(panel["description"] for panel in shown["panels"] if panel["type"] != "row")


def test_the_chart_brings_each_as_a_config_map() -> None:
    values = CHART / "ci" / "full.yaml"
    rendered = resources(
        render(values, "--set", "dashboards.enabled=true", "--set", "dashboards.labels.team=a")
    )
    brought = {
        name: json.loads(text)
        for key, each in rendered.items()
        if key.startswith("ConfigMap/") and each["metadata"]["labels"].get("grafana_dashboard") == "1"
        for name, text in each["data"].items()
        if each["metadata"]["labels"]["team"] == "a"
    }
    assert brought == {f"{board.uid}.json": built(board) for board in BOARDS}
    assert not any("grafana_dashboard" in json.dumps(each) for each in resources(render(values)).values())


@pytest.fixture(scope="module")
def prometheus() -> Iterator[Prometheus]:
    with Prometheus() as running:
        yield running


@pytest.mark.services
@each_board
def test_prometheus_understands_each_query(board: Board, prometheus: Prometheus) -> None:
    for promql in queries(board):
        prometheus.value(promql.replace("$__rate_interval", "1m"))
    with pytest.raises(OSError, match="400"):
        prometheus.value("rate(floe_ready)")


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus that has scraped an embedded agent to which nobody came, a few times."""
    folder = tmp_path_factory.mktemp("idle")
    settings = {"log": {"url": f"sqlite://{folder}/log.sqlite"}, "store": {"url": f"file://{folder}/store"}}
    with FloeAgent("idle", settings, folder) as agent, Prometheus(interval_s=1) as running:
        running.scrape([agent.http.removeprefix("http://")])
        deadline = time.monotonic() + SCRAPED_S_MAX
        while not running.value("count_over_time(floe_ready[5m]) >= 3"):
            assert time.monotonic() < deadline, "Prometheus does not scrape"
            time.sleep(0.2)
        yield running


@pytest.mark.services
@each_board
def test_a_panel_without_data_says_that_it_may(board: Board, idle: Prometheus) -> None:
    """Where nothing happened yet and what is optional is off; "No data" is a fault then."""
    empty = {
        f"{panel.title}: {each.text}"
        for row in board.rows
        for panel in row.panels
        for each in panel.queries
        if not panel.empty and not idle.value(each.text.replace("@", "").replace("$__rate_interval", "5m"))
        if not metrics_in(each.text) <= set(SILENT)
    }
    assert empty == set()


@pytest.mark.services
def test_what_may_be_silent_is(idle: Prometheus) -> None:
    """Else a query that no longer asks for anything would go unseen for nothing."""
    assert [name for name in SILENT if idle.value(name)] == []


def test_a_folder_of_the_chart_holds_them() -> None:
    assert FOLDER.is_relative_to(Path(CHART)), "Helm reads files of the chart only"
