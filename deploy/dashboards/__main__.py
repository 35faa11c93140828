"""`python -m deploy.dashboards`: write helm/floe/dashboards/*.json. A test keeps them fresh."""

from __future__ import annotations

import json
from pathlib import Path

from deploy.dashboards.boards import BOARDS
from deploy.dashboards.panels import Board, built

FOLDER = Path(__file__).resolve().parents[2] / "helm" / "floe" / "dashboards"


def text_of(board: Board) -> str:
    """The file of a board."""
    return json.dumps(built(board), indent=1) + "\n"


def main() -> None:
    """Write each board and remove files of boards that are no more."""
    FOLDER.mkdir(exist_ok=True)
    files = {FOLDER / f"{board.uid}.json": text_of(board) for board in BOARDS}
    for stale in set(FOLDER.glob("*.json")) - set(files):
        stale.unlink()
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
