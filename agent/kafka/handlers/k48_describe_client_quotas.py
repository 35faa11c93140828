"""DescribeClientQuotas: the quotas that are set, of those that a filter wants.

Versions 0 to 1.
Behaviour: no filter asks for all. Each part of a filter names a type of entity and which of it: one by name,
the default, or any; a strict one wants entities of those types and no others. An entity type that Kafka does
not know is UNSUPPORTED_VERSION, a filter that contradicts itself INVALID_REQUEST.
Deviations: none known.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.kafka.context import Context
from agent.net.wire.api import Encoded
from agent.net.wire.generated import describe_client_quotas
from agent.net.wire.generated.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from agent.net.wire.steps import Pace, encoded
from coordination.config_types import shown
from coordination.kafka_codes import Code
from coordination.state.quota_types import QuotaEntity
from coordination.state.quotas import CLIENT_ID, IP, TYPES, USER

KEY = 48
VERSIONS = (0, 1)
EXACT, DEFAULT, SPECIFIED = range(3)  # match types


async def handle(
    ctx: Context, request: DescribeClientQuotasRequest, version: int
) -> DescribeClientQuotasResponse | Encoded:
    """Those, or why the question is none."""
    seen: set[str] = set()
    for component in request.components:
        refused = _component_refusal(component, seen)
        if refused is not None:
            return refused
        seen.add(component.entity_type)
    if IP in seen and seen & {USER, CLIENT_ID}:
        why = (
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component."
        )
        return _refused(Code.INVALID_REQUEST, why)
    await ctx.barrier()
    entries: list[EntryData] = []
    pace = Pace()
    of_no_type = not seen and request.strict
    for entity in [] if of_no_type else list(ctx.state.quotas.entities):
        await pace.row()
        values = ctx.state.quotas.entities.get(entity)
        parts = _parts(entity)
        if values is not None and _matches(parts, request):
            entries.append(_described(parts, values))
    response = DescribeClientQuotasResponse(error_message="", entries=entries)  # as Kafka's
    return await encoded(describe_client_quotas, response, version, "entries")


def _parts(entity: QuotaEntity) -> dict[str, str]:
    """Names by type; an empty one is the default."""
    return {kind: name for kind, name in zip(TYPES, entity, strict=True) if name is not None}


def _matches(parts: Mapping[str, str], request: DescribeClientQuotasRequest) -> bool:
    if request.strict and len(parts) != len(request.components):
        return False
    for component in request.components:
        name = parts.get(component.entity_type)
        wanted = {EXACT: component.match or None, DEFAULT: "", SPECIFIED: name}[component.match_type]
        if name is None or name != wanted:
            return False
    return True


def _described(parts: Mapping[str, str], values: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=[EntityData(kind, name or None) for kind, name in parts.items()],
        values=[ValueData(key, value) for key, value in values.items()],
    )


def _component_refusal(component: ComponentData, seen: set[str]) -> DescribeClientQuotasResponse | None:
    """Kafka's checks of one part of a filter, in its order (ClientQuotasImage)."""
    kind, given = component.entity_type, component.match is not None
    if not kind:
        return _refused(Code.INVALID_REQUEST, "Invalid empty entity type.")
    if kind in seen:
        why = f"Entity type {shown(kind)} cannot appear more than once in the filter."
    elif kind not in TYPES:
        return _refused(Code.UNSUPPORTED_VERSION, f"Unsupported entity type {shown(kind)}")
    elif component.match_type == EXACT and not given:
        why = "Request specified MATCH_TYPE_EXACT, but set match string to null."
    elif component.match_type in (DEFAULT, SPECIFIED) and given:
        name = "MATCH_TYPE_DEFAULT" if component.match_type == DEFAULT else "MATCH_TYPE_SPECIFIED"
        why = f"Request specified {name}, but also specified a match string."
    elif component.match_type not in (EXACT, DEFAULT, SPECIFIED):
        why = f"Unknown match type {component.match_type}"
    else:
        return None
    return _refused(Code.INVALID_REQUEST, why)


def _refused(code: Code, message: str) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)
