"""Changes in parts whose author dies on the way, and snapshots taken meanwhile (rule 12, KIP-868)."""

from __future__ import annotations

import pytest

from coordination import snapshot_keeper
from coordination.commands import CreateTopic, FenceIncarnation, command, split_large
from coordination.kafka_codes import Code
from coordination.log import Full
from coordination.replica import Replica, author
from coordination.replica.proposals import PART_BYTES_MAX
from coordination.snapshot_keeper import SnapshotKeeper
from coordination.state import Done, Refused
from coordination.state.multipart import CHANGES_PER_AUTHOR_MAX
from tests.unit.coordination.conftest import Agents, until
from tests.unit.coordination.test_replica import crash

COUNT = 6_500  # topics with names of 240 bytes: four parts, the last two in one entry with the end


def many() -> list[CreateTopic]:
    return [
        CreateTopic(name=f"t{n:05}".ljust(240, "x"), topic_id=b"%016d" % n, partitions=1)
        for n in range(COUNT)
    ]


def parts_open(replica: Replica) -> int:
    return max((len(parts) for parts in replica.state.pending.values()), default=0)


def test_no_part_outweighs_its_limit() -> None:
    *parts, _ = list(split_large([command(one) for one in many()], 1, PART_BYTES_MAX))[1:]
    assert len(parts) == 4
    assert max(len(each.part.content) for each in parts) == PART_BYTES_MAX


async def test_what_is_too_much_for_one_change_is_refused_for_good(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for now, as when the log is away: clients would send it again for ever."""
    agent = await agents.start("a")
    monkeypatch.setattr("coordination.replica.proposals.CHANGE_BYTES_MAX", 1 << 20)
    topics = [command(one) for one in many()]
    results = await agent.submit(topics)
    assert len(results) == COUNT
    assert {
        (r.code, "at most 1048576 are taken" in r.message) for r in results if isinstance(r, Refused)
    } == {(Code.POLICY_VIOLATION, True)}
    assert not agent.state.topics
    assert all(isinstance(result, Done) for result in await agent.submit(topics[:100]))


@pytest.mark.parametrize("arrived", [1, 2])
async def test_a_snapshot_in_the_middle_and_then_the_author_dies(
    agents: Agents, arrived: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who starts from that snapshot knows the open change, and drops it with its author as the others do."""
    a, b = (
        await agents.start("a", heartbeat_s=60, ttl_s=60),
        await agents.start("b", members_s=60, heartbeat_s=60, ttl_s=60, confirm_s=0),
    )
    sent: list[str] = []
    monkeypatch.setattr(snapshot_keeper, "UNCONFIRMED_S_MAX", 0)  # the author, cut off, can confirm nothing

    def cut(step: str) -> None:
        sent.append(step)
        if sent.count("change/part") > arrived:
            agents.logs["a"].faults.partitioned = True

    monkeypatch.setattr(author, "reach", cut)
    a.submit([command(one) for one in many()])
    await until(lambda: parts_open(b) >= arrived)
    await SnapshotKeeper(b, agents.logs["b"], agents.store).write()
    dead = a.incarnation
    await crash(a)
    c = await agents.start("c", members_s=60, heartbeat_s=60, ttl_s=60, confirm_s=0)
    assert parts_open(c) == parts_open(b) > 0
    assert not c.state.topics
    monkeypatch.undo()
    agents.server.expire(dead)
    await b.propose(FenceIncarnation(incarnation=dead))
    await c.barrier()
    for one in (b, c):
        assert not one.state.pending, "nothing is kept of a change whose author is gone"
        assert not one.state.topics
    assert c.state.hash == b.state.hash_at(c.state.revision)
    results = await c.submit([command(one) for one in many()])
    assert all(isinstance(result, Done) for result in results)
    await b.barrier()
    assert len(b.state.topics) == COUNT


async def test_several_large_changes_of_one_agent_follow_each_other(agents: Agents) -> None:
    """Each is whole before the next begins, so there may be more of them than may be open."""
    a = await agents.start("a", ttl_s=60, outcome_wait_s=60, queue_wait_s=60)
    largest: list[int] = []
    a.add_listener(lambda applied: largest.append(len(a.state.pending)))
    six = [[command(one) for one in many()] for _ in range(6)]
    answers = [await future for future in [a.submit(one) for one in six]]
    assert [sum(isinstance(r, Done) for r in each) for each in answers] == [COUNT, 0, 0, 0, 0, 0]
    assert max(largest) == 1


async def test_changes_that_a_full_log_interrupts_do_not_use_up_those_that_an_agent_may_have_open(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is full when the second part comes, and still when the Abort does."""
    a = await agents.start("a", heartbeat_s=60, ttl_s=60)
    faults, topics = agents.logs["a"].faults, [command(one) for one in many()]
    sent: list[str] = []

    def fill(step: str) -> None:
        sent.append(step)
        faults.full = sent.count("change/part") > 1

    monkeypatch.setattr(author, "reach", fill)
    for _ in range(CHANGES_PER_AUTHOR_MAX + 1):
        with pytest.raises(Full):
            await a.submit(topics)
        await until(lambda: not a.status()["queued_proposals"])
        faults.full = False
        sent.clear()
    monkeypatch.undo()
    results = await a.submit(topics)
    assert all(isinstance(result, Done) for result in results)
    await until(lambda: not a.state.pending)
