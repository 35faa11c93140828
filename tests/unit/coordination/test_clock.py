"""Time and entropy enter in one place: the manual clock repeats, and lint keeps the others out."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from coordination.backoff import Backoff
from coordination.clock import ManualClock, SystemClock

ROOT = Path(__file__).resolve().parents[3]


def draw(clock: ManualClock) -> list[object]:
    return [clock.random(), clock.random_bits(63), clock.random_bytes(16), clock.now_ms()]


def test_a_manual_clock_repeats_by_its_seed() -> None:
    assert draw(ManualClock(7)) == draw(ManualClock(7))
    assert draw(ManualClock(7)) != draw(ManualClock(8))


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(start_ms=5_000)
    assert (clock.now_ms(), clock.now_us(), clock.monotonic()) == (5_000, 5_000_000, 5.0)
    clock.advance(1.5)
    asyncio.run(clock.sleep(0.5))
    assert (clock.now_ms(), clock.monotonic()) == (7_000, 7.0)


def test_the_system_s_clock_gives_what_it_promises() -> None:
    clock = SystemClock()
    assert 0 <= clock.random() < 1
    assert 0 <= clock.random_bits(63) < 2**63
    assert len(clock.random_bytes(16)) == 16
    assert clock.now_us() // 1000 - clock.now_ms() in (0, 1)
    assert clock.monotonic() <= clock.monotonic()


def test_backoff_doubles_up_to_its_bound_within_half_and_whole() -> None:
    delays = Backoff(ManualClock(), first_s=1.0, max_s=4.0).delays()
    for whole in (1.0, 2.0, 4.0, 4.0, 4.0):
        assert whole / 2 <= next(delays) <= whole


@pytest.mark.parametrize(
    "line",
    [
        "import time",
        "import random",
        "import uuid",
        "import secrets",
        "from datetime import datetime\n\ndatetime.now()",
    ],
)
@pytest.mark.parametrize("package", ["agent", "iceberg", "schema", "coordination", "objectstore"])
def test_lint_bans_time_and_entropy_in_the_core(package: str, line: str) -> None:
    checked = subprocess.run(
        [
            sys.executable,
            "-m",
            "ruff",
            "check",
            "--select",
            "TID251",
            "--stdin-filename",
            f"{package}/any.py",
            "-",
        ],
        input=f"{line}\n",
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert checked.returncode == 1
    assert "TID251" in checked.stdout
