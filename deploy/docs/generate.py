"""Writes the pages of docs/ that come from the code: `python -m deploy.docs.generate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from agent.config.document import render as configuration

ROOT = Path(__file__).resolve().parents[2]

PAGES: Mapping[str, Callable[[], str]] = {"docs/configuration.md": configuration}
"""Page → what writes it. tests/tidy compares both."""


def main() -> None:
    """Write every page."""
    for name, render in PAGES.items():
        (ROOT / name).write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
