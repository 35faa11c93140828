"""What audits found of topics' tables, as any agent tells it: by the catalog's table `audits.offsets`.

Each audit that is kept appends to it (iceberg/spark/audits.py), and its snapshot's summary has the outcome:
so an agent reads that table's metadata and no rows, and only when the table has moved. It is a table of the
users' own: what it says is looked at as something that anybody may have written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from iceberg import metadata
from iceberg.head import pointer
from iceberg.looking import Looking
from iceberg.sealed import read
from objectstore.store import StoreError
from objectstore.turns import in_turns

if TYPE_CHECKING:
    from coordination.replica import Replica
    from iceberg.warehouse import Warehouse
    from objectstore.store import ObjectStore

TABLE = ("audits", "offsets")
TOPIC_ID, FINDINGS, OFFSETS = "audit.topic-id", "audit.findings", "audit.next-offsets"
FROM = "audit.from-offsets"
"""Of a snapshot's summary: the topic's id in hexadecimal, how many findings, and `partition:offset,…` up to
where, and from where on, it compared."""

CLIENT_ID = "floe-audit"
"""What audits call themselves when they read a topic: to be cleared where it redacts, else all differs."""

LOOK_S = 10.0
"""Between two looks at whether the table has moved, seconds."""
TOPICS_MAX = 10_000
"""Topics whose audits are remembered; those audited longest ago are forgotten first."""
DIGITS_MAX = 19
STEP = 1_000
"""Snapshots, or partitions, looked at before the event loop gets a turn."""

_logger = logging.getLogger("floe.iceberg.audited")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a topic's newest audit the `findings`; of its newest equal one the time, Unix ms (0: none), and by
    partition the offset up to which it compared.

    `unequal`: by partition where the lowest one began whose findings no later one has looked at and found
    equal. While there is such a one an equal audit of other records changes nothing.
    """

    findings: int
    equal_ms: int = 0
    next_offsets: Mapping[int, int] | None = None
    unequal: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Audited:
    """A topic's audits as of now. `equal_ms`: of the last equal one, Unix ms, 0 for none; `behind`: records
    since, which no equal audit has compared.
    """

    findings: int
    equal_ms: int
    behind: int


class Audits(Looking):
    """Follows the table, and how far topics have gone on since."""

    def __init__(self, replica: Replica, store: ObjectStore, warehouse: Warehouse) -> None:
        super().__init__(replica, "outcomes of audits", LOOK_S)
        self._store, self._warehouse = store, warehouse
        self.now: Mapping[str, Audited] = {}
        """By topic that was ever audited and is there: as it was at the last look."""
        self._outcomes: Mapping[bytes, Outcome] = {}
        self._location = ""

    async def look(self) -> None:
        """See Looking."""
        await self._follow()
        state, found, looked = self._replica.state, dict[str, Audited](), 0
        for topic_id, each in self._outcomes.items():
            topic = state.topics_by_id.get(topic_id)
            if topic is None:
                continue
            looked += len(topic.partitions)
            if looked > STEP:
                looked = 0
                await asyncio.sleep(0)
            done = each.next_offsets or {}
            ends = ((part, max(done.get(part.index, 0), part.log_start)) for part in topic.partitions)
            behind = sum(max(0, part.high_watermark - first) for part, first in ends)
            found[topic.name] = Audited(each.findings, each.equal_ms, behind)
        self.now = found

    async def _follow(self) -> None:
        """Read the outcomes when the table has moved. What cannot be read is tried again at the next look."""
        location = pointer(self._replica.state, TABLE)
        if location == self._location:
            return
        if not location:
            self._outcomes, self._location = {}, ""
            return
        try:
            content = await read(self._store, self._warehouse, location)
            found = await in_turns(metadata.decode_steps(content))
        except (StoreError, ValueError) as error:
            _logger.warning("the outcomes of audits cannot be read: %s: %s", type(error).__name__, error)
            return
        outcomes: dict[bytes, Outcome] = {}
        for number, snapshot in enumerate(found.get("snapshots") or ()):
            take(outcomes, snapshot)
            if number % STEP == STEP - 1:
                await asyncio.sleep(0)
        self._outcomes, self._location = outcomes, location


def take(outcomes: dict[bytes, Outcome], snapshot: Mapping[str, Any]) -> None:
    """Take what a snapshot says, newer than all before, into the outcomes; nothing where it says none."""
    summary = snapshot.get("summary") or {}
    topic_id, findings = _bytes(summary.get(TOPIC_ID)), _number(summary.get(FINDINGS))
    if topic_id is None or findings is None:
        return
    before = outcomes.pop(topic_id, None) or Outcome(0)
    outcomes[topic_id] = _after(before, findings, snapshot)
    if len(outcomes) > TOPICS_MAX:
        del outcomes[next(iter(outcomes))]


def _after(before: Outcome, findings: int, snapshot: Mapping[str, Any]) -> Outcome:
    """The outcome with one more audit. Versions before this one did not tell from where on they compared:
    an equal one of theirs settles all.
    """
    summary = snapshot["summary"]
    begun, unequal = dict(_offsets(summary.get(FROM))), dict(before.unequal or {})
    if findings:
        unequal |= {part: min(first, unequal.get(part, first)) for part, first in begun.items()}
        return replace(before, findings=findings, unequal=unequal)
    left = {part: first for part, first in unequal.items() if begun.get(part, first + 1) > first}
    if FROM in summary and left:
        return replace(before, unequal=left)
    return Outcome(0, int(snapshot["timestamp-ms"]), dict(_offsets(summary.get(OFFSETS))))


def _offsets(text: Any) -> Iterator[tuple[int, int]]:
    for each in str(text or "").split(","):
        partition, _, offset = each.partition(":")
        numbers = _number(partition), _number(offset)
        if numbers[0] is not None and numbers[1] is not None:
            yield numbers[0], numbers[1]


def _number(text: Any) -> int | None:
    known = isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX
    return int(text) if known else None


def _bytes(text: Any) -> bytes | None:
    try:
        return bytes.fromhex(text) if isinstance(text, str) else None
    except ValueError:
        return None
