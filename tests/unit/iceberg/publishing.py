"""Publishers for tests: one pass at a time, on a rig."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog as Reader

from coordination.commands import AlterTopicConfigs
from coordination.state.types import Done
from iceberg.publish.other import OtherCatalog
from iceberg.publish.plan import Rules
from iceberg.publish.publisher import Publisher, PublishOptions
from iceberg.publish.sql import SqlCatalog, SqlOptions
from iceberg.publish.steps import Steps
from tests.unit.iceberg.rig import Killed, Rig


class KillAt(Steps):
    """Ends the publisher before a step, the n-th time that it comes (from 1); counts all."""

    def __init__(self, step: str = "", times: int = 1) -> None:
        self.step, self.times = step, times
        self.seen: list[str] = []

    async def before(self, step: str) -> None:
        await super().before(step)
        self.seen.append(step)
        if step == self.step and self.seen.count(step) == self.times:
            raise Killed(step)


def publisher_of(
    rig: Rig, catalog: OtherCatalog, *, steps: Steps | None = None, rules: Rules | None = None, **options: Any
) -> Publisher:
    """A publisher as after a start of the process: it knows nothing. `look` makes one pass."""
    given = {"retry_s": 0.0, "retry_s_max": 0.0, "check_s": 0.0, **options}
    settings = PublishOptions("lake", "sql", rules or Rules(), **given)
    return Publisher(rig.replica, rig.store, rig.warehouse, catalog, settings, steps)


async def look(publisher: Publisher, times: int = 1) -> None:
    """Passes, as the job's loop makes them."""
    for _ in range(times):
        await publisher._look()


def database(folder: Path) -> str:
    """URL of a database file."""
    return f"sqlite:///{folder}/catalog.db"


def sql(folder: Path, **options: Any) -> SqlCatalog:
    """The SQL catalog under test."""
    return SqlCatalog(SqlOptions(database(folder), "lake", **options))


@asynccontextmanager
async def reading(folder: Path) -> AsyncIterator[Catalog]:
    """pyiceberg's own SQL catalog over the same database."""
    found = Reader("lake", uri=database(folder))
    try:
        yield found
    finally:
        found.engine.dispose()


async def rows(catalog: Catalog, name: str) -> list[int]:
    """The offsets of a table as another catalog's reader finds them."""

    def scanned() -> pa.Table:
        return catalog.load_table(name).scan(selected_fields=("kafka",)).to_arrow()

    table = await asyncio.to_thread(scanned)
    return sorted(each["offset"] for each in table["kafka"].to_pylist())


def location(rig: Rig, name: str = "t") -> str:
    """Where Floe's own catalog says that a table is."""
    return rig.replica.state.tables["floe", name].metadata_location


async def configure(rig: Rig, topic: str, **configs: str) -> None:
    """Set configs of a topic; `__` is a dot."""
    message = AlterTopicConfigs(topic=topic)
    for name, value in configs.items():
        message.changes.add(name=name.replace("__", "."), value=value)
    assert isinstance(await rig.replica.propose(message), Done)
