"""What the tables' commits come to, by topic, of the tables that this agent commits.

A table moves from agent to agent. Its figures go when this agent does not commit it any more: the last ones
would stand for ever beside those of the agent that does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import nlargest
from operator import itemgetter

from agent.telemetry.by_topic import TOPICS_MAX, ByTopic
from agent.telemetry.metrics import Metrics
from iceberg.audited import Audited

Behind = Callable[[], Mapping[str, tuple[int, float]]]
Sizes = Callable[[], Mapping[str, tuple[int, int, int, float]]]
Audits = Callable[[], Mapping[str, Audited]]


class TableFigures:
    """`committed` says, when the metrics are read, which tables are this agent's: topic → freshness.

    Freshness is the age of the newest row at its commit, seconds; None where there is no figure.
    """

    def __init__(self, metrics: Metrics, committed: Callable[[], Mapping[str, float | None]]) -> None:
        self._rows = ByTopic(metrics.table_rows)
        self._freshness = metrics.table_freshness_seconds
        self._committed = committed
        self._metrics = metrics
        self._behind: Behind = dict
        self._problems: Callable[[], Mapping[str, int]] = dict
        self._sizes: Sizes = dict
        self._audits: Audits = dict
        metrics.before_reading.append(self._refresh)

    def also(
        self, behind: Behind, problems: Callable[[], Mapping[str, int]], sizes: Sizes, audits: Audits
    ) -> None:
        """What is read besides. `behind`: topic → (rows, seconds), of all tables, which every agent tells, so
        that somebody does whoever commits; of more than are named those that are latest. `problems`: how
        many, of the tables that this agent commits. `sizes`: files, bytes, snapshots and last compaction of
        these; of more are named those of most files. `audits`: of all tables; of more are named those with
        most findings, and of these those that were equal longest ago.
        """
        self._behind, self._problems, self._sizes, self._audits = behind, problems, sizes, audits

    def note(self, topic: str, rows: int) -> None:
        """Rows were committed."""
        self._rows.labels(topic).inc(rows)

    def _refresh(self) -> None:
        """Of more tables than are named, those that are latest have their freshness shown."""
        committed = self._committed()
        self._rows.keep(committed.__contains__)
        self._freshness.clear()
        known = ((topic, late_s) for topic, late_s in committed.items() if late_s is not None)
        for topic, late_s in nlargest(TOPICS_MAX, known, key=itemgetter(1)):
            self._freshness.labels(topic).set(late_s)
        self._refresh_more()

    def _refresh_more(self) -> None:
        metrics = self._metrics
        for each in (metrics.table_rows_behind, metrics.table_seconds_behind, metrics.table_problems):
            each.clear()
        behind = ((seconds, rows, topic) for topic, (rows, seconds) in self._behind().items())
        for seconds, rows, topic in nlargest(TOPICS_MAX, behind):
            metrics.table_rows_behind.labels(topic).set(rows)
            metrics.table_seconds_behind.labels(topic).set(seconds)
        problems = ((count, topic) for topic, count in self._problems().items() if count)
        for count, topic in nlargest(TOPICS_MAX, problems):
            metrics.table_problems.labels(topic).set(count)
        self._refresh_sizes()

    def _refresh_sizes(self) -> None:
        metrics = self._metrics
        figures = (metrics.table_files, metrics.table_bytes, metrics.table_snapshots)
        for each in (*figures, metrics.table_last_compaction_seconds):
            each.clear()
        sizes = ((*size, topic) for topic, size in self._sizes().items())
        for *counts, last_s, topic in nlargest(TOPICS_MAX, sizes):
            for figure, count in zip(figures, counts, strict=True):
                figure.labels(topic).set(count)
            if last_s:
                metrics.table_last_compaction_seconds.labels(topic).set(last_s)
        self._refresh_audits()

    def _refresh_audits(self) -> None:
        metrics = self._metrics
        for each in (metrics.audit_last_equal_seconds, metrics.audit_records_behind, metrics.audit_findings):
            each.clear()
        found = ((one.findings, -one.equal_ms, one.behind, topic) for topic, one in self._audits().items())
        for findings, equal_ms, behind, topic in nlargest(TOPICS_MAX, found):
            metrics.audit_findings.labels(topic).set(findings)
            metrics.audit_records_behind.labels(topic).set(behind)
            if equal_ms:
                metrics.audit_last_equal_seconds.labels(topic).set(-equal_ms / 1000)
