"""The one step by which a commit becomes true: the table's pointer moves in the log, under a claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordination.commands import CommitTable, command
from coordination.kafka_codes import Code
from coordination.state.types import Refused
from iceberg.claim import TopicClaim

if TYPE_CHECKING:
    from coordination.replica import Replica

_RACES = (
    Code.NOT_COORDINATOR,
    Code.INVALID_UPDATE_VERSION,
    Code.RESOURCE_NOT_FOUND,
    Code.STALE_BROKER_EPOCH,
    Code.BROKER_ID_NOT_REGISTERED,
)
"""Refusals of a commit that say: the table or the claim moved on."""


class CommitError(Exception):
    """The commit had no effect and repeating it as it is will not help; the message says why."""


class TableConflict(Exception):
    """The name of a topic's table is taken by a table that Floe did not make. It is left alone."""


class LostRace(Exception):
    """The commit had no effect: the claim or the table moved on. The next try starts from the new head."""


async def move_pointer(replica: Replica, claim: TopicClaim, message: CommitTable, incarnation: int) -> None:
    """Raises LostRace and CommitError when the log refuses it, and the errors of the log."""
    (result,) = await replica.submit([command(message)], incarnation=incarnation)
    if not isinstance(result, Refused):
        return
    if result.code is Code.NOT_COORDINATOR:
        claim.revision = 0
    table = f"table {message.namespace}.{message.name}"
    if result.code in _RACES:
        raise LostRace(f"{table}: {result.message}")
    raise CommitError(f"{table}: {result.code.name}: {result.message}")
