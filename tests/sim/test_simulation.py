"""Seeds of the simulation are clean, one seed is one run, broken rules are caught."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from tests.sim import child

SEEDS = 80  # two minutes and a half of one quiet core; `make simulate` runs more
JOBS = 2
SECONDS_MAX = 3600  # of a machine that does other things
SICK_SEEDS = 5
QUICK = (
    "ack-before-append",
    "last-stable-too-high",
    "abort-keeps-positions",
    "nobody-judges",
    "follows-any-log",
)
pytestmark = pytest.mark.timeout(SECONDS_MAX)
_sim = partial(child.run, "tests.sim", seconds_max=SECONDS_MAX)


def _told(pattern: str, text: str) -> str:
    """What the pattern's group is in the text."""
    found = re.search(pattern, text)
    assert found, text
    return found[1]


def test_seeds_are_clean(tmp_path: Path) -> None:
    done = _sim("--seeds", str(SEEDS), "--jobs", str(JOBS), "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(_told(r"acknowledged ([\d,]+)", done.stdout).replace(",", "")) > 1000, done.stdout
    untested = _told(r"rules never put to the test: (.*)", done.stdout)
    assert untested == "none", untested
    assert "never in the network: none\n" in done.stdout, done.stdout
    for what in ("commands", "requests"):
        (left,) = re.findall(rf"{what} neither played nor excused: (.*)", done.stdout)
        assert left == "none", f"play these {what} in tests/sim, or say in coverage.py why not: {left}"


def test_one_sick_agent_stays_its_own_matter(tmp_path: Path) -> None:
    """Clients go on, it is out of Metadata in time, and comes back (tests/sim/sick)."""
    done = _sim("--sick", "--seeds", str(SICK_SEEDS), "--jobs", str(JOBS), "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"sickness: .*stepped aside [1-9]", done.stdout), done.stdout


def test_one_seed_is_one_run(tmp_path: Path) -> None:
    traces = []
    plan = tmp_path / "0" / "12.json"
    for number, source in enumerate((("--seed", "12"), ("--plan", str(plan)))):
        done = _sim(*source, "--out", str(tmp_path / str(number)))
        assert done.returncode == 0, done.stdout + done.stderr
        traces.append((tmp_path / str(number) / "12.trace").read_text())
    assert traces[0] == traces[1]
    assert traces[0].count("\n") > 500
    assert "process" in (tmp_path / "0" / "12.html").read_text()


def test_a_seed_is_the_same_whatever_ran_before(tmp_path: Path) -> None:
    """Tasks lie elsewhere in memory then, and sets of them once had another order (seed 2 behind seed 1)."""
    for source in (("--seeds", "2", "--keep"), ("--seed", "2")):
        assert _sim(*source, "--out", str(tmp_path / source[0])).returncode == 0
    behind, alone = ((tmp_path / each / "2.trace").read_text() for each in ("--seeds", "--seed"))
    assert behind == alone


def test_a_seed_is_the_same_on_another_machine(tmp_path: Path) -> None:
    """Whose memory lies elsewhere, with other entropy: seed 13 (a relay, an archive, a replica, tables) once
    had Avro files with bytes of the machine's own. The trace has what is put into the bucket, too.
    """
    elsewhere = {"PYTHONMALLOC": "malloc", "PADDING": "." * 5000}
    for name, environment in (("here", {}), ("there", elsewhere)):
        done = _sim("--seed", "13", "--out", str(tmp_path / name), environment=environment)
        assert done.returncode == 0, done.stdout + done.stderr
    here, there = ((tmp_path / each / "13.trace").read_text().split("\n") for each in ("here", "there"))
    differs = next((pair for pair in zip(here, there, strict=False) if pair[0] != pair[1]), None)
    assert differs is None, f"the first line that differs: {differs}"
    assert len(here) == len(there)
    tables = [line for line in here if " put tables/" in line]
    assert tables, "what Iceberg's files have in them is looked at"


def test_broken_rules_are_caught() -> None:
    """Quick ones of the table that `make simulate CONTROLS=1` prints."""
    done = _sim("--controls", *QUICK)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n") == 1 + len(QUICK)
