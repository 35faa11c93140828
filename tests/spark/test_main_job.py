"""`make run` on a sample, through a real agent: equal when nothing is wrong, unequal when one row is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROWS = 300
SAMPLE_RECORDS = 4 * ROWS + 16
REFUSED = 28
WAYS = {"drop": ("dropped", "missing"), "double": ("doubled", "doubled"), "change": ("changed", "changed")}
"""Ways of damage: what the job says that it did, and what the audit calls it."""

pytestmark = [pytest.mark.services, pytest.mark.timeout(2400)]


def run_job(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The job as the Makefile starts it, on ROWS rows per topic."""
    command = [sys.executable, "-m", "deploy.run", "--limit", str(ROWS), "--out", str(out), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=1100)


def processes_below(folder: Path) -> list[str]:
    """Command lines of running processes that name the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if str(folder) in line:
                found.append(line)
    return found


def test_the_job_ends_equal(tmp_path: Path) -> None:
    ends_equal(tmp_path)


@pytest.mark.thorough
def test_damaged_rows_fail_the_job_and_the_next_one_in_its_folder_ends_equal(tmp_path: Path) -> None:
    damaged = run_job(tmp_path, "--break", ",".join(WAYS))
    assert damaged.returncode == 1, damaged.stdout[-2000:] + damaged.stderr[-2000:]
    for done, kind in WAYS.values():
        (place,) = re.findall(
            rf"behind Floe's back: {done} (topic flights partition \d+ offset \d+)", damaged.stdout
        )
        assert f"{kind}: {place}: " in damaged.stdout
    last = damaged.stdout.splitlines()[-1]
    assert last.startswith("verdict: unequal · rows ")
    assert " · missing 1 · doubled 1 · changed 1 · " in last
    assert processes_below(tmp_path) == []
    ends_equal(tmp_path)


def ends_equal(tmp_path: Path) -> None:
    """Leaves a report, and no process."""
    ran = run_job(tmp_path)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    assert ran.stdout.splitlines()[-1] == (
        f"verdict: equal · rows {ROWS} flights + {ROWS} weather + {ROWS} planes + {ROWS} airports"
        f" + 16 airlines · missing 0 · doubled 0 · changed 0 · rejected {REFUSED} of {REFUSED}"
    )
    assert processes_below(tmp_path) == []
    report = (tmp_path / "report.html").read_text()
    assert report.count("<svg") == 5
    assert not re.search(r'(?:src|href)="(?!#)', report), "the report must open without any network"
    assert "invalid UTF-8" in report
    verdict = json.loads((tmp_path / "data" / "verdict.json").read_text())
    assert sum(count["table"] for count in verdict["topics"]) == SAMPLE_RECORDS


def test_an_unknown_damage_is_refused_by_name(tmp_path: Path) -> None:
    ran = run_job(tmp_path, "--break", "drop,melt")
    assert ran.returncode == 2
    assert "'melt' is not one of drop, double, change" in ran.stderr


def test_a_second_job_in_the_same_folder_is_told_to_wait(tmp_path: Path) -> None:
    holder = (
        "import fcntl, sys\n"
        f"lock = open({str(tmp_path / '.lock')!r}, 'w')\n"
        "fcntl.flock(lock, fcntl.LOCK_EX)\nprint('held', flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as held:
        assert held.stdout is not None
        assert held.stdout.readline() == "held\n"
        ran = run_job(tmp_path)
        held.terminate()
    assert ran.returncode == 2
    assert "another run is using" in ran.stderr
