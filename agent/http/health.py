"""/livez, /readyz and /metrics."""

from __future__ import annotations

from datetime import UTC, datetime

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agent.http.asking import require
from agent.http.gauges import Gauges
from agent.http.needs import DESCRIBE_CLUSTER
from agent.http.parts import Parts


class HealthRoutes:
    """Liveness says whether a restart would help; readiness whether clients should come here now."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._health = parts.health
        self.gauges = Gauges(parts)

    async def livez(self, _request: Request) -> Response:
        """200 while the event loop turns and no invariant broke. Dependencies do not matter (rule 10)."""
        reason = self._health.failure()
        answer = {"alive": reason is None, "reasons": [reason] if reason else []}
        return JSONResponse(answer, 503 if reason else 200)

    async def readyz(self, _request: Request) -> Response:
        """200 when this agent can do its work and is not leaving; with what it found, and jobs that fail."""
        await self._health.refresh()
        reasons = self._health.reasons()
        answer = {
            "ready": not reasons,
            "reasons": reasons,
            "checks": checks(self._parts),
            "jobs": jobs(self._parts),
        }
        return JSONResponse(answer, 503 if reasons else 200)

    async def metrics(self, _request: Request) -> Response:
        """Prometheus' text format."""
        if not self._parts.config.http.metrics_open:
            require(self._parts, DESCRIBE_CLUSTER)
        return await self.scraped(_request)

    async def scraped(self, _request: Request) -> Response:
        """The same for whoever need not be asked."""
        return Response(await self.gauges.text(), media_type=CONTENT_TYPE_LATEST)


def checks(parts: Parts) -> dict[str, dict[str, object]]:
    """What every check found, by name; `for_s`: how long it has been bad, seconds."""
    return {
        found.name: {
            "ok": found.ok,
            "latency_ms": found.latency_ms,
            "message": found.message,
            "for_s": round(found.for_s, 1),
        }
        for found in parts.health.findings()
    }


def jobs(parts: Parts) -> list[dict[str, object]]:
    """The jobs that fail again and again. They make no agent unready: another one would not do better."""
    return [
        {
            "job": each.name,
            "since": when(each.since_ms),
            "last": when(each.last_ms),
            "failures": each.failures,
            "error": each.error,
        }
        for each in parts.health.failing()
    ]


def when(at_ms: int) -> str:
    """A time as people and programs read it: ISO 8601, UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
