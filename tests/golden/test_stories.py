"""Every story of this folder comes out as it is written. `pytest --rewrite-golden` writes them anew."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.checker.test_checker import FAILING
from tests.equipment.appending import WAYS, appending
from tests.golden.story import Storyteller
from tests.unit.coordination.reflect import plain

FOLDER = Path(__file__).parent
STORIES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path, way: str, request: pytest.FixtureRequest) -> None:
    written = path.read_text()
    with appending(WAYS[way]):
        told = Storyteller().tell(written)
    if request.config.getoption("--rewrite-golden"):
        path.write_text(told)
        return
    assert told == written


def rows() -> dict[str, list[str]]:
    """The tables of README.md: what is told, and the files and tests that tell it."""
    lines = [line for line in (FOLDER / "README.md").read_text().splitlines() if line.startswith("| ")]
    columns = [line.strip("| ").split(" | ", 1) for line in lines]
    return {what: re.findall("`([^`]+)`", where) for what, where in columns if not where.startswith("story")}


def is_there(named: str) -> bool:
    """A story of this folder, or a test: path::function."""
    if named.endswith(".txt"):
        return (FOLDER / named).is_file()
    path, _, function = named.partition("::")
    test = FOLDER.parents[1] / path
    return test.is_file() and f"def {function}(" in test.read_text()


@pytest.mark.parametrize(("what", "where"), rows().items(), ids=list(rows()))
def test_what_is_told_is_there(what: str, where: list[str]) -> None:
    assert where, f"nothing tells {what}"
    assert [named for named in where if not is_there(named)] == []


def test_every_rule_anomaly_and_story_is_in_the_tables() -> None:
    told = rows()
    rules = {what.split()[0] for what in told}
    assert rules.issuperset(map(str, range(1, 14)))
    words = {word for what in told for word in re.split(r"[ ,]+", what)}
    assert words >= FAILING
    assert {path.name for path in STORIES} <= {named for where in told.values() for named in where}


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
            before = plain(teller.state)
            list(teller._snapshot(""))
            assert plain(teller.state) == before, line
    assert "\n".join(lines).split() == path.read_text().split()
