"""What each API asks for: no API without a row, no row that nobody asks, and the page is the table."""

from __future__ import annotations

import re
from pathlib import Path

import agent.kafka
from agent.kafka.authority import needs
from agent.kafka.authority.docs import PAGE, replaced
from agent.kafka.authority.needs import FREE, TABLE, Need
from agent.kafka.guards import BY_THEMSELVES, GUARDS
from agent.kafka.handlers import HANDLERS

KAFKA = Path(agent.kafka.__file__).parent if agent.kafka.__file__ else Path("agent/kafka")


def test_every_api_asks_or_says_why_not() -> None:
    assert not set(HANDLERS) - set(TABLE) - set(FREE), "add rows to agent/kafka/authority/needs.py"
    assert not set(TABLE) & set(FREE)


def test_every_api_with_a_row_is_guarded() -> None:
    unguarded = set(TABLE) - set(GUARDS) - BY_THEMSELVES
    asked = {key for key in unguarded if _asks(HANDLERS[key].handle.__module__)}
    assert unguarded == asked, "add a guard to agent/kafka/guards, or let its handler ask"


def _asks(module: str) -> bool:
    source = (KAFKA.parents[1] / Path(*module.split("."))).with_suffix(".py").read_text()
    return ".may(" in source or ".allows(" in source or "acts_for(" in source


def test_nothing_stands_in_the_table_that_nobody_asks() -> None:
    rooms = [*(KAFKA / "guards").glob("*.py"), *(KAFKA / "handlers").glob("*.py")]
    asked = set(re.findall(r"\b[A-Z][A-Z_]+\b", "\n".join(path.read_text() for path in rooms)))
    rows = {name: one for name, one in vars(needs).items() if isinstance(one, Need)}
    assert {name for name, one in rows.items() if name not in asked} == set()
    assert sum(map(len, TABLE.values())) == len(rows), "a row without a name of its own"


def test_the_page_shows_the_table() -> None:
    page = PAGE.read_text()
    assert replaced(page) == page, "run python -m agent.kafka.authority.docs"
