"""The folder store: what must hold beyond the contract, on a disk that fails and with other processes."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from objectstore.adapters.folder import LEFTOVER_SECONDS, FolderStore
from objectstore.store import CREATE, Ambiguous, Denied, NotFound, Precondition, PutMode, Replace, Retryable


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FolderStore]:
    opened = FolderStore(tmp_path / "root")
    yield opened
    await opened.close()


class Syscalls:
    """Records file system calls that matter for durability, and fails those it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.trace: list[str] = []
        self.fail: dict[int, int] = {}  # which fsync, counting from 1 → errno
        self._fsyncs = 0
        fsync, link, rename = os.fsync, os.link, os.rename

        def traced_fsync(file: int) -> None:
            self._fsyncs += 1
            name = os.readlink(f"/proc/self/fd/{file}")
            self.trace.append("sync folder" if os.path.isdir(name) else "sync file")
            if self._fsyncs in self.fail:
                raise OSError(self.fail[self._fsyncs], "injected")
            fsync(file)

        def traced_link(source: Path, target: Path) -> None:
            self.trace.append("link")
            link(source, target)

        def traced_rename(source: Path, target: Path) -> None:
            self.trace.append("rename")
            rename(source, target)

        monkeypatch.setattr(os, "fsync", traced_fsync)
        monkeypatch.setattr(os, "link", traced_link)
        monkeypatch.setattr(os, "rename", traced_rename)


