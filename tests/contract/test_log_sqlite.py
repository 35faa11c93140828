"""What only the SQLite log can suffer: a full disk, a busy file, a process killed, other processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coordination.clock import ManualClock, SystemClock
from coordination.log import Unavailable
from coordination.sqlite_log import SqliteLog
from tests.contract.log_labs import until
from tests.contract.test_log import Reader, fill

ROOT = Path(__file__).resolve().parents[2]
WRITER = """
import asyncio, sys
from coordination.clock import SystemClock
from coordination.sqlite_log import SqliteLog

async def main():
    log = SqliteLog(sys.argv[1], SystemClock())
    chain = await log.register(int(sys.argv[2]), b"", 60.0)
    for number in range(int(sys.argv[3])):
        print(await chain.append(b"%d" % number), flush=True)

asyncio.run(main())
"""


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[SqliteLog]:
    made = SqliteLog(str(tmp_path / "log.db"), SystemClock(), busy_timeout_s=0.05)
    yield made
    await made.close()


def path_of(log: SqliteLog) -> str:
    return log._path


async def test_a_full_disk_loses_nothing_and_the_append_lands_when_there_is_room(log: SqliteLog) -> None:
    chain = await log.register(1, b"", 60.0)
    before = await fill(chain, 3)
    opened = log._file._opened
    assert opened is not None
    [pages] = opened.execute("PRAGMA page_count").fetchone()
    await log.call(lambda: opened.execute(f"PRAGMA max_page_count = {pages}").fetchone())
    append = asyncio.create_task(chain.append(b"x" * 100_000))
    await until(lambda: chain.failures > 0)
    assert not append.done()
    with pytest.raises(Unavailable, match="disk is full"):
        await log.register(2, b"x" * 100_000, 60.0)
    assert [entry.revision for entry in await Reader(log).reaches(before[-1])] == before
    await log.call(lambda: opened.execute("PRAGMA max_page_count = 1000000").fetchone())
    revision = await append
    entries = await Reader(log).reaches(revision)
    assert [entry.sequence for entry in entries] == [1, 2, 3, 4]


async def test_a_file_locked_by_someone_else_is_waited_for(log: SqliteLog) -> None:
    chain = await log.register(1, b"", 60.0)
    other = sqlite3.connect(path_of(log), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    append = asyncio.create_task(chain.append(b"one"))
    await until(lambda: chain.failures > 1)
    assert await log.current() == 1, "reads go on"
    with pytest.raises(Unavailable, match="locked"):
        await log.fence(1)
    other.execute("ROLLBACK")
    other.close()
    assert await append == 2


def write_and_be_killed(path: str, incarnation: int) -> list[int]:
    """What a process was told before it was killed in the middle of its appends."""
    command = [sys.executable, "-c", WRITER, path, str(incarnation), "100000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as writer:
        assert writer.stdout is not None
        told = [writer.stdout.readline() for _ in range(40)]
        os.kill(writer.pid, signal.SIGKILL)
        told += writer.stdout.readlines()
    return [int(line) for line in told if line.endswith("\n")]


async def test_every_acknowledged_append_survives_sigkill(log: SqliteLog) -> None:
    await log.identity()
    acknowledged: list[int] = []
    for incarnation in (1, 2, 3):
        acknowledged += await asyncio.to_thread(write_and_be_killed, path_of(log), incarnation)
    entries = await Reader(log).reaches(await log.current())
    revisions = [entry.revision for entry in entries]
    assert set(acknowledged) <= set(revisions)
    # Per kill at most the one append in flight may be there without its answer.
    assert len(revisions) - len(acknowledged) <= 3
    for incarnation in (1, 2, 3):
        own = [entry.sequence for entry in entries if entry.incarnation == incarnation]
        assert own == list(range(1, len(own) + 1))


async def test_processes_share_one_file_and_see_one_order(log: SqliteLog) -> None:
    chain = await log.register(9, b"", 60.0)
    reader = Reader(log)
    writers = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", WRITER, path_of(log), str(number), "50", stdout=subprocess.PIPE, cwd=ROOT
        )
        for number in (1, 2)
    ]
    filled: Any = asyncio.gather(fill(chain, 50), *(writer.communicate() for writer in writers))
    own, *others = await filled
    acknowledged = own + [int(line) for out, _ in others for line in out.split()]
    entries = await reader.reaches(await log.current())
    assert [entry.revision for entry in entries] == sorted(acknowledged)
    assert len(acknowledged) == 150
    await reader.stop()


async def test_whoever_says_a_key_is_gone_has_deleted_it(tmp_path: Path) -> None:
    """Rule 2: what a clock says about a lease is no fence; only the deleted key is."""
    behind, ahead = ManualClock(), ManualClock()
    path = str(tmp_path / "log.db")
    sleeper, watcher = SqliteLog(path, behind), SqliteLog(path, ahead)
    chain = await sleeper.register(1, b"", 60.0)
    ahead.advance(61.0)
    assert await chain.append(b"one") == 2, "expired by the other's clock, but nobody has looked"
    assert await watcher.members() == []
    assert await sleeper.members() == [], "gone for everybody"
    await sleeper.close()
    await watcher.close()


async def test_the_settings_are_those_that_make_an_answer_durable(log: SqliteLog) -> None:
    await log.current()
    opened = log._file._opened
    assert opened is not None
    settings = await log.call(
        lambda: [opened.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    )
    assert json.dumps(settings) == '["wal", 2]'


async def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    path.write_bytes(b"not a database, but longer than a header would be" * 10)
    log = SqliteLog(str(path), SystemClock())
    with pytest.raises(Unavailable, match="not a database"):
        await log.current()
    await log.close()
