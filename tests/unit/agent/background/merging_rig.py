"""Merging over agents without sockets: the job with its helper in this process, and what tests ask of it."""

from __future__ import annotations

from collections.abc import Sequence

from agent.background.rewriting.decisions import Decisions
from agent.background.rewriting.merging.job import Merging
from agent.background.rewriting.merging.merge import Outcome, Parts, merge, plan
from agent.background.rewriting.merging.planner import Due, MergeRules
from agent.background.rewriting.merging.worker import Session as MergingSession
from agent.background.rewriting.merging.worker import Worker
from agent.background.rewriting.worker import Session, answer_of
from agent.telemetry.metrics import Metrics
from coordination.state.types import Partition
from objectstore.grace import Grace
from objectstore.store import ObjectStore
from tests.unit.agent.rig import Agent

EAGER = MergeRules(min_slices=8, keep_slices=0, tail_slices_max=1000, segment_bytes=1 << 20, age_s=1e9)


class Inline:
    """A helper's session in this process."""

    pid = None

    def __init__(self, session: Session) -> None:
        self.session = session

    async def ask(self, message: object, parts: Sequence[memoryview] = ()) -> tuple[object, memoryview]:
        """See Asking."""
        answer, back = answer_of(self.session, message, memoryview(b"".join(parts)))
        return answer, memoryview(b"".join(back))

    async def close(self) -> None:
        """See Asking."""


def parts_of(
    agent: Agent, store: ObjectStore, rules: MergeRules = EAGER, *, skipped_wait_ms: int = 0
) -> Parts:
    """What merges on this agent share."""
    services = agent.services
    return Parts(
        services.replica,
        store,
        services.merged,
        Worker(Inline(MergingSession())),
        services.clock,
        bytes(16),
        rules,
        Decisions(Grace(skipped_wait_ms, services.clock.now_ms, services.clock.monotonic)),
    )


def job_of(agent: Agent, store: ObjectStore, rules: MergeRules = EAGER) -> Merging:
    """The job of this agent, not started: tests call `_look`."""
    return Merging(parts_of(agent, store, rules), Metrics(), poll_s=0.01)


def partition_of(agent: Agent, name: str = "t", index: int = 0) -> Partition:
    """A partition as the agent has it."""
    return agent.services.replica.state.topics[name].partitions[index]


async def merge_rows(
    agent: Agent,
    store: ObjectStore,
    rows: int,
    *,
    index: int = 0,
    parts: Parts | None = None,
    name: str = "t",
) -> Outcome:
    """Merge the oldest rows of a topic's partition, whatever the rules say of need."""
    due = Due(partition_of(agent, name, index).handle, rows, 1)
    parts, incarnation = parts or parts_of(agent, store), agent.services.replica.incarnation
    return await merge(parts, await plan(parts, [due], incarnation), incarnation)
