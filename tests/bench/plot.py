"""Curves over a logarithmic axis as SVG: the same text for the same numbers, by nothing but this file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 800, 360, 70, 270, 36, 48
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f")


@dataclass(frozen=True, slots=True)
class Curve:
    """Points (across, up), both above 0. `dots`: they are shown each, without a line."""

    name: str
    points: Sequence[tuple[float, float]]
    dots: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """Both axes are logarithmic; `mark` is a line across, such as a limit."""

    title: str
    across: str
    up: str
    curves: Sequence[Curve]
    mark: float | None = None

    def svg(self) -> str:
        """The picture; axes reach from decade to decade."""
        axes = self._axes()
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            f'<text x="{LEFT}" y="20" font-size="14">{escape(self.title)}</text>',
            *_grid(axes),
            f'<text x="{LEFT}" y="{HEIGHT - 10}">across: {escape(self.across)}; up: {escape(self.up)}</text>',
        ]
        if self.mark is not None:
            _, y = axes.at(10.0**axes.first, self.mark)
            lines.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="black" stroke-dasharray="5 4"/>')
        for number, curve in enumerate(self.curves):
            lines += _drawn(curve, [axes.at(*point) for point in curve.points], number)
        return "\n".join([*lines, "</svg>", ""])

    def _axes(self) -> Axes:
        across = [x for curve in self.curves for x, _ in curve.points]
        up = [y for curve in self.curves for _, y in curve.points]
        return Axes(*_decades(across), *_decades(up if self.mark is None else [*up, self.mark]))


@dataclass(frozen=True, slots=True)
class Axes:
    """Exponents of ten at the ends of both."""

    first: int
    last: int
    low: int
    high: int

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Where a point is in the picture."""
        over = (math.log10(x) - self.first) / (self.last - self.first)
        above = (math.log10(y) - self.low) / (self.high - self.low)
        return LEFT + over * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - above * (HEIGHT - TOP - BOTTOM)


def _grid(axes: Axes) -> Iterator[str]:
    """A line and a number for each decade."""
    for decade in range(axes.first, axes.last + 1):
        x, bottom = axes.at(10.0**decade, 10.0**axes.low)
        yield f'<path d="M{x:.1f} {TOP}V{bottom:.1f}" stroke="#dddddd"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 16:.1f}" text-anchor="middle">{_shown(decade)}</text>'
    for decade in range(axes.low, axes.high + 1):
        _, y = axes.at(10.0**axes.first, 10.0**decade)
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_shown(decade)}</text>'


def _drawn(curve: Curve, points: Sequence[tuple[float, float]], number: int) -> Iterator[str]:
    colour, y = COLOURS[number % len(COLOURS)], TOP + 14 + 18 * number
    if curve.dots:
        for x, up in points:
            yield f'<circle cx="{x:.1f}" cy="{up:.1f}" r="4" fill="{colour}"/>'
    else:
        path = " ".join(f"{x:.1f},{up:.1f}" for x, up in points)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    yield f'<text x="{WIDTH - RIGHT + 12}" y="{y}" fill="{colour}">{escape(curve.name)}</text>'


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """The exponents of ten between which all lie."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _shown(decade: int) -> str:
    return f"{10.0**decade:,.0f}" if decade >= 0 else f"{10.0**decade:.{-decade}f}"
