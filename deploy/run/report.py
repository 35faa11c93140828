"""The report: one HTML file with its plots inside, to be opened without any network."""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from deploy.run.timeline import Sample, Timeline, freshness, rates
from iceberg.spark.verdict import Verdict

TEMPLATE = Path(__file__).with_name("report.html")
ACKNOWLEDGED, READ, TABLE, FAULT = "#1f6feb", "#8250df", "#1a7f37", "#cf222e"
MIB = 1 << 20


@dataclass(frozen=True)
class Report:
    """All that a report tells."""

    title: str
    line: str
    verdict: Verdict
    results: Mapping[str, Sequence[Mapping[str, Any]]]
    rejections: Sequence[Mapping[str, Any]]
    timeline: Timeline
    notes: Sequence[str]
    increments: Sequence[str]

    def write(self, path: Path) -> None:
        """Write the page."""
        page = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
            title=html.escape(self.title),
            line=html.escape(self.line),
            state="equal" if self.verdict.equal else "unequal",
            notes="".join(f"<p>{html.escape(note)}</p>" for note in self.notes),
            findings="".join(f"<li>{html.escape(str(finding))}</li>" for finding in self.verdict.findings),
            topics=_rows(_topic_rows(self.verdict)),
            rejections=_rows((r["topic"], r["what"], r["client"], r["reason"]) for r in self.rejections),
            steps=_rows((name, f"{ended - began:.1f} s") for name, began, ended in self.timeline.steps),
            throughput=_plot(self._throughput),
            freshness=_plot(self._freshness),
            rows=_plot(self._progress),
            increments=html.escape("\n".join(self.increments)),
            airlines=_plot(self._airlines),
            hours=_plot(self._hours),
            routes=_rows(_route_rows(self.results["delays_by_route"])),
        )
        path.write_text(page, encoding="utf-8")

    def _throughput(self, axes: Axes) -> None:
        points = rates(self.timeline.acknowledged)
        axes.plot(*_xy(points, self.timeline.began), color=ACKNOWLEDGED, label="records/s")
        axes.set(title="Acknowledged records per second", ylabel="records/s")
        beside = axes.twinx()
        megabytes = [(at, amount / MIB) for at, amount in rates(self.timeline.bytes)]
        beside.plot(*_xy(megabytes, self.timeline.began), color=TABLE, linestyle=":", label="MiB/s")
        beside.set_ylabel("MiB/s (dotted)")
        beside.set_ylim(bottom=0)
        self._finish(axes)

    def _progress(self, axes: Axes) -> None:
        sides: tuple[tuple[str, str, Sequence[Sample]], ...] = (
            ("acknowledged", ACKNOWLEDGED, self.timeline.acknowledged),
            ("read back", READ, self.timeline.read),
            ("in tables", TABLE, self.timeline.table),
        )
        for label, color, samples in sides:
            axes.step(*_xy(samples, self.timeline.began), color=color, label=label, where="post")
        axes.set(title="Records over time", ylabel="records")
        axes.legend(frameon=False)
        self._finish(axes)

    def _freshness(self, axes: Axes) -> None:
        lags = freshness(self.timeline.acknowledged, self.timeline.table)
        axes.step(*_xy(lags, self.timeline.began), color=TABLE, where="post")
        axes.set(title="How far the tables are behind the acknowledged records", ylabel="seconds")
        self._finish(axes)

    def _airlines(self, axes: Axes) -> None:
        rows = sorted(self.results["delays_by_airline"], key=lambda row: row["mean_arrival_delay"] or 0.0)
        places = range(len(rows))
        axes.barh(places, [row["mean_arrival_delay"] or 0.0 for row in rows], color=ACKNOWLEDGED, height=0.7)
        axes.set_yticks(places, [row["airline"] for row in rows])
        axes.set(title="Mean arrival delay by airline", xlabel="minutes")
        axes.axvline(0, color="black", linewidth=0.8)

    def _hours(self, axes: Axes) -> None:
        rows = self.results["delays_by_hour"]
        hours = [row["hour"] for row in rows]
        lines = (
            ("all", "mean_arrival_delay", ACKNOWLEDGED),
            ("in rain", "mean_arrival_delay_in_rain", READ),
            ("dry", "mean_arrival_delay_dry", TABLE),
        )
        for label, column, color in lines:
            axes.plot(hours, [row[column] for row in rows], color=color, marker=".", label=label)
        axes.set(title="Mean arrival delay by scheduled hour", xlabel="hour of day", ylabel="minutes")
        axes.legend(frameon=False)

    def _finish(self, axes: Axes) -> None:
        axes.set_xlabel("seconds since the start")
        axes.set_ylim(bottom=0)
        for at, what in self.timeline.faults:
            axes.axvline(at - self.timeline.began, color=FAULT, linewidth=0.8, linestyle="--")
            axes.annotate(
                what,
                (at - self.timeline.began, axes.get_ylim()[1]),
                rotation=90,
                va="top",
                ha="right",
                fontsize=7,
                color=FAULT,
            )


def _xy(points: Iterable[tuple[float, float]], began: float) -> tuple[list[float], list[float]]:
    pairs = list(points)
    return [at - began for at, _ in pairs], [value for _, value in pairs]


def _plot(draw: Callable[[Axes], None]) -> str:
    """An SVG element."""
    figure, axes = plt.subplots(figsize=(7.2, 3.6), layout="constrained")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    draw(axes)
    out = io.StringIO()
    figure.savefig(out, format="svg")
    plt.close(figure)
    text = out.getvalue()
    return text[text.index("<svg") :]


def _rows(rows: Iterable[Iterable[object]]) -> str:
    return "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )


def _topic_rows(verdict: Verdict) -> Iterable[tuple[str, ...]]:
    for count in verdict.topics:
        numbers = (count.produced, count.accepted, count.rejected, count.consumed, count.table)
        yield count.topic, *("" if number is None else f"{number:,}" for number in numbers)


def _route_rows(routes: Sequence[Mapping[str, Any]], shown: int = 15) -> Iterable[tuple[str, ...]]:
    for row in routes[:shown]:
        delay = row["mean_arrival_delay"]
        yield (
            f"{row['origin']} → {row['destination']}",
            row["destination_name"] or "",
            f"{row['flights']:,}",
            "" if delay is None else f"{delay:.1f} min",
            f"{row['late_share'] or 0:.1%}",
        )
