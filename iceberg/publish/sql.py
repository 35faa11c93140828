"""Entries in a SQL catalog: the tables of Iceberg's JdbcCatalog and of pyiceberg's SqlCatalog.

One UPDATE that names the former location moves a pointer: a compare-and-swap, as both of them do it. Any
database that SQLAlchemy knows; its driver is the operator's to install (the extra `sql` brings SQLAlchemy).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from iceberg.publish.other import (
    CatalogAway,
    CatalogFailed,
    Entry,
    EntryChanged,
    EntryUnanswered,
    Key,
    Pointer,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

TEXT_MAX = 300  # characters of what a database says
SILENCES = 4
"""Of `timeout_s`: what a call may take, to connect, to make the catalog's tables, to ask and to commit."""
LENGTHS = {"namespace": 255, "name": 255, "location": 1000}  # characters of the columns

_CREATE = (
    "CREATE TABLE IF NOT EXISTS iceberg_tables (catalog_name VARCHAR(255) NOT NULL, "
    "table_namespace VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL, "
    "metadata_location VARCHAR(1000), previous_metadata_location VARCHAR(1000), iceberg_type VARCHAR(5), "
    "PRIMARY KEY (catalog_name, table_namespace, table_name))",
    "CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (catalog_name VARCHAR(255) NOT NULL, "
    "namespace VARCHAR(255) NOT NULL, property_key VARCHAR(255) NOT NULL, property_value VARCHAR(1000), "
    "PRIMARY KEY (catalog_name, namespace, property_key))",
)
_OF = " WHERE catalog_name = :catalog AND table_namespace = :namespace"
_ONE = f"{_OF} AND table_name = :name"


@dataclass(frozen=True, slots=True)
class SqlOptions:
    """`uri`: as SQLAlchemy writes it, without a password. `catalog`: the catalog's name in the tables."""

    uri: str
    catalog: str
    user: str = ""
    password: str = ""
    timeout_s: float = 5.0
    connections_max: int = 4


