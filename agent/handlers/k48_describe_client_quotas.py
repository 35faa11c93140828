"""DescribeClientQuotas: the quotas that were set, of which there are none.

Versions 0 to 1.
Behaviour: an empty list; an entity type that Kafka does not know is UNSUPPORTED_VERSION, one named twice
INVALID_REQUEST.
Deviations: quotas cannot be set: AlterClientQuotas is not answered.
"""

from __future__ import annotations

from agent.context import Context
from agent.wire.generated.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from coordination.kafka_codes import Code

KEY = 48
VERSIONS = (0, 1)
ENTITY_TYPES = ("user", "client-id", "ip")


async def handle(
    ctx: Context, request: DescribeClientQuotasRequest, version: int
) -> DescribeClientQuotasResponse:
    """None, or why the question is none."""
    types = [component.entity_type for component in request.components]
    unknown = next((kind for kind in types if kind not in ENTITY_TYPES), None)
    if unknown is not None:
        return _refused(Code.UNSUPPORTED_VERSION, f"Unsupported entity type {unknown}")
    if len(types) != len(frozenset(types)):
        return _refused(Code.INVALID_REQUEST, "an entity type is named twice")
    return DescribeClientQuotasResponse(error_message="")


def _refused(code: Code, message: str) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)
