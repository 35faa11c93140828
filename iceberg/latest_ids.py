"""Which table is a topic's latest: its id, its name, its claim, and whether the topic wants one.

The state ties a table to an id and gives no id two tables. The latest table has an id of its own, which
follows from the topic's and leads back to it, so apply fences it as it fences every topic's table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from coordination.state.data import StateData
from coordination.state.levels import TABLE_NAMES
from coordination.state.types import Table, Topic
from coordination.topic_configs import effective
from iceberg.head import enabled, table_key

SUFFIX = "__latest"
"""What the table's name has behind that of the topic's append table."""
MODE, ENVELOPE = "floe.table.mode", "floe.table.envelope"
NONE, DEBEZIUM = "none", "debezium"
OF_PROPERTY = "floe.latest-of"
"""Table property: the id of the topic whose newest rows these are, hexadecimal."""
ENVELOPE_PROPERTY = "floe.latest-envelope"
"""Table property: how the table's rows are found in its topic's."""
SOURCE_PROPERTY = "floe.latest-source"
"""Table property: the uuid of the topic's table that the rows and the columns' ids are of. A table that is
made anew gives its columns ids anew.
"""

_MARK = hashlib.blake2b(b"floe latest table", digest_size=16).digest()


def latest_id(topic_id: bytes) -> bytes:
    """The id that the state knows a topic's latest table by; of that id, the topic's (its own inverse)."""
    return bytes(a ^ b for a, b in zip(topic_id, _MARK, strict=True))


def wanted(topic: Topic, cluster: Mapping[str, str], level: int) -> bool:
    """Whether the topic shall have a latest table (`floe.table.mode=upsert`). It needs the append table."""
    if level < TABLE_NAMES or not enabled(topic, cluster):
        return False
    return effective(MODE, topic.configs, cluster) == "upsert"


def envelope_of(topic: Topic, cluster: Mapping[str, str]) -> str:
    """How a record tells its row: `none` or `debezium`."""
    return effective(ENVELOPE, topic.configs, cluster)


def latest_key(topic: Topic) -> tuple[str, str]:
    """(namespace, name) that the topic's latest table shall have."""
    namespace, name = table_key(topic)
    return namespace, f"{name}{SUFFIX}"


def topic_behind(state: StateData, table: Table) -> Topic | None:
    """The living topic whose latest table this is; None for any other table."""
    if not table.topic_id:
        return None
    topic = state.topics_by_id.get(latest_id(table.topic_id))
    here = (table.namespace, table.name)
    return topic if topic is not None and state.tables_by_topic.get(table.topic_id) == here else None


def lives(state: StateData, table_id: bytes) -> bool:
    """Whether the topic exists whose append or latest table has this id."""
    return table_id in state.topics_by_id or latest_id(table_id) in state.topics_by_id


def owner(metadata: Mapping[str, Any]) -> str:
    """The id of the topic whose latest table this metadata is of, hexadecimal; empty for any other."""
    found = (metadata.get("properties") or {}).get(OF_PROPERTY, "")
    return found if isinstance(found, str) else ""


def claim_name(topic: str) -> str:
    """The claim of who keeps a topic's latest table."""
    return f"latest/{topic}"
