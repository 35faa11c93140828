"""/admin/acls/unallowed: what shadow mode saw on this agent that no ACL allows.

Kafka's protocol has no request for this.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agent.http.answers import number
from agent.http.parts import Parts


class AclRoutes:
    """Tells what was noted."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def unallowed(self, request: Request) -> Response:
        """Kinds of requests that came at or after `after_ms` (Unix ms), and since when they are counted."""
        after_ms = number(request, "after_ms", 0)
        shadow = self._parts.shadow
        rows = [] if shadow is None else shadow.rows(after_ms)
        return JSONResponse(
            {
                "agent": self._parts.config.agent_name,
                "mode": self._parts.config.authorizer.mode,
                "since_ms": 0 if shadow is None else shadow.since_ms,
                "forgotten": 0 if shadow is None else shadow.forgotten,
                "unallowed": [
                    {
                        "principal": seen.principal,
                        "operation": int(seen.operation),
                        "resource": int(seen.resource),
                        "name": seen.name,
                        "count": times.count,
                        "first_ms": times.first_ms,
                        "last_ms": times.last_ms,
                        "host": times.host,
                    }
                    for seen, times in rows
                ],
            }
        )
