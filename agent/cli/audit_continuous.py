"""`floe table audit --continuous`: tables against their topics again and again, by one Spark that stays.

Each round looks at what is new in each topic, up to where its table is by then: a table that is late keeps
nobody waiting, and is what FloeTableBehind rings for. A topic with nothing new since its last audit, and
whose table is the same snapshot, costs a few requests; once in an hour it is looked at all the same, so that
the age of its last equal audit tells whether this runs. What is found wrong, or cannot be audited, is told
and keeps no other topic from its turn. Where nothing can be audited for long this ends: keys, certificates
and variables are read at the start, so that only another start takes those that replaced them.
"""

from __future__ import annotations

import asyncio
import json
import signal
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from agent.cli import agent_http
from agent.cli.audit import Auditing, audited, high_watermarks, readable, started, topic_id
from agent.cli.failures import Failure, Status, refused
from agent.cli.output import remarks
from coordination.clock import SystemClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from iceberg.spark.verdict import Verdict

LOOKED_AT_S = 3_600.0
"""Between two audits of a topic in which nothing is new, seconds."""
TIDY_AUDITS = 200
"""Audits that are kept between two times that what they leave is tidied up."""
FAILED_ROUNDS, FAILED_S = 3, 600.0
"""After so many rounds in a row, over so many seconds, in which no topic could be audited this ends."""

Tell = Callable[[str, "Verdict | Failure"], None]
"""Is told each audit: the topic, and what came of it."""


@dataclass(frozen=True, slots=True)
class Pace:
    """`every_s`: from one round to the next. `rounds`: how many; 0: until it is told to stop."""

    every_s: float
    rounds: int


@dataclass(frozen=True, slots=True)
class Standing:
    """A topic and its table at one time, which an audit compares. `snapshot`: of the table."""

    topic_id: str
    upto: Mapping[int, int]
    snapshot: int | None


@dataclass(frozen=True, slots=True)
class _Done:
    """The last audit of a topic. `at`: by the monotonic clock, seconds."""

    standing: Standing
    at: float
    equal: bool


