"""Modules that are imported when they are first needed: in a thread, not walked by the collector."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from pathlib import Path

import pytest

from objectstore import late

ROOT = Path(__file__).resolve().parents[3]
TOLD = """import asyncio, gc, sys, threading
from objectstore import late
assert not late.is_ready("iceberg.metadata")
before, seen = gc.get_freeze_count(), []

async def both():
    await asyncio.gather(*(late.ready("iceberg.metadata") for _ in range(2)))

asyncio.run(both())
from iceberg import metadata
assert late.is_ready("iceberg.metadata")
assert gc.isenabled()
assert gc.get_freeze_count() > before
"""


def test_who_needs_a_module_at_once_with_another_gets_it_whole() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", TOLD], cwd=ROOT, check=True)


async def test_what_is_there_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def thread(*_: object) -> None:
        raise AssertionError("in a thread")

    monkeypatch.setattr(asyncio, "to_thread", thread)
    await late.ready("objectstore.late")


async def test_what_cannot_be_imported_says_so_and_leaves_the_collector_as_it_was() -> None:
    before = gc.isenabled()
    with pytest.raises(ModuleNotFoundError, match=r"objectstore\.nothing"):
        await late.ready("objectstore.nothing")
    assert gc.isenabled() is before
