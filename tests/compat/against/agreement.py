"""docs/deviations.md as data: the differences from Apache Kafka that are meant."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.equipment.forms import FULL, Forms

PAGE = Path(__file__).parents[3] / "docs" / "deviations.md"
HEAD = ["question", "fields", "Apache Kafka", "Floe", "why"]
ABSENT = "—"
ANY = "any"
COLUMNS = 5


@dataclass(frozen=True)
class Row:
    """One line of a table: `fields` of a question differ so, for this reason."""

    question: str
    fields: tuple[str, ...]
    kafka: str
    floe: str
    why: str


def rows(text: str) -> list[Row]:
    """Every row of every table on the page. Raises ValueError for one that is not whole."""
    found = []
    for line in text.splitlines():
        if not line.startswith("|") or set(line) <= set("|- "):
            continue
        cells = [cell.strip().replace("`", "") for cell in line.strip().strip("|").split("|")]
        if cells == HEAD:
            continue
        if len(cells) != COLUMNS or not all(cells):
            raise ValueError(f"a row needs {COLUMNS} filled columns: {line}")
        question, fields, kafka, floe, why = cells
        found.append(Row(question, tuple(each.strip() for each in fields.split(", ")), kafka, floe, why))
    return found


def blanks(forms: Forms) -> dict[str, str]:
    """Nullable fields of all answers to a question that were null, or empty, in any of them."""
    seen = {path: each - {FULL} for path, each in forms.items()}
    return {f"blank {path}": " and ".join(sorted(each)) for path, each in seen.items() if each}


def differences(kafka: dict[str, str], floe: dict[str, str]) -> dict[str, tuple[str, str]]:
    """field → (Kafka's, Floe's), where they differ."""
    return {
        name: (kafka.get(name, ABSENT), floe.get(name, ABSENT))
        for name in sorted(kafka.keys() | floe.keys())
        if kafka.get(name) != floe.get(name)
    }


def unexplained(question: str, found: dict[str, tuple[str, str]], agreed: list[Row]) -> list[str]:
    """Differences without a row, and rows without a difference."""
    problems = []
    allowed = {name: row for row in agreed if row.question == question for name in row.fields}
    for name, (kafka, floe) in found.items():
        row = allowed.get(name)
        if row is None or row.kafka not in (ANY, kafka) or row.floe not in (ANY, floe):
            problems.append(f"| {question} | {name} | {kafka} | {floe} | ? |")
    problems += [f"{question}: {name} no longer differs" for name in allowed if name not in found]
    return problems
