"""Each API of Alice's: refused by the right code in the right place, and allowed by what it asks for."""

from __future__ import annotations

from typing import Any

import pytest

from agent.kafka.authority.needs import FREE, TABLE
from agent.kafka.handlers import HANDLERS
from agent.net.wire.api import BY_NAME
from coordination.state.acl_types import Operation, Permission
from tests.unit.agent.kafka.guard_cases import (
    CASES,
    NO_TOPIC,
    REFUSALS,
    Case,
    fetch,
)
from tests.unit.agent.kafka.guards_rig import READ, TOPIC, guarded

ELSEWHERE = {
    "ListGroups",
    "ListTransactions",
    "DescribeCluster",
    "AlterClientQuotas",
    "CreateDelegationToken",
    "DescribeDelegationToken",
}
"""APIs that refuse nothing, or have tests of their own below, or of their own room."""


def test_every_api_that_can_refuse_is_tried() -> None:
    tried = {BY_NAME[case.api].key for case in CASES} | {BY_NAME[name].key for name in ELSEWHERE}
    assert set(HANDLERS) - set(FREE) - tried == set()
    assert set(TABLE) - tried == set()


def refusals(case: Case, answer: Any) -> set[int]:
    return REFUSALS & set(case.codes(answer))


@pytest.mark.parametrize("case", CASES, ids=[f"{n}-{case.api}" for n, case in enumerate(CASES)])
async def test_each_is_refused_until_all_that_it_asks_for_is_allowed(case: Case) -> None:
    async with guarded() as there:
        for (operation, resource, name), code in case.needs:
            await there.allow(READ, TOPIC, "another")  # what does not help
            answer = await there.ask(case.api, case.request(), case.version)
            assert refusals(case, answer) == {code}, (operation, answer)
            assert set(case.codes(answer)) <= {code, 0}
            await there.allow(operation, resource, name)
        answer = await there.ask(case.api, case.request(), case.version)
        assert refusals(case, answer) == set(), answer


@pytest.mark.parametrize("case", CASES, ids=[f"{n}-{case.api}" for n, case in enumerate(CASES)])
async def test_in_shadow_mode_nothing_is_refused_and_all_is_noted(case: Case) -> None:
    async with guarded("shadow") as there:
        answer = await there.ask(case.api, case.request(), case.version)
        assert refusals(case, answer) == set(), answer
        noted = {(seen.resource, seen.operation) for seen, _ in there.agent.services.authority.shadow.rows()}
        assert noted, "nothing was noted"
        for seen, _ in there.agent.services.authority.shadow.rows():
            assert seen.principal == "User:alice"


async def test_off_asks_nobody() -> None:
    async with guarded("off") as there:
        for case in CASES:
            answer = await there.ask(case.api, case.request(), case.version)
            assert refusals(case, answer) == set(), answer
        assert not there.agent.services.authority.entries
        assert not there.agent.services.authority.shadow.rows()


async def test_what_root_may_nobody_asks() -> None:
    async with guarded() as there:
        for case in CASES:
            answer = await there.agent.call(case.api, case.request(), case.version, there.root)
            assert refusals(case, answer) == set(), answer


async def test_a_denial_stops_what_is_allowed() -> None:
    async with guarded() as there:
        await there.allow(Operation.ALL, TOPIC, "*")
        case = next(each for each in CASES if each.api == "Fetch")
        assert refusals(case, await there.ask("Fetch", fetch(), 12)) == set()
        await there.allow(READ, TOPIC, "seen", permission=Permission.DENY)
        assert refusals(case, await there.ask("Fetch", fetch(), 12)) == {NO_TOPIC}
