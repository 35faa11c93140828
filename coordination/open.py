"""Opens a log by URL."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from coordination.clock import Clock
from coordination.log import Log

SCHEMES = "etcd://host:port,host:port/cluster-name, sqlite:///absolute/file or memory:"


def open_log(url: str, clock: Clock, **options: Any) -> Log:
    """The log that `url` names: etcd://h1:p,h2:p/cluster-name, sqlite:///abs/file or memory:.

    `options` go to the adapter (etcd: the fields of EtcdOptions, such as tls, user and password; memory:
    `server`, a MemoryServer shared by the logs of one process). Nothing is connected yet.
    Raises ValueError for an URL it cannot read.
    """
    parts = urlsplit(url)
    if parts.scheme == "memory":
        from coordination.memory_log import MemoryLog
        from coordination.memory_server import MemoryServer

        return MemoryLog(options.pop("server", None) or MemoryServer(), clock, **options)
    if parts.scheme == "sqlite":
        from coordination.sqlite_log import SqliteLog

        if parts.netloc or not parts.path.startswith("/") or parts.path == "/":
            raise ValueError(f"log.url {url!r}: a SQLite log needs an absolute file, sqlite:///absolute/file")
        return SqliteLog(parts.path, clock, **options)
    if parts.scheme == "etcd":
        from coordination.etcd.log import EtcdLog, EtcdOptions
        from coordination.etcd.rebased import RebasedLog

        endpoints, cluster = parts.netloc.split(","), parts.path.strip("/")
        return RebasedLog(EtcdLog(endpoints, cluster, clock, EtcdOptions(**options)))
    raise ValueError(f"log.url {url!r}: unknown scheme {parts.scheme!r}; use {SCHEMES}")
