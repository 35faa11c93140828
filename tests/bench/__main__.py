"""`make bench [ONLY=name]`: every figure as a JSON line in build/bench/, and docs/benchmarks.md.

A bench is a module of this folder named bench_*.py with `figures() -> Iterable[Figure]`. The page shows the
last run of each bench, so `ONLY` refreshes its own rows; rows of benches that never ran here stay.
"""

from __future__ import annotations

import argparse
import importlib
import platform
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.bench.figure import Figure

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "build" / "bench"
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- figures: written by make bench -->", "<!-- end of figures -->"


def benches(only: str) -> list[str]:
    """Module names, those whose name holds `only`."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("bench_*.py"))
    return [name for name in names if only in name]


def row(figure: Figure) -> str:
    """A figure as a line of the table."""
    peer = f"{figure.peer}: {figure.peer_value:,.1f}" if figure.peer_value else figure.peer
    ratio = f"{figure.ratio:.2f}" if figure.ratio else ""
    sign = "≥" if figure.better == "more" else "≤"
    goal = "" if figure.goal is None else f"{sign} {figure.goal:g}{' of peer' if figure.ratio else ''}"
    met = {True: "yes", False: "**no**", None: ""}[figure.met]
    return f"| {figure.name} | {figure.value:,.2f} {figure.unit} | {peer} | {ratio} | {goal} | {met} |"


HEADS = ("| figure | value | peer | ratio | goal | met |", "|---|---|---|---|---|---|")


def publish(figures: Iterable[Figure], *, whole: bool) -> None:
    """Write the table of docs/benchmarks.md; not `whole`: rows take the places of those of the same names."""
    text = PAGE.read_text()
    head, rest = text.split(BEGIN)
    old, tail = rest.split(END)
    rows = {} if whole else {name_of(line): line for line in old.split(HEADS[1])[1].split("\n") if line}
    rows |= {name_of(line): line for line in map(row, figures)}
    PAGE.write_text("\n".join([f"{head}{BEGIN}", "", *HEADS, *rows.values(), "", f"{END}{tail}"]))


def name_of(line: str) -> str:
    """What a row of the table is of."""
    return line.split("|")[1].strip()


def main() -> int:
    """Run; 0 also when goals are missed: the table says so."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="benches whose name holds this")
    arguments = parser.parse_args()
    OUTPUT.mkdir(parents=True, exist_ok=True)
    print(f"{platform.platform()} · Python {platform.python_version()}", flush=True)
    for name in benches(arguments.only):
        module = importlib.import_module(f"tests.bench.{name}")
        lines = []
        for figure in module.figures():
            print(figure.line(), flush=True)
            lines.append(figure.line() + "\n")
        (OUTPUT / f"{name}.jsonl").write_text("".join(lines))  # only whole runs are shown
    kept = [OUTPUT / f"{name}.jsonl" for name in benches("")]
    there = [path for path in kept if path.exists()]
    publish(
        (Figure.read(line) for path in there for line in path.read_text().splitlines()),
        whole=there == kept,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
