"""Proposing commands from a handler: wait for what apply decides, or say in Kafka's terms why not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress

from google.protobuf.message import Message

from agent.kafka.context import Context
from coordination.commands import command
from coordination.kafka_codes import Code
from coordination.log import Unavailable
from coordination.replica.errors import OutcomeUnknown, StaleIncarnation
from coordination.replica.proposals import Results
from coordination.state.types import Refused, Result

WAIT_S_MAX = 60.0  # whatever a client's timeout says
WAIT_S_MIN = 1.0
SETTLED_S_MAX = 5.0  # how long a change of a group is waited for, seconds


async def propose(ctx: Context, messages: Sequence[Message], timeout_ms: int = 30_000) -> list[Result]:
    """Submit the messages as one batch of commands; one result per message.

    A log that cannot be reached is NOT_CONTROLLER (nothing happened, clients try again), an unknown
    outcome REQUEST_TIMED_OUT (it may have happened).
    """
    if not messages:
        return []
    trail = ctx.services.trail
    told = trail.described(messages, ctx.state)
    results = await _decided(ctx, messages, timeout_ms)
    trail.decided(ctx.actor, told, results)
    return results


async def _decided(ctx: Context, messages: Sequence[Message], timeout_ms: int) -> list[Result]:
    seconds = min(max(timeout_ms / 1000, WAIT_S_MIN), WAIT_S_MAX)
    try:
        return await _within(ctx.services.replica.submit([command(one) for one in messages]), seconds)
    except (Unavailable, StaleIncarnation) as error:
        refused = Refused(Code.NOT_CONTROLLER, f"nothing was changed: {error}")
    except (OutcomeUnknown, TimeoutError) as error:
        refused = Refused(Code.REQUEST_TIMED_OUT, f"the outcome is not known yet: {error}")
    return [refused for _ in messages]


async def _within(future: Results, seconds: float) -> list[Result]:
    """The results; TimeoutError when they are not there in time. Whoever stops waiting cancels nothing.

    As asyncio.timeout around asyncio.shield, at half the cost: every commit of positions waits here.
    """
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[None] = loop.create_future()

    def wake(_: Results | None = None) -> None:
        if not answered.done():
            answered.set_result(None)

    timer = loop.call_later(seconds, wake)
    future.add_done_callback(wake)
    try:
        await answered
    finally:
        timer.cancel()
        future.remove_done_callback(wake)
    if not future.done():
        raise TimeoutError
    return future.result()


async def settled(ctx: Context, group_ids: Iterable[str]) -> None:
    """Wait while these groups change: a member whose session is over, or that leaves, counts no more.

    No longer than SETTLED_S_MAX: the log decides in the end.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(SETTLED_S_MAX):
            for group_id in group_ids:
                await ctx.services.groups.settled(group_id)
                await ctx.services.consumer_groups.settled(group_id)


async def propose_one(ctx: Context, message: Message, timeout_ms: int = 30_000) -> Result:
    """`propose` for one message."""
    return (await propose(ctx, [message], timeout_ms))[0]
