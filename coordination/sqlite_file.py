"""The SQLite file of the embedded log: tables and transactions. Synchronous; one thread uses it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from coordination.chain import KeyState
from coordination.log import EntryName, LogEntry, Member

FORMAT = 1
PAGE_BYTES = 4 << 20  # a read returns at least one entry and stops after about this much
PAGE_ENTRIES = 4096

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entries (
    revision INTEGER PRIMARY KEY, incarnation INTEGER NOT NULL, sequence INTEGER NOT NULL,
    payload BLOB NOT NULL, UNIQUE (incarnation, sequence));
CREATE TABLE IF NOT EXISTS incarnations (
    incarnation INTEGER PRIMARY KEY, owner INTEGER NOT NULL, info BLOB NOT NULL, sequence INTEGER NOT NULL,
    revision INTEGER NOT NULL, expires_ms INTEGER NOT NULL);
INSERT OR IGNORE INTO meta VALUES ('format', 1), ('revision', 0), ('trimmed', 0);
"""


class LogFile:
    """Every method is one transaction; those that write return after the fsync.

    A key that has expired is *deleted* by whoever notices before anything is concluded from it: only a
    key that is gone is a fence. Raises sqlite3.Error.
    """

    def __init__(self, path: str, busy_timeout_s: float) -> None:
        """Opens nothing yet: the first call does, in the thread that makes it."""
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self._opened: sqlite3.Connection | None = None
        self._closed = False

    def connect(self) -> sqlite3.Connection:
        """A connection with the log's settings; tests put faults here."""
        return sqlite3.connect(
            self._path, timeout=self._busy_timeout_s, isolation_level=None, check_same_thread=False
        )

    def close(self) -> None:
        """Close the file for good."""
        self._closed = True
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def identity(self, entropy: Callable[[], bytes]) -> str:
        """The file's own id, drawn when it is first asked for."""
        row = self._connection.execute("SELECT value FROM meta WHERE name = 'identity'").fetchone()
        if row is None:
            with self._writing() as connection:
                connection.execute("INSERT OR IGNORE INTO meta VALUES ('identity', ?)", (entropy().hex(),))
                row = connection.execute("SELECT value FROM meta WHERE name = 'identity'").fetchone()
        return str(row[0])

    def revision(self) -> int:
        """Grows with every change."""
        return self._meta("revision")

    def trimmed(self) -> int:
        """Entries are gone through this revision."""
        return self._meta("trimmed")

    def register(self, incarnation: int, owner: int, info: bytes, expires_ms: int) -> int | None:
        """Create the key; its revision, or None when the number was used. Idempotent per owner."""
        with self._writing() as connection:
            key = self.key(incarnation)
            if key is not None and key.owner == owner:
                return key.revision
            used = connection.execute("SELECT 1 FROM entries WHERE incarnation = ? LIMIT 1", (incarnation,))
            if key is not None or used.fetchone() is not None:
                return None
            revision = self._bump()
            connection.execute(
                "INSERT INTO incarnations VALUES (?, ?, ?, 0, ?, ?)",
                (incarnation, owner, info, revision, expires_ms),
            )
            return revision

    def append(self, incarnation: int, sequence: int, payload: bytes, expected: int) -> int | KeyState | None:
        """The compare-write-rewrite transaction of a chain (see AppendChain)."""
        with self._writing() as connection:
            key = self.key(incarnation)
            if key is None or key.revision != expected:
                return key
            revision = self._bump()
            connection.execute(
                "INSERT INTO entries VALUES (?, ?, ?, ?)", (revision, incarnation, sequence, payload)
            )
            connection.execute(
                "UPDATE incarnations SET sequence = ?, revision = ? WHERE incarnation = ?",
                (sequence, revision, incarnation),
            )
            return revision

    def key(self, incarnation: int) -> KeyState | None:
        """The key as it is now; None when it is gone."""
        row = self._connection.execute(
            "SELECT owner, sequence, revision FROM incarnations WHERE incarnation = ?", (incarnation,)
        ).fetchone()
        return None if row is None else KeyState(*row)

    def renew(self, incarnation: int, owner: int, expires_ms: int) -> bool:
        """Move the lease's end; False when the key is gone."""
        with self._writing() as connection:
            done = connection.execute(
                "UPDATE incarnations SET expires_ms = ? WHERE incarnation = ? AND owner = ?",
                (expires_ms, incarnation, owner),
            )
            return done.rowcount == 1

    def delete(self, incarnation: int, owner: int | None = None) -> None:
        """Delete the key (of that owner, when given)."""
        with self._writing() as connection:
            done = connection.execute(
                "DELETE FROM incarnations WHERE incarnation = ? AND (? IS NULL OR owner = ?)",
                (incarnation, owner, owner),
            )
            if done.rowcount:
                self._bump()

    def members(self, now_ms: int) -> list[Member]:
        """The live keys in order of their numbers; expired ones are deleted first."""
        expired = "FROM incarnations WHERE expires_ms <= ?"
        if self._connection.execute(f"SELECT 1 {expired} LIMIT 1", (now_ms,)).fetchone() is not None:
            with self._writing() as connection:
                connection.execute(f"DELETE {expired}", (now_ms,))
                self._bump()
        rows = self._connection.execute(
            "SELECT incarnation, info, sequence FROM incarnations ORDER BY incarnation"
        )
        return [Member(*row) for row in rows]

    def trim(self, through: int) -> None:
        """Forget entries at or below `through`."""
        with self._writing() as connection:
            through = min(through, self._meta("revision"))
            if through > self._meta("trimmed"):
                connection.execute("UPDATE meta SET value = ? WHERE name = 'trimmed'", (through,))
                connection.execute("DELETE FROM entries WHERE revision <= ?", (through,))
                self._bump()

    def has(self, entry: EntryName) -> bool:
        """Whether this entry stands where it is named, or stood there before the log was trimmed."""
        with self._reading() as connection:
            found = connection.execute(
                "SELECT 1 FROM entries WHERE (revision, incarnation, sequence) = (?, ?, ?)",
                (entry.revision, entry.incarnation, entry.sequence),
            )
            return found.fetchone() is not None or entry.revision <= self._meta("trimmed")

    def read(self, after: int) -> tuple[int, list[LogEntry], int]:
        """(trimmed, entries after `after`, revision through which that is all), of one moment."""
        with self._reading() as connection:
            trimmed, through = self._meta("trimmed"), self._meta("revision")
            entries: list[LogEntry] = []
            size = 0
            if through > after:
                for row in connection.execute(
                    "SELECT revision, incarnation, sequence, payload FROM entries WHERE revision > ? "
                    "ORDER BY revision",
                    (after,),
                ):
                    if size >= PAGE_BYTES or len(entries) >= PAGE_ENTRIES:
                        through = entries[-1].revision
                        break
                    entries.append(LogEntry(*row))
                    size += len(row[3])
            return trimmed, entries, through

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._closed:
            raise sqlite3.ProgrammingError("the log is closed")
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def _open(self) -> sqlite3.Connection:
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        connection = self.connect()
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
            found = connection.execute("SELECT value FROM meta WHERE name = 'format'").fetchone()[0]
            if found != FORMAT:
                raise sqlite3.DatabaseError(
                    f"format {found} is not the format {FORMAT} that this version of Floe reads"
                )
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            # After some errors SQLite has rolled back by itself.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        connection.execute("BEGIN")
        try:
            yield connection
        finally:
            connection.execute("ROLLBACK")

    def _meta(self, name: str) -> int:
        return int(self._connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()[0])

    def _bump(self) -> int:
        row = self._connection.execute(
            "UPDATE meta SET value = value + 1 WHERE name = 'revision' RETURNING value"
        ).fetchone()
        return int(row[0])
