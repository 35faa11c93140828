"""Names of topics that requests name by id."""

from __future__ import annotations

from collections.abc import Iterable

from agent.kafka.context import Context


async def resolved(ctx: Context, ids: Iterable[bytes]) -> dict[bytes, str]:
    """The name of each id that there is.

    The others are answered with UNKNOWN_TOPIC_ID by who asks here, and go to no handler: an id that the log
    does not have now it may have a moment later, when a deleted topic is brought back.
    """
    asked = dict.fromkeys(ids)
    known = ctx.state.topics_by_id
    if not all(each in known for each in asked):
        await ctx.barrier()
    known = ctx.state.topics_by_id
    return {each: known[each].name for each in asked if each in known}
