"""Iceberg tables and namespaces: pointers that move only by compare-and-swap.

Codes: INVALID_UPDATE_VERSION when the pointer is not where the author saw it, or a namespace's properties are
not those that it changed, RESOURCE_NOT_FOUND and DUPLICATE_RESOURCE, NOT_COORDINATOR when the author does not
hold the claim it names, NON_EMPTY_GROUP for a namespace with tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

from coordination.commands import CommitTable, CommitTables, DropNamespace, DropTable, PutNamespace
from coordination.kafka_codes import Code
from coordination.state import extents
from coordination.state.data import StateData
from coordination.state.levels import EXPECTED_DROPS, EXPECTED_NAMESPACES, TABLE_NAMES, TABLE_TOPIC_IDS
from coordination.state.table_names import renames
from coordination.state.types import At, ClaimHolder, Done, Refused, Result, Table

Key = tuple[str, str]

NAME_LENGTH_MAX = 1024  # characters of a namespace, table name or location
NAMESPACE_BYTES_MAX = 65_536  # of all properties of one namespace
TABLES_MAX = 100_000
NAMESPACES_MAX = 10_000
MOVES_MAX = 100  # tables of one CommitTables


def commit_table(state: StateData, message: CommitTable, at: At) -> Result:
    """Create a table or move its pointer. Done's value: the revision of the commit."""
    key = (message.namespace, message.name)
    table = state.tables.get(key)
    refusal = _commit_refusal(state, message, table, at)
    return refusal or _point(state, message, table, at)


def commit_tables(state: StateData, message: CommitTables, at: At) -> Result:
    """Create tables and move pointers, all or none. Done's value: the revision of the commit."""
    moves = [
        CommitTable(
            namespace=each.namespace,
            name=each.name,
            expected=each.expected,
            metadata_location=each.metadata_location,
        )
        for each in message.moves
    ]
    refusal = _moves_refusal(state, moves, at)
    if refusal is not None:
        return refusal
    for each in moves:
        _point(state, each, state.tables.get((each.namespace, each.name)), at)
    return Done(at.revision)


def _moves_refusal(state: StateData, moves: Sequence[CommitTable], at: At) -> Refused | None:
    if not 0 < len(moves) <= MOVES_MAX:
        return Refused(Code.INVALID_REQUEST, f"CommitTables: {len(moves)} tables: name 1 to {MOVES_MAX}")
    seen: dict[Key, Table | None] = {}
    for each in moves:
        key = (each.namespace, each.name)
        if key in seen:
            return Refused(Code.INVALID_REQUEST, f"CommitTables: table {'.'.join(key)} is named twice")
        seen[key] = state.tables.get(key)
        refusal = _commit_refusal(state, each, seen[key], at)
        if refusal is not None:
            return refusal
    new = sum(table is None for table in seen.values())
    return _too_many(state, new) if new else None


def _too_many(state: StateData, new: int) -> Refused | None:
    if len(state.tables) + new <= TABLES_MAX:
        return None
    return Refused(Code.POLICY_VIOLATION, f"the cluster has {TABLES_MAX} tables, the most it takes")


def _point(state: StateData, message: CommitTable, table: Table | None, at: At) -> Done:
    """Have the pointer of `table`, None for one that is new, be where the message says."""
    key = (message.namespace, message.name)
    if table is not None and not message.topic:  # another engine's: what the committer recorded stays
        state.tables[key] = replace(table, metadata_location=message.metadata_location, revision=at.revision)
        return Done(at.revision)
    topic_id, next_offsets = _topic_id(state, message), tuple(message.next_offsets)
    state.tables[key] = Table(
        message.namespace,
        message.name,
        message.metadata_location,
        at.revision,
        message.topic,
        next_offsets,
        topic_id,
    )
    if topic_id:
        state.tables_by_topic[topic_id] = key
    known = state.topics_by_id.get(topic_id)
    if known is not None and known.extents:
        extents.forget(known, next_offsets)
    return Done(at.revision)


def topic_id_of(state: StateData, table: Table) -> bytes:
    """The topic that the table's ledger is of, empty for none; before its level, the one of that name."""
    if state.feature_level >= TABLE_TOPIC_IDS:
        return table.topic_id
    known = state.topics.get(table.topic)
    return known.topic_id if known is not None else b""


