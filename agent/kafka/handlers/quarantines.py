"""Which records of a batch go to their topic's quarantine."""

from __future__ import annotations

from agent.kafka.context import Context
from agent.kafka.handlers.schemas import judged, refuse, ruling, sent_by
from agent.kafka.produce.admission import TopicRules
from agent.kafka.produce.buffer import Offered
from agent.kafka.produce.obeyed import broken_rules
from agent.kafka.produce.set_aside import origin_of, parted, place_for, without
from coordination.state.types import Partition
from coordination.topic_configs import QUARANTINE
from objectstore.batch import peek
from schema.quarantine import NO_MESSAGE, Violation


async def judged_apart(
    ctx: Context, partition: Partition, offered: Offered, rules: TopicRules, now_ms: int
) -> Offered:
    """The batch without its bad records, which are its companion; itself when it has none. Raises Rejected.

    Rules are evaluated of those that are what their topic is bound to; the others are set aside whatever
    rules there are.
    """
    policies = rules.policies
    limits, batch = ctx.services.config.produce, memoryview(offered.data)
    broken: dict[int, list[Violation]] = {}
    bad, ruled = await judged(ctx, partition.topic, batch, rules, limits.quarantine_records_max)
    refuse([each for each in bad if policies.get(each.role) != QUARANTINE])
    for each in bad:
        text = each.reason.removeprefix(f"{each.role}: ")
        broken.setdefault(each.index, []).append(Violation(each.role, "", NO_MESSAGE, text))
    known = None if ruled is None else ruled.apart
    if broken:
        place_for(ctx.state, partition, broken, limits)  # before more is done with it
        batch = memoryview(await without(batch, broken))
        more, ruled = await judged(ctx, partition.topic, batch, rules)
        refuse(more)  # none, unless what may be named changed meanwhile
    if ruled is not None:
        every = range(offered.header.record_count)
        sound = [place for place in every if place not in broken] if broken else every
        sent = sent_by(ctx, partition, batch, peek(batch), policies)
        most = limits.quarantine_records_max + 1
        for one in await broken_rules(*ruling(ctx), sent, ruled, most):
            violations = [Violation(one.role, *each) for each in one.violations]
            broken.setdefault(sound[one.index], []).extend(violations)
    if not broken:
        return offered
    to = place_for(ctx.state, partition, broken, limits)
    origin = origin_of(ctx.state, partition, policies, ctx.client_id)
    whole = memoryview(offered.data)
    left, companion = await parted(
        whole, offered.header, origin, broken, to, now_ms, limits.quarantine_bytes_max, known
    )
    return offered._replace(data=left, header=peek(left), companion=companion)
