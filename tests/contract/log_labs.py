"""The logs under one contract, each with the faults of its own world made to happen."""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from coordination.clock import SystemClock
from coordination.etcd.beginning import begin
from coordination.etcd.client import EtcdClient
from coordination.etcd.follower import FollowOptions
from coordination.etcd.keys import Keys
from coordination.etcd.log import EtcdLog, EtcdOptions
from coordination.etcd.proto import rpc_pb2 as pb
from coordination.etcd.rebased import RebasedLog
from coordination.log import Log
from coordination.memory_log import MemoryLog
from coordination.memory_server import MemoryServer
from coordination.sqlite_file import LogFile
from coordination.sqlite_log import SqliteLog
from deploy.services import Etcd
from tests.equipment.proxy import Proxy

_T = TypeVar("_T")
CLUSTER = "contract"
HTTP2_CONTROL_BYTES = 64  # pings and window updates; an answer is longer


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait for something that must happen; pytest's timeout is the bound."""
    while True:
        met = condition()
        if met if isinstance(met, bool) else await met:
            return
        await asyncio.sleep(0.01)


class Client(ABC):
    """A log over a link of its own, and what can go wrong on that link."""

    log: Log

    @abstractmethod
    async def lose_request(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Start `work`; its first request is lost before it takes effect. Returns once it is lost."""

    @abstractmethod
    async def lose_answer(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Start `work`; its first answer is lost after the effect. Returns once there is the effect."""

    @abstractmethod
    async def cancel_watches(self) -> None:
        """End what the followers listen to."""

    @abstractmethod
    async def silence_watches(self) -> None:
        """What the followers listen to now says nothing ever again."""


class Lab(ABC):
    """One log server of a test's own."""

    ttl_s = 5.0
    floor = 0
    """The revision above which the log's first entry is."""

    @abstractmethod
    async def client(self) -> Client:
        """A client with a link of its own."""

    @abstractmethod
    async def expire(self, incarnation: int) -> None:
        """The lease is gone, whatever its holder believes."""

    @abstractmethod
    async def compact(self) -> None:
        """Drop all history that the log's server can drop without losing entries."""

    @abstractmethod
    async def backup(self) -> None:
        """Remember everything as it is."""

    @abstractmethod
    async def restore(self) -> None:
        """Go back to the backup."""

    @abstractmethod
    async def close(self) -> None:
        """Release what is held."""


class MemoryLab(Lab):
    def __init__(self) -> None:
        self.server = MemoryServer()
        self._backup: object = None

    async def client(self) -> Client:
        return MemoryClient(self.server)

    async def expire(self, incarnation: int) -> None:
        self.server.expire(incarnation)

    async def compact(self) -> None:
        self.server.compact(self.server.revision)

    async def backup(self) -> None:
        self._backup = self.server.backup()

    async def restore(self) -> None:
        self.server.restore(self._backup)

    async def close(self) -> None:
        """Nothing is held."""


class MemoryClient(Client):
    def __init__(self, server: MemoryServer) -> None:
        self.memory = MemoryLog(server, SystemClock(), timeout_s=0.05, silent_s=0.1)
        self.log = self.memory

    async def lose_request(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        self.memory.faults.lose_requests = 1
        task = asyncio.create_task(work)
        await until(lambda: self.memory.faults.lose_requests == 0)
        return task

    async def lose_answer(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        self.memory.faults.lose_answers = 1
        task = asyncio.create_task(work)
        await until(lambda: self.memory.faults.lose_answers == 0)
        return task

    async def cancel_watches(self) -> None:
        self.memory.server.cancel_watches()

    async def silence_watches(self) -> None:
        self.memory.server.silence_watches()


class SqliteLab(Lab):
    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "log.db")
        self._copy = str(folder / "backup.db")
        self._clients: list[SqliteClient] = []

    async def client(self) -> Client:
        client = SqliteClient(self.path)
        self._clients.append(client)
        return client

    async def expire(self, incarnation: int) -> None:
        self._run(
            lambda db: db.execute(
                "UPDATE incarnations SET expires_ms = 0 WHERE incarnation = ?", (incarnation,)
            )
        )
        await (await self.client()).log.members()

    async def compact(self) -> None:
        self._run(lambda db: db.execute("VACUUM"))
        self._run(lambda db: db.execute("PRAGMA wal_checkpoint(TRUNCATE)"))

    async def backup(self) -> None:
        copy = sqlite3.connect(self._copy)
        self._run(lambda db: db.backup(copy))
        copy.close()

    async def restore(self) -> None:
        copy = sqlite3.connect(self._copy)
        self._run(copy.backup)
        copy.close()

    async def close(self) -> None:
        for client in self._clients:
            await client.log.close()

    def _run(self, step: Callable[[sqlite3.Connection], object]) -> None:
        """As an administrator would, from outside."""
        database = sqlite3.connect(self.path, isolation_level=None)
        step(database)
        database.close()


class SqliteFaults:
    """Orders for the connections of one client."""

    def __init__(self) -> None:
        self.lose_requests = 0
        self.lose_answers = 0


class FaultyFile(LogFile):
    """The disk reports an error before or after a COMMIT took effect."""

    def __init__(self, path: str, faults: SqliteFaults) -> None:
        super().__init__(path, 5.0)
        self._faults = faults

    def connect(self) -> sqlite3.Connection:
        faults = self._faults

        class FaultyConnection(sqlite3.Connection):
            def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
                if statement != "COMMIT":
                    return super().execute(statement, *arguments)
                if faults.lose_requests:
                    faults.lose_requests -= 1
                    raise sqlite3.OperationalError("disk I/O error")
                done = super().execute(statement)
                if faults.lose_answers:
                    faults.lose_answers -= 1
                    raise sqlite3.OperationalError("disk I/O error")
                return done

        return sqlite3.connect(
            self._path, factory=FaultyConnection, isolation_level=None, check_same_thread=False
        )


class SqliteClient(Client):
    def __init__(self, path: str) -> None:
        self.sqlite = SqliteLog(path, SystemClock())
        self.faults = SqliteFaults()
        self.sqlite._file = FaultyFile(path, self.faults)
        self.log = self.sqlite

    async def lose_request(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        self.faults.lose_requests = 1
        task = asyncio.create_task(work)
        await until(lambda: self.faults.lose_requests == 0)
        return task

    async def lose_answer(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        self.faults.lose_answers = 1
        task = asyncio.create_task(work)
        await until(lambda: self.faults.lose_answers == 0)
        return task

    async def cancel_watches(self) -> None:
        """The connection is closed under the follower, as after a change of the file's owner."""
        opened, self.sqlite._file._opened = self.sqlite._file._opened, None
        if opened is not None:
            await self.sqlite.call(opened.close)

    async def silence_watches(self) -> None:
        """Nobody wakes this process's followers: as if the writers were other processes."""
        from coordination import sqlite_log

        for waker in sqlite_log._wakers.get(self.sqlite._path, []):
            waker.wake = lambda: None  # type: ignore[method-assign]  # this one only


class EtcdLab(Lab):
    ttl_s = 10.0

    def __init__(self, etcd: Etcd, folder: Path) -> None:
        self.etcd = etcd
        self.direct = EtcdClient([etcd.endpoint], SystemClock())
        self.keys = Keys(CLUSTER)
        self._copy = folder / "backup"
        self._clients: list[EtcdLabClient] = []

    async def client(self) -> EtcdLabClient:
        link = await Proxy("127.0.0.1", self.etcd.port).start()
        client = EtcdLabClient(self, link)
        self._clients.append(client)
        return client

    async def revision(self) -> int:
        """The server's, asked over a healthy link."""
        return (await self.direct.range(pb.RangeRequest(key=b"x", count_only=True))).header.revision

    async def expire(self, incarnation: int) -> None:
        found = await self.direct.range(pb.RangeRequest(key=self.keys.agent(incarnation)))
        await self.direct.lease_revoke(found.kvs[0].lease)

    async def compact(self) -> None:
        await self.direct.compact(await self.revision())

    async def backup(self) -> None:
        await asyncio.to_thread(self.etcd.kill)
        await asyncio.to_thread(self.etcd.backup, self._copy)
        await asyncio.to_thread(self.etcd.start)

    async def restore(self) -> None:
        await asyncio.to_thread(self.etcd.kill)
        await asyncio.to_thread(self.etcd.restore, self._copy)
        await asyncio.to_thread(self.etcd.start)

    async def close(self) -> None:
        for client in self._clients:
            await client.log.close()
            await client.link.stop()
        await self.direct.close()


class RebasedLab(EtcdLab):
    """A log that `floe restore cluster` began: its revisions are etcd's and a number more (rebased.py)."""

    BASE = 5 << 32

    async def client(self) -> EtcdLabClient:
        client = await super().client()
        assert isinstance(client.log, EtcdLog), "a log by etcd's own revisions"
        if not self.floor:
            _, self.floor = await begin(client.log, b"c" * 32, self.BASE, replace=True)
        client.log = RebasedLog(client.log)
        return client


class EtcdLabClient(Client):
    log: Log
    """An EtcdLog, or a RebasedLog over it."""

    def __init__(self, lab: EtcdLab, link: Proxy) -> None:
        self.lab = lab
        self.link = link
        follow = FollowOptions(progress_s=0.2, silent_s=0.6)
        options = EtcdOptions(attempt_timeout_s=1.0, call_timeout_s=4.0, follow=follow)
        self.log = EtcdLog([link.address], CLUSTER, SystemClock(), options)

    async def lose_request(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        dropped = self.link.requests.dropped_bytes
        self.link.requests.cut = True
        task = asyncio.create_task(work)
        await until(lambda: self.link.requests.dropped_bytes > dropped)
        self.link.heal()
        return task

    async def lose_answer(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        before, dropped = await self.lab.revision(), self.link.answers.dropped_bytes
        self.link.answers.cut = True
        task = asyncio.create_task(work)

        async def effect() -> bool:
            # A lease that was granted moves no revision: then only the swallowed answer shows.
            swallowed = self.link.answers.dropped_bytes - dropped
            return await self.lab.revision() > before or swallowed > HTTP2_CONTROL_BYTES

        await until(effect)
        self.link.heal()
        return task

    async def cancel_watches(self) -> None:
        self.link.reset()

    async def silence_watches(self) -> None:
        self.link.silence()
