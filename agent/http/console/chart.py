"""Lines over time as SVG, drawn here: no script, no style but the console's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from agent.http.console.markup import Html, many, tag
from agent.http.console.words import moment, number

WIDTH: Final = 720
HEIGHT: Final = 180
LEFT: Final = 90
"""For the numbers of the scale; lines are to the right of it."""
FOOT: Final = 24
"""For the times, below."""
LINES: Final = 5
"""That are drawn: the highest. Each has a class of the style sheet, line-0 and so on."""

Points = Sequence[tuple[int, int | None]]
"""(Unix ms, value), in order of time; None: a gap."""


def chart(lines: Mapping[str, Points], what: str) -> Html:
    """The lines by name, with a legend; what they show in words for who sees no picture."""
    drawn = sorted(lines.items(), key=lambda each: -_most(each[1]))[:LINES]
    times = [at for _, points in drawn for at, _ in points]
    if len(set(times)) < 2:
        return tag("p", f"{what}: no two samples yet", class_="nothing")
    first, last = min(times), max(times)
    top = max(*(_most(points) for _, points in drawn), 1)
    said = f"{what}, from {moment(first)} to {moment(last)}, between 0 and {top:,}"
    marks = [
        _text(LEFT - 6, 14, number(top) or "", "end"),
        _text(LEFT - 6, HEIGHT - FOOT, "0", "end"),
        _text(LEFT, HEIGHT - 6, moment(first) or "", "start"),
        _text(WIDTH, HEIGHT - 6, moment(last) or "", "end"),
        tag("path", d=f"M{LEFT} 4V{HEIGHT - FOOT}H{WIDTH}", class_="axis"),
    ]
    paths = (
        tag("path", d=_path(points, first, last, top), class_=f"line line-{place}")
        for place, (_, points) in enumerate(drawn)
    )
    picture = tag(
        "svg", *marks, *paths, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=said, class_="chart"
    )
    legend = (
        tag("span", f"{name} ({_now(points)})", class_=f"key line-{place}")
        for place, (name, points) in enumerate(drawn)
    )
    left = len(lines) - len(drawn)
    more = tag("span", f"and {left:,} more that were less") if left else None
    return many((picture, tag("p", *legend, more, class_="legend")))


def _path(points: Points, first: int, last: int, top: int) -> str:
    """Through the points; a gap lifts the pen."""
    told, down = [], False
    for at, value in points:
        if value is None:
            down = False
            continue
        x = LEFT + (WIDTH - LEFT) * (at - first) / (last - first)
        y = 4 + (HEIGHT - FOOT - 4) * (1 - value / top)
        told.append(f"{'L' if down else 'M'}{x:.1f} {y:.1f}")
        down = True
    return "".join(told)


def _text(x: int, y: int, text: str, anchor: str) -> Html:
    return tag("text", text, x=x, y=y, text_anchor=anchor)


def _most(points: Points) -> int:
    return max((value for _, value in points if value is not None), default=0)


def _now(points: Points) -> str:
    value = points[-1][1] if points else None
    return "not known now" if value is None else f"{value:,} now"
