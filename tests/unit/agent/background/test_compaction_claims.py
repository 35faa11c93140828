"""Claims of compaction: given back whatever becomes of the log, and not asked for again and again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.background.rewriting.compaction import job as job_module
from agent.background.rewriting.compaction.choice import claim_of
from agent.background.rewriting.compaction.worker import Begin
from agent.background.rewriting.patience import PUT_OFF_S
from coordination.commands import Claim, DeleteTopic, ReleaseClaim
from coordination.log import Unavailable
from coordination.replica.errors import OutcomeUnknown
from coordination.state import cluster
from objectstore.adapters.memory import MemoryStore
from objectstore.naming import MarkerId, object_key
from tests.unit.agent.background.compaction_rig import NOW, At, InlineWorker, compaction, partition_of
from tests.unit.agent.background.merging_rig import merge_rows
from tests.unit.agent.background.test_compaction import put
from tests.unit.agent.kafka.admin_calls import create, topic
from tests.unit.agent.rig import Agent


async def dirty(agent: Agent, *names: str) -> None:
    """Topics of which each has a partition that is due."""
    for name in names:
        await create(agent, topic(name, cleanup_policy="compact"))
        await put(agent, name, (b"a", b"1"), (b"a", b"2"))


def failing_once(agent: Agent, kind: type, error: Exception, *, lands: bool) -> Any:
    """The replica's `propose`, for which the log is away, or its answer lost, at the first of a kind."""
    propose, failed = agent.services.replica.propose, []

    async def sick(message: Any, **more: Any) -> Any:
        if not isinstance(message, kind) or failed:
            return await propose(message, **more)
        failed.append(message)
        if lands:
            await propose(message, **more)
        raise error

    return sick


@pytest.mark.parametrize(
    ("kind", "error", "lands"),
    [
        (ReleaseClaim, Unavailable("away"), False),
        (ReleaseClaim, OutcomeUnknown("?"), False),
        (ReleaseClaim, OutcomeUnknown("?"), True),
        (Claim, OutcomeUnknown("?"), True),
    ],
)
async def test_a_claim_that_was_not_given_back_is_at_the_next_look(
    agent: Agent,
    memory_store: MemoryStore,
    monkeypatch: pytest.MonkeyPatch,
    kind: type,
    error: Exception,
    lands: bool,
) -> None:
    """Though this agent may run no jobs by then: else merging keeps off the partition as long as it lives."""
    await dirty(agent, "c")
    job, replica = compaction(agent, memory_store, At(NOW)), agent.services.replica
    handle = partition_of(agent, "c").handle
    monkeypatch.setattr(replica, "propose", failing_once(agent, kind, error, lands=lands))
    with pytest.raises(type(error)):
        await job.compact(handle)
    assert (claim_of(handle) in replica.state.claims) is (not lands or kind is Claim)
    monkeypatch.setattr(job_module, "runs_jobs", lambda *_: False)
    await job._look()
    assert not replica.state.claims
    assert not job._asked or lands


async def test_what_another_incarnation_left_is_its_own(agent: Agent, memory_store: MemoryStore) -> None:
    await dirty(agent, "c")
    job = compaction(agent, memory_store, At(NOW))
    job._asked[partition_of(agent, "c").handle] = 7
    await job._release_strays()
    assert not job._asked


async def test_a_claim_that_the_log_does_not_take_is_asked_for_once_in_a_while(
    agent: Agent, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster has as many claims as it takes: each of the partitions is left alone, and that is told."""
    await dirty(agent, "c", "d")
    job, replica = compaction(agent, memory_store, At(NOW)), agent.services.replica
    propose, asked = replica.propose, []

    async def counted(message: Any, **more: Any) -> Any:
        asked.append(message)
        assert len(asked) < 5, "again and again"
        return await propose(message, **more)

    monkeypatch.setattr(replica, "propose", counted)
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "CLAIMS_MAX", len(replica.state.claims))
        await job._look()
    handles = [partition_of(agent, name).handle for name in ("c", "d")]
    assert sorted(message.name for message in asked) == sorted(map(claim_of, handles))
    assert list(job.failures) == [f"partition {handle}" for handle in sorted(handles, reverse=True)]
    assert "the most it takes" in job.failures[f"partition {handles[0]}"].error
    asked.clear()
    done = await job.compact(handles[0])
    assert done is not None
    assert list(job.failures) == [f"partition {handles[1]}"], "forgotten once it works"


async def test_who_may_run_no_jobs_any_more_ends_at_the_next_partition(
    agent: Agent, memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await dirty(agent, "c", "d")
    job = compaction(agent, memory_store, At(NOW))
    compact, done = job.compact, []

    async def counted(handle: int) -> Any:
        monkeypatch.setattr(job_module, "runs_jobs", lambda *_: False)
        done.append(handle)
        return await compact(handle)

    monkeypatch.setattr(job, "compact", counted)
    await job._look()
    assert len(done) == 1


@pytest.mark.parametrize("merged", [True, False])
async def test_only_what_nobody_took_away_is_a_failure(
    agent: Agent, memory_store: MemoryStore, *, merged: bool
) -> None:
    """Merging takes rows, collection their chunks: a partition that is always written to was put off for
    minutes, as if its objects were damaged. A chunk that is gone though the partition names it is a failure,
    until the topic is gone as well.
    """
    await dirty(agent, "c")
    handle = partition_of(agent, "c").handle

    class Outpaced(InlineWorker):
        """What the pass is to read next goes away as it begins."""

        async def begin(self, begin: Begin) -> None:
            await super().begin(begin)
            rows = partition_of(agent, "c").slices.oldest(9, 1 << 20)
            chunks = {object_key(row.chunk) for row in rows if not isinstance(row.chunk, MarkerId)}
            if merged:
                await merge_rows(agent, memory_store, 10, name="c")
            await memory_store.delete(list(chunks))

    job = compaction(agent, memory_store, At(NOW), worker=Outpaced())
    assert await job.compact(handle) is None
    failing = [each.name for each in job.failing_items(0)]
    rests_s = job._put_off[handle] - asyncio.get_running_loop().time()
    assert not agent.services.replica.state.claims
    if merged:
        assert failing == []
        assert rests_s < PUT_OFF_S / 2
        job._parts.worker.__class__ = InlineWorker
        assert await job.compact(handle) is not None
    else:
        assert failing == [f"compaction: partition {handle}"]
        assert rests_s > PUT_OFF_S / 2
        await agent.services.replica.propose(DeleteTopic(name="c"))
        assert list(job.failing_items(0)) == [], "nobody will work on it again"
