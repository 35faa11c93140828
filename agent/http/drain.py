"""/admin/drain: tell this agent to give away what it leads and holds, and see how far that is.

Kafka's protocol has no request for this. It is asked of the agent that shall step aside: of another one an
agent only ever says that nothing is heard of it (coordination/state/members.py).
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agent.health.standing import Standing
from agent.http.answers import Problem, parse_json, read_body
from agent.http.barrier import barrier
from agent.http.parts import Parts
from agent.telemetry.changes import Change
from agent.telemetry.trail import http_actor
from coordination.state.acl_types import CLUSTER_NAME
from coordination.state.levels import JUDGED_AGENTS
from coordination.state.types import Done

GIVEN_AWAY = ("groups_classic", "groups_consumer", "produce_held_bytes", "fetch_parked")
"""What has to be nothing before an agent is drained, of the queues that /status shows."""


class Drain(BaseModel):
    """What is asked for: to be drained, or to come back."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    drained: bool


class DrainRoutes:
    """One agent's."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def read(self, _request: Request) -> Response:
        """How far it is, as of now."""
        await barrier(self._parts)
        return JSONResponse(self._told(self._standing()))

    async def change(self, request: Request) -> Response:
        """Begin or end a drain; answers with how far it is. Once begun it goes on by itself."""
        wanted = await self._wanted(request)
        await barrier(self._parts)
        standing, state = self._standing(), self._parts.replica.state
        if not wanted.drained:
            standing.restore()
        elif state.feature_level < JUDGED_AGENTS:
            why = f"agents step aside from feature level {JUDGED_AGENTS} on, this is {state.feature_level}"
            raise Problem(409, why, "finalize it: kafka-features upgrade --feature floe.level=2")
        elif not standing.others_serve:
            raise Problem(409, "no other agent that is well serves clients", "start or restore one first")
        else:
            standing.drain(http_actor.get().principal or "somebody")
        self._note(wanted)
        return JSONResponse(self._told(standing))

    async def _wanted(self, request: Request) -> Drain:
        body = await read_body(request, self._parts.config.http.body_bytes_max)
        try:
            return Drain.model_validate(parse_json(body))
        except ValidationError as error:
            raise Problem(
                400, f"body: {error.errors()[0]['msg']}", 'send {"drained": true} or {"drained": false}'
            ) from None

    def _standing(self) -> Standing:
        standing = self._parts.standing
        if standing is None:
            raise Problem(503, "this agent does not serve clients", "ask another one")
        return standing

    def _told(self, standing: Standing) -> dict[str, object]:
        """`done`: the log says what was asked for, and, drained, nothing is left to give away."""
        replica, queues = self._parts.replica, self._parts.queues()
        holders = replica.state.claims.items()
        claims = sorted(name for name, held in holders if held.incarnation == replica.incarnation)
        left = {name: queues.get(name, 0) for name in GIVEN_AWAY}
        idle = not standing.drained or not (claims or any(left.values()))
        return {
            "agent": self._parts.config.agent_name,
            "node_id": replica.node_id,
            "drained": standing.drained,
            "done": standing.settled and idle,
            "serves_alone": standing.drained and not standing.others_serve,
            "claims": claims,
            **left,
        }

    def _note(self, wanted: Drain) -> None:
        """Who altered what: it is no command of the log's that says it, so it is told here."""
        trail = self._parts.trail
        if trail is not None and trail.active:
            what = f"{'drain' if wanted.drained else 'restore'} agent {self._parts.config.agent_name}"
            trail.decided(http_actor.get(), [[Change("Alter", "Cluster", CLUSTER_NAME, what)]], [Done()])
