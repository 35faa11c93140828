"""Makes a topic's table: its namespace, its first metadata, and room for it where an older topic's is."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coordination.clock import Clock
from coordination.commands import CommitTable, PutNamespace
from coordination.kafka_codes import Code
from coordination.state import State
from coordination.state.types import TABLE_FOLDER_DIGITS, Refused, Table, Topic
from iceberg import ledger, metadata
from iceberg.claim import TopicClaim
from iceberg.folders import neighbour
from iceberg.head import Head, pointer, table_key, taken
from iceberg.latest_ids import lives
from iceberg.layout import Layout
from iceberg.pointer_commit import TableConflict
from iceberg.sealed import sealed
from iceberg.steps import Steps
from iceberg.warehouse import Warehouse
from objectstore.store import ObjectStore

if TYPE_CHECKING:
    from coordination.replica import Replica

_logger = logging.getLogger("floe.iceberg.setup")

_PROPERTIES = {
    "write.format.default": "parquet",
    "write.parquet.compression-codec": "zstd",
    "write.metadata.previous-versions-max": "20",
    "commit.retry.num-retries": "0",
}


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table that is to be made: its name, its topic, the id that the state shall know it by, its columns in
    Iceberg's JSON, the highest id of these, properties beside those that every table has, and its format
    version.
    """

    key: tuple[str, str]
    topic: str
    table_id: bytes
    fields: Sequence[Mapping[str, Any]]
    last_column_id: int
    properties: Mapping[str, str]
    format_version: int = 2


class TableSetup:
    """Creates tables. Only the holder of the topic's claim uses it."""

    def __init__(
        self, replica: Replica, store: ObjectStore, warehouse: Warehouse, clock: Clock, steps: Steps
    ) -> None:
        self._replica = replica
        self._store = store
        self._warehouse = warehouse
        self._clock = clock
        self._steps = steps

    async def rename(self, topic: Topic, claim: TopicClaim, incarnation: int) -> str:
        """Give the topic's table the name that it shall have, as it is: history, ledger and folder stay.

        Returns why it cannot have that name; empty when it has it, or there is no table. Rows go on into the
        table under the name it has.
        """
        replica, wanted = self._replica, table_key(topic)
        own = replica.state.tables_by_topic.get(topic.topic_id)
        if own is None or own == wanted:
            return ""
        await self.make_namespace(wanted[0], incarnation)
        in_the_way = replica.state.tables.get(wanted)
        try:
            if in_the_way is not None and left_behind(replica.state, in_the_way):
                old = in_the_way.topic_id.hex()
                await self.set_aside(wanted, in_the_way.metadata_location, old, incarnation)
        except TableConflict as conflict:
            return str(conflict)
        await self._steps.before("rename-table")
        own = replica.state.tables_by_topic.get(topic.topic_id)  # another's may have come in its place
        message = own and taken(replica.state, own, pointer(replica.state, own), wanted)
        if not own or not message or own == wanted:
            return ""
        message.claim, message.claim_revision = claim.name, claim.revision
        result = await replica.propose(message, incarnation=incarnation)
        if isinstance(result, Refused):
            return (
                f"table {'.'.join(own)} is not renamed to {'.'.join(wanted)}: {result.message}; rename or "
                "drop what is in the way, or give the topic another floe.table.name"
            )
        _logger.info("table %s of topic %s is %s now", ".".join(own), topic.name, ".".join(wanted))
        return ""

    async def set_aside(self, key: tuple[str, str], location: str, old_id: str, incarnation: int) -> None:
        """Rename the table of a deleted topic: its rows stay readable, its offsets never meet the new ones.

        It is at `location`, of the topic with the id `old_id` (hexadecimal).
        Raises TableConflict when the table is no topic's, or that of a topic that still exists.
        """
        namespace, name = key
        owner = self._replica.state.topics_by_id.get(bytes.fromhex(old_id))
        if not old_id or owner is not None:
            whose = f"that of topic {owner.name!r}" if owner is not None else "no topic's"
            raise TableConflict(
                f"table {namespace}.{name} exists and is {whose}: drop or rename it, "
                "or give the topic another floe.table.name"
            )
        aside = f"{name}__{old_id[:12]}"
        await self._steps.before("set-old-table-aside")
        message = taken(self._replica.state, key, location, (namespace, aside))
        if message is None:
            raise TableConflict(f"table {namespace}.{name} is not at {location} any more: looked at again")
        result = await self._replica.propose(message, incarnation=incarnation)
        if isinstance(result, Refused):
            raise TableConflict(f"table {namespace}.{name} of an older topic: {result.message}")
        _logger.info("table %s.%s belonged to an older topic: it is %s now", namespace, name, aside)

    async def create(self, table: NewTable, claim: TopicClaim, incarnation: int) -> Head:
        """An empty table. Raises TableConflict."""
        namespace, name = table.key
        await self.make_namespace(namespace, incarnation)
        folder = self._free_folder(table)
        first = metadata.new_table(
            _uuid(self._clock.random_bytes(16)),
            folder,
            table.fields,
            table.last_column_id,
            {**_PROPERTIES, **table.properties},
            self._replica.wall_ms(),
            table.format_version,
        )
        content = metadata.encode(first)
        unsealed = metadata.metadata_name(0, self._clock.random_bytes(16))
        location = sealed(f"{folder}/{unsealed}", content)
        await self._steps.before("store-first-metadata")
        await self._store.put(self._warehouse.key(location), [content])
        await self._steps.before("create-table")
        result = await self._replica.propose(
            CommitTable(
                namespace=namespace,
                name=name,
                metadata_location=location,
                claim=claim.name,
                claim_revision=claim.revision,
                topic=table.topic,
                topic_id=table.table_id,
            ),
            incarnation=incarnation,
        )
        if isinstance(result, Refused):
            raise TableConflict(f"table {namespace}.{name}: {Code(result.code).name}: {result.message}")
        return Head(location, first, ())

    async def make_namespace(self, namespace: str, incarnation: int) -> None:
        """Create the namespace where there is none."""
        if namespace not in self._replica.state.namespaces:
            await self._steps.before("create-namespace")
            await self._replica.propose(
                PutNamespace(name=namespace, must_not_exist=True), incarnation=incarnation
            )

    def _free_folder(self, table: NewTable) -> str:
        """Where the table will be. Raises TableConflict where another one is."""
        namespace, name = table.key
        unique = table.table_id.hex()[:TABLE_FOLDER_DIGITS]
        folder = f"{self._warehouse.location}/{namespace}/{name}-{unique}"
        other = neighbour(self._replica.state.tables, self._warehouse, folder, table.key)
        if other is not None:
            raise TableConflict(
                f"table {namespace}.{name} would lie at {folder}, in one folder with table {other.namespace}."
                f"{other.name}: drop that one, or give the topic another floe.table.name"
            )
        return folder


def left_behind(state: State, table: Table) -> bool:
    """Whether the table is that of a topic that is gone."""
    return bool(table.topic_id) and not lives(state, table.topic_id)


def properties_of(topic: Topic, layout: Layout) -> dict[str, str]:
    """The table properties that Floe keeps: whose table it is and which columns it has."""
    return {
        ledger.TOPIC_PROPERTY: topic.name,
        ledger.TOPIC_ID_PROPERTY: topic.topic_id.hex(),
        ledger.COLUMNS_PROPERTY: layout.ids.to_json(),
    }


def _uuid(random: bytes) -> str:
    """A version 4 UUID (RFC 9562) from 16 random bytes."""
    raw = bytearray(random)
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
