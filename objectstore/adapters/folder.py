"""A store in a local folder: one machine, no services, as durable as the disk under it.

A write goes to a temporary file, which is synced; then it gets its name by link (create-only) or rename,
and the folder is synced. So a name never shows half an object, not even after a power cut. (obstore's own
local store syncs neither file nor folder.) Calls run in a thread pool; several processes may share a folder.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count, islice
from pathlib import Path
from typing import TypeVar

from objectstore.naming import check_key
from objectstore.store import (
    PLAIN,
    Ambiguous,
    Buffer,
    Create,
    Denied,
    NotFound,
    ObjectMeta,
    Precondition,
    PutMode,
    Replace,
    Retryable,
    StoreError,
)

PAGE_OBJECTS = 1000
THREADS_MAX = 8
FOLDER_TRIES_MAX = 10  # a folder emptied by a delete may vanish between its making and its use
LEFTOVER_SECONDS = 3600  # a temporary file this much older than a fresh one has no living author
BUFFERS_MAX = 512  # of one writev call; Linux allows 1024
_OWN = ".floe"  # holds temporary files and the lock; never listed
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR})

T = TypeVar("T")
Stack = list[Iterator[str]]


class FolderStore:
    """An ObjectStore in a folder, which is made when it is missing. Raises Denied when that fails.

    A key cannot also be the folder of other keys: with an object `a` there is no `a/b`.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._own = root / _OWN
        self._numbers = count()
        with _errors(str(root), wrote=False):
            self._own.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self._own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._sweep()
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="folder-store")
        self._closed = False

    async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
        """See ObjectStore."""
        check_key(key)
        return await self._run(lambda: self._put(key, parts, mode))

    async def get(self, key: str) -> bytes:
        """See ObjectStore."""
        return await self._run(lambda: self._read(key, _read_all))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """See ObjectStore."""
        return (await self.get_ranges(key, [(start, length)]))[0]

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """See ObjectStore."""
        return await self._run(
            lambda: self._read(key, lambda file: [_read_range(key, file, *each) for each in ranges])
        )

    async def head(self, key: str) -> ObjectMeta:
        """See ObjectStore."""
        return await self._run(lambda: self._read(key, lambda file: _meta(key, os.fstat(file))))

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        """See ObjectStore."""
        found = self._walk(prefix, start_after)
        while page := await self._run(lambda: list(islice(found, PAGE_OBJECTS))):
            yield page

    async def list_folders(self, prefix: str) -> Sequence[str]:
        """See ObjectStore."""
        return await self._run(lambda: self._folders(prefix))

    async def delete(self, keys: Sequence[str]) -> None:
        """See ObjectStore."""
        for key in keys:
            check_key(key)
        await self._run(lambda: self._delete(keys))

    async def close(self) -> None:
        """See ObjectStore."""
        if not self._closed:
            self._closed = True
            await asyncio.to_thread(self._threads.shutdown)
            os.close(self._lock)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _put(self, key: str, parts: Sequence[Buffer], mode: PutMode) -> str:
        with _errors(key, wrote=False):
            temporary = self._write_temporary(parts)
        try:
            return self._name(key, temporary, mode)
        finally:
            with suppress(OSError):
                os.unlink(temporary)

    def _write_temporary(self, parts: Sequence[Buffer]) -> Path:
        path = self._own / f"{os.getpid():x}-{id(self):x}-{next(self._numbers):x}.tmp"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            _write_all(file, parts)
            os.fsync(file)
        except BaseException:
            with suppress(OSError):
                os.unlink(path)
            raise
        finally:
            os.close(file)
        return path

    def _name(self, key: str, temporary: Path, mode: PutMode) -> str:
        """Give the synced temporary file its name, then sync the folder."""
        target = self._root / key
        for _ in range(FOLDER_TRIES_MAX):
            try:
                with _errors(key, wrote=False):
                    self._make_folder(target.parent)
                    meta = self._link(key, temporary, target, mode)
                break
            except NotFound:
                continue  # the folder was emptied and removed by a delete meanwhile
        else:
            raise Retryable(f"{key}: its folder vanished {FOLDER_TRIES_MAX} times while it was written")
        with _errors(key, wrote=True):
            _sync_folder(target.parent)
        return meta.etag

    def _link(self, key: str, temporary: Path, target: Path, mode: PutMode) -> ObjectMeta:
        """Raises Precondition once what stands in the way is durable: it may be an own write that is not told
        yet, by a try that hangs in its sync, that failed there, or whose process was killed before it.
        """
        if isinstance(mode, Create):
            try:
                os.link(temporary, target)
            except FileExistsError:
                _sync_folder(target.parent)
                raise Precondition(f"{key} exists already") from None
            return _meta(key, os.stat(temporary))
        with self._locked(exclusive=isinstance(mode, Replace)):
            old = _stat(target)
            if isinstance(mode, Replace) and (old is None or _meta(key, old).etag != mode.etag):
                if old is not None:
                    _sync_folder(target.parent)
                raise Precondition(f"{key} is no longer what etag {mode.etag} names")
            new = os.stat(temporary)
            if old is not None and new.st_mtime_ns <= old.st_mtime_ns:
                # Coarse file times and re-used inode numbers must not make an etag come again.
                os.utime(temporary, ns=(new.st_atime_ns, old.st_mtime_ns + 1))
                new = os.stat(temporary)
            os.rename(temporary, target)
            return _meta(key, new)

    def _make_folder(self, folder: Path) -> None:
        """Make it and its parents, each one durable in the one above."""
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for each in reversed(missing):
            try:
                each.mkdir()
            except (FileExistsError, NotADirectoryError):
                _need_folder(each)
            _sync_folder(each.parent)

    def _read(self, key: str, what: Callable[[int], T]) -> T:
        check_key(key)
        with _errors(key, wrote=False):
            path = self._root / key
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if stat.S_ISDIR(os.fstat(file).st_mode):
                    raise NotFound(key)
                return what(file)
            finally:
                os.close(file)

    def _walk(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        """Objects in key order: a folder sorts as its name with the slash."""
        folder = prefix.rpartition("/")[0]
        stack: Stack = [iter(self._entries(folder, prefix, start_after))]
        while stack:
            entry = next(stack[-1], None)
            if entry is None:
                stack.pop()
            elif entry.endswith("/"):
                stack.append(iter(self._entries(entry[:-1], prefix, start_after)))
            elif entry > start_after and (status := _stat(self._root / entry)) is not None:
                yield _meta(entry, status)

    def _entries(self, folder: str, prefix: str, start_after: str) -> Sequence[str]:
        """Keys and sub-folders (these with a slash) of a folder that can hold what is looked for."""
        base = f"{folder}/" if folder else ""
        found = []
        with _errors(folder, wrote=False), suppress(FileNotFoundError, NotADirectoryError):
            for entry in os.scandir(self._root / folder):
                name = base + entry.name + ("/" if entry.is_dir() else "")
                # A folder whose every key sorts before start_after is passed over.
                after = name > start_after or start_after.startswith(name)
                if name.startswith(prefix) and after and name != f"{_OWN}/":
                    found.append(name)
        return sorted(found)

    def _folders(self, prefix: str) -> Sequence[str]:
        entries = self._entries(prefix.rstrip("/"), prefix, "")
        folders = [entry for entry in entries if entry.endswith("/")]
        return [each[len(prefix) : -1] for each in folders if next(self._walk(each, ""), None) is not None]

    def _delete(self, keys: Sequence[str]) -> None:
        with self._locked(exclusive=False):
            for key in keys:
                with _errors(key, wrote=True), suppress(FileNotFoundError, NotADirectoryError):
                    os.unlink(self._root / key)
        for parent in sorted(dict.fromkeys((self._root / key).parent for key in keys)):
            self._prune(parent)

    def _prune(self, folder: Path) -> None:
        """Make deletions durable and remove folders that are now empty."""
        with suppress(OSError):
            _sync_folder(folder)
            while folder != self._root:
                folder.rmdir()  # fails when not empty, which ends the climb
                folder = folder.parent

    @contextmanager
    def _locked(self, *, exclusive: bool) -> Iterator[None]:
        """Replace-if-unchanged excludes every other change, in this process and in others."""
        file = os.open(self._own / "lock", os.O_RDWR | os.O_CLOEXEC)  # flock belongs to one opening
        try:
            fcntl.flock(file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
            yield
        finally:
            os.close(file)

    def _sweep(self) -> None:
        """Remove temporary files of processes that died, told by their age on the disk's own clock."""
        os.utime(self._lock)
        now = os.fstat(self._lock).st_mtime
        for entry in sorted(self._own.glob("*.tmp")):
            status = _stat(entry)
            if status is not None and now - status.st_mtime > LEFTOVER_SECONDS:
                entry.unlink(missing_ok=True)


@contextmanager
def _errors(what: str, *, wrote: bool) -> Iterator[None]:
    """Translate the system's errors; after the first visible step of a write the outcome is unknown."""
    try:
        yield
    except StoreError:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(what) from error
    except OSError as error:
        if wrote:
            raise Ambiguous(f"{what}: {error}") from error
        if error.errno in _DENIED:
            raise Denied(f"{what}: {error}: give this user access to a folder of its own") from error
        raise Retryable(f"{what}: {error}") from error


def _meta(key: str, status: os.stat_result) -> ObjectMeta:
    etag = f"{status.st_mtime_ns:x}-{status.st_ino:x}-{status.st_size:x}"
    return ObjectMeta(key, status.st_size, etag, status.st_mtime_ns // 1_000_000)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _need_folder(path: Path) -> None:
    """Raises Denied when an object is in the way, FileNotFoundError when a folder was removed meanwhile."""
    for each in (path.parent, path):
        if not stat.S_ISDIR(os.stat(each).st_mode):
            raise Denied(f"{each} is an object: it cannot be the folder of others too")


def _write_all(file: int, parts: Sequence[Buffer]) -> None:
    rest = [memoryview(part) for part in parts if len(part)]
    while rest:
        written = os.writev(file, rest[:BUFFERS_MAX])
        while rest and written >= len(rest[0]):
            written -= len(rest.pop(0))
        if written:
            rest[0] = rest[0][written:]


def _read_all(file: int) -> bytes:
    size = os.fstat(file).st_size
    return _read_range("", file, 0, size)


def _read_range(key: str, file: int, start: int, length: int) -> bytes:
    data = os.pread(file, length, start)
    while len(data) < length:
        more = os.pread(file, length - len(data), start + len(data))
        if not more:
            raise Retryable(f"{key}: bytes {start}+{length} of an object of {os.fstat(file).st_size}")
        data += more
    return data


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
