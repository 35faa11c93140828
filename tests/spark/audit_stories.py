"""Small hand-written histories and tables for the audit's tests, each story a topic; many make one audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from iceberg.spark.audit import audit
from iceberg.spark.given import Account, AuditInput, Leaving
from iceberg.spark.history import (
    NO_HEADERS,
    REJECTED,
    UNKNOWN,
    HistoryRow,
    HistoryWriter,
    bytes_hash,
    headers_hash,
)
from iceberg.spark.verdict import Finding, Since, Skipped, TopicCount, Verdict

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXAMPLES = 10_000  # more than all stories have, so that each is told all of its own

TWELVE_SENT = Account(produced=12, rejected=2)

Each = TypeVar("Each")

TABLE_SCHEMA = pa.schema(
    [
        pa.field(
            "kafka",
            pa.struct(
                [
                    ("partition", pa.int32()),
                    ("offset", pa.int64()),
                    ("timestamp", pa.timestamp("us", "UTC")),
                    ("timestamp_type", pa.int32()),
                ]
            ),
        ),
        pa.field("key", pa.struct([("__raw__", pa.binary())])),
        pa.field("value", pa.struct([("__raw__", pa.binary())])),
        pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


@dataclass(frozen=True, slots=True)
class Told:
    """A record as a story tells it."""

    partition: int
    offset: int
    value: bytes | None = b"value"
    key: bytes | None = b"key"
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 1_700_000_000_123

    def history(self, topic: str) -> HistoryRow:
        """As producer or consumer see it."""
        return HistoryRow(
            topic,
            self.partition,
            self.offset,
            bytes_hash(self.key),
            bytes_hash(self.value),
            headers_hash(self.headers),
            self.timestamp_ms,
        )

    def table_row(self) -> dict[str, object]:
        """As Floe's committer writes it."""
        return {
            "kafka": {
                "partition": self.partition,
                "offset": self.offset,
                "timestamp": _EPOCH + timedelta(milliseconds=self.timestamp_ms),
                "timestamp_type": 0,
            },
            "key": None if self.key is None else {"__raw__": self.key},
            "value": None if self.value is None else {"__raw__": self.value},
            "headers": [{"key": key, "value": value} for key, value in self.headers],
        }


def story() -> list[Told]:
    """Two partitions of five records with everything that hashes could get wrong in them."""
    records = [
        Told(partition, offset, b"%d/%d" % (partition, offset)) for partition in (0, 1) for offset in range(5)
    ]
    records[1] = replace(records[1], key=None)
    records[2] = replace(records[2], value=None)
    records[3] = replace(records[3], value=b"", key=b"\xff\x00")
    records[4] = replace(records[4], headers=(("trace", b"\x00:,-"), ("empty", b""), ("nothing", None)))
    records[5] = replace(records[5], headers=(("größe", b"1"),), timestamp_ms=0)
    return records


def write_history(folder: Path, rows: list[HistoryRow]) -> Path:
    """One Parquet history file in `folder`."""
    with HistoryWriter(folder / "history.parquet") as writer:
        for row in rows:
            writer.add(row)
    return folder


def create_table(spark: SparkSession, name: str, records: Sequence[Told]) -> None:
    """A view with the columns of a Floe table.

    Its rows are in the plan: of many tables in one audit each would else be a scan, and every task be sent
    the plans of all of them.
    """
    rows = pa.Table.from_pylist([record.table_row() for record in records], TABLE_SCHEMA)
    spark.createDataFrame(rows).createOrReplaceTempView(name)


@dataclass(frozen=True, slots=True)
class Story:
    """A topic: what each side holds of it, and what the audit is given of it, by partition.

    `refused`, `unknown`: sends that were rejected, or of which nobody knows. `by_consumer`: nobody noted what
    was sent.
    """

    sent: Sequence[Told] = field(default_factory=story)
    consumed: Sequence[Told] = field(default_factory=story)
    table: Sequence[Told] = field(default_factory=story)
    refused: int = 2
    unknown: int = 0
    account: Account | None = TWELVE_SENT
    log_start: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    holes: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    skipped: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    since: Mapping[int, int] = field(default_factory=dict)
    leaving: Leaving | None = None
    by_consumer: bool = False

    @property
    def group(self) -> tuple[bool, bool]:
        """Which stories may share an audit: whether there is a history of what was sent, and ends of topics,
        is said for all of them.
        """
        return self.by_consumer, bool(self.ends)

    def outcomes(self, topic: str) -> list[HistoryRow]:
        """What became of the sends."""
        refused = HistoryRow(topic, None, None, None, None, NO_HEADERS, None, REJECTED, "no such field")
        unknown = refused._replace(outcome=UNKNOWN, reason="timed out")
        accepted = [told.history(topic) for told in self.sent]
        return [*accepted, *[refused] * self.refused, *[unknown] * self.unknown]


def audit_of(spark: SparkSession, stories: Mapping[str, Story], folder: Path) -> Verdict:
    """One audit of these stories of one group, by topic. Views are named like the topics."""
    (group,) = {story.group for story in stories.values()}
    for topic, told in stories.items():
        create_table(spark, topic, told.table)
    sent = [row for topic, story in stories.items() for row in story.outcomes(topic)]
    consumed = [told.history(topic) for topic, story in stories.items() for told in story.consumed]
    by_consumer, _ = group
    given = AuditInput(
        tables={topic: topic for topic in stories},
        sent=None if by_consumer else write_history(folder / "sent", sent),
        consumed=write_history(folder / "consumed", consumed),
        accounts={topic: told.account for topic, told in stories.items() if told.account is not None},
        log_start=_by_place({topic: told.log_start for topic, told in stories.items()}),
        ends=_by_place({topic: told.ends for topic, told in stories.items()}),
        holes=_by_place({topic: told.holes for topic, told in stories.items()}),
        skipped=_by_place({topic: told.skipped for topic, told in stories.items()}),
        leaving={topic: told.leaving for topic, told in stories.items() if told.leaving is not None},
        since=_by_place({topic: told.since for topic, told in stories.items()}),
        examples=_EXAMPLES,
    )
    return audit(spark, given)


def _by_place(told: Mapping[str, Mapping[int, Each]]) -> dict[tuple[str, int], Each]:
    return {(topic, number): each for topic, numbers in told.items() for number, each in numbers.items()}


@dataclass(frozen=True, slots=True)
class Judged:
    """What a verdict says of one topic."""

    topic: str
    findings: Sequence[Finding]
    count: TopicCount
    skipped: Sequence[Skipped]
    since: Sequence[Since]

    @staticmethod
    def of(verdict: Verdict, topic: str) -> Judged:
        """The topic's part of it."""
        (count,) = (each for each in verdict.topics if each.topic == topic)
        return Judged(
            topic,
            [each for each in verdict.findings if each.topic == topic],
            count,
            [each for each in verdict.skipped if each.topic == topic],
            [each for each in verdict.since if each.topic == topic],
        )

    @property
    def equal(self) -> bool:
        """Nothing was found in the topic."""
        return not self.findings

    def only(self, *kinds: str) -> list[Finding]:
        """Its findings, having asserted that just these kinds were found."""
        assert {finding.kind for finding in self.findings} == set(kinds), self.findings
        return list(self.findings)
