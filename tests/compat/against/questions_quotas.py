"""Quotas of clients: what is taken, what is refused, which a filter finds, and what goes on beyond them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from agent.net.wire.generated import alter_client_quotas as acq
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import describe_client_quotas as dcq
from tests.compat.against.questions_bad import errors
from tests.compat.against.side import Answers, Question, Side

Who = Sequence[tuple[str, str | None]]
Values = Sequence[tuple[str, float | None]]
RATE: Values = [("producer_byte_rate", 1_000_000.0)]
EXACT, DEFAULT, SPECIFIED = range(3)
SEEN_S_MAX = 20

BAD: Mapping[str, tuple[Who, Values]] = {
    "nobody": ([], RATE),
    "another type": ([("host", "a")], RATE),
    "empty user": ([("user", "")], RATE),
    "empty client": ([("client-id", "")], RATE),
    "empty address": ([("ip", "")], [("connection_creation_rate", 1.0)]),
    "user and address": ([("user", "a"), ("ip", "10.0.0.1")], RATE),
    "client and address": ([("client-id", "a"), ("ip", "10.0.0.1")], [("connection_creation_rate", 1.0)]),
    "no address": ([("ip", "no such host.invalid")], [("connection_creation_rate", 1.0)]),
    "rate of an address": ([("ip", "10.0.0.1")], RATE),
    "connections of a user": ([("user", "a")], [("connection_creation_rate", 1.0)]),
    "connections of a client": ([("client-id", "a")], [("connection_creation_rate", 1.0)]),
    "unknown key": ([("user", "a")], [("bytes", 1.0)]),
    "empty key": ([("user", "a")], [("", 1.0)]),
    "zero": ([("user", "a")], [("producer_byte_rate", 0.0)]),
    "negative": ([("user", "a")], [("consumer_byte_rate", -1.0)]),
    "negative percentage": ([("user", "a")], [("request_percentage", -0.5)]),
    "negative mutations": ([("user", "a")], [("controller_mutation_rate", -1.0)]),
    "fraction": ([("user", "a")], [("producer_byte_rate", 1.5)]),
    "a little more than whole": ([("user", "a")], [("producer_byte_rate", 1.0000001)]),
    "a little less than whole": ([("user", "a")], [("producer_byte_rate", 1.9999999)]),
    "fraction of connections": ([("ip", "10.0.0.1")], [("connection_creation_rate", 0.5)]),
    "too large": ([("user", "a")], [("producer_byte_rate", 1e19)]),
    "the largest": ([("user", "a")], [("producer_byte_rate", 2.0**63)]),
    "too many connections": ([("ip", "10.0.0.1")], [("connection_creation_rate", 2.0**31)]),
    "no such to remove": ([("user", "a")], [("producer_byte_rate", None)]),
    "unknown to remove": ([("user", "a")], [("bytes", None)]),
    "key twice": ([("user", "a")], [*RATE, *RATE]),
    "type twice": ([("user", "a"), ("user", "b")], RATE),
    "nothing": ([("user", "a")], []),
    "good": ([("user", "a"), ("client-id", None)], [("request_percentage", 0.5)]),
}


def entry(who: Who, values: Values) -> acq.EntryData:
    ops = [acq.OpData(key, value or 0.0, value is None) for key, value in values]
    return acq.EntryData([acq.EntityData(*part) for part in who], ops)


async def alter(side: Side, *entries: tuple[Who, Values], validate_only: bool = False) -> str:
    request = acq.AlterClientQuotasRequest([entry(*each) for each in entries], validate_only)
    return errors(await side.ask("AlterClientQuotas", request, 1))


async def found(side: Side, strict: bool, *components: tuple[str, int, str | None]) -> str:
    """Entities with their quotas, sorted: Kafka's order is that of a hash."""
    request = dcq.DescribeClientQuotasRequest([dcq.ComponentData(*each) for each in components], strict)
    told = await side.ask("DescribeClientQuotas", request, 1)
    rows = [
        (
            sorted((part.entity_type, part.entity_name or "<default>") for part in one.entity),
            sorted((value.key, value.value) for value in one.values),
        )
        for one in told.entries or []
    ]
    return f"{errors(told)} {sorted(rows)}"


