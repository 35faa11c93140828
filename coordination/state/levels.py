"""Feature levels: what apply means, and from which level on (docs/decisions/0010-versions-and-levels.md).

The level is part of the state and rises by a command, so every agent applies an entry by the level that stood
at its point of the log, whatever version it runs. Below a level an entry means what it meant to the code of
the levels before: a command that is new is refused, a field that is new is not looked at. Versions that do
not know such a command stop at it, so none is ever written below its level.

| level | what is new |
|---|---|
| 1 | everything that is not named below |
| 2 | transactions: their commands, CommitChunk.transaction, `transaction.version` and the broker configs of transactions; CommitTable.topic_id: a ledger is of one topic, not of one name; CreateTopic.request: names of one request may differ by dots only; Trim does not wait for an agent that is 100,000 revisions behind; JudgeAgent; the log's clock is what most agents say, and all that expires goes by it (MoveLogStart.judged_ms, SwapSegments.judged_ms) |
| 2 | values of enumerations that nobody knows are refused; two members of KIP-848 cannot have one instance id; floe.produce.check, floe.table.history.ms, floe.table.compaction, floe.table.publish, floe.table.partition, floe.table.sort, floe.table.layout, floe.table.mode, floe.table.envelope, floe.table.format-version |
| 2 | ExpireProducers names those that expire; of more than a partition, or the cluster (floe.producers.max), remembers the longest idle ones go |
| 2 | CommitChunk.judged_revision: batches that were judged by another schema than their topic has are refused |
| 2 | SkipDamaged |
| 2 | leader epochs grow |
| 2 | CommitTables |
| 2 | DeleteTopic of what holds more than 4,096 rows: entries that follow let go of them (leaving.py) |
| 2 | each partition remembers from which offset on its topic was bound to which schemas; BindSchema is refused where a partition could have more than 1,024 such spans |
| 2 | DropTable.expected: a table is dropped or renamed only where its author saw it |
| 2 | PutNamespace.expected: a namespace's properties are replaced only where they are those that the author changed |
| 2 | DropTable.claim: a topic's table gets the name it is configured for; a topic has one table; `floe.table.name` is refused where another topic or table has it |
| 2 | the schema registry: RegisterSchema, DeleteSchemaVersions, PutSubjectSettings |
| 2 | topics whose records name schemas of the registry: BindSchema.subject, confluent.key.schema.validation, confluent.value.schema.validation, confluent.key.subject.name.strategy, confluent.value.subject.name.strategy |
| 2 | floe.value.rules, floe.key.rules; batches that were judged while another of these policies was in force are refused as with bindings |
| 2 | floe.rules, and the same of batches that were judged by other rules |
| 2 | PutScramCredential, DeleteScramCredential |
| 2 | CreateAcls, DeleteAcls |
| 2 | AlterClientQuotas |
| 2 | CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken |
| 2 | Heartbeat says how fast its author is: its result repeats it, the state keeps nothing of it |
| 2 | CommitChunk.companion_of: a batch that is appended with another one or not at all |
| 2 | CreateTopic.quarantine, AlterTopicConfigs.quarantine: the topic for records that break a topic's rules; when it is deleted or bound anew, batches of the topic that were judged before are refused |
| 2 | floe.delete.retention.ms, floe.delete.protection; DeleteTopic keeps what it deletes for that time; DeleteTopic.by, UndeleteTopic, PurgeTopics |
| 2 | floe.records.grace.ms; MoveLogStart holds what it moves past for that time, and swaps keep to what is held; UndeleteRecords, PurgeRecords |
"""  # noqa: E501 - a table

from __future__ import annotations

import re
from dataclasses import replace

from coordination.kafka_codes import Code
from coordination.state import agreed_time, spans
from coordination.state.data import StateData
from coordination.state.types import TABLE_FOLDER_DIGITS, Refused, Table

