"""What an audit says: counts, named examples, and whether everything is equal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

MISSING = "missing"
DOUBLED = "doubled"
CHANGED = "changed"
EXTRA = "extra"
PLACE = "place"
COLUMN = "column"
GAP = "gap"
ACCOUNT = "account"
FILE = "file"
LEDGER = "ledger"
SNAPSHOT = "snapshot"
KINDS = (MISSING, DOUBLED, CHANGED, EXTRA, PLACE, COLUMN, GAP, ACCOUNT, FILE, LEDGER, SNAPSHOT)

EXAMPLES_MAX = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, and where. `offset` and `partition` are -1 where a whole topic is meant, and
    where the table has null. `column`: the path of the column that is wrong, empty where it is not one.
    """

    kind: str
    topic: str
    partition: int
    offset: int
    detail: str
    column: str = ""

    def __str__(self) -> str:
        where = f"topic {self.topic}"
        if self.partition >= 0:
            where += f" partition {self.partition} offset {self.offset}"
        if self.column:
            where += f" column {self.column}"
        return f"{self.kind}: {where}: {self.detail}"


@dataclass(frozen=True, slots=True)
class TopicCount:
    """Records of one topic as each side counts them; None where a side was not given.

    `history`: rows of the table that are right though no consumer gets them any more. `later`: rows that came
    after the audit had asked where the topic ends; they were not judged.
    """

    topic: str
    produced: int | None
    accepted: int | None
    rejected: int | None
    consumed: int | None
    table: int
    history: int = 0
    later: int = 0


@dataclass(frozen=True, slots=True)
class Skipped:
    """Offsets [start, end) of which damaged records are passed over: one side may lack what another has."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return (
            f"passed over: topic {self.topic} partition {self.partition} "
            f"offsets {self.start} to {self.end - 1}: "
            "records damaged in the bucket are not compared where a side lacks them"
        )


@dataclass(frozen=True, slots=True)
class Since:
    """Records of a partition below `offset` were compared by an earlier audit, and not again."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class LatestCount:
    """What was compared of a topic's `__latest` table: its rows, and by partition up to which offset."""

    topic: str
    table: str
    rows: int
    upto: Sequence[int]


@dataclass(frozen=True, slots=True)
class DigestCount:
    """Rows of a topic's table that were compared with what earlier audits kept of them: `rows` in `ranges` of
    offsets, of which the oldest was compared with the topic at `oldest` (ISO 8601).
    """

    topic: str
    ranges: int
    rows: int
    oldest: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of an audit. `counts` holds every kind of KINDS; `findings` the first of each.

    `read_by`: who read the topic: `spark` (its tasks, side by side), `client` (one consumer), or nobody.
    `snapshots`: by topic the snapshot of its table that was looked at, of those whose columns were.
    """

    counts: Mapping[str, int]
    findings: Sequence[Finding]
    topics: Sequence[TopicCount]
    skipped: Sequence[Skipped] = ()
    since: Sequence[Since] = ()
    read_by: str = ""
    snapshots: Mapping[str, int] = field(default_factory=dict)
    latest: Sequence[LatestCount] = ()
    """Of topics that have a table of newest rows."""
    digests: Sequence[DigestCount] = ()
    """Of topics of which digests were there and asked for; these rows are in no TopicCount."""

    @property
    def equal(self) -> bool:
        """True when nothing at all was found."""
        return not any(self.counts.values())

    def to_json(self) -> str:
        """The verdict as one JSON object, with `equal` in it."""
        return json.dumps({"equal": self.equal, **asdict(self)}, indent=1)

    @staticmethod
    def from_json(text: str) -> Verdict:
        """What to_json wrote."""
        data = json.loads(text)
        return Verdict(
            counts=data["counts"],
            findings=[Finding(**finding) for finding in data["findings"]],
            topics=[TopicCount(**count) for count in data["topics"]],
            skipped=tuple(Skipped(**each) for each in data.get("skipped", ())),
            since=tuple(Since(**each) for each in data.get("since", ())),
            read_by=data.get("read_by", ""),
            snapshots=data.get("snapshots", {}),
            latest=tuple(LatestCount(**each) for each in data.get("latest", ())),
            digests=tuple(DigestCount(**each) for each in data.get("digests", ())),
        )