class Continuous:
    """Audits by turns."""

    def __init__(self, given: Auditing, topics: Sequence[str], pace: Pace, tell: Tell) -> None:
        self._given, self._topics, self._pace, self._tell = given, topics, pace, tell
        self._clock = SystemClock()
        self._stop = threading.Event()
        self._done: dict[str, _Done] = {}
        self._failed: set[str] = set()
        self._unanswered = False
        self._kept = 0
        self._failed_rounds, self._failed_since = 0, 0.0

    def run(self) -> bool:
        """Until all rounds are over, or SIGTERM or SIGINT comes, which end it behind the audit that is made.

        Whether the last round was made, and the last audit of each topic found it equal. Raises Failure when
        no agent answers at first, when Spark does not start, or has ended, and when nothing can be audited
        any more. In the main thread only, as signals ask for that.
        """
        agent_http.ask(self._given.http, "/status.json")  # before Spark takes its time
        with tempfile.TemporaryDirectory(prefix="floe-audit-", dir=self._given.scratch) as folder:
            spark = started(self._given, Path(folder), stays=True)
            for number in (signal.SIGTERM, signal.SIGINT):  # Spark's own, at Ctrl-C, would be an error
                signal.signal(number, lambda *_: self._stop.set())
            try:
                self._rounds(spark, Path(folder))
            finally:
                with suppress(Exception):  # it may be what ended
                    spark.stop()
        return not (self._unanswered or self._failed) and all(each.equal for each in self._done.values())

    def _rounds(self, spark: SparkSession, folder: Path) -> None:
        self._tidy(spark)
        number = 0
        while True:
            begun = self._clock.monotonic()
            failure = self._round(spark, folder)
            number += 1
            if self._stop.is_set() or number == self._pace.rounds:
                return
            self._require_some(failure, begun)
            self._stop.wait(max(0.0, begun + self._pace.every_s - self._clock.monotonic()))
            if self._stop.is_set():
                return

    def _require_some(self, failure: Failure | None, begun: float) -> None:
        """Raises Failure after FAILED_ROUNDS and FAILED_S of `failure`; `begun`: this round's, seconds."""
        if failure is None:
            self._failed_rounds = 0
            return
        if self._failed_rounds == 0:
            self._failed_since = begun
        self._failed_rounds += 1
        lasted = self._clock.monotonic() - self._failed_since
        if self._failed_rounds >= FAILED_ROUNDS and lasted >= FAILED_S:
            rounds = f"{self._failed_rounds} rounds in a row, over {lasted:.0f} s"
            anew = "start this again, which reads its configuration, keys and variables anew"
            raise Failure(Status.FAILED, f"no topic could be audited in {rounds}: {anew}; last: {failure}")

    def _round(self, spark: SparkSession, folder: Path) -> Failure | None:
        """Each topic's turn; the newest failure where all topics stand failed."""
        try:
            status = agent_http.ask(self._given.http, "/status.json")
        except Failure as failure:
            self._unanswered = True
            remarks().print(f"no audits this time: {failure}", style="dim")
            return failure
        self._unanswered = False
        rows = {row["topic"]: row for row in status["tables"] if _is_its_own(row)}
        topics = self._topics or sorted(rows)
        for gone in set(self._done) | self._failed:
            if gone not in topics:
                self._done.pop(gone, None)
                self._failed.discard(gone)
        newest: Failure | None = None
        for topic in topics:
            if self._stop.is_set():
                return None
            try:
                self._turn(spark, folder, topic, rows.get(topic))
                self._failed.discard(topic)
            except Failure as failure:
                newest = failure
                self._failed.add(topic)
                self._tell(topic, failure)
                _require_alive(spark)
        return newest if self._done.keys() <= self._failed else None

    def _turn(self, spark: SparkSession, folder: Path, topic: str, row: Mapping[str, Any] | None) -> None:
        """One topic's; nothing where nothing is new. Raises Failure."""
        before, given = self._done.get(topic), replace(self._given, topic=topic)
        if row is None:
            _require_empty(given)
            return
        now = self._standing(given, row)
        if before and before.standing == now and self._clock.monotonic() - before.at < LOOKED_AT_S:
            return
        since_last = given.since_last or before is not None
        by_digests = given.by_digests and before is None
        given = replace(given, upto=now.upto, keep=True, since_last=since_last, by_digests=by_digests)
        with tempfile.TemporaryDirectory(dir=folder) as own:
            try:
                verdict = audited(given, spark, now.topic_id, Path(own))
            finally:
                spark.catalog.clearCache()
        self._done[topic] = _Done(now, self._clock.monotonic(), verdict.equal)
        self._tell(topic, verdict)
        self._kept += 1
        if self._kept % TIDY_AUDITS == 0:
            self._tidy(spark)

    @staticmethod
    def _standing(given: Auditing, row: Mapping[str, Any]) -> Standing:
        """Up to where the topic's table is now."""
        own, ends = asyncio.run(topic_id(given)), asyncio.run(high_watermarks(given))
        table = dict(enumerate(row["next_offsets"]))
        upto = {partition: min(end, table.get(partition, 0)) for (_, partition), end in ends.items()}
        return Standing(own, upto, snapshot_of(given.http, str(row["table"])))

    def _tidy(self, spark: SparkSession) -> None:
        from iceberg.spark import audits

        try:
            audits.tidy(spark)
        except Exception as error:  # another audit was at it, say: the next time will do
            remarks().print(f"older audits stay for now: {_line(error)}", style="dim")
            _require_alive(spark)


def snapshot_of(http: str, table: str) -> int | None:
    """The present snapshot of `namespace.table`; None for none. Raises Failure."""
    namespace, _, name = table.rpartition(".")
    path = f"/iceberg/v1/namespaces/{quote(namespace, safe='')}/tables/{quote(name, safe='')}?snapshots=refs"
    found = agent_http.ask(http, path)["metadata"].get("current-snapshot-id")
    return None if found in (None, -1) else int(found)


def _require_empty(given: Auditing) -> None:
    """A topic has no table before its first records. Raises Failure when it has some."""
    if any(each.end > each.start for each in asyncio.run(readable(given, {}))):
        raise refused(f"{given.topic!r} has records and no table yet: see floe table list")


def _is_its_own(row: Mapping[str, Any]) -> bool:
    """Whether this is the table of a topic that is there, and not that of its newest rows."""
    return row["records_behind"] is not None and not row["latest"]


def _require_alive(spark: SparkSession) -> None:
    """Raises Failure when Spark itself has ended: then no topic can have a turn any more."""
    try:
        spark.range(1).count()
    except Exception as error:
        text = f"Spark has ended, so that nothing is audited any more: start this again ({_line(error)})"
        raise Failure(Status.FAILED, text) from error


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def as_json(topic: str, found: Verdict | Failure) -> Mapping[str, Any]:
    """An audit as one JSON object."""
    if isinstance(found, Failure):
        return {"topic": topic, "equal": None, "error": str(found)}
    verdict: dict[str, Any] = json.loads(found.to_json())
    return {"topic": topic, **verdict}
