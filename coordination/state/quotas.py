"""Quotas of clients: what Kafka takes for an entity and for a quota, and how they are set and removed.

What may be refused before the log is asked (validate_only) is refused by the same functions. Texts are
Kafka's (ClientQuotaControlManager).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Final

from coordination.commands import AlterClientQuotas
from coordination.config_types import shown
from coordination.kafka_codes import Code
from coordination.state.data import StateData
from coordination.state.quota_types import QuotaEntity
from coordination.state.types import At, Done, Refused, Result

ENTITIES_MAX = 100_000
NAME_LENGTH_MAX = 255  # characters
QUOTA_MAX = float(2**63)  # of those that may be fractions; Kafka has no bound there

USER, CLIENT_ID, IP = TYPES = ("user", "client-id", "ip")
PRODUCE: Final = "producer_byte_rate"
FETCH: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
MUTATION: Final = "controller_mutation_rate"
CONNECTIONS: Final = "connection_creation_rate"

LONG_MAX, INT_MAX = float(2**63), float(2**31 - 1)  # the first as Java compares them
WHOLE: Final = {PRODUCE: (LONG_MAX, "a LONG"), FETCH: (LONG_MAX, "a LONG"), CONNECTIONS: (INT_MAX, "an INT")}
"""Quotas without a fraction: the largest, and what Kafka calls such a number."""
OF_CLIENTS: Final = frozenset((PRODUCE, FETCH, REQUEST, MUTATION))
OF_ADDRESSES: Final = frozenset((CONNECTIONS,))
FRACTION_MAX = 1e-6  # what still counts as whole

Values = Mapping[str, float | None]


def alter_client_quotas(state: StateData, message: AlterClientQuotas, at: At) -> Result:
    """Set and remove an entity's quotas, all or none. Done's value: None."""
    parts: dict[str, str | None] = {}
    for kind, field in ((USER, "user"), (CLIENT_ID, "client_id"), (IP, "ip")):
        if message.HasField(field):  # type: ignore[arg-type]  # the stub wants literals
            parts[kind] = getattr(message, field) or None
    values: dict[str, float | None] = {
        change.key: None if change.remove else change.value for change in message.changes
    }
    refused = refusal(parts, values)
    if refused is not None:
        return refused
    entity, table = entity_of(parts), state.quotas
    known = table.entities.get(entity)
    if known is None and len(table.entities) >= ENTITIES_MAX:
        return Refused(Code.POLICY_VIOLATION, f"{ENTITIES_MAX} entities with quotas are the most")
    changed = dict(known or {})
    for key, value in values.items():
        if value is None:
            changed.pop(key, None)
        else:
            changed[key] = value
    if changed == (known or {}):
        return Done()
    table.changes += 1
    if changed:
        table.entities[entity] = changed  # a new dict: a snapshot may hold the old one
    else:
        del table.entities[entity]
    return Done()


def entity_of(parts: Mapping[str, str | None]) -> QuotaEntity:
    """By type of entity; a name that is None means the default."""
    names = {kind: name or "" for kind, name in parts.items()}
    return QuotaEntity(names.get(USER), names.get(CLIENT_ID), names.get(IP))


def refusal(parts: Mapping[str, str | None], values: Values) -> Refused | None:
    """Why such an entity may not be given those quotas (None: removed); None when it may."""
    why = _entity_problem(parts) or _combination_problem(parts)
    keys = OF_ADDRESSES if IP in parts else OF_CLIENTS
    why = why or next((bad for bad in _value_problems(keys, values) if bad), None)
    return None if why is None else Refused(Code.INVALID_REQUEST, why)


def _entity_problem(parts: Mapping[str, str | None]) -> str | None:
    if not parts:
        return "Invalid empty client quota entity"
    for kind, name in parts.items():
        if kind not in TYPES:
            return f"Unhandled client quota entity type: {shown(kind)}"
        if name == "":
            return f"Empty {kind} not supported"
        if name is not None and len(name) > NAME_LENGTH_MAX:
            return f"{kind} is longer than {NAME_LENGTH_MAX}"
    return None


def _combination_problem(parts: Mapping[str, str | None]) -> str | None:
    if IP not in parts:
        return None
    if len(parts) > 1:  # the missing blank is Kafka's
        return "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
    name = parts[IP]
    if name is not None:
        try:
            ip_address(name)
        except ValueError:
            return f"{shown(name)} is not a valid IP or resolvable host."
    return None


def _value_problems(keys: frozenset[str], values: Values) -> Iterable[str | None]:
    for key, value in values.items():
        if value is None:
            continue
        if key not in keys:
            yield f"Invalid configuration key {shown(key)}"
        elif value != value or value <= 0:
            yield f"Quota {key} must be greater than 0"
        elif key in WHOLE:
            most, kind = WHOLE[key]
            if value > most:
                yield f"Proposed value for {key} is too large for {kind}."
            elif value % 1.0 > FRACTION_MAX:
                yield f"{key} cannot be a fractional value."
        elif value > QUOTA_MAX:
            yield f"Quota {key} must be at most {QUOTA_MAX:.0f}"
