"""The table of docs/security.md, written by `python -m agent.kafka.authority.docs`; a test keeps it fresh."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent.kafka.authority.needs import FREE, TABLE, Need
from agent.net.wire.api import APIS
from coordination.state.acl_types import Operation, spoken

PAGE = Path(__file__).resolve().parents[3] / "docs" / "security.md"
START = "<!-- drawn by `python -m agent.kafka.authority.docs` -->"
END = "<!-- end of the table -->"


def render() -> str:
    """The table, Markdown."""
    return "\n".join(
        [
            "| API | operation | resource | asked for | who may not |",
            "|---|---|---|---|---|",
            *_rows(),
            "",
            "Nothing is asked for: "
            + "; ".join(f"{APIS[key].name} ({why})" for key, why in FREE.items())
            + ".",
        ]
    )


def _rows() -> Iterator[str]:
    for key in sorted(TABLE):
        for number, need in enumerate(TABLE[key]):
            api = f"{APIS[key].name} ({key})" if not number else ""
            what = f"{_words(need.operation)} | {_words(need.resource)}"
            yield f"| {api} | {what} | {need.of} | {_answer(need)} |"


def _words(of: Operation | object) -> str:
    """As kafka-acls writes it: DescribeConfigs, TransactionalId."""
    return spoken(str(getattr(of, "name", "")))


def _answer(need: Need) -> str:
    if need.quiet or "_FAILED" in need.otherwise:
        return need.otherwise
    return f"{need.otherwise}: {need.code.name}"


def replaced(page: str) -> str:
    """The page with the table as it is by now."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    assert after, f"docs/security.md has no {START} … {END}"
    return f"{before}{START}\n\n{render()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
