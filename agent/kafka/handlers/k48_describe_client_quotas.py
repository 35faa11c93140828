"""DescribeClientQuotas: the quotas that were set, of which there are none.

Versions 0 to 1.
Behaviour: an empty list; an entity type that Kafka does not know is UNSUPPORTED_VERSION, a filter that
contradicts itself INVALID_REQUEST.
Deviations: quotas cannot be set: AlterClientQuotas is not answered.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.net.wire.generated.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from coordination.config_types import shown
from coordination.kafka_codes import Code

KEY = 48
VERSIONS = (0, 1)
ENTITY_TYPES = ("user", "client-id", "ip")
EXACT, DEFAULT, SPECIFIED = range(3)  # match types


async def handle(
    ctx: Context, request: DescribeClientQuotasRequest, version: int
) -> DescribeClientQuotasResponse:
    """None, or why the question is none."""
    seen: set[str] = set()
    for component in request.components:
        refused = _component_refusal(component, seen)
        if refused is not None:
            return refused
        seen.add(component.entity_type)
    if "ip" in seen and seen & {"user", "client-id"}:
        why = (
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component."
        )
        return _refused(Code.INVALID_REQUEST, why)
    return DescribeClientQuotasResponse(error_message="")


def _component_refusal(component: ComponentData, seen: set[str]) -> DescribeClientQuotasResponse | None:
    """Kafka's checks of one part of a filter (ClientQuotaCache)."""
    kind, given = component.entity_type, component.match is not None
    if not kind:
        return _refused(Code.INVALID_REQUEST, "Invalid empty entity type.")
    if kind in seen:
        why = f"Entity type {shown(kind)} cannot appear more than once in the filter."
    elif component.match_type == EXACT and not given:
        why = "Request specified MATCH_TYPE_EXACT, but set match string to null."
    elif component.match_type in (DEFAULT, SPECIFIED) and given:
        name = "MATCH_TYPE_DEFAULT" if component.match_type == DEFAULT else "MATCH_TYPE_SPECIFIED"
        why = f"Request specified {name}, but also specified a match string."
    elif component.match_type not in (EXACT, DEFAULT, SPECIFIED):
        why = f"Unknown match type {component.match_type}"
    elif kind not in ENTITY_TYPES:
        return _refused(Code.UNSUPPORTED_VERSION, f"Unsupported entity type {shown(kind)}")
    else:
        return None
    return _refused(Code.INVALID_REQUEST, why)


def _refused(code: Code, message: str) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)
