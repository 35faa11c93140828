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

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]


def run_job(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The job as the Makefile starts it, on ROWS rows per topic."""
    command = [sys.executable, "-m", "deploy.run", "--limit", str(ROWS), "--out", str(out), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=800)


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


def test_the_job_ends_equal_twice_and_leaves_a_report_and_no_process(tmp_path: Path) -> None:
    for _ in range(2):
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


@pytest.mark.parametrize(("how", "kind"), [("drop", "missing"), ("double", "doubled"), ("change", "changed")])
def test_one_damaged_row_is_named_and_fails_the_job(tmp_path: Path, how: str, kind: str) -> None:
    ran = run_job(tmp_path, "--break", how)
    assert ran.returncode == 1, ran.stdout[-2000:] + ran.stderr[-2000:]
    (place,) = re.findall(r"behind Floe's back: \w+ (topic flights partition \d+ offset \d+)", ran.stdout)
    assert f"{kind}: {place}: " in ran.stdout
    last = ran.stdout.splitlines()[-1]
    assert last.startswith("verdict: unequal · rows ")
    assert f" · {kind} 1 · " in last


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
