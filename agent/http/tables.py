"""The tables of /status: how far each is behind, what fails, and what the agent that commits it knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent.http.catalogs import entries
from agent.http.health import when
from agent.http.parts import Parts
from coordination.state.tables import topic_id_of
from coordination.state.types import ClaimHolder, Table, Topic
from iceberg.claim import claim_name
from iceberg.lag import Lag
from iceberg.latest_ids import claim_name as latest_claim
from iceberg.latest_ids import topic_behind
from iceberg.service import CommitterService
from iceberg.status import TopicStatus
from iceberg.upsert.service import LatestStatus
from iceberg.view_names import is_view
from objectstore.turns import Turns, in_order

TOLD_PER_TURN = 100  # tables before others may go on
Row = dict[str, object]


def tables(parts: Parts) -> Turns[list[Row]]:
    """Every table. What is None only the agent `committed_by` knows, or nobody."""
    state, published = parts.replica.state, (yield from entries(parts))
    found: list[Row] = []
    for number, key in enumerate((yield from in_order(list(state.tables)))):
        if number % TOLD_PER_TURN == 0:
            yield
        table = state.tables.get(key)  # it may be dropped meanwhile
        if table is not None and not is_view(table.metadata_location):
            found.append({**told_of(parts, table), "published": published.get(".".join(key), [])})
    return found


def tables_not_made(parts: Parts) -> Turns[list[Row]]:
    """Topics with records that want a table and have none, or whose table fails to come into being; and the
    same of tables of newest rows (`latest`).
    """
    own, newest = parts.committers, parts.latest
    kinds: list[tuple[bool, Mapping[str, Lag], Callable[[Parts, str], Row]]] = [
        (False, own.lags.now if own is not None else {}, _told),
        (True, newest.lags.now if newest is not None else {}, _told_of_latest),
    ]
    found: list[Row] = []
    for latest, lags, told in kinds:
        for number, (topic, lag) in enumerate(list(lags.items())):
            if number % TOLD_PER_TURN == 0:
                yield
            if lag.made or topic not in parts.replica.state.topics:
                continue
            more = told(parts, topic)
            if lag.rows or more["last_error"]:
                row: Row = {"table": lag.table, "topic": topic, "records_behind": lag.rows, "latest": latest}
                found.append({**row, **_late(lag), **more})
    return found


def told_of(parts: Parts, table: Table) -> Row:
    """One table, without where it is published."""
    latest = topic_behind(parts.replica.state, table)
    if latest is not None:
        return _latest(parts, table, latest)
    topic_id = topic_id_of(parts.replica.state, table)
    behind = _behind(parts, topic_id, table.next_offsets)
    lives = behind is not None
    committers = parts.committers
    lag = committers.lags.now.get(table.topic) if committers is not None and lives else None
    return {
        "table": f"{table.namespace}.{table.name}",
        "topic": table.topic,
        "next_offsets": list(table.next_offsets),
        "records_behind": behind,
        **_late(lag),
        **_told(parts, table.topic if lives else ""),
        **_facts(committers, table.topic if lives else ""),
        **_audited(committers, table.topic if lives else ""),
        "latest": False,
    }


def _latest(parts: Parts, table: Table, topic: Topic) -> Row:
    """The table of a topic's newest rows."""
    lag = parts.latest.lags.now.get(topic.name) if parts.latest is not None else None
    known = parts.latest.size_of(topic.name) if parts.latest is not None else None
    files, size, snapshots = known or (None, None, None)
    return {
        "table": f"{table.namespace}.{table.name}",
        "topic": topic.name,
        "next_offsets": list(table.next_offsets),
        "records_behind": _behind(parts, topic.topic_id, table.next_offsets),
        **_late(lag),
        **_told_of_latest(parts, topic.name),
        "files": files,
        "bytes": size,
        "snapshots": snapshots,
        "format_version": None,  # its topic's own table tells; both follow one config
        **_audited(None, ""),
        "latest": True,
    }


def _told_of_latest(parts: Parts, topic: str) -> dict[str, Any]:
    """Who keeps a topic's latest table, and what this agent knows of how that goes. It has no compaction."""
    status = parts.latest.status_of(topic) if parts.latest is not None else None
    known = status or LatestStatus()
    return {
        "committed_by": _broker(parts, parts.replica.state.claims.get(latest_claim(topic))),
        "last_error": known.last_error,
        "failing_since": when(known.failing_since_ms) if known.failing_since_ms else "",
        "last_commit": when(known.last_ms) if known.last_ms else None,
        "problems": list(parts.latest.problems_of(topic)) if parts.latest is not None else [],
        "last_compaction": None,
        "files_compacted": None,
        "bytes_compacted": None,
    }


def _broker(parts: Parts, holder: ClaimHolder | None) -> str:
    """The name of the agent that holds a claim; empty for none."""
    brokers = parts.replica.state.brokers.values()
    found = (each.name for each in brokers if holder and each.incarnation == holder.incarnation)
    return next(found, "")


def _late(lag: Lag | None) -> Row:
    return {"seconds_behind": round(lag.seconds, 1) if lag is not None else None}


def _told(parts: Parts, topic: str) -> dict[str, Any]:
    """Who commits the topic, and what this agent knows of how that goes."""
    state = parts.replica.state
    holder = state.claims.get(claim_name(topic))
    here = holder is not None and holder.incarnation == parts.replica.incarnation
    committers = parts.committers if here else None
    status = committers.status_of(topic) if committers is not None else TopicStatus()
    return {
        "committed_by": _broker(parts, holder),
        "last_error": status.last_error,
        "failing_since": when(status.failing_since_ms) if status.failing_since_ms else "",
        "last_commit": when(status.last_commit_ms) if status.last_commit_ms else None,
        "problems": list(status.problems),
        "last_compaction": when(status.last_compaction_ms) if status.last_compaction_ms else None,
        "files_compacted": status.files_compacted if here else None,
        "bytes_compacted": status.bytes_compacted if here else None,
    }


def _facts(committers: CommitterService | None, topic: str) -> Row:
    """Size of the table as its current snapshot has it; None where this agent does not know it."""
    committer = committers.committer(topic) if committers is not None else None
    head = committer.head if committer is not None and committer.claim.held() is not None else None
    if head is None:
        return dict.fromkeys(("files", "bytes", "snapshots", "format_version"))
    files, size = head.size
    return {
        "files": files,
        "bytes": size,
        "snapshots": len(head.metadata["snapshots"]),
        "format_version": head.metadata["format-version"],
    }


def _audited(committers: CommitterService | None, topic: str) -> Row:
    """What audits found; None where none was ever kept."""
    found = committers.audits.now.get(topic) if committers is not None else None
    if found is None:
        return {"audit_findings": None, "audited_equal": None, "records_not_audited": None}
    return {
        "audit_findings": found.findings,
        "audited_equal": when(found.equal_ms) if found.equal_ms else None,
        "records_not_audited": found.behind,
    }


def _behind(parts: Parts, topic_id: bytes, next_offsets: tuple[int, ...]) -> int | None:
    """Committed records that are not in the table yet; None for a table that follows no living topic."""
    topic = parts.replica.state.topics_by_id.get(topic_id)
    if topic is None:
        return None
    done = [*next_offsets, *[0] * (len(topic.partitions) - len(next_offsets))]
    return sum(p.high_watermark - max(d, p.log_start) for p, d in zip(topic.partitions, done, strict=False))
