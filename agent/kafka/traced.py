"""Every request as a trace: from its frame to the answer's bytes (agent/telemetry/tracing.py)."""

from __future__ import annotations

import asyncio

from agent.kafka.dispatch import Dispatcher
from agent.net.listening import RequestContext
from agent.net.wire.api import APIS
from agent.net.wire.frame import RequestHeader
from agent.net.wire.primitives import Buffer
from agent.telemetry.logs import request_id
from agent.telemetry.printable import printable
from agent.telemetry.tracing import Traces, current

WAIT_FOR_OTHERS = frozenset(("JoinGroup", "SyncGroup", "SaslAuthenticate"))
"""What waits for other members, or longer after a failed login: that is no slowness of the agent's."""
NAME_MAX = 100  # characters of the client's own name


class TracedDispatcher:
    """A Dispatcher that tells of what it does. Made only where traces are wanted."""

    def __init__(self, inner: Dispatcher, traces: Traces) -> None:
        self._inner, self._traces = inner, traces
        inner.repeats.on = False  # each poll is a trace of its own

    async def __call__(
        self, context: RequestContext, header: RequestHeader, body: memoryview
    ) -> list[Buffer] | None:
        """See Dispatcher."""
        name = APIS[header.api_key].name
        trace = self._traces.begin(name, "server")
        if trace is None:
            return await self._inner(context, header, body)
        trace.attributes |= {
            "messaging.system": "kafka",
            "messaging.client.id": printable((header.client_id or "")[:NAME_MAX]),
            "network.peer.address": context.connection.peer_host,
            "floe.api_version": header.api_version,
            "floe.request": request_id.get(),
            "floe.request_bytes": len(body),
        }
        token, error = current.set(trace), ""
        try:
            return await self._inner(context, header, body)
        except BaseException as failure:
            error = "cancelled" if isinstance(failure, asyncio.CancelledError) else type(failure).__name__
            raise
        finally:
            current.reset(token)
            self._traces.end(trace, error, may_be_slow=name not in WAIT_FOR_OTHERS)
