"""Entries of the log at random, and what the code that runs this makes of them. For the code of any version.

    write.py make FOLDER --seed 2 --entries 2000 --level 1     entries, the snapshot after them, the hashes
    write.py replay FOLDER                                     the hashes and the snapshot of entries as JSON

It is run with the older version's packages in PYTHONPATH, so it may only use what every version has. Most
commands are refused, as nobody would mean them; enough are not, since their fields are drawn from few values.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import Message

import coordination
from coordination import commands
from coordination.log import LogEntry
from coordination.snapshot import encode
from coordination.state import Applied, State, tables
from coordination.state.state import HANDLERS
from objectstore.naming import ChunkId

HEAD = struct.Struct("<QQQI")  # revision, incarnation, sequence, bytes of the payload
START_MS = 1_700_000_000_000
NOT_DRAWN = ("register_agent", "set_feature_level", "end", "part", "begin")
NOT_FILLED = (".PutNamespace.expected",)  # Writer._namespace
LATER = (
    "init_transactions", "add_to_transaction", "commit_transaction_offsets", "end_transaction",
    "abort_transaction", "expire_transactions", "judge_agent", "skip_damaged", "commit_tables",
    "register_schema", "delete_schema_versions", "put_subject_settings",
    "put_scram_credential", "delete_scram_credential", "create_acls", "delete_acls", "alter_client_quotas",
    "create_delegation_token", "renew_delegation_token", "expire_delegation_token",
    "undelete_topic", "purge_topics", "undelete_records", "purge_records",
)  # fmt: skip
"""Commands above level 1. Code of level 1 does not have them."""
RARE = (
    "fence_incarnation",
    "leave_metadata",
    "delete_topic",
    "drop_namespace",
    "delete_groups",
)
OWNED = 0.6  # of the commands that have to do with transactions are by whoever has the id
RARELY = 0.04  # of the times that such a command was drawn: little would be left to change
CONFIGS = (
    ("retention.ms", "5000"), ("cleanup.policy", "compact"), ("num.partitions", "3"), ("no.such", "x"),
    ("transaction.max.timeout.ms", "1000"), ("consumer.session.timeout.ms", "50000"),
    ("max.message.bytes", "9"), ("confluent.value.schema.validation", "true"),
    ("confluent.value.schema.validation", "false"),
)  # fmt: skip
STRINGS = {
    "namespace": ("s1", "s2"),
    "name": ("t1", "t2", "t3", "t4", "t.1", "t_1", "s1", "job"),
    "claim": ("", "job"),
    "member_id": ("m1", "m2"),
    "leader": ("m1", ""),
    "group": ("g1", "g2"),
    "transactional_id": ("x1", "x2"),
    "topic": ("t1", "t2", "t3"),
    "subject": ("s1", "s2", ":.x:s1"),
    "scope": ("", "s1", "s2", ":.x:"),
    "schema_type": ("PROTOBUF",),
}
FEATURES = ("group.version", "transaction.version", "floe.level")


class Writer:
    """Draws entries and applies them. `configs`: of which what commands set is drawn."""

    configs: Sequence[tuple[str, str]] = CONFIGS

    def __init__(self, seed: int, level: int) -> None:
        self.state = State()
        self.entries: list[LogEntry] = []
        self._random = random.Random(seed)
        self._level = level
        self._sequences: dict[int, int] = {}
        self._authors = [0xA1, 0xA2, 0xA3]
        self._now_ms = START_MS
        self._kinds = [k for k in commands.KINDS if k not in NOT_DRAWN and (level > 1 or k not in LATER)]

    def write(self, count: int) -> None:
        """So many entries, after those that make agents, topics and a namespace."""
        for place, author in enumerate(self._authors):
            first = [commands.SetFeatureLevel(level=self._level)] if self._level > 1 and not place else []
            self.append(author, self._register(place), *first)
        for number in (1, 2, 3):
            topic = commands.CreateTopic(name=f"t{number}", topic_id=bytes([number]) * 16, partitions=2)
            self.append(self._authors[0], topic, commands.PutNamespace(name=f"s{number}"))
        while len(self.entries) < count:
            self._now_ms += self._random.randrange(0, 400)
            place = self._random.randrange(len(self._authors))
            if not self.state.is_live(self._authors[place]):  # the next run of that agent
                self._authors[place] += 0x10
                self.append(self._authors[place], self._register(place))
                continue
            author = self._authors[place]
            self.append(author, *(self._command(author) for _ in range(self._random.randint(1, 3))))

    def author(self) -> int:
        """One that is live."""
        return next(each for each in self._authors if self.state.is_live(each))

    def append(self, author: int, *messages: Message) -> Applied:
        """An entry, applied."""
        self._sequences[author] = self._sequences.get(author, 0) + 1
        wrapped = [m if isinstance(m, commands.Command) else commands.command(m) for m in messages]
        payload = commands.Entry(
            format=commands.ENTRY_FORMAT,
            incarnation=author,
            sequence=self._sequences[author],
            proposed_ms=self._now_ms,
            applied_revision=self.state.revision,
            commands=wrapped,
        ).SerializeToString(deterministic=True)
        entry = LogEntry(self.state.revision + 1, author, self._sequences[author], payload)
        self.entries.append(entry)
        return self.state.apply(entry)

    def _register(self, place: int) -> Message:
        return commands.RegisterAgent(
            name=f"agent-{place}", node_id=-1, feature_min=1, feature_max=self._level, zone="z"
        )

    def _command(self, author: int) -> commands.Command:
        made = commands.Command()
        kind = self._random.choice(["commit_chunk", *self._kinds])
        if kind in RARE and self._random.random() > RARELY:
            kind = "commit_chunk"
        message = getattr(made, kind)
        message.SetInParent()
        if kind == "commit_chunk":
            self._chunk(message, author)
        else:
            self._fill(message, self._random.randint(0, 2))
        if kind == "fence_incarnation":
            message.incarnation = self._random.choice(self._authors)
        if kind == "commit_table":
            self._table(message)
        if kind == "commit_tables" and self._random.randrange(4):
            self._tables(message)
        if kind == "drop_table" and self._random.randrange(2):
            self._drop(message)
        if kind == "put_namespace" and "expected" in message.DESCRIPTOR.fields_by_name:
            self._namespace(message)
        if kind == "swap_segments":
            self._swap(message)
        if kind == "register_schema" and self._random.randrange(4):
            self._schema(message)
        if kind == "bind_schema" and "subject" in message.DESCRIPTOR.fields_by_name:
            message.ClearField(
                self._random.choice(("descriptor_set", "subject"))
            )  # else neither has an effect
        if kind == "put_subject_settings" and self._random.randrange(4):
            message.mode, message.clear_mode = 0, True  # else little would be registered
        if self._level > 1 and self._random.random() < OWNED:
            self._as_owner(kind, message)
        return made

    def _chunk(self, message: Any, author: int) -> None:
        draw = self._random.randrange
        batches = draw(1, 4)
        message.number, message.size, message.first_position = (
            self.state.incarnations[author].next_chunk_number, 10_000, 24,
        )  # fmt: skip
        for _ in range(batches):
            message.partition.append(draw(0, 5))
            message.length.append(draw(70, 200))
            message.offsets.append(draw(1, 4))
            message.max_timestamp_ms.append(self._now_ms)
            message.producer_id.append(draw(-1, 3))
            message.producer_epoch.append(draw(0, 2))
            message.base_sequence.append(draw(0, 12))
        if "judged_revision" in message.DESCRIPTOR.fields_by_name and self.state.revision % 4:
            message.judged_revision = self.state.revision  # else by an older binding, mostly
        if "transaction" in message.DESCRIPTOR.fields_by_name and draw(3):
            message.transaction.extend(draw(0, 3) for _ in range(batches))  # at level 1 it says nothing
        if "companion_of" in message.DESCRIPTOR.fields_by_name and not draw(3):
            message.companion_of.extend(draw(0, batches + 1) for _ in range(batches))  # likewise

    def _table(self, message: Any) -> None:
        """Mostly the commit of somebody who knows the table, and of the topic that it follows."""
        known = self.state.tables.get((message.namespace, message.name))
        message.claim = ""
        del message.next_offsets[:]
        if known is not None:
            message.expected, message.topic = known.metadata_location, known.topic
            message.next_offsets.extend(offset + self._random.randrange(2) for offset in known.next_offsets)
        else:
            message.expected, message.topic = "", self._random.choice(("t1", "t2", ""))

    def _tables(self, message: Any) -> None:
        """The commit of somebody who knows the tables, of which some are there."""
        for each in message.moves:
            known = self.state.tables.get((each.namespace, each.name))
            each.expected = known.metadata_location if known is not None else ""

    def _drop(self, message: Any) -> None:
        """The drop of somebody who looked at the table; else of something that is there or not."""
        known = self.state.tables.get((message.namespace, message.name))
        if known is not None and "expected" in message.DESCRIPTOR.fields_by_name:
            message.expected = known.metadata_location
        if "claim" in message.DESCRIPTOR.fields_by_name:
            message.claim = ""  # a rename by a committer is what unit tests write

    def _namespace(self, message: Any) -> None:
        """By somebody who saw its properties, or others, or does not say: as the revision is, not drawn."""
        known, which = self.state.namespaces.get(message.name), self.state.revision % 3
        message.expected = b"" if not which else bytes(16)
        if which == 1 and known is not None:
            message.expected = tables.namespace_digest(known)

    def _schema(self, message: Any) -> None:
        """Judged by what there is, rarely with an id given, and referring to what is there."""
        message.judged_revision = self.state.revision
        if self._random.randrange(8):
            message.schema_id = message.version = 0
        del message.references[:]
        subject = self.state.subjects.subjects.get(self._random.choice(STRINGS["subject"]))
        if subject is not None and subject.live and self._random.randrange(2):
            version = self._random.choice(subject.live).version
            message.references.add(name="n", subject=subject.name, version=version)

    def _swap(self, message: Any) -> None:
        """Mostly by a job that knows the partition: rows up to one in a chunk, or the segments anew."""
        known = [each for each in self.state.partitions if each is not None]
        if not known or not self._random.randrange(5):
            return
        partition = self._random.choice(known)
        ends = [end for end, _, _ in partition.slices.pieces() if end <= partition.last_stable]
        end = self._random.choice(ends) if ends else -1
        holder = partition.slices.holder_ending_at(end) if ends else None
        message.partition = partition.handle
        for name in ("expected", "last_chunk"):
            message.ClearField(name)
        if partition.merged is not None:
            message.expected.incarnation, _, message.expected.number = partition.merged.manifest
            message.merged.end_offset = partition.merged.end_offset
        if isinstance(holder, ChunkId):
            message.last_chunk.incarnation, message.last_chunk.number = holder
            message.merged.end_offset = end
        message.merged.start_offset, message.merged.segments = partition.log_start, 1

    def _as_owner(self, kind: str, message: Any) -> None:
        """By whoever has a transactional id: with the pair of now, or a batch that follows the one before."""
        owned = list(self.state.transactions.values())
        if not owned:
            return
        one = self._random.choice(owned)
        of_a_pair = "transactional_id" in message.DESCRIPTOR.fields_by_name
        if of_a_pair and kind not in ("init_transactions", "expire_transactions"):
            message.transactional_id = one.transactional_id
            if kind == "abort_transaction":
                message.number, message.forced = one.number, True
            else:
                message.producer_id, message.producer_epoch = one.producer_id, one.epoch
                message.ClearField("fence")
        if kind == "commit_chunk":
            partition = self.state.partitions[message.partition[0]]
            known = partition.producers.get(one.producer_id) if partition is not None else None
            follows = 0
            if known is not None and known.epoch == one.epoch:
                follows = (known.last_sequence + 1) & 0x7FFF_FFFF  # sequences begin anew
            for name, value in (
                ("partition", message.partition[0]), ("length", 80), ("offsets", 2), ("transaction", 2),
                ("max_timestamp_ms", self._now_ms), ("producer_id", one.producer_id),
                ("producer_epoch", one.epoch), ("base_sequence", follows),
            ):  # fmt: skip
                getattr(message, name)[:] = [value]

    def _fill(self, message: Message, rows: int) -> None:
        """Draw every field; columns of one message are of one length."""
        fields: Sequence[Any] = message.DESCRIPTOR.fields
        for field in fields:
            if field.full_name.endswith(NOT_FILLED):
                continue
            if field.is_repeated:
                column = getattr(message, field.name)
                for _ in range(rows):
                    if field.message_type is not None:
                        self._fill(column.add(), rows)
                    else:
                        column.append(self._value(field, message))
            elif field.message_type is not None:
                if self._random.random() < 0.6:
                    getattr(message, field.name).SetInParent()
                    self._fill(getattr(message, field.name), rows)
            elif self._random.random() < 0.8:
                setattr(message, field.name, self._value(field, message))
        if message.DESCRIPTOR.name == "Update":
            vars_of_update: Any = message
            vars_of_update.name = self._random.choice(FEATURES)
        if {"name", "value"} <= set(message.DESCRIPTOR.fields_by_name):
            vars_of: Any = message
            vars_of.name, vars_of.value = self._random.choice(self.configs)

    def _value(self, field: Any, message: Message) -> Any:
        draw = self._random
        if field.type == Field.TYPE_STRING:
            return draw.choice(STRINGS.get(field.name, STRINGS["name"]))
        if field.type == Field.TYPE_BYTES:
            return bytes([draw.randrange(1, 4)]) * 16
        if field.type == Field.TYPE_BOOL:
            return draw.random() < 0.5
        if field.type == Field.TYPE_ENUM:
            return draw.choice([value.number for value in field.enum_type.values])
        if field.name == "expected_revision":
            group = self.state.groups.get(getattr(message, "group", ""))
            return group.revision if group is not None else 0
        if field.name in ("claim_revision", "revision", "through"):
            return draw.randrange(0, self.state.revision + 1)
        if field.name.endswith("_ms"):
            return (
                max(0, self._now_ms - draw.randrange(0, 9000))
                if "since" in field.name
                else draw.randrange(1, 9000)
            )
        if field.name == "state":
            return draw.randrange(0, 3)  # of a member: the least that names one
        if field.name == "level":
            return draw.randrange(0, self._level + 1)
        low = -1 if field.type in (Field.TYPE_SINT32, Field.TYPE_SINT64) else 0
        return draw.randrange(low, 6)


def read(path: Path) -> Iterator[LogEntry]:
    """The entries of a file."""
    content = path.read_bytes()
    position = 0
    while position < len(content):
        revision, incarnation, sequence, size = HEAD.unpack_from(content, position)
        position += HEAD.size
        yield LogEntry(revision, incarnation, sequence, content[position : position + size])
        position += size


def replay(entries: Iterator[LogEntry]) -> tuple[State, dict[str, Any]]:
    """The state that this code makes of the entries, and what is compared of it."""
    state, hashes = State(), []
    done: dict[str, int] = {}
    for entry in entries:
        applied = state.apply(entry)
        hashes.append(state.hash)
        kinds = [str(c.WhichOneof("kind")) for c in commands.Entry.FromString(entry.payload).commands]
        for kind, result in zip(kinds, applied.results, strict=True):
            done[kind] = done.get(kind, 0) + (type(result).__name__ != "Refused")
    snapshot = hashlib.sha256(encode(state)).hexdigest()
    return state, {"revision": state.revision, "hashes": hashes, "snapshot": snapshot, "done": done}


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("make", "replay"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--entries", type=int, default=2_000)
    parser.add_argument("--level", type=int, default=1)
    arguments = parser.parse_args()
    path = arguments.folder / "entries.bin"
    if arguments.what == "make":
        writer = Writer(arguments.seed, arguments.level)
        writer.write(arguments.entries)
        rows = [
            HEAD.pack(e.revision, e.incarnation, e.sequence, len(e.payload)) + e.payload
            for e in writer.entries
        ]
        path.write_bytes(b"".join(rows))
        (arguments.folder / "snapshot.bin").write_bytes(encode(writer.state))
    _, told = replay(read(path))
    told["code"] = str(Path(coordination.__file__).parents[1])
    told["kinds"] = sorted(HANDLERS)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