def _topic_id(state: StateData, message: CommitTable) -> bytes:
    """The topic whose rows a committer writes; empty for none, and before there were ids."""
    if state.feature_level < TABLE_TOPIC_IDS:
        return b""
    known = state.topics.get(message.topic)
    return message.topic_id or (known.topic_id if known is not None else b"")


def _commit_refusal(state: StateData, message: CommitTable, table: Table | None, at: At) -> Refused | None:
    title = f"table {message.namespace}.{message.name}"
    if message.claim and not _holds(state, message, at):
        return _not_held(message)
    if message.namespace not in state.namespaces:
        return Refused(Code.RESOURCE_NOT_FOUND, f"namespace {message.namespace!r} does not exist")
    if table is None and message.expected:
        return Refused(Code.RESOURCE_NOT_FOUND, f"{title} does not exist")
    if table is not None and not message.expected:
        return Refused(Code.DUPLICATE_RESOURCE, f"{title} exists at {table.metadata_location}")
    if table is not None and table.metadata_location != message.expected:
        return Refused(Code.INVALID_UPDATE_VERSION, _moved(table, message.expected))
    longest = max(len(message.name), len(message.metadata_location))
    if not message.name or not message.metadata_location or longest > NAME_LENGTH_MAX:
        return Refused(
            Code.INVALID_REQUEST, f"{title}: name and location have 1 to {NAME_LENGTH_MAX} characters"
        )
    if table is None and (full := _too_many(state, 1)) is not None:
        return full
    topic_id = _topic_id(state, message)
    elsewhere = state.tables_by_topic.get(topic_id) if message.topic else None
    if elsewhere is not None and elsewhere != (message.namespace, message.name):
        return Refused(
            Code.DUPLICATE_RESOURCE, f"topic {message.topic!r} has the table {'.'.join(elsewhere)}: rename it"
        )
    if table is not None and table.topic and message.topic:
        return _ledger_refusal(title, table, message, topic_id)
    if table is not None and message.topic and state.feature_level >= TABLE_NAMES:
        return Refused(Code.INVALID_REQUEST, f"{title} is no topic's: it does not become that of one")
    return None


def _holds(state: StateData, message: CommitTable | DropTable, at: At) -> bool:
    return state.claims.get(message.claim) == ClaimHolder(at.author.incarnation, message.claim_revision)


def _not_held(message: CommitTable | DropTable) -> Refused:
    return Refused(
        Code.NOT_COORDINATOR, f"claim {message.claim!r} of revision {message.claim_revision} is not held"
    )


def _moved(table: Table, expected: str) -> str:
    title = f"table {table.namespace}.{table.name}"
    return f"{title} is at {table.metadata_location}, not at {expected}: load it and try again"


def _ledger_refusal(title: str, table: Table, message: CommitTable, topic_id: bytes) -> Refused | None:
    """A committer's ledger of the same topic never goes back. It may have come back under another name."""
    if message.topic != table.topic and not (topic_id and topic_id == table.topic_id):
        return Refused(
            Code.INVALID_REQUEST, f"{title} belongs to topic {table.topic!r}, not {message.topic!r}"
        )
    if topic_id != table.topic_id:
        return Refused(
            Code.INVALID_REQUEST,
            f"{title} is of topic {table.topic!r} with the id {table.topic_id.hex()}, not {topic_id.hex()}",
        )
    old, new = table.next_offsets, message.next_offsets
    if len(new) < len(old) or any(a > b for a, b in zip(old, new, strict=False)):
        return Refused(Code.INVALID_REQUEST, f"{title}: ledger {list(new)} goes back behind {list(old)}")
    return None


