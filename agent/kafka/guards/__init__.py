"""Where requests are held against the ACLs: one guard per API, around its handler. Start reading here.

A guard takes out of a request what the client may not, lets the handler answer the rest, and adds the
refusals; or it refuses the request. With `authorizer.mode=off` none is asked. Produce and OffsetCommit
overlap on their connection and must not wait before their handler's turn, and what a Fetch is about its
session knows: those three handlers ask by themselves. So does Metadata's for the topics that it creates.

A guard looks at the state before the handler does, and the log goes on meanwhile: what is not there may be
there by then, a deleted topic under its old id too. No row goes on unasked because it names nothing.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from agent.kafka.context import Context
from agent.kafka.guards import (
    configs,
    describing,
    groups,
    metadata,
    positions,
    topics,
    transactions,
    whole,
)
from agent.kafka.guards.rows import Guard
from agent.kafka.handlers import Handler

GUARDS: dict[int, Guard] = {
    **configs.GUARDS,
    **describing.GUARDS,
    **groups.GUARDS,
    **metadata.GUARDS,
    **positions.GUARDS,
    **topics.GUARDS,
    **transactions.GUARDS,
    **whole.GUARDS,
}
BY_THEMSELVES = frozenset((0, 1, 8))
"""APIs whose handlers ask."""


def guarded(ctx: Context, key: int, handler: Handler, request: Any, version: int) -> Coroutine[Any, Any, Any]:
    """The handler's answer, or what stands for it where the client may not."""
    guard = None if ctx.services.authority.off else GUARDS.get(key)
    if guard is None:
        return handler.handle(ctx, request, version)
    return guard(ctx, request, version, handler.handle)
