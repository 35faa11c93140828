"""AlterClientQuotas and DescribeClientQuotas through the dispatcher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from agent.net.wire.generated import alter_client_quotas as ac
from agent.net.wire.generated import describe_client_quotas as dc
from coordination.kafka_codes import Code
from tests.unit.agent.rig import Agent

Who = Mapping[str, str | None]
EXACT, DEFAULT, SPECIFIED = range(3)
RATE = {"producer_byte_rate": 1000.0}


async def alter(
    agent: Agent, *entries: tuple[Who, Mapping[str, float | None]], validate_only: bool = False
) -> list[tuple[int, str | None]]:
    rows = [
        ac.EntryData(
            [ac.EntityData(kind, name) for kind, name in who.items()],
            [ac.OpData(key, value or 0.0, value is None) for key, value in values.items()],
        )
        for who, values in entries
    ]
    told = await agent.call("AlterClientQuotas", ac.AlterClientQuotasRequest(rows, validate_only), 1)
    return [(entry.error_code, entry.error_message) for entry in told.entries]


async def describe(agent: Agent, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    request = dc.DescribeClientQuotasRequest([dc.ComponentData(*each) for each in components], strict)
    return await agent.call("DescribeClientQuotas", request, 1)


async def found(agent: Agent, *components: tuple[str, int, str | None], strict: bool = False) -> list[Any]:
    told = await describe(agent, *components, strict=strict)
    assert told.error_code == 0
    return [{part.entity_type: part.entity_name for part in entry.entity} for entry in told.entries]


WHOLE: Sequence[Who] = (
    {"user": "alice"},
    {"user": "alice", "client-id": "app"},
    {"user": None, "client-id": "app"},
    {"user": None},
    {"client-id": "app"},
    {"client-id": None},
)


@pytest.mark.parametrize(
    ("components", "strict", "which"),
    [
        ((), False, range(7)),
        ((), True, ()),
        ((("user", EXACT, "alice"),), False, (0, 1)),
        ((("user", EXACT, "alice"),), True, (0,)),
        ((("user", EXACT, ""),), False, ()),
        ((("user", DEFAULT, None),), False, (2, 3)),
        ((("user", SPECIFIED, None),), False, (0, 1, 2, 3)),
        ((("user", SPECIFIED, None), ("client-id", SPECIFIED, None)), True, (1, 2)),
        ((("client-id", EXACT, "app"),), False, (1, 2, 4)),
        ((("client-id", DEFAULT, None),), True, (5,)),
        ((("ip", SPECIFIED, None),), True, (6,)),
        ((("user", EXACT, "nobody"),), False, ()),
    ],
    ids=str,
)
async def test_filters(agent: Agent, components: Any, strict: bool, which: Sequence[int]) -> None:
    address = {"ip": "10.0.0.1"}
    for who in WHOLE:
        assert await alter(agent, (who, RATE)) == [(0, None)]
    assert await alter(agent, (address, {"connection_creation_rate": 3.0})) == [(0, None)]
    everybody = [*WHOLE, address]
    assert await found(agent, *components, strict=strict) == [everybody[n] for n in which]


async def test_values_are_shown_and_removed(agent: Agent) -> None:
    await alter(agent, ({"user": "alice"}, RATE | {"request_percentage": 12.5}))
    (entry,) = (await describe(agent)).entries
    assert {value.key: value.value for value in entry.values} == RATE | {"request_percentage": 12.5}
    await alter(agent, ({"user": "alice"}, {"request_percentage": None}))
    (entry,) = (await describe(agent)).entries
    assert [value.key for value in entry.values] == ["producer_byte_rate"]
    await alter(agent, ({"user": "alice"}, {"producer_byte_rate": None}))
    assert (await describe(agent)).entries == []


async def test_what_is_only_validated_is_not_set(agent: Agent) -> None:
    bad = {"user": "bob"}, {"producer_byte_rate": -1.0}
    told = await alter(agent, ({"user": "alice"}, RATE), bad, validate_only=True)
    assert told == [(0, None), (Code.INVALID_REQUEST, "Quota producer_byte_rate must be greater than 0")]
    assert await found(agent) == []


async def test_one_that_is_refused_keeps_no_other_from_its_quota(agent: Agent) -> None:
    bad = {"user": "bob"}, {"producer_byte_rate": 1.5}
    told = await alter(agent, bad, ({"user": "alice"}, RATE))
    assert told == [(Code.INVALID_REQUEST, "producer_byte_rate cannot be a fractional value."), (0, None)]
    assert await found(agent) == [{"user": "alice"}]


async def test_of_an_entity_that_is_named_twice_the_first_counts(agent: Agent) -> None:
    """So does Kafka, and says only that there was a second one."""
    again = {"user": "alice"}, {"producer_byte_rate": 2000.0}
    told = await alter(agent, ({"user": "alice"}, RATE), again)
    assert told == [
        (Code.INVALID_REQUEST, "Ignoring duplicate entity ClientQuotaEntity(entries={user=alice})")
    ]
    (entry,) = (await describe(agent)).entries
    assert [value.value for value in entry.values] == [1000.0]


@pytest.mark.parametrize(
    ("who", "why"),
    [
        ({}, "Invalid empty client quota entity"),
        ({"host": "a"}, "Unhandled client quota entity type: host"),
        ({"user": ""}, "Empty user not supported"),
        ({"ip": "nowhere"}, "nowhere is not a valid IP or resolvable host."),
    ],
    ids=str,
)
async def test_entities_that_are_none(agent: Agent, who: Who, why: str) -> None:
    assert await alter(agent, (who, RATE)) == [(Code.INVALID_REQUEST, why)]
    assert await found(agent) == []
