"""Which entries another catalog shall have, and what is to be done with one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase

from coordination.state import State
from coordination.state.tables import topic_id_of
from coordination.state.types import TABLE_FOLDER_DIGITS, Table
from coordination.topic_configs import effective_bool
from iceberg.folders import folder_of
from iceberg.head import place
from iceberg.latest_ids import topic_behind
from iceberg.metadata import version_of
from iceberg.publish.other import Key

SWITCH = "floe.table.publish"
PLACEHOLDER = "{namespace}"


_FOLDER = re.compile(rf"-[0-9a-f]{{{TABLE_FOLDER_DIGITS}}}$")


class Action(Enum):
    """What is to be done with one name in another catalog."""

    NOTHING = "nothing"
    CREATE = "create"
    REPLACE = "replace"
    DROP = "drop"
    TAKEN = "taken"  # by what is not Floe's: it is left alone
    AHEAD = "ahead"  # the entry is newer than the table: it never goes back


@dataclass(frozen=True, slots=True)
class Published:
    """A topic's table as another catalog shall have it.

    `wanted`: it is to be there; None for the table of a topic that is gone, which stays where it is.
    """

    key: Key
    table: str
    location: str
    topic: str
    wanted: bool | None


@dataclass(slots=True)
class Plan:
    """All topics' tables by their folders, and which names they come to."""

    by_folder: dict[str, Published] = field(default_factory=dict)
    namespaces: set[str] = field(default_factory=set)

    def entries(self, adopted: Set[str]) -> tuple[dict[Key, Published], dict[Key, Published]]:
        """(the entries that shall be there, tables that get none since another has their name).

        `adopted`: folders of tables that have an entry, which one whose topic is gone keeps.
        """
        found: dict[Key, Published] = {}
        left_out: dict[Key, Published] = {}
        for folder, each in self.by_folder.items():
            if each.wanted is False or (each.wanted is None and folder not in adopted):
                continue
            other = found.get(each.key)
            if other is None or (other.wanted is None and each.wanted):
                found[each.key] = each
            elif each.wanted:
                left_out[each.key] = each
        return found, left_out


@dataclass(frozen=True, slots=True)
class Rules:
    """Which topics a catalog gets, and under which names. `topics`: names or patterns, commas between."""

    namespace: str = PLACEHOLDER
    topics: str = "*"

    def namespace_of(self, own: str) -> str:
        """The namespace there for one of Floe's."""
        return self.namespace.replace(PLACEHOLDER, own)

    def takes(self, topic: str) -> bool:
        """Whether the topic's table is for this catalog."""
        return any(fnmatchcase(topic, each.strip()) for each in self.topics.split(","))


def published(state: State, table: Table, rules: Rules) -> Published | None:
    """What becomes of one table; None for one that is no topic's. Users' own tables stay Floe's alone."""
    if not table.topic:
        return None
    topic = state.topics_by_id.get(topic_id_of(state, table))
    wanted: bool | None = None
    own = topic is not None and place(state, topic) == (table.namespace, table.name)
    if topic is None:
        topic = topic_behind(state, table)
        own = topic is not None
    if topic is not None:
        on = effective_bool(SWITCH, topic.configs, state.cluster_configs)
        wanted = own and on and rules.takes(topic.name)
    key = rules.namespace_of(table.namespace), table.name
    return Published(key, f"{table.namespace}.{table.name}", table.metadata_location, table.topic, wanted)


def is_topics(folder: str) -> bool:
    """Whether a folder is called as those of topics' tables are (iceberg/setup.py)."""
    return _FOLDER.search(folder) is not None


def decided(wanted: Published | None, location: str | None, ours: bool) -> Action:
    """What is to be done with an entry at `location` (None: there is none; `ours`: Floe made it).

    A table keeps its folder for ever and numbers its metadata upwards, so two locations of one folder tell
    which is newer.
    """
    if location is None:
        return Action.CREATE if wanted is not None else Action.NOTHING
    if not ours:
        return Action.TAKEN if wanted is not None else Action.NOTHING
    if wanted is None or folder_of(location) != folder_of(wanted.location):
        return Action.DROP  # dropped, renamed, switched off; or an earlier topic's
    if location == wanted.location:
        return Action.NOTHING
    return Action.REPLACE if version_of(location) < version_of(wanted.location) else Action.AHEAD


def due(wanted: Mapping[Key, Published], seen: Mapping[Key, str | None]) -> Iterable[Key]:
    """Names to be looked at: drops first, so that a table's old name goes before its new one comes.

    `seen`: what the catalog had: a location, empty for what is not Floe's, None for what is not known. Of
    others' names a catalog may have very many, so these are learnt last.
    """
    for key, location in seen.items():
        if location and key not in wanted:
            yield key
    for key, each in wanted.items():
        if key not in seen or seen[key] != each.location:
            yield key
    for key, location in seen.items():
        if location is None and key not in wanted:
            yield key
