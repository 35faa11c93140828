"""Records of a bound topic are judged before they are stored; schemas of the registry are looked up for that.

Of what a frame names the state is asked as it is by then, which may be younger than the revision by which the
batch counts as judged: what is registered meanwhile refuses nobody, and behind what is deleted apply refuses
the batch (coordination/state/following.py), so that it is judged again. Nobody is refused by a binding that
was over when his records came: another agent may have answered for the next one (rule 5).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from agent.kafka.context import Context
from agent.kafka.produce.admission import Rejected, TopicRules
from agent.kafka.produce.driver import JUDGE_AGAIN
from agent.kafka.produce.obeyed import Sent, require_rules
from agent.rules.pool import RulesPool
from agent.telemetry.rule_figures import RuleFigures
from coordination.kafka_codes import Code
from coordination.state.following import Meaning, imported, meaning_of
from coordination.state.redacting import policy_of
from coordination.state.types import Partition, Schema, Topic
from coordination.topic_configs import QUARANTINE
from objectstore import tasks
from objectstore.batch import BatchHeader, CorruptBatch
from schema.descriptors import DescriptorError
from schema.followed import FollowedPart, Framed, Named, UnknownSchemas
from schema.framing import SchemaName
from schema.rules.ruled import RECORD, Ruled, TooMixed
from schema.strict import BAD_RECORDS_MAX, BadRecord
from schema.validator import Validator

LOOKS_MAX = 64
"""Times that schemas are looked up for one batch, some hundred at a time; beyond, it is refused."""


async def require_schemas(
    ctx: Context, partition: Partition, records: memoryview, header: BatchHeader, rules: TopicRules
) -> None:
    """Every record must be what its topic is bound to (KIP-467), and obey the rules of message and topic.

    Raises Rejected.
    """
    bad, ruled = await judged(ctx, partition.topic, records, rules)
    refuse(bad)
    if ruled is not None:
        await require_rules(*ruling(ctx), sent_by(ctx, partition, records, header, rules.policies), ruled)


def ruling(ctx: Context) -> tuple[RulesPool, RuleFigures]:
    """What evaluates rules, and counts what comes of it."""
    return ctx.services.rules, ctx.services.rule_figures


def sent_by(
    ctx: Context, partition: Partition, records: memoryview, header: BatchHeader, policies: Mapping[str, str]
) -> Sent:
    """A batch whose rules are to be evaluated."""
    where = partition.topic.name, partition.index
    quoted = policy_of(ctx.state, partition.topic) is None
    return Sent(*where, records, header.record_count, policies, ctx.client_id, ctx.client.host, quoted=quoted)


def refuse(bad: Sequence[BadRecord]) -> None:
    """Raise Rejected where there are bad records."""
    if bad:
        raise Rejected(
            Code.INVALID_RECORD,
            f"{len(bad)} records are not valid; record {bad[0].index}: {bad[0].reason}",
            tuple((each.index, each.reason) for each in bad[:BAD_RECORDS_MAX]),
        )


async def require_current(ctx: Context, topic: Topic, bound: int) -> None:
    """What records were judged by, which was put at revision `bound`, must still be so. Raises Rejected."""
    if not await ctx.barrier():
        raise Rejected(Code.NOT_ENOUGH_REPLICAS, "The log cannot be reached: send again.")
    if ctx.state.topics.get(topic.name) is not topic or topic.bound_revision != bound:
        raise Rejected(Code.NOT_ENOUGH_REPLICAS, JUDGE_AGAIN)


async def judged(
    ctx: Context, topic: Topic, records: memoryview, rules: TopicRules, all_up_to: int = 0
) -> tuple[list[BadRecord], Ruled | None]:
    """The records that are not what their topic is bound to, and the rules to evaluate of the others.

    Of bad ones the first, or with `all_up_to` all, up to the one that is too many. Raises Rejected where they
    cannot be judged.
    """
    try:
        validator = ctx.services.validators.for_topic(topic, ctx.state.schemas)
        if validator is None:
            return [], Ruled([RECORD], rules.own) if rules.own else None
        return await _judged(ctx, validator, records, rules, all_up_to)
    except CorruptBatch as error:
        raise Rejected(Code.CORRUPT_MESSAGE, f"The records cannot be read: {error}") from None
    except DescriptorError as error:
        raise Rejected(Code.INVALID_RECORD, f"The topic's schema cannot be used: {error}") from None
    except TooMixed as error:
        raise Rejected(Code.INVALID_RECORD, f"The topic's rules are not evaluated: {error}") from None
    except Rejected:
        raise
    except Exception as error:  # a defect: it concerns no other topic, nor what else is on the connection
        tasks.tell("judge records", error)
        what = f"The records cannot be judged by the topic's schema: {type(error).__name__}"
        raise Rejected(Code.UNKNOWN_SERVER_ERROR, what) from None


async def _judged(
    ctx: Context, validator: Validator, records: memoryview, rules: TopicRules, all_up_to: int
) -> tuple[list[BadRecord], Ruled | None]:
    """The same; what frames name is looked up as often as needed."""
    refused: dict[Framed, str] = {}
    for _ in range(LOOKS_MAX):
        try:
            parted = QUARANTINE in rules.policies.values()
            bad, ruled = await validator.judge_off_loop(
                records, rules.policies, refused, rules.own, parted=parted
            )
            if bad and all_up_to:
                bad = await validator.check_off_loop(records, refused, all_up_to)
            return bad, ruled
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
        name: Named(
            each.schema.schema_type,
            each.schema.canonical,
            imported(table, each.schema),
            frozenset(each.subjects),
        )
        for name, each in meant.items()
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


def _meant(ctx: Context, part: FollowedPart, framed: Sequence[Framed]) -> Mapping[SchemaName, Meaning | str]:
    bound = part.bound
    assert isinstance(bound, Schema), "bindings come from the state"
    return {name: meaning_of(ctx.state, bound, name) for name, _ in framed}
