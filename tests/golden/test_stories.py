"""Every story of this folder comes out as it is written. `pytest --rewrite-golden` writes them anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.story import Storyteller

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path, request: pytest.FixtureRequest) -> None:
    written = path.read_text()
    told = Storyteller().tell(written)
    if request.config.getoption("--rewrite-golden"):
        path.write_text(told)
        return
    assert told == written


def test_the_stories_are_there() -> None:
    assert len(STORIES) >= 8


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_story_is_told_alike_from_a_snapshot_after_every_line(path: Path) -> None:
    """Nothing but the snapshot's own lines may tell that the state went through one."""
    teller = Storyteller()
    lines = []
    for line in path.read_text().splitlines():
        told = teller.tell(line).rstrip("\n")
        if told:
            lines.append(told)
        if line.startswith(">") and "stops:" not in told:
            list(teller._snapshot(""))
    assert "\n".join(lines).split() == path.read_text().split()
