"""/v1/metadata: whose registry this is, and which version of it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from agent.http.parts import Parts
from agent.http.registry.shown import answer
from agent.version import VERSION


class AboutRoutes:
    """What is known without the log."""

    def __init__(self, parts: Parts) -> None:
        self._cluster = parts.config.cluster.name

    async def scope(self, _request: Request) -> Response:
        """The cluster's id, as Kafka clients are told it, and that of its registry, which is the same."""
        clusters = {"kafka-cluster": self._cluster, "schema-registry-cluster": self._cluster}
        return answer({"id": "", "scope": {"path": [], "clusters": clusters}})

    async def version(self, _request: Request) -> Response:
        """Floe's version; commits are not told."""
        return answer({"version": VERSION, "commitId": ""})
