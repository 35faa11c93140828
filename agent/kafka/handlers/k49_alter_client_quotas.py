"""AlterClientQuotas: set and remove quotas of users, client ids and addresses.

Versions 0 to 1.
Behaviour: an entity's quotas change all or none; one that is refused keeps no other from its change. An
entity that is named twice is INVALID_REQUEST, and what was asked first happens, as in Kafka. Quotas hold on
every agent as soon as it has applied the change, each for itself (docs/quotas.md).
Deviations: an address is an IP address, names of hosts are not looked up; 100,000 entities at most, names
of 255 characters, rates with fractions up to 2^63.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.kafka.context import Context
from agent.kafka.propose import propose
from agent.net.wire.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryResult,
)
from coordination.commands import AlterClientQuotas
from coordination.config_types import shown
from coordination.kafka_codes import Code
from coordination.state import quotas
from coordination.state.types import Refused, Result

KEY = 49
VERSIONS = (0, 1)
Parts = dict[str, str | None]
Entity = frozenset[tuple[str, str | None]]


async def handle(ctx: Context, request: AlterClientQuotasRequest, version: int) -> AlterClientQuotasResponse:
    """One answer per entity, in the order of the request."""
    results: dict[Entity, Result | None] = {}
    commands: dict[Entity, AlterClientQuotas] = {}
    for entry in request.entries:
        parts: Parts = {each.entity_type: each.entity_name for each in entry.entity}
        entity = frozenset(parts.items())
        values: dict[str, float | None] = {op.key: None if op.remove else op.value for op in entry.ops}
        if entity in results or len(values) < len(entry.ops):
            results[entity] = Refused(Code.INVALID_REQUEST, f"Ignoring duplicate entity {_named(parts)}")
            continue
        results[entity] = quotas.refusal(parts, values)
        if results[entity] is None:
            commands[entity] = _command(parts, values)
    if not request.validate_only:
        outcomes = await propose(ctx, list(commands.values()))
        for entity, outcome in zip(commands, outcomes, strict=True):
            results[entity] = results[entity] or outcome
    return AlterClientQuotasResponse(entries=[_result(one, result) for one, result in results.items()])


def _command(parts: Parts, values: Mapping[str, float | None]) -> AlterClientQuotas:
    entity = quotas.entity_of(parts)
    changes = [
        AlterClientQuotas.Change(key=key, value=value or 0.0, remove=value is None)
        for key, value in values.items()
    ]
    return AlterClientQuotas(user=entity.user, client_id=entity.client_id, ip=entity.ip, changes=changes)


def _named(parts: Parts) -> str:
    """As Java writes a ClientQuotaEntity."""
    pairs = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in parts.items())
    return shown(f"ClientQuotaEntity(entries={{{pairs}}})")


def _result(entity: Entity, result: Result | None) -> EntryResult:
    rows = [EntityData(kind, name) for kind, name in sorted(entity, key=lambda part: part[0])]
    if isinstance(result, Refused):
        return EntryResult(error_code=result.code, error_message=result.message, entity=rows)
    return EntryResult(error_message=None, entity=rows)
