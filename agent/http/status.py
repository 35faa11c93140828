"""/status: what an operator asks first, as JSON and as a page."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import asdict
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from agent.health.standing import is_drained
from agent.http.catalogs import catalogs
from agent.http.health import checks, jobs, when
from agent.http.page import render
from agent.http.parts import Parts
from agent.http.subjects import size, subjects
from agent.http.tables import tables, tables_not_made
from agent.telemetry.native import build_facts
from iceberg import json_steps
from objectstore.tasks import DEFECTS
from objectstore.turns import Turns, in_turns

if TYPE_CHECKING:
    from coordination.state.state import State
    from coordination.state.types import Applied, Broker

ROW_DEPTH = 2  # of {"tables": [{…}, …]} each row is made whole
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
HASHES_KEPT = 32
"""Recent (revision, state hash) pairs: two agents agree when a revision they share has one hash."""


class StatusRoutes:
    """Gathers the status; remembers the hashes of the newest revisions."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._recent: deque[tuple[int, str]] = deque(maxlen=HASHES_KEPT)
        parts.replica.add_listener(self._remember)

    def _remember(self, applied: Applied) -> None:
        self._recent.append((applied.revision, self._parts.replica.state.hash))

    async def by_accept(self, request: Request) -> Response:
        """The page for browsers, JSON for everybody else."""
        wants_page = "text/html" in request.headers.get("accept", "")
        return await (self.page(request) if wants_page else self.json(request))

    async def json(self, _request: Request) -> Response:
        """The status as JSON."""
        return Response(await in_turns(_encoded(await self.gather())), media_type="application/json")

    async def page(self, _request: Request) -> Response:
        """The status as a page without scripts or links outside."""
        return HTMLResponse(await in_turns(render(await self.gather())))

    async def gather(self) -> dict[str, object]:
        """The whole status as plain values."""
        parts, state = self._parts, self._parts.replica.state
        await parts.health.refresh()
        reasons = parts.health.reasons()
        return {
            **build_facts(),
            "cluster": parts.config.cluster.name,
            "agent": parts.config.agent_name,
            "node_id": parts.replica.node_id,
            "incarnation": f"{parts.replica.incarnation:016x}",
            "ready": not reasons,
            "reasons": reasons,
            "dependencies": [{"name": name, **found} for name, found in checks(parts).items()],
            "failing_jobs": jobs(parts),
            "revision": state.revision,
            "state_hash": state.hash,
            "recent": [{"revision": revision, "state_hash": digest} for revision, digest in self._recent],
            "feature_level": state.feature_level,
            "open_changes": len(state.pending),
            "brokers": [_broker(state.brokers[node], state) for node in sorted(state.brokers)],
            "topics": len(state.topics),
            "partitions": state.partition_count,
            "schemas": len(state.schemas),
            "registry": size(parts),
            "subjects": await subjects(parts),
            "tables": await in_turns(tables(parts)),
            "tables_not_made": await in_turns(tables_not_made(parts)),
            "catalogs": catalogs(parts),
            "damaged": self._damaged(),
            "refused": self._refused(),
            "observed": self._observed(),
            "quarantined": self._quarantined(),
            "claims": {name: f"{held.incarnation:016x}" for name, held in sorted(state.claims.items())},
            "log_archive": parts.archive.status() if parts.archive is not None else None,
            "scrub": scrub.status() if (scrub := parts.scrub()) is not None else None,
            "queues": dict(parts.queues()),
            "files": dict(parts.files.stale) if parts.files is not None else {},
            "defects": _defects(),
            "replica": parts.replica.status(),
        }

    def _damaged(self) -> list[dict[str, object]]:
        damages = self._parts.damages
        found = damages.ranges(self._parts.replica.state) if damages is not None else []
        return [
            {
                "topic": each.topic,
                "partition": each.partition,
                "from_offset": each.start,
                "to_offset": each.end,
                "since_ms": each.since_ms,
                "last_ms": each.last_ms,
                "met": each.count,
                "reason": each.reason,
            }
            for each in found
        ]

    def _refused(self) -> list[dict[str, object]]:
        refusals = self._parts.refusals
        newest = refusals.newest if refusals is not None else []
        return [{"at": when(each.at_ms), **asdict(each)} for each in newest]

    def _observed(self) -> list[dict[str, object]]:
        figures = self._parts.rule_figures
        newest = figures.newest if figures is not None else []
        return [{"at": when(each.at_ms), **asdict(each)} for each in newest]

    def _quarantined(self) -> list[dict[str, object]]:
        figures = self._parts.rule_figures
        found = figures.quarantined if figures is not None else []
        return [{"at": when(each.at_ms), **asdict(each)} for each in found]


def _encoded(status: dict[str, object]) -> Turns[bytes]:
    """As JSONResponse does, which holds the event loop until it is done."""
    return b"".join((yield from json_steps.encode(status, ROW_DEPTH, _ENCODER)))


def _defects() -> list[dict[str, object]]:
    """The newest exceptions that nobody expected; their tracebacks are in the log."""
    now, counts = asyncio.get_running_loop().time(), DEFECTS.counts
    return [
        {
            "place": each.place,
            "error": each.error,
            "seconds_ago": round(now - each.at, 1),
            "count": counts[each.place],
        }
        for each in reversed(DEFECTS.newest)
    ]


def _broker(broker: Broker, state: State) -> dict[str, object]:
    run = state.incarnations[broker.incarnation]
    return {
        "node_id": broker.node_id,
        "name": broker.name,
        "incarnation": f"{broker.incarnation:016x}",
        "listeners": [f"{at.name}://{at.host}:{at.port}" for at in broker.listeners],
        "zone": broker.zone,
        "roles": list(broker.roles),
        "named": broker.named,
        "unwell": broker.unwell,
        "drained": is_drained(broker),
        "http": broker.http_address,
        "version": broker.version,
        "feature_min": run.feature_min,
        "feature_max": run.feature_max,
    }
