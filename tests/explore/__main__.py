"""`make explore`: every scope whole, then every broken rule; the table goes to build/explore/."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections import Counter
from pathlib import Path

from tests.explore.scopes import CONTROLS, SCOPES, explored
from tests.explore.search import Outcome, explore

OUTPUT = Path(__file__).resolve().parents[2] / "build" / "explore"
CONTROL_STATES_MAX = 400_000
STORIES = (
    "answer lost, entry applied, snapshotted and trimmed, then the retry",
    "fenced and its chunk collected between PUT and append",
    "a snapshot is loaded while the log is trimmed behind it",
    "a PUT fails between two that succeed",
    "two agents coordinate one group",
    "a late EndTxn arrives in the next transaction",
    "the fence sends a late EndTxn away",
    "what proves nothing is to come again",
)  # that must happen somewhere


def main() -> int:
    """1 when something is found, a scope is not complete, a control not caught, or a story never happens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="scopes and controls whose name holds this")
    parser.add_argument("--jobs", type=int, default=1, help="scopes side by side, a process each")
    chosen = parser.parse_args()
    only = chosen.only
    stories: Counter[str] = Counter()
    good, lines = _scopes(only, chosen.jobs, stories)
    caught, table, told = _controls(only)
    never = [] if only else [name for name in STORIES if not stories[name]]
    happened = [f"| {name} | {times:,} |" for name, times in sorted(stories.items())]
    lines += ["", *table, "", "| story | times |", "|---|---|", *happened, *told, ""]
    OUTPUT.mkdir(parents=True, exist_ok=True)
    (OUTPUT / "explored.md").write_text("\n".join(lines))
    print("\n".join([*told, "", *happened, *(f"never happened: {name}" for name in never)]))
    return int(not good or not caught or bool(never))


def _scopes(only: str, jobs: int, stories: Counter[str]) -> tuple[bool, list[str]]:
    lines = ["| scope | states | steps | depth | seconds | found |", "|---|---|---|---|---|---|"]
    good, whole = True, Outcome()
    numbers = [number for number, scope in enumerate(SCOPES) if only in scope.name]
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=1) as pool:
        for number, outcome in zip(numbers, pool.imap(explored, numbers, 1), strict=True):
            good = good and outcome.complete and not outcome.found
            stories += outcome.stories
            whole.states, whole.steps = whole.states + outcome.states, whole.steps + outcome.steps
            whole.depth, whole.seconds = max(whole.depth, outcome.depth), whole.seconds + outcome.seconds
            lines.append(_say(SCOPES[number].name, outcome, "; ".join(outcome.found) or "nothing"))
            print("".join(f"    {line}\n" for line in outcome.story), end="")
    lines.append(_say("all", whole, ""))
    return good, lines


def _controls(only: str) -> tuple[bool, list[str], list[str]]:
    lines = ["| broken rule | states | steps | depth | seconds | anomaly |", "|---|---|---|---|---|---|"]
    good, told = True, []
    for control in CONTROLS:
        if only not in control.name:
            continue
        with control.broken():
            outcome = explore(control.make(), CONTROL_STATES_MAX)
        found = outcome.found[0] if outcome.found else "not found"
        good = good and found.startswith(control.anomaly)
        lines.append(_say(control.name, outcome, found))
        told += ["", f"{control.name}: {found}", *(f"    {line}" for line in outcome.story)]
    return good, lines, told


def _say(name: str, seen: Outcome, found: str) -> str:
    row = f"| {name} | {seen.states:,} | {seen.steps:,} | {seen.depth} | {seen.seconds:.1f} | {found} |"
    print(row, flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
