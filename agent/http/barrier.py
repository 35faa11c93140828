"""Waiting for the log within a bound, its failures told as HTTP (503 definite, 504 not known)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agent.http.answers import Problem
from agent.telemetry.trail import http_actor
from coordination.log import LogError
from coordination.replica import OutcomeUnknown, Unavailable
from coordination.state.types import Refused

if TYPE_CHECKING:
    from agent.http.parts import Parts
    from coordination.commands import Command
    from coordination.state.types import Result


async def barrier(parts: Parts) -> int:
    """Everything acknowledged before this call is applied here afterwards (rule 5). Raises Problem 503."""
    timeout_ms = parts.config.http.barrier_timeout_ms
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await parts.replica.barrier()
    except TimeoutError:
        raise Problem(503, f"the log did not answer within {timeout_ms} ms", "try again") from None
    except (LogError, Unavailable) as error:
        raise Problem(503, f"the log is not reached: {error}", "try again") from None


async def submit(parts: Parts, *proposals: Command) -> Result:
    """What apply decided about the last of the commands, or about the first one that it refused.

    Raises Problem 503 (nothing happened) or 504 (it may have).
    """
    messages = [getattr(each, str(each.WhichOneof("kind"))) for each in proposals]
    told = parts.trail.described(messages, parts.replica.state) if parts.trail is not None else ()
    try:
        results = await parts.replica.submit(proposals)
    except OutcomeUnknown as error:
        raise Problem(
            504, f"the outcome is not known: {error}", "read the topic's state, then repeat"
        ) from None
    except (LogError, Unavailable) as error:
        raise Problem(503, f"the log is not reached, nothing was changed: {error}", "try again") from None
    if parts.trail is not None:
        parts.trail.decided(http_actor.get(), told, results)
    return next((each for each in results if isinstance(each, Refused)), results[-1])
