"""What a dashboard is made of, and its JSON as Grafana 10 and newer read it (schema 39).

A query is PromQL in which `@` stands for the agents that the viewer chose: `floe_ready{@}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
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

Unit = Literal["short", "bytes", "Bps", "s", "ms", "reqps", "ops", "percentunit"]
"""Grafana's names of units."""
TOP_AT_LEAST: Mapping[Unit, float] = {
    "short": 1,
    "bytes": 1024,
    "Bps": 1024,
    "s": 0.01,
    "ms": 10,
    "reqps": 0.01,
    "ops": 0.01,
    "percentunit": 0.01,
}
"""How far an axis goes at least: one of zeros alone would go to 100, or to 1.67 minutes."""
NONE = "None so far"
THIRDS, QUARTERS, HALVES = (8,) * 3, (6,) * 4, (12,) * 2
"""Widths that fill a line."""


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
    kind: Literal["timeseries", "stat"] = "timeseries"
    red_from: float | None = None
    """Values from here on are red."""
    red_below: float | None = None
    """Values below are red."""
    empty: str = ""
    """What is shown where there is nothing to show and nothing wrong with that; else it says "No data"."""
    many: bool = False
    """So many lines that their names stand at the right and not below."""
    top_at_least: float | None = None
    """How far the axis goes at least, where TOP_AT_LEAST is too little."""

    @property
    def height(self) -> int:
        """In Grafana's rows of 30 pixels."""
        return STAT_HEIGHT if self.kind == "stat" else HEIGHT


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading, and how wide each is: of 24 columns."""

    title: str
    panels: Sequence[Panel]
    widths: Sequence[int]


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard. `uid` is in its address, so it stays."""

    uid: str
    title: str
    meaning: str
    rows: Sequence[Row]


def line(
    title: str,
    meaning: str,
    unit: Unit,
    *queries: tuple[str, str],
    empty: str = "",
    many: bool = False,
    top_at_least: float | None = None,
) -> Panel:
    """A panel of lines over time, by (PromQL, legend)."""
    asked = [Query(*each) for each in queries]
    return Panel(title, meaning, unit, asked, empty=empty, many=many, top_at_least=top_at_least)


def percentiles(title: str, meaning: str, histogram: str, by: str = "") -> Panel:
    """p50, p99 and p99.9 of a histogram in seconds over the chosen agents; with `by`, p99 by that label."""
    shown = [(0.99, f"{{{{{by}}}}}")] if by else [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")]
    asked = [(quantile(q, histogram, by), name) for q, name in shown]
    return line(title, meaning, "s", *asked, empty=NONE, many=bool(by))


def quantile(q: float, histogram: str, by: str = "") -> str:
    """A quantile of a histogram over the chosen agents; without what did not happen, which would be NaN."""
    buckets = f"sum by (le{by and ', ' + by}) (rate({histogram}_bucket{{@}}[$__rate_interval]))"
    return f"histogram_quantile({q}, {buckets}) >= 0"


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
                "icon": "external link",
                "tooltip": "",
                "targetBlank": False,
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
        for panel, width in zip(row.panels, row.widths, strict=True):
            if x + width > COLUMNS:
                x, y, tallest = 0, y + tallest, 0
            number += 1
            yield _panel(panel, number) | _at(x, y, width, panel.height)
            x, tallest = x + width, max(tallest, panel.height)
        y += tallest


def _at(x: int, y: int, width: int, height: int) -> dict[str, Any]:
    return {"gridPos": {"x": x, "y": y, "w": width, "h": height}}


def _panel(panel: Panel, number: int) -> dict[str, Any]:
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "min": 0,
        "thresholds": {"mode": "absolute", "steps": _steps(panel)},
    }
    if panel.empty:
        defaults["noValue"] = panel.empty
    if panel.kind == "timeseries":
        defaults["custom"] = _lines(panel)
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
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel),
    }


def _lines(panel: Panel) -> dict[str, Any]:
    """How lines are drawn."""
    least = TOP_AT_LEAST[panel.unit] if panel.top_at_least is None else panel.top_at_least
    return {"lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "axisSoftMax": least}


def _options(panel: Panel) -> dict[str, Any]:
    """What a panel of its kind has beside its fields; all that Grafana's model calls required."""
    if panel.kind == "stat":
        return {
            "reduceOptions": {"calcs": ["lastNotNull"]},
            "colorMode": "value",
            "graphMode": "area",
            "justifyMode": "auto",
            "textMode": "auto",
            "orientation": "auto",
            "wideLayout": True,
            "showPercentChange": False,
            "percentChangeColorMode": "standard",
        }
    place = "right" if panel.many else "bottom"
    return {
        "legend": {"displayMode": "list", "placement": place, "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
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
