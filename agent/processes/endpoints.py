"""HTTP of the machine: /livez, /readyz and /metrics of all its agents together, /status.json about them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from agent.processes.asking import ABOUT, LIVEZ, METRICS, READYZ
from agent.processes.exposition import merged
from agent.processes.slot import Slot
from agent.telemetry.supervised import SupervisorMetrics

ANSWER_S = 0.9
"""What an agent has for saying how it is: the kubelet waits a second by default."""
SCRAPE_S = 8.0
"""What it has for its metrics: Prometheus waits ten seconds by default."""


class Endpoints:
    """Of one machine. `metrics_open`: whether anybody may read metrics by now."""

    def __init__(
        self,
        slots: Sequence[Slot],
        metrics: SupervisorMetrics,
        metrics_open: Callable[[], bool],
        leaving: Callable[[], bool],
    ) -> None:
        self._slots, self._metrics, self._open, self._leaving = slots, metrics, metrics_open, leaving

    def app(self) -> Starlette:
        """The application."""
        return Starlette(
            routes=[
                Route(LIVEZ, self.livez),
                Route(READYZ, self.readyz),
                Route(METRICS, self.metrics),
                Route("/status.json", self.status),
                Route("/{path:path}", self.elsewhere, methods=["GET", "HEAD", "POST", "PUT", "DELETE"]),
            ]
        )

    async def elsewhere(self, request: Request) -> Response:
        """Everything else is an agent's."""
        message = f"{request.url.path}: here are the probes and metrics of {len(self._slots)} agents only"
        remedy = "ask one of them, at http.port and above: /status.json says where"
        return JSONResponse({"error": {"status": 404, "message": message, "remedy": remedy}}, 404)

    async def livez(self, _request: Request) -> Response:
        """200 while the loop turns: an agent that is not alive is replaced here, not by whoever asks."""
        return JSONResponse({"alive": True, "reasons": []})

    async def readyz(self, _request: Request) -> Response:
        """200 while clients should begin here: the first agent is ready, to which Services send them, and
        each was since the start. What then befalls one of the others concerns its own clients."""
        agents = await self._agents()
        reasons = [
            f"agent {each['name']}: {reason}"
            for slot, each in zip(self._slots, agents, strict=True)
            if slot.number == 0 or not slot.served
            for reason in each["reasons"]
        ]
        if self._leaving():
            reasons.append("this machine's agents are leaving")
        answer = {"ready": not reasons, "reasons": reasons, "agents": agents}
        return JSONResponse(answer, 503 if reasons else 200)

    async def status(self, _request: Request) -> Response:
        """The agents, and where each answers."""
        about = await asyncio.gather(*(each.ask(ABOUT, ANSWER_S) for each in self._slots))
        agents = await self._agents()
        return JSONResponse(
            {"processes": [{**told.json(), **each} for told, each in zip(about, agents, strict=True)]}
        )

    async def _agents(self) -> list[dict[str, Any]]:
        answers = await asyncio.gather(*(each.ask(READYZ, ANSWER_S) for each in self._slots))
        return [
            {
                "process": slot.number,
                "name": slot.name,
                "pid": slot.pid,
                "ready": answer.status == 200,
                "reasons": [] if answer.status == 200 else _reasons(answer.json().get("reasons")),
                "replaced": slot.replaced,
                "last_end": slot.last,
            }
            for slot, answer in zip(self._slots, answers, strict=True)
        ]

    async def metrics(self, _request: Request) -> Response:
        """All agents' as one page, and what is counted here. Who does not answer is missing, and not up."""
        if not self._open():
            why = "http.metrics_open is false, and nobody can be asked here who he is: "
            return PlainTextResponse(f"{why}read /metrics of each agent, at http.port and above\n", 403)
        answers = await asyncio.gather(*(each.ask(METRICS, SCRAPE_S) for each in self._slots))
        texts = {
            str(slot.number): answer.body.decode()
            for slot, answer in zip(self._slots, answers, strict=True)
            if answer.status == 200
        }
        own = generate_latest(self._metrics.registry).decode()
        page = await asyncio.to_thread(merged, texts)
        return Response(page + own, media_type=CONTENT_TYPE_LATEST)


def _reasons(told: object) -> list[str]:
    """Why it is not ready, in its own words; it may have none."""
    return [str(each) for each in told] if isinstance(told, list) and told else ["it does not answer"]
