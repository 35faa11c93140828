"""What a dashboard is made of, and its JSON as Grafana 10 and newer read it (schema 39).

A query is PromQL in which `@` stands for the agents that the viewer chose: `floe_ready{@}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

SCHEMA = 39
"""Grafana's version of the model; newer ones bring it up to date when they load it."""
COLUMNS = 24
"""Width of Grafana's grid."""
HEIGHT = 8
STAT_HEIGHT = 4
CHOSEN = 'namespace=~"$namespace",job=~"$job",instance=~"$agent"'
"""Which agents: every value of `$namespace` matches targets without that label too."""
SOURCE = {"type": "prometheus", "uid": "${datasource}"}

AGENT = "{{instance}}"
"""A line for each agent."""

Unit = Literal[
    "short", "bytes", "Bps", "s", "ms", "reqps", "ops", "percentunit", "dateTimeFromNow", "bool_yes_no"
]
"""Grafana's names of units."""


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression and what its lines are called (`{{label}}` is a label's value)."""

    text: str
    legend: str

    @property
    def promql(self) -> str:
        """The expression with the agents that the viewer chose."""
        return self.text.replace("@", CHOSEN)


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture: what it tells in a sentence, and from which queries."""

    title: str
    meaning: str
    unit: Unit
    queries: Sequence[Query]
    width: int = 8
    """Of 24 columns."""
    kind: Literal["timeseries", "stat"] = "timeseries"
    red_from: float | None = None
    """Values from here on are red."""
    red_below: float | None = None
    """Values below are red."""

    @property
    def height(self) -> int:
        """In Grafana's rows of 30 pixels."""
        return STAT_HEIGHT if self.kind == "stat" else HEIGHT


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard. `uid` is in its address, so it stays."""

    uid: str
    title: str
    meaning: str
    rows: Sequence[Row]


def line(title: str, meaning: str, unit: Unit, *queries: tuple[str, str], width: int = 8) -> Panel:
    """A panel of lines over time, by (PromQL, legend)."""
    return Panel(title, meaning, unit, [Query(*each) for each in queries], width)


def percentiles(title: str, meaning: str, histogram: str, by: str = "") -> Panel:
    """p50, p99 and p99.9 of a histogram in seconds over the chosen agents; with `by`, p99 by that label."""
    shown = [(0.99, f"{{{{{by}}}}}")] if by else [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")]
    return line(title, meaning, "s", *((quantile(q, histogram, by), name) for q, name in shown))


def quantile(q: float, histogram: str, by: str = "") -> str:
    """A quantile of a histogram over the chosen agents."""
    buckets = f"sum by (le{by and ', ' + by}) (rate({histogram}_bucket{{@}}[$__rate_interval]))"
    return f"histogram_quantile({q}, {buckets})"


def rate(counter: str, by: str = "", scale: str = "") -> str:
    """A counter's growth in a second over the chosen agents, by labels."""
    return f"sum{by and f' by ({by})'} (rate({counter}{{@}}[$__rate_interval])){scale}"


def built(board: Board) -> dict[str, Any]:
    """The board as Grafana's JSON: deterministic, so that a change is a readable difference."""
    return {
        "uid": board.uid,
        "title": board.title,
        "description": board.meaning,
        "tags": ["floe"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [
            {
                "type": "dashboards",
                "tags": ["floe"],
                "title": "Floe",
                "asDropdown": True,
                "keepTime": True,
                "includeVars": True,
            }
        ],
        "templating": {"list": list(_variables())},
        "annotations": {"list": []},
        "panels": list(_placed(board.rows)),
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    ready = "floe_ready"
    yield _choice("namespace", f"label_values({ready}, namespace)", "Namespace")
    ready = 'floe_ready{namespace=~"$namespace"}'
    yield _choice("job", f"label_values({ready}, job)", "Job")
    ready = 'floe_ready{namespace=~"$namespace",job=~"$job"}'
    yield _choice("agent", f"label_values({ready}, instance)", "Agent")


def _choice(name: str, query: str, label: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "label": label,
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _placed(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Panels from left to right, top to bottom, under their rows' headings."""
    number = y = 0
    for row in rows:
        number += 1
        yield {"id": number, "type": "row", "title": row.title, "collapsed": False, "panels": []} | _at(
            0, y, COLUMNS, 1
        )
        y, x, tallest = y + 1, 0, 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y, tallest = 0, y + tallest, 0
            number += 1
            yield _panel(panel, number) | _at(x, y, panel.width, panel.height)
            x, tallest = x + panel.width, max(tallest, panel.height)
        y += tallest


def _at(x: int, y: int, width: int, height: int) -> dict[str, Any]:
    return {"gridPos": {"x": x, "y": y, "w": width, "h": height}}


def _panel(panel: Panel, number: int) -> dict[str, Any]:
    options: dict[str, Any] = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    if panel.kind == "stat":
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
    custom = {"lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.meaning,
        "datasource": SOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": SOURCE,
                "expr": query.promql,
                "legendFormat": query.legend,
                "instant": False,
                "range": True,
            }
            for at, query in enumerate(panel.queries)
        ],
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "thresholds": {"mode": "absolute", "steps": _steps(panel)},
                **({"custom": custom} if panel.kind == "timeseries" else {}),
            },
            "overrides": [],
        },
        "options": options,
    }


def _steps(panel: Panel) -> list[dict[str, Any]]:
    """Grafana's thresholds: each colour counts from its value on."""
    if panel.red_below is not None:
        return [{"color": "red", "value": None}, {"color": "green", "value": panel.red_below}]
    green: list[dict[str, Any]] = [{"color": "green", "value": None}]
    return green if panel.red_from is None else [*green, {"color": "red", "value": panel.red_from}]


def metrics_in(promql: str) -> set[str]:
    """Names of metrics that an expression asks for: all that Floe's and the client library's begin with."""
    return set(re.findall(r"\b(?:floe|process|python)_[a-z0-9_]+", promql))
