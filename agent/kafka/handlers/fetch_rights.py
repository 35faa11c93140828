"""Which topics of a Fetch its client may not read: asked when it comes, and when a long poll answers."""

from __future__ import annotations

from collections.abc import Iterable

from agent.kafka.authority import needs
from agent.kafka.context import Context
from agent.kafka.fetch.sessions import Row
from agent.net.wire.generated.fetch import PartitionData
from coordination.kafka_codes import Code

Place = str | bytes
"""A topic as the request names it: by name or id."""


async def refusals(ctx: Context, rows: Iterable[Row], by_id: bool) -> dict[Place, Code]:
    """The topics that the client may not read, with the error of each.

    An id that is not there is unknown, and looked up no more: it may be that of a deleted topic, which is
    brought back while the request waits.
    """
    if not by_id:
        names = {row.topic for row in rows}
        return {each: Code.TOPIC_AUTHORIZATION_FAILED for each in names if not ctx.may(needs.FETCH, each)}
    ids = {row.topic_id for row in rows}
    known = ctx.state.topics_by_id
    if not all(each in known for each in ids):
        await ctx.barrier()
    known = ctx.state.topics_by_id
    found: dict[Place, Code] = {}
    for each in ids:
        topic = known.get(each)
        if topic is None:
            found[each] = Code.UNKNOWN_TOPIC_ID
        elif not ctx.may(needs.FETCH, topic.name):
            found[each] = Code.TOPIC_AUTHORIZATION_FAILED
    return found


def empty(index: int, code: Code) -> PartitionData:
    """What is said of a partition of which nothing may be said."""
    return PartitionData(partition_index=index, error_code=code, high_watermark=-1, records=[])


def asked_again(
    ctx: Context, told: list[tuple[Row, PartitionData]], by_id: bool
) -> list[tuple[Row, PartitionData]]:
    """Without what the client may not any more: ACLs changed while it waited."""
    found: list[tuple[Row, PartitionData]] = []
    for row, data in told:
        topic = ctx.state.topics_by_id.get(row.topic_id) if by_id else None
        may = ctx.may(needs.FETCH, topic.name if topic is not None else row.topic)
        found.append((row, data if may else empty(row.index, Code.TOPIC_AUTHORIZATION_FAILED)))
    return found