def drop_table(state: StateData, message: DropTable, at: At) -> Result:
    """Forget a table, or rename it. Done's value: its metadata location."""
    key = (message.namespace, message.name)
    by_committer = bool(message.claim) and state.feature_level >= TABLE_NAMES
    if by_committer and not _holds(state, message, at):
        return _not_held(message)
    table = state.tables.get(key)
    if table is None:
        return Refused(Code.RESOURCE_NOT_FOUND, f"table {message.namespace}.{message.name} does not exist")
    expected = message.expected if state.feature_level >= EXPECTED_DROPS else ""
    if expected and table.metadata_location != expected:
        return Refused(Code.INVALID_UPDATE_VERSION, _moved(table, expected))
    if not message.rename_name:
        _take(state, key)
        return Done(table.metadata_location)
    target = (message.rename_namespace, message.rename_name)
    moves: list[tuple[Key, Key]] | Refused = [(key, target)]
    if by_committer:
        moves = renames(state, table, target)
    elif target in state.tables:
        return Refused(Code.DUPLICATE_RESOURCE, f"table {target[0]}.{target[1]} exists")
    if isinstance(moves, Refused):
        return moves
    namespace, name = moves[-1][1]
    if namespace not in state.namespaces:
        return Refused(Code.RESOURCE_NOT_FOUND, f"namespace {namespace!r} does not exist")
    if len(name) > NAME_LENGTH_MAX:
        return Refused(Code.INVALID_REQUEST, f"table name: at most {NAME_LENGTH_MAX} characters")
    for (to_namespace, to_name), moved in [(to, _take(state, each)) for each, to in moves]:
        state.tables[to_namespace, to_name] = replace(
            moved, namespace=to_namespace, name=to_name, revision=at.revision
        )
        if moved.topic_id:
            state.tables_by_topic[moved.topic_id] = (to_namespace, to_name)
    return Done(table.metadata_location)


def _take(state: StateData, key: Key) -> Table:
    """Take a table out of the state."""
    table = state.tables.pop(key)
    if state.tables_by_topic.get(table.topic_id) == key:
        del state.tables_by_topic[table.topic_id]
    return table


def put_namespace(state: StateData, message: PutNamespace, at: At) -> Result:
    """Create a namespace or replace its properties, those that the author saw if it says so. Done's value:
    None."""
    if not 0 < len(message.name) <= NAME_LENGTH_MAX:
        return Refused(Code.INVALID_REQUEST, f"namespace {message.name!r}: 1 to {NAME_LENGTH_MAX} characters")
    if message.must_not_exist and message.name in state.namespaces:
        return Refused(Code.DUPLICATE_RESOURCE, f"namespace {message.name!r} exists")
    expected = message.expected if state.feature_level >= EXPECTED_NAMESPACES else b""
    found = state.namespaces.get(message.name)
    if expected and found is None:
        return Refused(Code.RESOURCE_NOT_FOUND, f"namespace {message.name!r} does not exist")
    if expected and found is not None and namespace_digest(found) != expected:
        return Refused(
            Code.INVALID_UPDATE_VERSION, f"namespace {message.name!r} was changed: load it and try again"
        )
    if message.ByteSize() > NAMESPACE_BYTES_MAX:
        return Refused(Code.INVALID_REQUEST, f"namespace {message.name!r}: over {NAMESPACE_BYTES_MAX} bytes")
    if message.name not in state.namespaces and len(state.namespaces) >= NAMESPACES_MAX:
        return Refused(
            Code.POLICY_VIOLATION, f"the cluster has {NAMESPACES_MAX} namespaces, the most it takes"
        )
    state.namespaces[message.name] = {entry.name: entry.value for entry in message.properties}
    return Done()


def namespace_digest(properties: Mapping[str, str]) -> bytes:
    """By which PutNamespace.expected tells the properties of a namespace."""
    digest = blake2b(digest_size=16)
    for pair in sorted(properties.items()):
        for part in pair:
            content = part.encode()
            digest.update(b"%d:" % len(content) + content)
    return digest.digest()


def drop_namespace(state: StateData, message: DropNamespace, at: At) -> Result:
    """Forget an empty namespace. Done's value: None."""
    if message.name not in state.namespaces:
        return Refused(Code.RESOURCE_NOT_FOUND, f"namespace {message.name!r} does not exist")
    if any(namespace == message.name for namespace, _ in state.tables):
        return Refused(
            Code.NON_EMPTY_GROUP, f"namespace {message.name!r} is not empty: drop its tables first"
        )
    del state.namespaces[message.name]
    return Done()
