"""docs/engines.md, written from tests/engines/results.json by `python -m tests.engines.page`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.engines import kit
from tests.engines.engines import ENGINES, PASSED, RESULTS, versions

PAGE = Path(__file__).parents[2] / "docs" / "engines.md"
HEAD = """# Engines

What reads a topic's table, and what of it. Each engine was asked the same questions about the same
tables, served by Floe's REST catalog, and every value was compared: the questions and what must be
answered stand in tests/engines/lake.py, the code that asks in tests/engines/programs. Written by
`make engines` from tests/engines/results.json; do not edit.

How columns come about is told in [tables.md](tables.md).

"""
TAIL = """
Not tried: Trino (its server needs a newer Java than Spark 4.1), Flink, Snowflake, BigQuery, Athena.
Who holds a table object of pyiceberg (for Polars and Daft, too) must load it again to see what came since.
"""
CATALOG = """
## The catalog itself

Floe's REST catalog is run through Iceberg's own compatibility kit (iceberg-open-api 1.11.0, the newest on
Maven Central; tests/engines/test_catalog_kit.py, in `make test`): all of its 145 tests of tables, namespaces
and views pass but for these, which are refused by design (12 more it leaves out by itself: of dots, slashes
and empty levels in names). It has none of commits of several tables: these Iceberg's Java client makes in
tests/spark/test_tables_together.py, and pyiceberg's requests in tests/unit/iceberg/test_tables_together.py.
Who may do what there, tokens, and keys of the bucket:
[security.md](security.md#the-catalog-tokens-tables-keys-of-the-bucket).
What a topic's table refuses, and what a commit of several tables may hold, is told in [tables.md](tables.md).

| why | tests |
|---|---|
"""


def render() -> str:
    """The page, from the results that are kept."""
    kept = json.loads(RESULTS.read_text())
    lines = ["| engine | version | how it was asked |\n|---|---|---|\n"]
    lines += [f"| {each.name} | {versions(each)} | {each.how} |\n" for each in ENGINES]
    notes: list[str] = []
    lines.append(
        "\n| | " + " | ".join(each.name for each in ENGINES) + " |\n|---|" + "---|" * len(ENGINES) + "\n"
    )
    for name, what in kept["questions"].items():
        cells = [_cell(kept["engines"][each.name][name], notes) for each in ENGINES]
        lines.append(f"| {what} | " + " | ".join(cells) + " |\n")
    told = [f"{number}. {note}\n" for number, note in enumerate(notes, 1)]
    return HEAD + "".join(lines) + "\n" + "".join(told) + TAIL + _catalog()


def _catalog() -> str:
    refused: dict[str, list[str]] = {}
    for name, why in kit.REFUSED.items():
        refused.setdefault(why, []).append(name)
    rows = [f"| {why} | {', '.join(names)} |\n" for why, names in refused.items()]
    return CATALOG + "".join(rows)


def _cell(outcome: str, notes: list[str]) -> str:
    if outcome == PASSED:
        return "yes"
    told = outcome.removeprefix("known: ")
    if told not in notes:
        notes.append(told)
    return f"no ({notes.index(told) + 1})"


if __name__ == "__main__":
    PAGE.write_text(render())
