"""Entries whose commands are spoilt: numbers at their ends, columns that do not fit, names that nobody has.

Built on the entries of tests/versions/write.py, of which enough take effect. What is spoilt is found in the
descriptors of log.proto, so a command or a field that somebody adds is spoilt as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import Message

from coordination.broker_configs import BROKER_CONFIGS
from coordination.commands import (
    KINDS,
    AlterClusterConfigs,
    AlterTopicConfigs,
    Command,
    Commands,
    ConfigEntry,
    CreateTopic,
    Quarantine,
)
from coordination.config_types import Config
from coordination.state import Applied
from coordination.topic_configs import TOPIC_CONFIGS
from tests.versions.write import CONFIGS, Writer

INT32, INT64, UINT32, UINT64 = (1 << 31) - 1, (1 << 63) - 1, (1 << 32) - 1, (1 << 64) - 1
ENDS: dict[int, tuple[int, int]] = {
    Field.TYPE_INT32: (-INT32 - 1, INT32),
    Field.TYPE_SINT32: (-INT32 - 1, INT32),
    Field.TYPE_INT64: (-INT64 - 1, INT64),
    Field.TYPE_SINT64: (-INT64 - 1, INT64),
    Field.TYPE_UINT32: (0, UINT32),
    Field.TYPE_UINT64: (0, UINT64),
    Field.TYPE_ENUM: (-INT32 - 1, INT32),
}
TEXTS = ("", "\x00", "ä" * 300, "x" * 40_000, "\U0010ffff", "-1", "9" * 5_000, " ", "a,b,,c", "NaN")
REALS = (float("nan"), float("inf"), float("-inf"), -1.0, -0.0, 0.0, 5e-324, 0.5, 1.0, 1.7e308)
BLOBS = (b"", b"\xff" * 15, b"\x00" * 17, b"\xff" * 40_000)
SPOILT = 0.5  # of the commands
FRESH = 0.5  # of the ids of topics


def _values(config: Config) -> set[str]:
    """What may stand in it, at its ends mostly."""
    ends = (str(int(end)) for end in (config.low, config.high) if abs(end) < INT64)
    return {config.default, *config.choices, *ends} - {""}


WITH_EACH_OTHER = (
    ("min.compaction.lag.ms", "0"),
    ("log.cleaner.min.compaction.lag.ms", "604800000"),
    ("log.cleaner.max.compaction.lag.ms", "86400000"),
    ("floe.value.rules", "quarantine"),
    ("floe.key.rules", "quarantine"),
)
"""Each may be set, and some not together."""
EVERY_CONFIG = tuple(
    (config.name, value)
    for config in (*TOPIC_CONFIGS.values(), *BROKER_CONFIGS.values())
    for value in sorted(_values(config))
)


class Spoiler(Writer):
    """A writer that spoils what it writes. Its first agent is never touched, so one is always live."""

    configs: Sequence[tuple[str, str]] = (*(CONFIGS + WITH_EACH_OTHER) * 20, *EVERY_CONFIG)

    def configuring(self) -> Applied:
        """An entry that sets some configs, of the cluster, of a topic, or of one that it makes."""
        draw = self._random
        drawn = [draw.choice(draw.choice((WITH_EACH_OTHER, EVERY_CONFIG))) for _ in range(draw.randint(1, 3))]
        made = Quarantine(topic_id=draw.randbytes(16), descriptor_set=b"d")
        changes = [AlterTopicConfigs.Change(name=name, value=value) for name, value in dict(drawn).items()]
        kind = draw.randrange(3)
        if kind == 0:
            return self.append(self._authors[0], AlterClusterConfigs(changes=changes))
        if kind == 1:
            topic = draw.choice(list(self.state.topics))
            altered = AlterTopicConfigs(topic=topic, changes=changes, quarantine=made)
            return self.append(self._authors[0], altered)
        name, topic_id = f"t{draw.randrange(1000)}", draw.randbytes(16)
        entries = [ConfigEntry(name=each.name, value=each.value) for each in changes]
        new = CreateTopic(name=name, topic_id=topic_id, partitions=1, configs=entries, quarantine=made)
        return self.append(self._authors[0], new)

    def _value(self, field: Any, message: Message) -> Any:
        if field.name == "topic_id" and self._random.random() < FRESH:
            return self._random.randbytes(16)
        return super()._value(field, message)

    def spoilt(self) -> Applied:
        """An entry with one to three commands, by a live author or by one that nobody knows."""
        draw = self._random
        self._now_ms += draw.choice((0, 1, 400, 400, 400, 10_000))
        author = self._authors[0] if draw.random() < 0.9 else draw.randrange(1, 1 << 20)
        said = [self._one(author) for _ in range(draw.randint(1, 3))]
        right = self._now_ms
        if draw.random() < 0.1:  # a clock that is far off
            self._now_ms = draw.choice((-INT64 - 1, -1, 0, INT64))
        applied = self.append(author, *said)
        self._now_ms = right
        return applied

    def _one(self, author: int) -> Command:
        draw = self._random
        if not self.state.is_live(author) or draw.random() < 0.05:
            return self._uncommon(author)
        made = self._command(author)
        if made.WhichOneof("kind") == "fence_incarnation" and draw.random() < 0.95:
            made = self._command(author)
        if made.WhichOneof("kind") in ("leave_metadata",):
            return self._one(author)
        if draw.random() < SPOILT:
            self._spoil(getattr(made, made.WhichOneof("kind") or ""))
        kind = made.WhichOneof("kind")
        if kind == "fence_incarnation" and made.fence_incarnation.incarnation == self._authors[0]:
            made.fence_incarnation.incarnation = self._authors[1]
        return made

    def _table(self, message: Any) -> None:
        known = self.state.tables.get((message.namespace, message.name))
        if known is None or max(known.next_offsets, default=0) < INT64:  # the writer's ledgers only grow
            super()._table(message)

    def _uncommon(self, author: int) -> Command:
        """A kind that the writer does not draw by itself: registrations, changes in parts, nothing at all."""
        draw = self._random
        made = Command()
        kind = draw.choice([*KINDS, "register_agent", "begin", "part", "part", "end", "end", "nothing"])
        if kind == "nothing":
            return made
        message = getattr(made, kind)
        message.SetInParent()
        self._fill(message, draw.randint(0, 2))
        if kind == "register_agent":
            message.name, message.node_id = draw.choice(("s1", "s2", "")), draw.choice((-1, -1, 0, 1, INT32))
            del message.roles[:]
            message.feature_min, message.feature_max = 1, 2
        if kind == "fence_incarnation":
            message.incarnation = 1
        if kind in ("begin", "part", "end"):
            message.id = 1
        if kind == "part":
            open_parts = self.state.pending.get((author, 1), [])
            message.index = len(open_parts)
            if draw.random() < 0.8:
                inner = Commands(commands=[self._one(self._authors[0]) for _ in range(2)])
                message.content = inner.SerializeToString()
        if kind == "end":
            message.parts = len(self.state.pending.get((author, 1), []))
        if draw.random() < SPOILT and kind != "fence_incarnation":
            self._spoil(message)
        return made

    def _spoil(self, message: Message) -> None:
        """Change one to three things anywhere in the message."""
        draw = self._random
        for _ in range(draw.randint(1, 3)):
            fields: list[Any] = list(message.DESCRIPTOR.fields)
            if not fields:
                return
            self._spoil_field(message, draw.choice(fields))

    def _spoil_field(self, message: Message, field: Field) -> None:
        draw = self._random
        if field.is_repeated:
            self._spoil_column(getattr(message, field.name), field)
        elif field.message_type is not None:
            if draw.random() < 0.3:
                message.ClearField(field.name)
            else:
                getattr(message, field.name).SetInParent()
                self._spoil(getattr(message, field.name))
        else:
            setattr(message, field.name, self._odd(field))

    def _spoil_column(self, column: Any, field: Field) -> None:
        draw = self._random
        how = draw.randrange(5)
        if how == 0 and len(column):
            del column[draw.randrange(len(column)) :]
        elif field.message_type is not None:
            if how == 1 and len(column):
                column.add().CopyFrom(draw.choice(column))
            elif len(column):
                self._spoil(draw.choice(column))
            else:
                self._fill(column.add(), 1)
        elif how == 1 and len(column):
            column.extend([draw.choice(column)] * draw.choice((1, 1, 3_000)))
        elif how == 2 or not len(column):
            column.append(self._odd(field))
        else:
            column[draw.randrange(len(column))] = self._odd(field)

    def _odd(self, field: Field) -> Any:
        draw = self._random
        if field.type == Field.TYPE_STRING:
            return draw.choice(TEXTS)
        if field.type == Field.TYPE_BYTES:
            return draw.choice(BLOBS)
        if field.type == Field.TYPE_BOOL:
            return draw.random() < 0.5
        if field.type == Field.TYPE_DOUBLE:
            return draw.choice(REALS)
        low, high = ENDS[field.type]
        return draw.choice((low, low + 1, -1 if low else 0, 0, 1, 3, 7, high - 1, high, high))
