"""Records of a bound topic are judged before they are stored; schemas of the registry are looked up for that.

Of what a frame names the state is asked as it is by then, which may be younger than the revision by which the
batch counts as judged: what is registered meanwhile refuses nobody, and behind what is deleted apply refuses
the batch (coordination/state/following.py), so that it is judged again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from agent.kafka.context import Context
from agent.kafka.produce.admission import Rejected, TopicRules
from agent.kafka.produce.obeyed import Sent, require_rules
from coordination.kafka_codes import Code
from coordination.state.following import Meaning, imported, meaning
from coordination.state.types import Partition, Schema
from objectstore.batch import BatchHeader, CorruptBatch
from schema.descriptors import DescriptorError
from schema.followed import FollowedPart, Framed, Named, UnknownSchemas
from schema.rules.ruled import Ruled, TooMixed
from schema.strict import BadRecord
from schema.validator import Validator

LOOKS_MAX = 64
"""Times that schemas are looked up for one batch, some hundred at a time; beyond, it is refused."""


async def require_schemas(
    ctx: Context, partition: Partition, records: memoryview, header: BatchHeader, rules: TopicRules
) -> None:
    """Every record must be what its topic is bound to (KIP-467), and obey the rules of its message.

    Raises Rejected.
    """
    topic = partition.topic
    bad: list[BadRecord] = []
    ruled = None
    try:
        validator = ctx.services.validators.for_topic(topic, ctx.state.schemas)
        if validator is not None:
            bad, ruled = await _judged(ctx, validator, records, rules.policies)
    except CorruptBatch as error:
        raise Rejected(Code.CORRUPT_MESSAGE, f"The records cannot be read: {error}") from None
    except DescriptorError as error:
        raise Rejected(Code.INVALID_RECORD, f"The topic's schema cannot be used: {error}") from None
    except TooMixed as error:
        raise Rejected(Code.INVALID_RECORD, f"The topic's rules are not evaluated: {error}") from None
    if bad:
        raise Rejected(
            Code.INVALID_RECORD,
            f"{len(bad)} records are not valid; record {bad[0].index}: {bad[0].reason}",
            tuple((each.index, each.reason) for each in bad),
        )
    if ruled is not None:
        client = (ctx.client_id, ctx.client.host)
        sent = Sent(topic.name, partition.index, records, header.record_count, rules.policies, *client)
        await require_rules(ctx.services.rules, ctx.services.rule_figures, sent, ruled)


async def _judged(
    ctx: Context, validator: Validator, records: memoryview, roles: Iterable[str]
) -> tuple[list[BadRecord], Ruled | None]:
    """Bad records, and the rules to evaluate; what frames name is looked up as often as needed."""
    refused: dict[Framed, str] = {}
    for _ in range(LOOKS_MAX):
        try:
            return await validator.judge_off_loop(records, roles, refused)
        except UnknownSchemas as unknown:
            refused |= await _look_up(ctx, validator.followed(unknown.role), unknown.framed)
    raise Rejected(Code.INVALID_RECORD, "The batch names too many schemas: send fewer records at once.")


async def _look_up(ctx: Context, part: FollowedPart, framed: Sequence[Framed]) -> dict[Framed, str]:
    """Tell `part` what these are; those that may not be named, and why. Raises Rejected."""
    meant = _meant(ctx, part, framed)
    if any(isinstance(each, str) for each in meant.values()):
        if not await ctx.barrier():  # it may have been registered through another agent
            raise Rejected(Code.NOT_ENOUGH_REPLICAS, "The log cannot be reached: send again.")
        meant = _meant(ctx, part, framed)
    table = ctx.state.subjects
    named = {
        schema_id: Named(
            each.schema.schema_type,
            each.schema.canonical,
            imported(table, each.schema),
            frozenset(each.subjects),
        )
        for schema_id, each in meant.items()
        if isinstance(each, Meaning)
    }

    def settled() -> dict[Framed, str]:
        found = {each: part.settle(each, named[each[0]]) for each in framed if each[0] in named}
        return {each: why for each, why in found.items() if why is not None}

    try:
        refused = await asyncio.to_thread(settled)
    except OSError as error:  # the compiler works in a temporary folder
        raise Rejected(Code.NOT_ENOUGH_REPLICAS, f"A schema could not be compiled: {error}") from None
    unnamed = {each: meant[each[0]] for each in framed if each[0] not in named}
    return refused | {each: f"{why}: register it there first" for each, why in unnamed.items()}


def _meant(ctx: Context, part: FollowedPart, framed: Sequence[Framed]) -> Mapping[int, Meaning | str]:
    bound = part.bound
    assert isinstance(bound, Schema), "bindings come from the state"
    return {schema_id: meaning(ctx.state, bound, schema_id) for schema_id, _ in framed}
