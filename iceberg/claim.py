"""The claim of a topic's committer: who holds it commits. The log says who does, not what was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordination.commands import Claim, ReleaseClaim
from coordination.kafka_codes import Code
from coordination.state.types import ClaimHolder, Done, Refused
from iceberg.steps import Steps

if TYPE_CHECKING:
    from coordination.replica import Replica


class ClaimRefused(Exception):
    """The log takes no such claim, and not because another agent holds it; the message says why."""


def claim_name(topic: str) -> str:
    """The claim that the committer of a topic holds."""
    return f"committer/{topic}"


class TopicClaim:
    """One table's claim, as this agent takes it and gives it back. `revision`: what it commits by, or 0."""

    def __init__(self, replica: Replica, name: str) -> None:
        self.name = name
        self.revision = 0
        self._replica = replica

    def held(self) -> ClaimHolder | None:
        """This agent's hold on the topic, as the log has it: an answer may have been lost."""
        holder = self._replica.state.claims.get(self.name)
        if holder is None or not self._replica.ready or holder.incarnation != self._replica.incarnation:
            return None
        return holder

    def holds(self, incarnation: int) -> bool:
        """Whether the claim is held as it was taken last."""
        holder = self._replica.state.claims.get(self.name)
        return holder is not None and holder == ClaimHolder(incarnation, self.revision)

    async def take(self, incarnation: int, steps: Steps) -> bool:
        """Take the claim if nobody live holds it. Raises ClaimRefused and coordination.log.LogError."""
        self.revision = 0
        state = self._replica.state
        holder = state.claims.get(self.name)
        if holder is not None and holder.incarnation != incarnation and state.is_live(holder.incarnation):
            return False
        await steps.before("claim")
        result = await self._replica.propose(Claim(name=self.name), incarnation=incarnation)
        if isinstance(result, Done):
            assert isinstance(result.value, int)
            self.revision = result.value
        elif isinstance(result, Refused) and result.code not in _ANOTHERS:
            raise ClaimRefused(f"claim {self.name}: {result.code.name}: {result.message}")
        return bool(self.revision)

    async def release(self) -> None:
        """Give back what the log says is held. Raises coordination.log.LogError: then ask again."""
        held = self.held()
        if held is not None:
            release = ReleaseClaim(name=self.name, claim_revision=held.revision)
            await self._replica.propose(release, incarnation=held.incarnation)
        self.revision = 0


_ANOTHERS = (Code.NOT_COORDINATOR, Code.STALE_BROKER_EPOCH, Code.BROKER_ID_NOT_REGISTERED)
"""Refusals that say: another agent goes on, or this one as somebody new."""
