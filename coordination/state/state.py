"""The replicated state: a pure function of the log's entries, the same on every agent.

`apply` uses no clock, no entropy, no I/O, and iterates over nothing whose order the log does not give
(tests/unit/coordination/test_purity.py). Time comes from the entries. Others read the attributes of
State; only the modules of this package write them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from coordination.commands import ENTRY_FORMAT, Command, End, Entry
from coordination.kafka_codes import Code
from coordination.log import EntryName, LogEntry
from coordination.state import (
    acls,
    agreed_time,
    chunks,
    cluster,
    configs,
    consumer_changes,
    delegation,
    deleted,
    enumerations,
    features,
    group_offsets,
    groups,
    held,
    leaving,
    members,
    multipart,
    pending_offsets,
    producers,
    quarantine,
    quotas,
    schemas,
    scram,
    segments,
    skipped,
    subject_settings,
    subjects,
    tables,
    topics,
    transactions,
    undeleting,
)
from coordination.state.data import StateData
from coordination.state.digest import START, chain
from coordination.state.errors import InvariantBroken, UnknownCommand
from coordination.state.levels import AGREED_TIME, SINCE, too_early
from coordination.state.types import (
    Applied,
    At,
    Done,
    Incarnation,
    Refused,
    Result,
    Said,
)

HASHES_REMEMBERED = 8192  # revisions whose rolling hash an agent can still tell
Handler = Callable[["State", Any, At], Result]


def _end(state: State, message: End, at: At) -> Result:
    """Apply a change of several parts at this point of the log. Done's value: the inner results."""
    inner = multipart.take(state, message, at)
    if isinstance(inner, Refused):
        return inner
    kinds = state.kinds_of(inner)
    for kind in kinds:
        if kind in multipart.OUTER:
            return Refused(Code.INVALID_REQUEST, f"change {message.id} holds a command {kind!r}: not allowed")
    return Done(tuple(state.dispatch(inner, kinds, at)))


HANDLERS: dict[str, Handler] = {
    "commit_chunk": chunks.commit_chunk,
    "forget_chunks": chunks.forget_chunks,
    "register_agent": members.register_agent,
    "fence_incarnation": members.fence_incarnation,
    "heartbeat": members.heartbeat,
    "leave_metadata": members.leave_metadata,
    "enter_metadata": members.enter_metadata,
    "judge_agent": members.judge_agent,
    "create_topic": quarantine.create_topic,
    "delete_topic": topics.delete_topic,
    "undelete_topic": undeleting.undelete_topic,
    "purge_topics": deleted.purge_topics,
    "undelete_records": held.undelete_records,
    "purge_records": held.purge_records,
    "create_partitions": topics.create_partitions,
    "alter_topic_configs": quarantine.alter_topic_configs,
    "alter_cluster_configs": configs.alter_cluster_configs,
    "alter_group_configs": configs.alter_group_configs,
    "update_features": features.update_features,
    "move_log_start": topics.move_log_start,
    "allocate_producer_ids": producers.allocate_producer_ids,
    "expire_producers": producers.expire_producers,
    "bind_schema": schemas.bind_schema,
    "commit_table": tables.commit_table,
    "commit_tables": tables.commit_tables,
    "drop_table": tables.drop_table,
    "put_namespace": tables.put_namespace,
    "drop_namespace": tables.drop_namespace,
    "claim": cluster.claim,
    "release_claim": cluster.release_claim,
    "set_feature_level": cluster.set_feature_level,
    "record_snapshot": cluster.record_snapshot,
    "trim": cluster.trim,
    "put_classic_generation": groups.put_classic_generation,
    "assign_classic_generation": groups.assign_classic_generation,
    "replace_classic_member": groups.replace_classic_member,
    "delete_groups": groups.delete_groups,
    "change_consumer_group": consumer_changes.change_consumer_group,
    "downgrade_consumer_group": consumer_changes.downgrade_consumer_group,
    "commit_offsets": group_offsets.commit_offsets,
    "delete_offsets": group_offsets.delete_offsets,
    "expire_offsets": group_offsets.expire_offsets,
    "begin": multipart.begin,
    "part": multipart.part,
    "end": _end,
    "abort": multipart.abort,
    "init_transactions": transactions.init_transactions,
    "add_to_transaction": transactions.add_to_transaction,
    "commit_transaction_offsets": pending_offsets.commit_transaction_offsets,
    "end_transaction": transactions.end_transaction,
    "abort_transaction": transactions.abort_transaction,
    "expire_transactions": transactions.expire_transactions,
    "swap_segments": segments.swap_segments,
    "forget_segments": segments.forget_segments,
    "skip_damaged": skipped.skip_damaged,
    "register_schema": subjects.register_schema,
    "delete_schema_versions": subjects.delete_schema_versions,
    "put_subject_settings": subject_settings.put_subject_settings,
    "put_scram_credential": scram.put_scram_credential,
    "delete_scram_credential": scram.delete_scram_credential,
    "create_acls": acls.create_acls,
    "delete_acls": acls.delete_acls,
    "alter_client_quotas": quotas.alter_client_quotas,
    "create_delegation_token": delegation.create_delegation_token,
    "renew_delegation_token": delegation.renew_delegation_token,
    "expire_delegation_token": delegation.expire_delegation_token,
}


