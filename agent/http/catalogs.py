"""The other catalogs of /status: who publishes to each, how far it is behind, and what fails."""

from __future__ import annotations

import asyncio

from agent.http.parts import Parts
from iceberg.publish.publisher import WHOLE, Publisher
from objectstore.turns import Turns

TOLD_PER_TURN = 1_000  # entries before others may go on
Row = dict[str, object]


def catalogs(parts: Parts) -> list[Row]:
    """Every configured catalog. What is None only the agent `published_by` knows, or nobody."""
    return [_catalog(parts, each) for each in parts.publishers]


def _catalog(parts: Parts, publisher: Publisher) -> Row:
    state = parts.replica.state
    holder = state.claims.get(publisher.claim)
    brokers = (each for each in state.brokers.values() if holder and each.incarnation == holder.incarnation)
    broker = next(brokers, None)
    here, seen = publisher.publishes, publisher.seen
    failure = publisher.failures.get(WHOLE)
    return {
        "catalog": publisher.options.name,
        "type": publisher.options.kind,
        "published_by": broker.name if broker is not None else "",
        "tables": len(seen.wanted) if here else None,
        "tables_behind": len(seen.late) if here else None,
        "seconds_behind": round(max(publisher.late().values(), default=0.0), 1) if here else None,
        "last_error": failure.error if failure is not None else "",
        "failing_for_s": round(asyncio.get_running_loop().time() - failure.since_s, 1) if failure else None,
    }


def entries(parts: Parts) -> Turns[dict[str, list[Row]]]:
    """By table (Floe's name): its entries in the catalogs that this agent publishes to."""
    found: dict[str, list[Row]] = {}
    for publisher in parts.publishers:
        if not publisher.publishes:
            continue
        now_s = asyncio.get_running_loop().time()
        for number, (key, each) in enumerate(list(publisher.seen.wanted.items())):
            if number % TOLD_PER_TURN == 0:
                yield
            since_s = publisher.seen.late.get(key)
            row: Row = {
                "catalog": publisher.options.name,
                "entry": ".".join(key),
                "seconds_behind": round(now_s - since_s, 1) if since_s is not None else 0.0,
                "error": publisher.error_of(each),
            }
            found.setdefault(each.table, []).append(row)
    return found
