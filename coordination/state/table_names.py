"""Which table name is which topic's: one name is of one topic, and a table goes with its topic's name.

Two topics may come to one name all the same: by their own names (`a.b-c` and `a_b_c`), by a table that
another engine made. The second one then has no table of that name until `floe.table.name` gives it another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from coordination.kafka_codes import Code
from coordination.state.levels import TABLE_NAMES
from coordination.state.types import Refused, Table, Topic

if TYPE_CHECKING:
    from coordination.state.data import StateData

Key = tuple[str, str]

NAMESPACE = "floe"
"""The namespace of topics' tables, unless their names say another."""
CONFIG = "floe.table.name"
RENAMED_MAX = 100  # tables that one rename moves: its own, and those that give way


def table_key(topic: str, configs: Mapping[str, str]) -> Key:
    """(namespace, name) of a topic's table: configured, or the name with dots and dashes as underscores."""
    configured = configs.get(CONFIG, "")
    if configured:
        namespace, _, name = configured.rpartition(".")
        return namespace or NAMESPACE, name
    return NAMESPACE, topic.replace(".", "_").replace("-", "_")


def note(state: StateData, topic: Topic) -> None:
    """The topic's table has the name it is configured for, or shall have it."""
    key = table_key(topic.name, topic.configs)
    others = state.topics_by_table_name.get(key, ())
    state.topics_by_table_name[key] = tuple(sorted((*others, topic.name))) if others else (topic.name,)


def forget(state: StateData, topic: Topic) -> None:
    """The topic is gone, or about to have other configs."""
    key = table_key(topic.name, topic.configs)
    others = tuple(name for name in state.topics_by_table_name.pop(key) if name != topic.name)
    if others:
        state.topics_by_table_name[key] = others


def refusal_of_new(state: StateData, name: str, configs: Mapping[str, str]) -> str | None:
    """Why a new topic may not have the table name that it asks for; None when it may, or asks for none."""
    if state.feature_level < TABLE_NAMES or not configs.get(CONFIG):
        return None
    return _refusal(state, table_key(name, configs), name)


def refusal_of_change(state: StateData, topic: Topic, configs: Mapping[str, str]) -> str | None:
    """Why a topic's configs may not become these, for the name of its table; None when they may."""
    key = table_key(topic.name, configs)
    if state.feature_level < TABLE_NAMES or key == table_key(topic.name, topic.configs):
        return None
    return _refusal(state, key, topic.name, topic.topic_id)


def _refusal(state: StateData, key: Key, name: str, topic_id: bytes = b"") -> str | None:
    """A topic that leaves the name (its table is to be renamed) does not have it any more."""
    title = ".".join(key)
    other = next((each for each in state.topics_by_table_name.get(key, ()) if each != name), None)
    if other is not None:
        return f"{CONFIG}: {title} is the table of topic '{other}': choose another name, or give it another"
    table = state.tables.get(key)
    if table is not None and not table.topic_id:
        return f"{CONFIG}: there is a table {title}, which is no topic's: choose another name, or rename it"
    return None


def renames(state: StateData, table: Table, target: Key) -> list[tuple[Key, Key]] | Refused:
    """What is renamed so that a topic's table has the name it is configured for: (from, to), its own first.

    A table in the way gives way if its own topic wants another name, and so on: names are swapped at one
    point of the log, and nobody reads a name in between that is none.
    """
    moves: list[tuple[Key, Key]] = []
    found: Table | None = table
    while found is not None:
        key, topic = (found.namespace, found.name), state.topics_by_id.get(found.topic_id)
        wanted = table_key(topic.name, topic.configs) if topic is not None else None
        title = ".".join(key)
        if not moves and wanted != target:
            return Refused(
                Code.INVALID_UPDATE_VERSION, f"table {title} is not to be called {'.'.join(target)}"
            )
        if wanted is None or wanted == key or len(moves) == RENAMED_MAX:
            whose = f"that of topic '{topic.name}'" if topic is not None else "no topic's"
            return Refused(Code.DUPLICATE_RESOURCE, f"table {title} exists and is {whose}")
        if any(to == wanted for _, to in moves):
            return Refused(Code.DUPLICATE_RESOURCE, f"{'.'.join(wanted)} is wanted by two topics")
        moves.append((key, wanted))
        if wanted == moves[0][0]:
            break  # each has the next one's name
        found = state.tables.get(wanted)
    return moves
