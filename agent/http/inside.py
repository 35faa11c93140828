"""What an agent tells the process that watches it, on their Unix socket (agent/processes/asking.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agent.http.health import HealthRoutes
from agent.processes.asking import ABOUT, LIVEZ, METRICS, READYZ
from agent.processes.listening import Listening


class Inside:
    """One agent's. Nobody is asked who he is: whoever reaches the socket is the process that made it."""

    def __init__(self, path: Path, health: HealthRoutes, about: Callable[[], Mapping[str, object]]) -> None:
        self._about = about
        app = Starlette(
            routes=[
                Route(LIVEZ, health.livez),
                Route(READYZ, health.readyz),
                Route(METRICS, health.scraped),
                Route(ABOUT, self._told),
            ]
        )
        self._listening = Listening(app, path)

    async def start(self) -> None:
        """Answer. Raises OSError."""
        await self._listening.start()

    async def stop(self) -> None:
        """Answer no more. Idempotent."""
        await self._listening.stop()

    async def _told(self, _request: Request) -> Response:
        return JSONResponse(dict(self._about()))
