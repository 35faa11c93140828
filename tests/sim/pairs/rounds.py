"""Seeds with pairs, round after round: what one has seen says what the next one draws."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import islice
from pathlib import Path

from tests.sim.many import Kept, Sum, gathered
from tests.sim.pairs.drawing import Table, drawn
from tests.sim.pairs.kinds import EXCLUDED, KINDS, pair_of
from tests.sim.plan import Plan

ROUND_SEEDS = 20
"""What is drawn at a time, whatever the number of processes: a seed's pair must not follow from that."""
NEVER_TOLD = 40
Told = Callable[[str], None]


def run(
    plans: Iterable[Plan], jobs: int, kept: Kept, told: Told, table: Table, *, also: Container[int] = ()
) -> Sum:
    """All of them, each with a pair; the table has in the end what was seen."""
    whole = Sum()
    each_plan = iter(plans)
    while with_pairs := list(drawn(islice(each_plan, ROUND_SEEDS), table)):
        told("pairs: " + ", ".join(f"{plan.seed} {plan.pair}" for plan in with_pairs))
        part = gathered(with_pairs, jobs, kept, told, also=also)
        table.note(part.coverage.counts)
        whole.add(part)
    return whole


def summary(table: Table) -> str:
    """What was seen, in few lines."""
    never = table.never()
    lines = [
        f"pairs of faults: {len(table.possible)} possible, {len(table.possible) - len(never)} seen, "
        f"{len(never)} never; {len(EXCLUDED)} that cannot be"
    ]
    tries = ", ".join(f"{pair} (drawn {table.drawn[pair]})" for pair in never[:NEVER_TOLD])
    more = f" and {len(never) - NEVER_TOLD} more" if len(never) > NEVER_TOLD else ""
    return "\n".join([*lines, f"  never: {tries or 'none'}{more}"])


def page(table: Table) -> str:
    """As Markdown: a row per kind, and what cannot be with its reasons."""
    rows = "\n".join(_rows(table))
    reasons = Counter(EXCLUDED.values())
    cannot = "\n".join(
        f"* {number} pairs cannot be ({_named(reason)}): {reason}" for reason, number in reasons.items()
    )
    head = "| kind | possible with | seen with | never seen with |\n|---|---|---|---|"
    return f"{summary(table)}\n\n{head}\n{rows}\n\n{cannot}\n"


def _rows(table: Table) -> Iterator[str]:
    possible, never = set(table.possible), set(table.never())
    for kind in KINDS:
        pairs = {other.name: pair_of(kind.name, other.name) for other in KINDS if other is not kind}
        with_it = [name for name, pair in pairs.items() if pair in possible]
        without = [name for name in with_it if pairs[name] in never]
        yield f"| {kind.name} | {len(with_it)} | {len(with_it) - len(without)} | {', '.join(without)} |"


def _named(reason: str) -> str:
    pairs = [pair for pair, why in EXCLUDED.items() if why == reason]
    return ", ".join(pairs) if len(pairs) <= 8 else f"{', '.join(pairs[:3])} …"


def write(table: Table, out: Path) -> Path:
    """`pairs.json`, from which another run goes on, and `pairs.md`. The former's path."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "pairs.json"
    never = {pair: f"drawn {table.drawn[pair]} times, not seen" for pair in table.never()}
    content = {
        "possible": len(table.possible),
        "seen": dict(sorted(table.seen.items())),
        "drawn": dict(sorted(table.drawn.items())),
        "never": never,
        "cannot": dict(sorted(EXCLUDED.items())),
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    (out / "pairs.md").write_text(page(table))
    return path


def load(path: Path) -> Table:
    """What a run before has seen and drawn. Raises OSError, ValueError, KeyError."""
    raw = json.loads(path.read_text())
    return Table(Counter(raw["seen"]), Counter(raw["drawn"]))