class State(StateData):
    """The data, how entries change it, and the hash that two agents compare."""

    def __init__(self) -> None:
        super().__init__()
        self.digest = START
        self._hashes: deque[tuple[int, bytes]] = deque(maxlen=HASHES_REMEMBERED)

    @property
    def hash(self) -> str:
        """The rolling hash: equal on two agents at one revision, or one of them is wrong."""
        return self.digest.hex()

    def hash_at(self, revision: int) -> str | None:
        """The rolling hash after the newest entry at or below `revision`; None when it is too long ago."""
        digest = self.digest_at(revision)
        return None if digest is None else digest.hex()

    def digest_at(self, revision: int) -> bytes | None:
        """See hash_at."""
        if revision >= self.revision:
            return self.digest
        return next((digest for at, digest in reversed(self._hashes) if at <= revision), None)

    @property
    def last_entry(self) -> EntryName | None:
        """The newest entry that was applied: it tells this log from one that was restored and written on.

        It is kept with its author, so a snapshot has it too. None where the state does not know the author.
        """
        authors = (each for each in self.incarnations.values() if each.last_revision == self.revision)
        author = next(authors, None)
        return None if author is None else EntryName(self.revision, author.incarnation, author.sequence)

    def apply(self, log_entry: LogEntry) -> Applied:
        """Apply the log's next entry. Raises StateError when this agent must stop; the state is then void."""
        entry = _parse(log_entry)
        if log_entry.revision <= self.revision:
            raise InvariantBroken(f"entry of revision {log_entry.revision} after {self.revision}")
        commands = entry.commands
        kinds = self.kinds_of(commands)
        author = self._author(log_entry, entry)
        at = At(log_entry.revision, author, self._now_ms(entry.proposed_ms))
        results = tuple(self.dispatch(commands, kinds, at))
        if self.leaving:
            leaving.go_on(self, at.now_ms)
        self.revision = log_entry.revision
        self.digest = chain(self.digest, log_entry, results)
        self._hashes.append((self.revision, self.digest))
        return Applied(
            self.revision,
            log_entry.incarnation,
            log_entry.sequence,
            results,
            at.touched,
            at.fenced,
            at.groups,
            Said(entry.applied_revision, entry.applied_hash, entry.asks),
        )

    def _now_ms(self, proposed_ms: int) -> int:
        """The time that counts for an entry's commands; from AGREED_TIME on the log's own."""
        if self.feature_level >= AGREED_TIME:
            return self.clock_ms
        self.clock_ms = max(self.clock_ms, proposed_ms)
        return proposed_ms

    def kinds_of(self, commands: Iterable[Command]) -> list[str]:
        """The kind of each command; empty for one that says nothing at all. Raises UnknownCommand."""
        kinds: list[str] = []
        for number, command in enumerate(commands):
            kind = command.WhichOneof("kind") or ""
            if not kind and command.ByteSize():  # a field that this code does not know
                raise UnknownCommand(
                    f"command {number} after revision {self.revision} is of a kind this code does not "
                    "know: run a version at least as new as the cluster's newest agent"
                )
            kinds.append(kind)
        return kinds

    def dispatch(self, commands: Sequence[Command], kinds: Sequence[str], at: At) -> list[Result]:
        """Apply commands at one point of the log, in order."""
        results: list[Result] = []
        author = at.author
        for command, kind in zip(commands, kinds, strict=True):
            if SINCE.get(kind, 0) > self.feature_level:
                results.append(too_early(kind, self.feature_level))
            elif not kind:
                results.append(Refused(Code.INVALID_REQUEST, "a command that says nothing"))
            elif (author.registered_revision and not author.fenced_revision) or kind == "register_agent":
                message = getattr(command, kind)
                refused = None
                if kind in enumerations.ENUMERATIONS:
                    refused = enumerations.refusal(kind, message, self.feature_level)
                results.append(refused or HANDLERS[kind](self, message, at))
            else:
                results.append(_not_live(author))
        return results

    def _author(self, log_entry: LogEntry, entry: Entry) -> Incarnation:
        """The entry's author with this entry noted; a blank one, not yet in the state, when unregistered."""
        author = self.incarnations.get(log_entry.incarnation)
        if author is None:
            return Incarnation(
                log_entry.incarnation, "", -1, log_entry.sequence, entry.applied_revision, 0,
                log_entry.revision, entry.proposed_ms, 0, 0,
            )  # fmt: skip
        if log_entry.sequence != author.sequence + 1:
            raise InvariantBroken(
                f"incarnation {author.incarnation:016x}: entry {log_entry.sequence} at revision "
                f"{log_entry.revision} follows entry {author.sequence} at {author.last_revision}"
            )
        author.sequence = log_entry.sequence
        author.applied_revision = max(author.applied_revision, entry.applied_revision)
        author.last_revision = log_entry.revision
        before_ms, author.last_proposed_ms = author.last_proposed_ms, entry.proposed_ms
        if self.feature_level >= AGREED_TIME and author.live:
            agreed_time.hear(self, author, before_ms)
        return author


