"""The table of routes in docs/security.md, written by `python -m agent.http.docs`; a test keeps it fresh."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent.http.needs import TABLE, Need, Row
from coordination.state.acl_types import spoken

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
START = "<!-- drawn by `python -m agent.http.docs` -->"
END = "<!-- end of the table of routes -->"


def render() -> str:
    """The table, Markdown."""
    free = ", ".join(f"`{path}` ({row.of})" for (_, path), row in TABLE.items() if row.need is None)
    return "\n".join(
        [
            "| route | operation | on |",
            "|---|---|---|",
            *_rows(),
            "",
            f"Nothing is asked for: {free}.",
        ]
    )


def _rows() -> Iterator[str]:
    for (method, path), row in TABLE.items():
        if row.need is not None:
            shown = path.replace(":path}", "}")
            quiet = "; what one may not is not shown" if row.need.quiet else ""
            yield f"| {method or 'every'} `{shown}` | {_words(row)} | {row.of}{quiet} |"


def _words(row: Row) -> str:
    assert row.need is not None
    operation = spoken(row.need.operation.name)
    return f"{operation} {spoken(row.need.resource.name)}" if isinstance(row.need, Need) else operation


def replaced(page: str) -> str:
    """The page with the table as it is by now."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    assert after, f"docs/security.md has no {START} … {END}"
    return f"{before}{START}\n\n{render()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
