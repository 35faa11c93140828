"""A run as pictures in plain SVG: operations over time by outcome, how long they took, faults shaded."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

from tests.checker.operations import Operation
from tests.proof.ran import SECOND, Ran

WIDTH, HEIGHT, LEFT, FOOT, TOP = 720, 170, 56, 22, 8
BINS = 90
WORK = ("send", "poll", "txn")
COLORS = {"ok": "#1a7f37", "info": "#bf8700", "fail": "#57606a", "median": "#1f6feb", "p99": "#8250df"}
SHADE = "#cf222e"

Points = Sequence[tuple[float, float]]


def plots(ran: Ran) -> str:
    """Both pictures, or a word where there is nothing to draw."""
    done = [op for op in ran.history.operations if op.f in WORK and op.micro] if ran.clocked else []
    if len(done) < 2:
        return ""
    begin = min(op.invoked_ns for op in done)
    end = max(op.completed_ns for op in done)
    width = max(1, (end - begin) // BINS)
    spans = [((a - begin) / SECOND, (b - begin) / SECOND, what) for what, a, b in ran.happened]
    total = (end - begin) / SECOND
    binned: dict[int, list[Operation]] = {}
    for op in done:
        binned.setdefault(min(BINS - 1, (op.completed_ns - begin) // width), []).append(op)
    rates = {
        outcome: [
            (
                (n + 0.5) * width / SECOND,
                sum(op.outcome == outcome for op in binned.get(n, ())) * SECOND / width,
            )
            for n in range(BINS)
        ]
        for outcome in ("ok", "info", "fail")
        if any(op.outcome == outcome for op in done)
    }
    return drawn(rates, spans, total, "operations a second") + drawn(
        _latencies(binned, width), spans, total, "milliseconds from call to answer", log=True
    )


def _latencies(binned: Mapping[int, Sequence[Operation]], width: int) -> dict[str, Points]:
    lines: dict[str, list[tuple[float, float]]] = {"median": [], "p99": []}
    for n in sorted(binned):
        took = sorted(max(1e-3, (op.completed_ns - op.invoked_ns) / 1e6) for op in binned[n])
        at = (n + 0.5) * width / SECOND
        lines["median"].append((at, took[len(took) // 2]))
        lines["p99"].append((at, took[min(len(took) - 1, len(took) * 99 // 100)]))
    return dict(lines)


def drawn(
    lines: Mapping[str, Points],
    spans: Sequence[tuple[float, float, str]],
    total: float,
    what: str,
    *,
    log: bool = False,
) -> str:
    """One picture. `spans`: faults, from and to in seconds, with their names as titles."""
    top = max((y for points in lines.values() for _, y in points), default=1.0) or 1.0
    low = min((y for points in lines.values() for _, y in points), default=0.0) if log else 0.0

    def across(seconds: float) -> float:
        return LEFT + (WIDTH - LEFT) * min(max(seconds, 0.0), total) / (total or 1.0)

    def up(value: float) -> float:
        share = value / top
        if log:
            share = math.log(value / low) / (math.log(top / low) or 1.0)
        return TOP + (HEIGHT - TOP - FOOT) * (1 - share)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(what)}">',
        *(
            f'<rect x="{across(a):.1f}" y="{TOP}" width="{max(1.0, across(b) - across(a)):.1f}" '
            f'height="{HEIGHT - TOP - FOOT}" fill="{SHADE}" opacity=".12"><title>{html.escape(name)}</title>'
            "</rect>"
            for a, b, name in spans
        ),
        f'<path d="M{LEFT} {TOP}V{HEIGHT - FOOT}H{WIDTH}" fill="none" stroke="currentColor" opacity=".4"/>',
        _text(LEFT - 4, TOP + 10, _number(top), "end"),
        _text(LEFT - 4, HEIGHT - FOOT, _number(low), "end"),
        _text(LEFT, HEIGHT - 6, "0 s", "start"),
        _text(WIDTH, HEIGHT - 6, f"{total:.0f} s", "end"),
    ]
    at = LEFT + 70.0
    for name, points in lines.items():
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{COLORS[name]}" stroke-width="1.3"/>')
        parts.append(_text(at, HEIGHT - 6, name, "start", COLORS[name]))
        at += 60.0
    parts.append(_text(at + 20, HEIGHT - 6, what, "start"))
    return "".join([*parts, "</svg>"])


def _text(x: float, y: float, text: str, anchor: str, color: str = "currentColor") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{color}">{html.escape(text)}</text>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.2g}"