def _parse(log_entry: LogEntry) -> Entry:
    """The entry's message, compared with the log's own record of it (rule 13)."""
    try:
        entry = Entry.FromString(log_entry.payload)
    except DecodeError as error:
        start = log_entry.payload[:64].hex()
        raise InvariantBroken(f"{_place(log_entry)} is no Entry: {error}; {start}") from error
    if entry.format != ENTRY_FORMAT:
        raise UnknownCommand(f"{_place(log_entry)} has format {entry.format}, this code reads {ENTRY_FORMAT}")
    if entry.incarnation != log_entry.incarnation or entry.sequence != log_entry.sequence:
        raise InvariantBroken(
            f"{_place(log_entry)} says that it is entry {entry.sequence} of {entry.incarnation:016x}"
        )
    return entry


def _place(log_entry: LogEntry) -> str:
    return f"entry {log_entry.sequence} of {log_entry.incarnation:016x} at revision {log_entry.revision}"


def _not_live(author: Incarnation) -> Refused:
    if author.fenced_revision:
        return Refused(
            Code.STALE_BROKER_EPOCH,
            f"incarnation {author.incarnation:016x} was fenced at revision {author.fenced_revision}",
        )
    return Refused(Code.BROKER_ID_NOT_REGISTERED, f"incarnation {author.incarnation:016x} is not registered")