async def test_bytes_are_synced_before_the_name_and_the_name_before_the_answer(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Syscalls(monkeypatch)
    await store.put("a", [b"x"], CREATE)
    assert calls.trace == ["sync file", "link", "sync folder"]
    calls.trace.clear()
    await store.put("a", [b"y"])
    assert calls.trace == ["sync file", "rename", "sync folder"]


async def test_new_folders_are_made_durable_one_by_one(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Syscalls(monkeypatch)
    await store.put("one/two/a", [b"x"], CREATE)
    assert calls.trace == ["sync file", "sync folder", "sync folder", "link", "sync folder"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
async def test_a_full_disk_is_retryable_and_leaves_nothing(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    calls = Syscalls(monkeypatch)
    calls.fail = {1: code}
    with pytest.raises(Retryable, match="injected"):
        await store.put("a", [b"x"], CREATE)
    with pytest.raises(NotFound):
        await store.get("a")
    assert list((tmp_path / "root" / ".floe").glob("*.tmp")) == []
    await store.put("a", [b"x"], CREATE)


async def test_a_write_that_the_system_cuts_short_leaves_nothing(store: FolderStore, tmp_path: Path) -> None:
    """The kernel's own limit on file sizes: the first part fits, then the write fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(Retryable, match="File too large"):
            await store.put("a", [bytes(60_000)] * 3, CREATE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((tmp_path / "root" / ".floe").glob("*.tmp")) == []
    await store.put("a", [bytes(60_000)] * 3, CREATE)
    assert (await store.head("a")).size == 180_000


async def test_a_failure_after_the_name_is_ambiguous(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Syscalls(monkeypatch)
    calls.fail = {2: errno.EIO}
    with pytest.raises(Ambiguous):
        await store.put("a", [b"x"], CREATE)


@pytest.mark.parametrize("again", [CREATE, Replace("another")])
async def test_what_stands_in_the_way_is_made_durable_before_that_is_told(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch, again: PutMode
) -> None:
    """It may be an own write whose sync failed or hangs: its author takes the answer for its success."""
    calls = Syscalls(monkeypatch)
    calls.fail = {2: errno.EIO}
    with pytest.raises(Ambiguous):
        await store.put("a", [b"x"], CREATE)
    calls.trace.clear()
    with pytest.raises(Precondition):
        await store.put("a", [b"x"], again)
    assert calls.trace == ["sync file", *["link"] * (again is CREATE), "sync folder"]
    calls.fail = {6: errno.EIO}
    with pytest.raises(Retryable):
        await store.put("a", [b"x"], again)


async def test_many_parts_are_written_whole(store: FolderStore) -> None:
    """More buffers than one call takes, some of them empty."""
    parts = [bytes([number % 251]) * (number % 7) for number in range(5_000)]
    await store.put("a", parts)
    assert await store.get("a") == b"".join(parts)


async def test_temporary_files_are_gone_and_old_leftovers_are_swept(tmp_path: Path) -> None:
    root = tmp_path / "root"
    store = FolderStore(root)
    await store.put("a", [b"x"], CREATE)
    with pytest.raises(Exception, match="exists already"):
        await store.put("a", [b"y"], CREATE)
    assert list((root / ".floe").glob("*.tmp")) == []
    crashed, running = root / ".floe" / "dead.tmp", root / ".floe" / "alive.tmp"
    for each in (crashed, running):
        each.write_bytes(b"half")
    old = running.stat().st_mtime - LEFTOVER_SECONDS - 1
    os.utime(crashed, (old, old))
    again = FolderStore(root)
    assert (crashed.exists(), running.exists()) == (False, True)
    assert [meta.key async for page in again.list("") for meta in page] == ["a"]
    assert await again.list_folders("") == []
    await store.close()
    await again.close()


async def test_an_object_cannot_be_a_folder_too(store: FolderStore) -> None:
    await store.put("a/b", [b"x"])
    with pytest.raises(Denied):
        await store.put("a/b/c", [b"y"])
    with pytest.raises(Denied):
        await store.put("a", [b"y"])
    assert await store.get("a/b") == b"x"


async def test_emptied_folders_vanish_without_disturbing_writers(store: FolderStore, tmp_path: Path) -> None:
    async def churn(number: int) -> None:
        for round_number in range(30):
            key = f"deep/er/{number}-{round_number}"
            await store.put(key, [b"x"], CREATE)
            await store.delete([key])

    await asyncio.gather(*map(churn, range(6)))
    assert sorted(each.name for each in (tmp_path / "root").iterdir()) == [".floe"]


async def test_a_folder_made_and_removed_by_others_meanwhile_is_made_again(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, met = Path.mkdir, 0

    def mkdir(path: Path, *args: object, **more: object) -> None:
        nonlocal met
        met += 1
        if met == 1:
            raise FileExistsError(path)  # another writer made it, and a delete has removed it since
        real(path)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    await store.put("deep/er/a", [b"x"], CREATE)
    assert await store.get("deep/er/a") == b"x"
    assert met == 3


async def test_a_folder_that_cannot_be_made_is_denied(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises((Denied, NotFound, Retryable), match="file"):
        FolderStore(tmp_path / "file" / "root")


INCREMENT = """
import asyncio, sys
from pathlib import Path
from objectstore.adapters.folder import FolderStore
from objectstore.store import Precondition, Replace

async def main():
    store = FolderStore(Path(sys.argv[1]))
    done = 0
    while done < 40:
        etag = (await store.head("counter")).etag
        value = int(await store.get("counter"))
        try:
            await store.put("counter", [b"%d" % (value + 1)], Replace(etag))
        except Precondition:
            continue
        done += 1
    await store.close()

asyncio.run(main())
"""


async def test_processes_that_replace_if_unchanged_lose_no_update(store: FolderStore, tmp_path: Path) -> None:
    """The value is read after the etag, so a replacement in between is refused."""
    await store.put("counter", [b"0"], CREATE)
    command = [sys.executable, "-c", INCREMENT, str(tmp_path / "root")]
    project = Path(__file__).parents[3]
    running = [await asyncio.create_subprocess_exec(*command, cwd=project) for _ in range(3)]
    assert await asyncio.gather(*(process.wait() for process in running)) == [0, 0, 0]
    assert await store.get("counter") == b"120"


async def test_etags_rise_even_when_the_clock_of_files_stands_still(
    store: FolderStore, tmp_path: Path
) -> None:
    """Same size, same time, an inode number used again: the old etag must not match."""
    first = await store.put("a", [b"1"], CREATE)
    status = (tmp_path / "root" / "a").stat()
    second = await store.put("a", [b"2"], Replace(first))
    third = await store.put("a", [b"3"], Replace(second))
    assert len({first, second, third}) == 3
    assert (tmp_path / "root" / "a").stat().st_mtime_ns > status.st_mtime_ns
