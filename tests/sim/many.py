"""Many seeds: one after the other, or shared out among processes, with one report."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING

from tests.sim.coverage import Coverage
from tests.sim.outcome import Outcome
from tests.sim.plan import Plan
from tests.sim.world import World

if TYPE_CHECKING:
    from tests.sim.progress import Progress

PIECE_SEEDS = 10
"""What one process is given at a time."""
PIECES_OF_A_PROCESS = 4
TOLD_SEEDS = 100
"""After so many seeds there is a line of progress."""

_wall, _cpu = time.perf_counter, time.process_time  # taken before any run replaces them
Kept = Callable[[Outcome, str], object]


@dataclass(slots=True)
class Sum:
    """What some seeds gave together."""

    counts: Counter[str] = field(default_factory=Counter)
    coverage: Coverage = field(default_factory=Coverage)
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    bad: list[tuple[int, str]] = field(default_factory=list)
    """Seeds with what to tell of them."""

    def add(self, other: Sum) -> None:
        """Those seeds too."""
        self.counts.update(other.counts)
        self.coverage.add(other.coverage)
        self.virtual_s += other.virtual_s
        self.cpu_s += other.cpu_s
        self.bad += other.bad


def run(
    plans: Iterable[Plan],
    jobs: int,
    kept: Kept,
    told: Callable[[str], None],
    *,
    also: Container[int] = (),
    before: Progress | None = None,
) -> Sum:
    """All of them, and a report. `kept` is given each bad outcome (those of the seeds `also` good ones, too)
    and its name, in the process that ran it. What was run `before` counts, and is to be in no plan.
    """
    begun = _wall() - (before.wall_s if before else 0)
    whole = gathered(plans, jobs, kept, told, also=also, before=before)
    report(whole, told, _wall() - begun)
    return whole


def report(whole: Sum, told: Callable[[str], None], wall_s: float) -> None:
    """What they came to, and how fast and how bad they were."""
    told(whole.coverage.report())
    told(line(whole, wall_s))


def gathered(
    plans: Iterable[Plan],
    jobs: int,
    kept: Kept,
    told: Callable[[str], None],
    *,
    also: Container[int] = (),
    before: Progress | None = None,
) -> Sum:
    """Likewise, without the report."""
    whole, begun = (before.whole, _wall() - before.wall_s) if before else (Sum(), _wall())
    due = whole.counts["seeds"] + TOLD_SEEDS
    with _mapped(jobs) as mapped:
        for part in mapped(partial(_piece, kept=kept, also=also), _pieces(plans)):
            whole.add(part)
            if before is not None:
                before.keep(whole, _wall() - begun)
            for _, text in part.bad:
                told(text)
            if whole.counts["seeds"] >= due:
                due += TOLD_SEEDS
                told(f"… {line(whole, _wall() - begun)}")
    return whole


def line(whole: Sum, wall_s: float) -> str:
    """How many, how fast, how bad."""
    counts, bad = whole.counts, [seed for seed, _ in whole.bad]
    speed = whole.virtual_s / max(whole.cpu_s, 1e-9)
    took = f"{whole.virtual_s:,.0f} simulated s in {wall_s:,.0f} s, {whole.cpu_s:,.1f} s of a core"
    acknowledged, read = counts["acknowledged"], counts["read"]
    return (
        f"{counts['seeds']} seeds · {took} ({speed:.0f} per s) · acknowledged {acknowledged:,} · "
        f"read {read:,} · bad {len(bad)} {bad[:20]}"
    )


@contextmanager
def _mapped(
    jobs: int,
) -> Iterator[Callable[[Callable[[list[Plan]], Sum], Iterable[list[Plan]]], Iterable[Sum]]]:
    """`map` over as many processes, in order."""
    if jobs <= 1:
        yield map
        return
    with get_context("fork").Pool(jobs, maxtasksperchild=PIECES_OF_A_PROCESS) as pool:
        yield pool.imap


def _pieces(plans: Iterable[Plan]) -> Iterator[list[Plan]]:
    piece: list[Plan] = []
    for plan in plans:
        piece.append(plan)
        if len(piece) == PIECE_SEEDS:
            yield piece
            piece = []
    if piece:
        yield piece


def _piece(plans: Sequence[Plan], kept: Kept, also: Container[int]) -> Sum:
    part, begun = Sum(), _cpu()
    for plan in plans:
        part.counts["seeds"] += 1
        try:
            outcome = World(plan).run()
        except Exception:  # of the simulation itself: the other seeds go on, and this one is not clean
            part.bad.append((plan.seed, f"{plan.called}: {traceback.format_exc()}\n{plan}"))
            continue
        part.virtual_s += outcome.virtual_s
        part.counts.update(acknowledged=outcome.judgement.acknowledged, read=outcome.judgement.read)
        part.coverage.note(outcome)
        if plan.seed in also or not outcome.judgement.valid:
            kept(outcome, plan.name)
        if not outcome.judgement.valid:
            part.bad.append((plan.seed, f"{plan.called}: {outcome.judgement.report()}\n{plan}"))
    part.cpu_s = _cpu() - begun
    return part
