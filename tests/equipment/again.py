"""What failed beside five other parts of `make test` is tried once more, alone.

`python -m tests.equipment.again`. Six parts on two cores give a test a tenth of a processor now and then,
and servers of others make their own timeouts. A test that holds alone is told, in the output of the run, as
one that failed beside others, to be mended; the run passes. Not so where too many failed, or one of those
that nothing outside can disturb.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FAILED = Path(__file__).resolve().parents[2] / "build" / "failed.jsonl"
"""A line for each failure of this run of `make test`: the test, and in which phase."""

FILES_MAX = 12
"""A machine that stands still for a while fails what runs in all parts then."""
TESTS_MAX = 500
"""Where what they share could not be made, all tests of a file fail, and of Spark those of all files."""

ALONE_ALREADY = ("sim", "explore", "mutation", "checker", "property", "golden", "tidy", "proof")
"""Folders of tests that have no clock, server or process of their own: there a failure is one."""


def note(test: str, phase: str) -> None:
    """Remember that it failed."""
    FAILED.parent.mkdir(exist_ok=True)
    with FAILED.open("a") as out:
        out.write(json.dumps({"test": test, "phase": phase}) + "\n")


def failed() -> list[str]:
    """The tests that failed in this run, each once, in the order of the first failures."""
    lines = FAILED.read_text().splitlines() if FAILED.exists() else []
    return list(dict.fromkeys(json.loads(line)["test"] for line in lines))


def why_not(tests: Sequence[str]) -> str:
    """Why these are not tried again; empty: they are."""
    files = {each.partition("::")[0] for each in tests}
    certain = [each for each in tests if each.split("/")[1] in ALONE_ALREADY]
    if not tests:
        return "a part ended without the name of a test that failed: its log says why"
    if certain:
        return f"{certain[0]} depends on nothing that other parts could disturb"
    if len(files) > FILES_MAX or len(tests) > TESTS_MAX:
        return f"{len(tests)} tests of {len(files)} files failed, more than {TESTS_MAX} of {FILES_MAX}"
    return ""


def main() -> int:
    """0: all that failed holds alone."""
    tests = failed()
    if reason := why_not(tests):
        print(f"not tried again: {reason}")
        return 1
    FAILED.unlink()
    status = subprocess.run([sys.executable, "-m", "pytest", *tests], check=False).returncode
    word = "held alone" if status == 0 else "failed alone, too"
    for each in tests:
        print(f"FAILED BESIDE OTHERS, {word}: {each}")
    return status


if __name__ == "__main__":
    sys.exit(main())
