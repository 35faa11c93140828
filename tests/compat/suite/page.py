"""docs/clients.md, written from tests/compat/results by `python -m tests.compat.suite.page`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from agent.version import VERSION
from tests.compat.suite import results
from tests.compat.suite.logins_page import others, section
from tests.compat.suite.results import LEFT_OUT, PASSED, Result

PAGE = Path(__file__).parents[3] / "docs" / "clients.md"
DAMAGE = Path(__file__).parent / "damage.md"  # what tests.compat.damage_answers found, kept by hand
TRANSACTIONS = Path(__file__).parent / "transactions.md"  # what test_transactions_embedded.py shows, by hand
REGISTRY = Path(__file__).parent / "registry.md"  # what tests/compat/test_registry_*.py show, by hand
CASES_CHARS_MAX = 160
HEAD = """# Clients and tools

What runs against Floe unchanged, each program through its own API, and the same against Apache Kafka
{kafka}. Written by `python -m tests.compat.suite.page` from the results of `make compat BROKER=kafka` and
`make compat BROKER=floe` (tests/compat/results); do not edit. Where an answer differs though the test
passes, the difference stands in [deviations.md](deviations.md).
"""
TABLE = "| what | cases | Apache Kafka {kafka} | Floe {floe} |\n|---|---|---|---|\n"


def render() -> str:
    """The page, from the results that are kept."""
    kafka, floe = results.load("kafka"), results.load("floe")
    every = sorted(others({**kafka, **floe}.values()), key=lambda row: (row.client.lower(), row.test))
    head = TABLE.format(kafka=results.version("kafka"), floe=VERSION)
    parts = [HEAD.format(kafka=results.version("kafka"))]
    for client, rows in groupby(every, lambda row: row.client):
        of_client = list(rows)
        versions = ", ".join(sorted({row.version for row in of_client}))
        parts.append(f"\n## {client} {versions}\n\n{head}{''.join(_lines(of_client, kafka, floe))}")
    parts.append(section(kafka, floe, results.version("kafka")))
    return "".join(parts) + "".join(each.read_text() for each in (TRANSACTIONS, REGISTRY, DAMAGE))


def _lines(rows: list[Result], kafka: dict[str, Result], floe: dict[str, Result]) -> Iterable[str]:
    for _, group in groupby(rows, lambda row: row.story):
        cases = list(group)
        theirs, ours = (
            _outcome([found.get(row.test) for row in cases], [row.case for row in cases])
            for found in (kafka, floe)
        )
        yield f"| {cases[0].what} | {_cases(cases)} | {theirs} | {ours} |\n"


def _cases(rows: list[Result]) -> str:
    named = [row.case.replace("|", "\\|") for row in rows if row.case]
    text = ", ".join(named)
    return text if len(text) <= CASES_CHARS_MAX else f"{len(named)} cases"


def _outcome(found: list[Result | None], cases: list[str]) -> str:
    """`passed` when all did, else what became of the others."""
    other: dict[str, list[str]] = {}
    for result, case in zip(found, cases, strict=True):
        outcome = "not run" if result is None else result.outcome
        if outcome != PASSED:
            other.setdefault(outcome.removeprefix(LEFT_OUT), []).append(case)
    said = [f"{outcome} ({', '.join(named)})" if any(named) else outcome for outcome, named in other.items()]
    whole = [PASSED] if len(other) == 0 or sum(map(len, other.values())) < len(found) else []
    return "; ".join(whole + said)


if __name__ == "__main__":
    PAGE.write_text(render())