TRANSACTIONS = 2  # the level from which on there are transactions
TABLE_TOPIC_IDS = 2  # and tables are tied to a topic's id
JUDGED_BATCHES = 2  # and a batch is refused that was judged before its topic was bound anew
LEADER_EPOCHS = 2  # and leader epochs grow, where they were 0
AGREED_TIME = 2  # and time is what most agents say, not what the author of an entry says
NAMES_OF_ONE_REQUEST = 2  # and names are compared with those from before the request only
TRIM_LAG_BOUND = 2  # and who is far behind does not hold up the log's end any more
JUDGED_AGENTS = 2  # and agents that cannot do their work are said to be unwell
KNOWN_VALUES = 2  # and a value of an enumeration that nobody knows is refused
NAMED_PRODUCERS = 2  # and producers that expire are named
BOUNDED_PRODUCERS = 2  # and there is a most that are remembered
PIECES_OF_PARTITIONS = 2  # and a large partition goes over several sections of a snapshot
INSTANCES_ONCE = 2  # and an instance id of KIP-848 is of one member
SKIPPED_DAMAGE = 2  # and damaged records can be passed over
BINDING_SPANS = 2  # and it is remembered which schemas were in force at an offset
TOLD_PACE = 2  # and agents tell each other how fast they are
EXPECTED_DROPS = 2  # and a table is dropped or renamed only where its author saw it
EXPECTED_NAMESPACES = 2  # and a namespace's properties are replaced only where the author saw them
LEAVING = 2  # and a topic that holds very much leaves over many entries
TABLES_TOGETHER = 2  # and pointers of several tables move at one point of the log
RULES_POLICY = 2  # and what becomes of records that break rules is a policy of the topic
REGISTRY = 2  # and there are subjects of the schema registry
COMPANIONS = 2  # and a batch can go with another one
QUARANTINES = 2  # and what breaks a topic's rules can be kept in another topic
SCRAM = 2  # and users log in by SCRAM
ACLS = 2  # and who may do what is part of the state
QUOTAS = 2  # and clients have quotas
DELEGATION = 2  # and by tokens of others
FOLLOWED_SUBJECTS = 2  # and topics are bound to them
SOFT_DELETE = 2  # and deleted topics are kept for a while
RECORDS_GRACE = 2  # and records below the log start are held for a while
TABLE_NAMES = 2  # and a topic has one table, which goes with its configured name, and that with no other's

SINCE: dict[str, int] = {
    "judge_agent": JUDGED_AGENTS,
    "skip_damaged": SKIPPED_DAMAGE,
    "commit_tables": TABLES_TOGETHER,
    "register_schema": REGISTRY,
    "delete_schema_versions": REGISTRY,
    "put_subject_settings": REGISTRY,
    "put_scram_credential": SCRAM,
    "delete_scram_credential": SCRAM,
    "create_acls": ACLS,
    "delete_acls": ACLS,
    "alter_client_quotas": QUOTAS,
    "create_delegation_token": DELEGATION,
    "renew_delegation_token": DELEGATION,
    "expire_delegation_token": DELEGATION,
    "undelete_topic": SOFT_DELETE,
    "purge_topics": SOFT_DELETE,
    "undelete_records": RECORDS_GRACE,
    "purge_records": RECORDS_GRACE,
} | dict.fromkeys(
    (
        "init_transactions",
        "add_to_transaction",
        "commit_transaction_offsets",
        "end_transaction",
        "abort_transaction",
        "expire_transactions",
    ),
    TRANSACTIONS,
)
"""The kinds of commands that are new, by the level that brought them."""
TRANSACTION_VERSION = "transaction.version"
_TABLE_FOLDER = re.compile(rf"-([0-9a-f]{{{TABLE_FOLDER_DIGITS}}})/metadata/[^/]+$")
TRANSACTION_VERSION_AT_FIRST = 2  # as Apache Kafka 4.3 formats a cluster


def too_early(kind: str, level: int) -> Refused:
    """The answer to a command that the cluster's level does not have yet."""
    return Refused(
        Code.UNSUPPORTED_VERSION,
        f"{kind} needs feature level {SINCE[kind]}, the cluster is at {level}: when all agents are upgraded, "
        f"finalize it with kafka-features upgrade --feature floe.level={SINCE[kind]}",
    )


def enter(state: StateData, level: int) -> None:
    """Raise the level to `level`, and bring the state to what its code expects."""
    before, state.feature_level = state.feature_level, level
    if before < TRANSACTIONS <= level:
        state.features.setdefault(TRANSACTION_VERSION, TRANSACTION_VERSION_AT_FIRST)
    if before < AGREED_TIME <= level:
        agreed_time.enter(state)
    if before < TABLE_TOPIC_IDS <= level:
        _tie_tables(state)
    if before < BINDING_SPANS <= level:
        for topic in state.topics.values():
            spans.enter(topic)


def _tie_tables(state: StateData) -> None:
    """Tie each topic to the newest table of its name: older ones were set aside with a topic before it.

    The newest may be of a topic before it as well: nobody has set it aside yet. Its folder tells.
    """
    newest: dict[str, tuple[str, str]] = {}
    for key, table in state.tables.items():
        known = state.topics.get(table.topic)
        if known is None or _of_another(table, known.topic_id):
            continue
        before = newest.get(table.topic)
        if before is None or state.tables[before].revision < table.revision:
            newest[table.topic] = key
    for name, key in newest.items():
        state.tables[key] = replace(state.tables[key], topic_id=state.topics[name].topic_id)
        state.tables_by_topic[state.topics[name].topic_id] = key


def _of_another(table: Table, topic_id: bytes) -> bool:
    """Whether the table's metadata lies in a folder that was made for a topic with another id."""
    found = _TABLE_FOLDER.search(table.metadata_location)
    return found is not None and found[1] != topic_id.hex()[:TABLE_FOLDER_DIGITS]
