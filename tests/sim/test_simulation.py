"""Some seeds of the simulation are clean, and one seed is one run (`make simulate` runs more)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SEEDS = 12  # `make simulate` runs more
SECONDS_MAX = 1800  # of a machine that does other things; about a minute on a quiet one
pytestmark = pytest.mark.timeout(SECONDS_MAX)


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.sim", *arguments],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def test_seeds_are_clean(tmp_path: Path) -> None:
    done = _run("--seeds", str(SEEDS), "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"acknowledged ([\d,]+)", done.stdout)[1].replace(",", "")) > 1000, done.stdout


def test_one_seed_is_one_run(tmp_path: Path) -> None:
    traces = []
    for number in range(2):
        done = _run("--seed", "12", "--out", str(tmp_path / str(number)))
        assert done.returncode == 0, done.stdout + done.stderr
        traces.append((tmp_path / str(number) / "12.trace").read_text())
    assert traces[0] == traces[1]
    assert traces[0].count("\n") > 500
