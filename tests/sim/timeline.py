"""One run as a page: who did what when, faults over it, findings above. Self-contained."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.checker.operations import Operation
    from tests.sim.outcome import Outcome

WIDTH, ROW, LEFT = 1600, 22, 130
COLOURS = {"ok": "#4a9", "fail": "#c77", "info": "#da4", "fault": "#ccd", "down": "#eee"}
HEAD = """<!doctype html><meta charset="utf-8"><title>{title}</title>
<style>body{{font:14px sans-serif;margin:1em}}svg{{background:#fff;border:1px solid #ccc}}
text{{font:11px monospace}}pre{{white-space:pre-wrap}}.bad{{stroke:#d00;stroke-width:2}}</style>
"""


def page(outcome: Outcome) -> str:
    """The HTML."""
    shown = {
        index for each in outcome.judgement.findings for index in each.operations if each.weight == "fail"
    }
    rows: dict[str, list[str]] = {}
    scale = (WIDTH - LEFT - 20) / max(outcome.virtual_s, 1e-9)
    for at, until, fault, targets in _faults(outcome):
        for target in targets:
            rows.setdefault(target, []).append(_bar(at, until, scale, "fault", fault, fault))
    for at, what in _events(outcome):
        node = what.split()[1].partition("/")[0]
        rows.setdefault(node, []).append(_mark(at, scale, what))
    for op in outcome.operations:
        if op.f != "assign":
            bar = _bar(
                op.invoked_ns / 1e9,
                op.completed_ns / 1e9,
                scale,
                op.outcome,
                "",
                _words(op),
                op.index in shown,
            )
            rows.setdefault(f"process {op.process:3}", []).append(bar)
    body = "".join(
        f'<g transform="translate({LEFT},{ROW * number + 20})"><text x="{4 - LEFT}" y="14">'
        f"{html.escape(name)}</text>{''.join(bars)}</g>"
        for number, (name, bars) in enumerate(sorted(rows.items()))
    )
    height = ROW * len(rows) + 30
    title = f"seed {outcome.plan.seed}"
    return (
        HEAD.format(title=title)
        + f"<h1>{title}</h1><pre>{html.escape(repr(outcome.plan))}\n\n"
        + f"{html.escape(outcome.judgement.report())}</pre>"
        + f'<svg width="{WIDTH}" height="{height}">{_axis(outcome.virtual_s, scale, height)}{body}</svg>\n'
    )


def _faults(outcome: Outcome) -> Iterator[tuple[float, float, str, list[str]]]:
    begun = next((float(line.split()[0]) for line in outcome.trace if " begin " in line), 0.0)
    first = outcome.plan.faults[0][0] if outcome.plan.faults else 0.0
    for at, seconds, fault, targets in outcome.plan.faults:
        start = begun + at - first
        yield start, start + seconds, fault, [f"a{number}" for number in targets]


def _events(outcome: Outcome) -> Iterator[tuple[float, str]]:
    for line in outcome.trace:
        at, _, what = line.partition(" ")
        if what.split(" ")[0] in ("start", "crash", "pause", "resume", "serving"):
            yield float(at), what


def _words(op: Operation) -> str:
    return f"{op.index} {op.f} {op.outcome} {op.error} {' '.join(map(repr, op.micro))}"[:2000]


def _bar(at: float, until: float, scale: float, kind: str, label: str, words: str, bad: bool = False) -> str:
    width = max((until - at) * scale, 1.5)
    text = f'<text x="{at * scale + 2:.1f}" y="12">{html.escape(label)}</text>' if label else ""
    return (
        f'<rect x="{at * scale:.1f}" y="2" width="{width:.1f}" height="{ROW - 6}" fill="{COLOURS[kind]}"'
        f"{' class=bad' if bad else ''}><title>{html.escape(f'{at:.3f} s: {words}')}</title></rect>{text}"
    )


def _mark(at: float, scale: float, words: str) -> str:
    colour = "#d00" if words.startswith("crash") else "#36c"
    return (
        f'<line x1="{at * scale:.1f}" x2="{at * scale:.1f}" y1="0" y2="{ROW - 2}" stroke="{colour}">'
        f"<title>{html.escape(f'{at:.3f} s: {words}')}</title></line>"
    )


def _axis(seconds: float, scale: float, height: int) -> str:
    return "".join(
        f'<line x1="{LEFT + n * scale:.1f}" x2="{LEFT + n * scale:.1f}" y1="14" y2="{height}" stroke="#eee"/>'
        f'<text x="{LEFT + n * scale:.1f}" y="12">{n}</text>'
        for n in range(int(seconds) + 1)
    )
