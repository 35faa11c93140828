"""The head of a table: its current metadata, loaded through the pointer in the replicated state."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coordination.commands import DropTable
from coordination.state import State, table_names
from coordination.state.data import StateData
from coordination.state.levels import EXPECTED_DROPS
from coordination.state.types import Topic
from coordination.topic_configs import effective, effective_bool
from iceberg import flat, ledger, metadata
from iceberg.metadata import Metadata
from iceberg.sealed import read
from iceberg.warehouse import Warehouse
from objectstore.late import ready
from objectstore.store import ObjectStore
from objectstore.turns import in_turns

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile


@dataclass(frozen=True, slots=True)
class Head:
    """A table's metadata at `location`, and the manifests of its current snapshot."""

    location: str
    metadata: Metadata
    manifests: Sequence[ManifestFile]

    @property
    def topic_id(self) -> str:
        """The id of the topic whose table this is, in hexadecimal; empty when it is no topic's."""
        return ledger.owner(self.metadata)

    @property
    def size(self) -> tuple[int, int]:
        """Data files, and their bytes, as the current snapshot has them."""
        current = ledger.current_snapshot(self.metadata)
        summary = current["summary"] if current is not None else {}
        return int(summary.get("total-data-files", 0)), int(summary.get("total-files-size", 0))


def table_key(topic: Topic) -> tuple[str, str]:
    """(namespace, name) that the topic's table shall have."""
    return table_names.table_key(topic.name, topic.configs)


def place(state: StateData, topic: Topic) -> tuple[str, str]:
    """(namespace, name) that the topic's table has; while it has none, those that it shall have.

    Before there were ids (levels.py) a table is known by its name only.
    """
    return state.tables_by_topic.get(topic.topic_id) or table_key(topic)


def enabled(topic: Topic, cluster: Mapping[str, str]) -> bool:
    """Whether the topic is kept as a table, by its own configs or the cluster's."""
    return effective_bool("floe.table.enabled", topic.configs, cluster)


def follows(topic: Topic, cluster: Mapping[str, str]) -> bool:
    """Whether rows of the table go with the topic's records (`floe.table.retention`)."""
    return effective("floe.table.retention", topic.configs, cluster) == "follow"


def hoists(topic: Topic, cluster: Mapping[str, str]) -> bool:
    """Whether the table shall be flat, while that can be (`floe.table.layout`; flat.py)."""
    return effective(flat.CONFIG, topic.configs, cluster) == flat.FLAT


def compacts(topic: Topic, cluster: Mapping[str, str]) -> bool:
    """Whether small data files of the table are made large ones (`floe.table.compaction`)."""
    return effective_bool("floe.table.compaction", topic.configs, cluster)


def pointer(state: State, key: tuple[str, str]) -> str:
    """The location of the table's current metadata; empty when there is no such table."""
    found = state.tables.get(key)
    return found.metadata_location if found is not None else ""


def taken(
    state: State, key: tuple[str, str], expected: str, target: tuple[str, str] | None = None
) -> DropTable | None:
    """The command that drops the table, or renames it to `target`, if its current metadata is at `expected`.

    None when it is not, so that nobody looks at one table and takes another. Propose it at once: below its
    level the command takes whatever is there when it is applied.
    """
    if pointer(state, key) != expected:
        return None
    known = state.feature_level >= EXPECTED_DROPS
    message = DropTable(namespace=key[0], name=key[1], expected=expected if known else "")
    if target is not None:
        message.rename_namespace, message.rename_name = target
    return message


async def load(store: ObjectStore, warehouse: Warehouse, location: str) -> Head:
    """Read the metadata at `location` and the manifest list it names. Raises StoreError, and ValueError."""
    content = await read(store, warehouse, location)
    found = await in_turns(metadata.decode_steps(content))
    current = ledger.current_snapshot(found)
    if current is None:
        return Head(location, found, ())
    name = current["manifest-list"]
    listed = await read(store, warehouse, name)
    await ready("iceberg.manifest_avro")
    from iceberg import manifest_avro

    return Head(location, found, await asyncio.to_thread(manifest_avro.read_list, name, listed))
