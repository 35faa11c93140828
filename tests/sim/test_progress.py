"""Seeds in several goes: each once, all in the report, of one code."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.sim import child, progress
from tests.sim.coverage import Coverage
from tests.sim.many import Sum

SECONDS_MAX = 3600  # of a machine that does other things
BAD = (7, "seed 7: a record is lost\nPlan(…)")


def some(seeds: int) -> Sum:
    coverage = Coverage()
    coverage.runs, coverage.counts = seeds, Counter({"fault kill": 3, "row ç": 2})
    return Sum(Counter(seeds=seeds, acknowledged=12), coverage, 5.25, 1.5, [BAD])


def test_what_was_kept_is_there_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "progress.json"
    begun = progress.load(path, 3, 20.0)
    assert (begun.done, begun.wall_s) == (0, 0)
    begun.keep(some(20), 61.04)
    again = progress.load(path, 3, 20.0)
    assert (again.done, again.wall_s, again.whole.bad) == (20, 61.0, [BAD])
    assert again.whole.counts == some(20).counts
    assert (again.whole.virtual_s, again.whole.cpu_s) == (5.25, 1.5)
    assert (again.whole.coverage.runs, again.whole.coverage.counts) == (20, some(20).coverage.counts)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_seeds_of_other_code_are_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    progress.load(path, 1, 20.0).keep(some(20), 1)
    with pytest.raises(progress.OtherCode, match="began with --first 1, and now it is 2; leave"):
        progress.load(path, 2, 20.0)
    with pytest.raises(progress.OtherCode, match=r"began with --seconds 20\.0, and now it is 5\.0; leave"):
        progress.load(path, 1, 5.0)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"code": "abc"}))
    with pytest.raises(progress.OtherCode, match="the 20 seeds in it ran on other code or another Python"):
        progress.load(path, 1, 20.0)


def test_any_source_that_is_played_is_of_the_code(tmp_path: Path) -> None:
    def code(**sources: str) -> str:
        for name in progress.PLAYED:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        for name, content in sources.items():
            path = tmp_path / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return progress.code_of(tmp_path)

    before = code(agent__a="1")
    assert code(tests__unit__b="1", docs__c="1") == before
    seen = [code(agent__a="2"), code(tests__sim__world="2"), code(coordination__state__d="3")]
    (tmp_path / "agent" / "a.py").rename(tmp_path / "agent" / "e.py")
    assert len({before, *seen, progress.code_of(tmp_path)}) == 5
    assert progress.code_of() == progress.code_of()


def test_the_second_go_runs_what_the_first_did_not(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    common = ("--seconds", "1", "--progress", str(path), "--out", str(tmp_path))
    reports = []
    for seeds in ("1", "2", "2"):
        done = child.run("tests.sim", "--seeds", seeds, *common, seconds_max=SECONDS_MAX)
        assert (done.returncode, done.stderr) == (0, "")
        assert f"{seeds} seeds · " in done.stdout.splitlines()[-1]
        reports.append((json.loads(path.read_text()), done.stdout.splitlines()[-1]))
    (first, _), (second, line), (third, same) = reports
    assert 0 < first["virtual_s"] < second["virtual_s"]
    assert (first["runs"], second["runs"]) == (1, 2)
    assert third == second, "there was nothing left to run"
    assert same.split(" in ")[0] == line.split(" in ")[0]
    other = child.run("tests.sim", "--seeds", "2", "--first", "2", *common, seconds_max=SECONDS_MAX)
    assert (other.returncode, other.stdout) == (2, "")
    assert other.stderr == (
        f"--progress {path}: it began with --first 1, and now it is 2; leave that as it was\n"
    )