class SqlCatalog:
    """See OtherCatalog. Threads share it."""

    shows_metadata = False

    def __init__(self, options: SqlOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._has_tables = False
        self.call_s_max = SILENCES * options.timeout_s

    def spelled(self, key: Key) -> Key:
        return key

    def names(self, namespace: str) -> Mapping[str, str | None]:
        query = f"SELECT table_name, metadata_location FROM iceberg_tables{_OF}"
        return {str(name): location or "" for name, location in self._rows(query, namespace=namespace)}

    def look(self, key: Key) -> Entry | None:
        rows = self._rows(f"SELECT metadata_location FROM iceberg_tables{_ONE}", **_named(key))
        return Entry(str(rows[0][0] or "")) if rows else None

    def create(self, key: Key, pointer: Pointer) -> None:
        self._require_short(key, pointer.location)
        insert = (
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, "
            "previous_metadata_location) VALUES (:catalog, :namespace, :name, :location, NULL)"
        )
        if self.look(key) is not None:
            raise EntryChanged(f"{'.'.join(key)} is there meanwhile")
        self._make_namespace(key[0])
        self._changed(insert, **_named(key), location=pointer.location)

    def replace(self, key: Key, entry: Entry, pointer: Pointer) -> None:
        self._require_short(key, pointer.location)
        update = (
            "UPDATE iceberg_tables SET metadata_location = :location, previous_metadata_location = :former"
            f"{_ONE} AND metadata_location = :former"
        )
        if not self._changed(update, **_named(key), location=pointer.location, former=entry.location):
            raise EntryChanged(f"{'.'.join(key)} is not at {entry.location} any more")

    def drop(self, key: Key, entry: Entry) -> None:
        delete = f"DELETE FROM iceberg_tables{_ONE} AND metadata_location = :former"
        if not self._changed(delete, **_named(key), former=entry.location) and self.look(key) is not None:
            raise EntryChanged(f"{'.'.join(key)} is not at {entry.location} any more")

    def close(self) -> None:
        with self._lock:
            if self._engine is not None:
                self._engine.dispose()
                self._engine = None

    def _make_namespace(self, namespace: str) -> None:
        """A namespace is there by a property, as both catalogs do it. Others may make it at the same time."""
        known = (
            "SELECT 1 FROM iceberg_namespace_properties "
            "WHERE catalog_name = :catalog AND namespace = :namespace"
        )
        if self._rows(known, namespace=namespace):
            return
        insert = (
            "INSERT INTO iceberg_namespace_properties "
            "(catalog_name, namespace, property_key, property_value) "
            "VALUES (:catalog, :namespace, 'exists', 'true')"
        )
        with suppress(
            EntryChanged
        ):  # its own transaction: whoever made it meanwhile made it for the table too
            self._changed(insert, namespace=namespace)

    def _require_short(self, key: Key, location: str) -> None:
        """Raises CatalogFailed for what the columns would cut."""
        given = {"namespace": key[0], "name": key[1], "location": location}
        for what, most in LENGTHS.items():
            if len(given[what]) > most:
                raise CatalogFailed(f"{what} {given[what][:TEXT_MAX]}: a SQL catalog takes {most} characters")

    def _rows(self, query: str, **values: str) -> list[tuple[Any, ...]]:
        def asked(connection: Connection, text: Any) -> list[tuple[Any, ...]]:
            found = connection.execute(text(query), {"catalog": self._options.catalog, **values})
            return [tuple(row) for row in found]

        rows: list[tuple[Any, ...]] = self._with_connection(asked)
        return rows

    def _changed(self, statement: str, **values: str) -> int:
        """Run it as a transaction; how many rows it changed. Raises EntryChanged."""

        def asked(connection: Connection, text: Any) -> int:
            bound = {"catalog": self._options.catalog, **values}
            return connection.execute(text(statement), bound).rowcount

        count: int = self._with_connection(asked)
        return count

    def _with_connection(self, ask: Any) -> Any:
        """What `ask` returns, of a connection in a transaction. Raises CatalogFailed."""
        try:
            import sqlalchemy
            from sqlalchemy import exc
        except ImportError:
            raise CatalogAway(
                "a SQL catalog needs SQLAlchemy and the database's driver, which are not installed: "
                "install floe-streaming[sql] and the driver beside this agent"
            ) from None
        begun = False
        try:
            with self._opened(sqlalchemy).begin() as connection:
                begun = True
                return ask(connection, sqlalchemy.text)
        except exc.IntegrityError as error:
            raise EntryChanged(f"somebody else made the entry meanwhile: {_said(error)}") from error
        except (exc.OperationalError, exc.InterfaceError, exc.TimeoutError) as error:
            if begun:  # it may be this row, which somebody else holds locked
                raise EntryUnanswered(f"the database breaks off: {_said(error)}") from error
            raise CatalogAway(
                f"the database is not reached, or refuses: {_said(error)} "
                "(look at its uri, user and password in the configuration)"
            ) from error
        except (exc.ArgumentError, exc.NoSuchModuleError, ImportError) as error:
            raise CatalogAway(f"uri of the SQL catalog: {_said(error)}") from error
        except exc.SQLAlchemyError as error:
            raise CatalogFailed(_said(error)) from error

    def _opened(self, sqlalchemy: Any) -> Engine:
        """The engine; the first time it makes the catalog's tables where there are none.

        Nothing is asked with the lock held: `close` takes it while a database is silent.
        """
        with self._lock:
            if self._engine is None:
                self._engine = self._made(sqlalchemy)
                self._has_tables = False
            engine, has_tables = self._engine, self._has_tables
        if not has_tables:
            with engine.begin() as connection:
                for each in _CREATE:
                    connection.execute(sqlalchemy.text(each))
            with self._lock:
                self._has_tables = self._engine is engine
        return engine

    def _made(self, sqlalchemy: Any) -> Engine:
        options = self._options
        url = sqlalchemy.make_url(options.uri)
        if options.user:
            url = url.set(username=options.user, password=options.password or None)
        bounds = _bounds(url.get_backend_name(), url.get_driver_name(), options.timeout_s)
        engine: Engine = sqlalchemy.create_engine(url, connect_args=bounds, pool_pre_ping=True)
        return engine


def _named(key: Key) -> dict[str, str]:
    return {"namespace": key[0], "name": key[1]}


def _bounds(backend: str, driver: str, timeout_s: float) -> dict[str, object]:
    """How long the driver waits: each calls it otherwise. Those not known here `call_s_max` bounds."""
    whole = max(1, round(timeout_s))
    if backend == "sqlite" or driver == "pg8000":
        return {"timeout": timeout_s}
    if backend == "postgresql" and driver.startswith("psycopg"):
        # statement_timeout is kept by the server: of one that is gone the connection itself has to tell
        return {
            "connect_timeout": whole,
            "options": f"-c statement_timeout={round(timeout_s * 1000)}",
            "keepalives_idle": whole,
            "keepalives_interval": whole,
            "keepalives_count": 2,
            "tcp_user_timeout": 2_000 * whole,
        }
    if driver in ("pymysql", "mysqldb", "mariadbconnector"):
        return {"connect_timeout": whole, "read_timeout": whole, "write_timeout": whole}
    return {"connect_timeout": whole} if backend in ("mysql", "mariadb") else {}


def _said(error: Exception) -> str:
    """Its first line: what follows are the statement and its values."""
    return f"{type(error).__name__}: {str(error).splitlines()[0]}"[:TEXT_MAX]
