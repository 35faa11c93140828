"""From a decoded header to a handler and back to bytes: one request at a time, errors told apart.

A request that cannot be decoded, an API or version without a handler, and a handler's own failure end the
connection: there is no answer that every client would understand (Kafka does the same). ApiVersions in an
unsupported version is the exception that KIP-511 makes.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, NamedTuple

from agent.context import Client, Context, Services
from agent.handlers import HANDLERS, Handler
from agent.handlers.k18_api_versions import supported
from agent.logs import logger, request_id
from agent.wire.api import API_VERSIONS, APIS, Codec
from agent.wire.errors import UnsupportedVersion, WireError
from agent.wire.frame import RequestHeader
from agent.wire.primitives import Buffer
from coordination.kafka_codes import Code

if TYPE_CHECKING:
    from agent.metrics import RequestMetrics

_log = logger("dispatch")


class _Served(NamedTuple):
    """What answering one API takes, looked up once."""

    handler: Handler
    codec: Codec
    first: int
    last: int
    metrics: RequestMetrics


class Dispatcher:
    """Answers requests with the handlers of `agent.handlers`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._served = {
            key: _Served(
                handler, APIS[key].codec(), *handler.VERSIONS, services.metrics.request(APIS[key].name)
            )
            for key, handler in HANDLERS.items()
        }

    async def answer(self, client: Client, header: RequestHeader, body: memoryview) -> list[Buffer] | None:
        """The response's body; None when the client expects no answer.

        Raises WireError when the connection must be closed. Admission of Produce happens before the first
        await that lets another request of the same connection run.
        """
        served = self._served.get(header.api_key)
        if served is None or not served.first <= header.api_version <= served.last:
            raise UnsupportedVersion(
                f"API key {header.api_key} version {header.api_version} is not served here"
            )
        request_id.set(f"{client.connection}-{header.correlation_id}")
        started = self._loop.time()
        request = served.codec.decode_request(body, header.api_version)
        try:
            response = await served.handler.handle(
                Context(self._services, client), request, header.api_version
            )
        except WireError:
            raise
        except Exception as error:
            _log.exception("a handler failed", api=APIS[header.api_key].name, version=header.api_version)
            raise WireError(f"{APIS[header.api_key].name} failed: {error!r}") from error
        served.metrics.count.inc()
        served.metrics.seconds.observe(self._loop.time() - started)
        if response is None:
            return None
        return served.codec.encode_response(response, header.api_version)

    def unsupported_api_versions(self) -> list[Buffer]:
        """The version 0 body that answers ApiVersions in a version this agent does not have (KIP-511)."""
        answer = dataclasses.replace(supported(self._services.ranges), error_code=Code.UNSUPPORTED_VERSION)
        return APIS[API_VERSIONS].codec().encode_response(answer, 0)
