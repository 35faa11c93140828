"""FindCoordinator: which broker a group or a transactional id belongs to.

Versions 0 to 6.
Behaviour: the broker of a group or a transactional id is chosen by rendezvous hash over the live agents, so
every agent names the same. For transactions it is a hint: any agent serves them.
Deviations: share groups (key type 2): INVALID_REQUEST, as in a Kafka without them.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.net.wire.api import Encoded
from agent.net.wire.generated import find_coordinator
from agent.net.wire.generated.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from agent.net.wire.steps import Pace, encoded
from coordination.kafka_codes import Code

KEY = 10
VERSIONS = (0, 6)
BATCHED_SINCE = 4
GROUP, TRANSACTION = 0, 1


async def handle(
    ctx: Context, request: FindCoordinatorRequest, version: int
) -> FindCoordinatorResponse | Encoded:
    """The coordinator of each key."""
    if version >= BATCHED_SINCE:
        response, pace = FindCoordinatorResponse(), Pace()
        for key in request.coordinator_keys:
            response.coordinators.append(_find(ctx, key, request.key_type))
            await pace.row()
        return await encoded(find_coordinator, response, version, "coordinators")
    one = _find(ctx, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _find(ctx: Context, key: str, key_type: int) -> Coordinator:
    if key_type not in (GROUP, TRANSACTION):
        return _error(key, Code.INVALID_REQUEST, f"key type {key_type} is not supported")
    broker = ctx.state.brokers.get(ctx.services.hints.coordinator(key))
    if broker is None:
        return _error(key, Code.COORDINATOR_NOT_AVAILABLE, "no broker is registered now")
    endpoint = ctx.endpoint(broker)
    return Coordinator(key=key, node_id=broker.node_id, host=endpoint.host, port=endpoint.port)


def _error(key: str, code: Code, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