async def known(side: Side, name: str, mark: str) -> None:
    """Kafka's brokers know of a change a moment after the answer. `mark`: what is to be found."""
    async with asyncio.timeout(SEEN_S_MAX):
        while mark not in await found(side, False, ("user", EXACT, name)):  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.05)


async def validated(side: Side) -> Answers:
    """What is taken for a quota; nothing is set."""
    return {label: await alter(side, each, validate_only=True) for label, each in BAD.items()}


async def described(side: Side) -> Answers:
    """Set, found by every kind of filter, changed, and removed."""
    a, b = f"{side.prefix}a", f"{side.prefix}b"
    entities: list[Who] = [
        [("user", a)],
        [("user", a), ("client-id", b)],
        [("user", a), ("client-id", None)],
        [("client-id", b)],
    ]
    answers: Answers = {"set": await alter(side, *((who, RATE) for who in entities))}
    await known(side, a, "1000000.0")
    filters: Mapping[str, Sequence[tuple[str, int, str | None]]] = {
        "exact": [("user", EXACT, a)],
        "both": [("user", EXACT, a), ("client-id", EXACT, b)],
        "default": [("user", EXACT, a), ("client-id", DEFAULT, None)],
        "any": [("user", EXACT, a), ("client-id", SPECIFIED, None)],
        "client": [("client-id", EXACT, b)],
        "empty name": [("user", EXACT, "")],
        "nobody": [("user", EXACT, f"{side.prefix}c")],
        "unknown type, no name": [("host", EXACT, None)],
        "none": [],
    }
    for label, components in filters.items():
        strict = await found(side, True, *components)
        answers[f"{label}, strict"] = strict.replace(side.prefix, "")
        if label != "none":
            answers[label] = (await found(side, False, *components)).replace(side.prefix, "")
    more: Values = [("producer_byte_rate", 5.0), ("request_percentage", 7.5), ("consumer_byte_rate", -1.0)]
    answers["one of three is bad"] = await alter(side, ([("user", a)], more))
    twice = await alter(side, ([("user", a)], more[:2]), ([("user", a)], RATE))
    answers["named twice"] = twice.replace(side.prefix, "")
    await known(side, a, "7.5")
    answers["then"] = (await found(side, True, ("user", EXACT, a))).replace(side.prefix, "")
    nothing: Values = [("producer_byte_rate", None), ("request_percentage", None)]
    answers["removed"] = await alter(side, *((who, nothing) for who in entities))
    await known(side, a, "[]")
    answers["after"] = (await found(side, False, ("user", EXACT, a))).replace(side.prefix, "")
    return answers


async def mutations(side: Side) -> Answers:
    """Beyond a rate of partitions: refused from CreateTopics 6 on, slowed down before."""
    who: Who = [("user", "ANONYMOUS"), ("client-id", "bench")]  # as tests/bench/load.py calls itself
    answers: Answers = {}
    try:
        answers["set"] = await alter(side, (who, [("controller_mutation_rate", 0.1)]))
        for label, version in (("burst", 7), ("beyond", 7), ("older", 5)):
            topic = ct.CreatableTopic(f"{side.prefix}q-{label}", 5, 1)
            told = await side.ask("CreateTopics", ct.CreateTopicsRequest([topic], 10_000), version)
            answers[label] = f"{errors(told)} {'slowed down' if told and told.throttle_time_ms else 'not'}"
    finally:
        await alter(side, (who, [("controller_mutation_rate", None)]))
    return answers


QUESTIONS: dict[str, Question] = {
    "Quotas.validated": validated,
    "Quotas.described": described,
    "Quotas.mutations": mutations,
}
