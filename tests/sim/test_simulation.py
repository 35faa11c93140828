"""Seeds of the simulation are clean, one seed is one run, broken rules are caught."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.sim import child

SEEDS = 13  # a minute or two of a core; `make simulate` runs more
REACHING = 48  # that together reach everything; `make thorough` runs them
JOBS = 2
SECONDS_MAX = 3600  # of a machine that does other things
SICK_SEEDS = 5
FEW, RICH, STORED = 2, 12, 13
"""Seeds whose traces are compared: one that ran behind one other, one with nearly everything, one with all
kinds of objects.
"""
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


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[CompletedProcess[str], Path]:
    """All seeds in two processes, and the folder with the traces of some: each ran behind others."""
    out = tmp_path_factory.mktemp("many")
    kept = map(str, (FEW, RICH, STORED))
    return _sim("--seeds", str(SEEDS), "--jobs", str(JOBS), "--out", str(out), "--keep", *kept), out


def test_seeds_are_clean(many: tuple[CompletedProcess[str], Path]) -> None:
    done, _ = many
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(_told(r"acknowledged ([\d,]+)", done.stdout).replace(",", "")) > 1000, done.stdout


@pytest.mark.thorough
def test_seeds_put_every_rule_to_the_test(tmp_path: Path) -> None:
    done = _sim("--seeds", str(REACHING), "--jobs", str(JOBS), "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
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


def test_one_seed_is_one_run(many: tuple[CompletedProcess[str], Path], tmp_path: Path) -> None:
    """By the seed behind others, and by its plan alone."""
    plan = many[1] / f"{RICH}.json"
    done = _sim("--plan", str(plan), "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    trace = (tmp_path / plan.name).with_suffix(".trace").read_text()
    assert trace == plan.with_suffix(".trace").read_text()
    assert trace.count("\n") > 500
    assert "process" in plan.with_suffix(".html").read_text()


def test_a_seed_is_the_same_whatever_ran_before(
    many: tuple[CompletedProcess[str], Path], tmp_path: Path
) -> None:
    """Tasks lie elsewhere in memory then, and sets of them once had another order (seed 2 behind seed 1)."""
    assert _sim("--seed", str(FEW), "--out", str(tmp_path)).returncode == 0
    behind, alone = ((folder / f"{FEW}.trace").read_text() for folder in (many[1], tmp_path))
    assert behind == alone


def test_a_seed_is_the_same_on_another_machine(
    many: tuple[CompletedProcess[str], Path], tmp_path: Path
) -> None:
    """Whose memory lies elsewhere, with other entropy: seed 13 (a relay, an archive, a replica, tables) once
    had Avro files with bytes of the machine's own. The trace has what is put into the bucket, too.
    """
    elsewhere = {"PYTHONMALLOC": "malloc", "PADDING": "." * 5000}
    done = _sim("--seed", str(STORED), "--out", str(tmp_path), environment=elsewhere)
    assert done.returncode == 0, done.stdout + done.stderr
    here, there = ((folder / f"{STORED}.trace").read_text().split("\n") for folder in (many[1], tmp_path))
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
