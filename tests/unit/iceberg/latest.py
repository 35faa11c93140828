"""What tests of latest tables share: a rig's latest table, its rows and files, and the oracle."""

from __future__ import annotations

import io
import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet as pq

from iceberg import head as heads
from iceberg import manifests
from iceberg.latest_ids import latest_id
from iceberg.upsert.committer import LatestCommitter
from iceberg.upsert.files import RunFiles
from iceberg.upsert.plan import KeyFile
from iceberg.upsert.steps import STEPS, UpsertSteps
from tests.unit.iceberg.rig import Killed, Rig

UPSERT = {"floe__table__mode": "upsert"}


class KillAt(UpsertSteps):
    """Ends the turn before the first step of that name."""

    def __init__(self, name: str) -> None:
        assert name in STEPS
        self.name = name

    async def before(self, step: str) -> None:
        await super().before(step)
        if step == self.name:
            raise Killed(step)


def committer(rig: Rig, topic: str = "t", steps: UpsertSteps | None = None) -> LatestCommitter:
    """A committer as after a start of the process."""
    return LatestCommitter(rig.parts, topic, steps)


async def catch_up(rig: Rig, topic: str = "t", known: LatestCommitter | None = None) -> int:
    """Commit the append table, then the latest one, until nothing is left; how many turns there were."""
    await rig.drain(rig.committer(topic))
    turns, own = 0, known or committer(rig, topic)
    while await own.run_once() is not None:
        turns += 1
    return turns


async def head(rig: Rig, topic: str = "t") -> heads.Head:
    """The latest table's head as any other agent would load it."""
    state = rig.replica.state
    key = state.tables_by_topic[latest_id(state.topics[topic].topic_id)]
    return await heads.load(rig.store, rig.warehouse, heads.pointer(state, key))


async def files(rig: Rig, topic: str = "t") -> list[KeyFile]:
    """The table's files, by partition and key."""
    found = await RunFiles(rig.parts, UpsertSteps()).of_table(await head(rig, topic))
    return sorted(found)


async def rows(rig: Rig, topic: str = "t") -> list[dict[str, Any]]:
    """All rows, straight from the files, file by file in the order of keys."""
    found: list[dict[str, Any]] = []
    for each in await files(rig, topic):
        data = await rig.store.get(rig.warehouse.key(each.location))
        found += pq.read_table(io.BytesIO(data)).to_pylist()
    return found


async def live_locations(rig: Rig, topic: str = "t") -> set[str]:
    """Where the table's files are."""
    now, found = await head(rig, topic), set()
    for each in now.manifests:
        content = await rig.store.get(rig.warehouse.key(each.manifest_path))
        found |= set(manifests.data_files(each, content))
    return found


@dataclass
class Oracle:
    """A dictionary of what the newest rows are: by partition and key the offset and the value."""

    newest: dict[tuple[int, bytes], tuple[int, bytes]] = field(default_factory=dict)

    def take(self, partition: int, first: int, keys: list[bytes], values: list[bytes | None]) -> None:
        """A batch whose first record has the offset `first`."""
        for at, (key, value) in enumerate(zip(keys, values, strict=True)):
            if value is None:
                self.newest.pop((partition, key), None)
            else:
                self.newest[partition, key] = first + at, value

    async def assert_is(self, rig: Rig, topic: str = "t") -> None:
        """The table has these rows and no others; each run is sorted by key, across its files too."""
        found = await rows(rig, topic)
        told = [
            (
                row["kafka"]["partition"],
                row["key"]["__raw__"],
                (row["kafka"]["offset"], row["value"]["__raw__"]),
            )
            for row in found
        ]
        assert [(partition, key) for partition, key, _ in told] == sorted(self.newest)
        assert {(partition, key): row for partition, key, row in told} == self.newest
        summary = (await head(rig, topic)).metadata["snapshots"][-1]["summary"]
        assert int(summary["total-records"]) == len(found)
        assert int(summary["total-data-files"]) == len(await live_locations(rig, topic))


async def random_batch(
    rig: Rig, chance: random.Random, oracle: Oracle, partitions: int, keys: int, most: int = 12
) -> None:
    """Produce some puts and deletes of random keys to one partition."""
    partition = chance.randrange(partitions)
    count = chance.randint(1, most)
    chosen = [b"key-%05d" % chance.randrange(keys) for _ in range(count)]
    values = [None if chance.random() < 0.3 else b"v%d" % chance.randrange(1 << 30) for _ in range(count)]
    first = await rig.produce(values, partition, keys=chosen)
    oracle.take(partition, first, chosen, values)
