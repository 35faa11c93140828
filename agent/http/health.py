"""/livez, /readyz and /metrics."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agent.http.parts import Parts
from agent.http.probes import Health, Probe


class HealthRoutes:
    """Liveness says whether a restart would help; readiness whether clients should come here now."""

    def __init__(self, parts: Parts, probes: tuple[Probe, ...]) -> None:
        self._parts = parts
        self._probes = probes

    async def livez(self, _request: Request) -> Response:
        """200 while the event loop turns and no invariant broke. Dependencies do not matter (rule 10)."""
        reason = self.failure()
        answer = {"alive": reason is None, "reasons": [reason] if reason else []}
        return JSONResponse(answer, 503 if reason else 200)

    async def readyz(self, _request: Request) -> Response:
        """200 when the replica is caught up, the store answers and the agent is not leaving."""
        dependencies = await self.dependencies()
        reasons = self.reasons(dependencies)
        checks = {health.name: {"ok": health.ok, "latency_ms": health.latency_ms} for health in dependencies}
        answer = {"ready": not reasons, "reasons": reasons, "checks": checks}
        return JSONResponse(answer, 503 if reasons else 200)

    async def metrics(self, _request: Request) -> Response:
        """Prometheus' text format."""
        return Response(generate_latest(self._parts.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def dependencies(self) -> list[Health]:
        """The health of the log and the store, in that order."""
        return [await probe.health() for probe in self._probes]

    def failure(self) -> str | None:
        """Why this agent can work no more (a broken invariant, a newer feature level); None when it can."""
        failed = self._parts.replica.failed
        return str(failed.exception()) if failed.done() and not failed.cancelled() else None

    def reasons(self, dependencies: list[Health]) -> list[str]:
        """Why this agent is not ready; empty when it is."""
        reasons = [f"{health.name}: {health.message}" for health in dependencies if not health.ok]
        failure = self.failure()
        if failure:
            reasons.append(f"this agent must be restarted: {failure}")
        elif not self._parts.replica.ready:
            reasons.append("the replica is not registered with the log, or verifies itself after a pause")
        elif self._parts.replica.clock_watch.off:
            reasons.append(self._parts.replica.clock_watch.reason)
        elif self._parts.joining():
            reasons.append("the agent is warming up: clients are not sent to it yet")
        if self._parts.stopping():
            reasons.append("the agent is shutting down")
        return reasons
