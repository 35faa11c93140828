"""/admin/scrub: have this agent read the bucket again now, and see how far it is."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agent.http.answers import Problem, parse_json, read_body
from agent.http.barrier import barrier
from agent.http.parts import Parts, Scrubbing
from agent.telemetry.changes import Change
from agent.telemetry.trail import http_actor
from coordination.state.acl_types import CLUSTER_NAME
from coordination.state.types import Done

BYTES_PER_S_MAX = 10 << 30


class Wanted(BaseModel):
    """How to scrub: at which pace, and whether what is held twice is mended."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    repair: bool = False
    bytes_per_s: Annotated[int, Field(ge=1 << 16, le=BYTES_PER_S_MAX)] | None = None


class ScrubRoutes:
    """A run of everything at a time; asking again while one goes on tells of that one."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def read(self, _request: Request) -> Response:
        """The run of this agent, the one that is over too, and the cluster's own scrubbing."""
        return JSONResponse(self._scrub().status())

    async def start(self, request: Request) -> Response:
        """Begin one; answers as `read`."""
        wanted = self._wanted(await read_body(request, self._parts.config.http.body_bytes_max))
        scrub = self._scrub()
        await barrier(self._parts)
        scrub.run_now(wanted.bytes_per_s or scrub.bytes_per_s, repair=wanted.repair)
        trail = self._parts.trail
        if trail is not None and trail.active:
            what = "scrub the bucket" + (", mending" if wanted.repair else "")
            trail.decided(http_actor.get(), [[Change("Alter", "Cluster", CLUSTER_NAME, what)]], [Done()])
        return JSONResponse(scrub.status())

    def _scrub(self) -> Scrubbing:
        scrub = self._parts.scrub()
        if scrub is None:
            raise Problem(503, "this agent does not scrub", "scrub.enabled: true, or ask another agent")
        return scrub

    @staticmethod
    def _wanted(body: bytes) -> Wanted:
        try:
            return Wanted.model_validate(parse_json(body))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "body"
            raise Problem(
                400, f"{place}: {first['msg']}", f"fields are {', '.join(Wanted.model_fields)}"
            ) from None
