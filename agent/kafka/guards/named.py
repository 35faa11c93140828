"""Names of topics that requests name by id."""

from __future__ import annotations

from collections.abc import Iterable

from agent.kafka.context import Context


async def resolved(ctx: Context, ids: Iterable[bytes]) -> dict[bytes, str | None]:
    """The name of each id; None where there is no such topic, and no id where that could not be found out.

    Nobody can know an id that the log did not have when it was asked.
    """
    asked = dict.fromkeys(ids)
    known = ctx.state.topics_by_id
    fresh = all(each in known for each in asked) or await ctx.barrier()
    known = ctx.state.topics_by_id
    return {each: known[each].name if each in known else None for each in asked if each in known or fresh}
