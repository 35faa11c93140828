"""Which failures of a whole run are tried once more, alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.equipment import again

ROOT = Path(__file__).resolve().parents[3]
BUSY = "tests/compat/test_a.py::test_b[c/d::e]"


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        ([BUSY, "tests/unit/agent/test_c.py::test_d"], ""),
        ([], "without the name of a test"),
        (
            [BUSY, "tests/sim/test_simulation.py::test_seeds_are_clean"],
            "test_seeds_are_clean depends on nothing",
        ),
        (
            [f"tests/compat/test_{n}.py::test" for n in range(again.FILES_MAX + 1)],
            f"of {again.FILES_MAX + 1} files failed",
        ),
        (
            [f"{BUSY}{n}" for n in range(again.TESTS_MAX + 1)],
            f"{again.TESTS_MAX + 1} tests of 1 files failed",
        ),
    ],
    ids=["few", "none", "certain", "files", "tests"],
)
def test_what_is_not_tried_again(tests: list[str], reason: str) -> None:
    told = again.why_not(tests)
    assert (reason in told) if reason else not told


@pytest.mark.parametrize("holds", [True, False], ids=["holds", "fails"])
def test_the_verdict_is_that_of_the_second_run(
    holds: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "test_x.py"
    file.write_text(f"def test_y() -> None:\n    assert {holds}\n")
    monkeypatch.setattr(again, "FAILED", tmp_path / "failed.jsonl")
    monkeypatch.setattr(again, "why_not", lambda _: "")
    for phase in ("call", "teardown"):
        again.note(f"{file}::test_y", phase)
    assert again.failed() == [f"{file}::test_y"]
    assert again.main() == (0 if holds else 1)
    word = "held alone" if holds else "failed alone, too"
    assert f"FAILED BESIDE OTHERS, {word}: {file}::test_y" in capfd.readouterr().out


def test_every_folder_that_is_certain_is_there() -> None:
    assert all((ROOT / "tests" / each).is_dir() for each in again.ALONE_ALREADY)


def test_nothing_failed_and_yet_a_part_did(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from tests.equipment import again
again.FAILED = Path({str(tmp_path / "none")!r})
raise SystemExit(again.main())
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, "not tried again: a part ended" in done.stdout) == (1, True)
