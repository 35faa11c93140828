"""No topic keeps another from its table, no damage the topic from what else it needs, no claim is kept."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordination.commands import Claim, MoveLogStart, ReleaseClaim
from coordination.log import Unavailable
from coordination.replica.errors import OutcomeUnknown
from coordination.state import cluster
from coordination.state.types import Done
from iceberg import service as service_module
from iceberg.committer import Committed, Committer, CommitterOptions
from objectstore.cache import SliceCache
from objectstore.naming import chunk_key
from objectstore.tasks import DEFECTS
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import KillAt, Killed, Rig, until
from tests.unit.iceberg.test_tables_damage import chunk_at
from tests.unit.iceberg.test_tables_service import ALONE, FAST, committed, files, serving, three


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent, with nothing of the records in memory."""
    async with rigs.running(tmp_path) as found:
        found.reader._tail = found.reader._cold = SliceCache(0)
        yield found


class FailingOnce:
    """A replica's `propose`: when a claim is first given back the log is away, or its answer lost.

    Or when it is first taken: `kind`.
    """

    def __init__(self, rig: Rig, error: Exception, *, lands: bool = False, kind: type = ReleaseClaim) -> None:
        self.failed, self._kind = 0, kind
        self._propose, self._error, self._lands = rig.replica.propose, error, lands

    async def __call__(self, message: Any, **more: Any) -> Any:
        """See Replica.propose."""
        if not isinstance(message, self._kind) or self.failed:
            return await self._propose(message, **more)
        self.failed += 1
        if self._lands:
            await self._propose(message, **more)
        raise self._error


@pytest.mark.parametrize("lands", [False, True])
async def test_a_claim_whose_release_failed_is_given_back_all_the_same(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lands: bool
) -> None:
    """Else every other agent sees the topic held, and its table stops without a word."""
    await rig.create_topic()
    await rig.produce([b"1"])
    async with serving(rig) as service:
        await committed(service, "t", 1)
        sick = FailingOnce(rig, OutcomeUnknown("?") if lands else Unavailable("away"), lands=lands)
        monkeypatch.setattr(rig.replica, "propose", sick)
        monkeypatch.setattr(service_module, "runs_jobs", lambda *_: False)
        await until(lambda: bool(sick.failed))
        await until(lambda: not rig.replica.state.claims)
        async with rigs.running(tmp_path, server=rig.server, name="other") as other:
            await other.produce([b"2"])
            assert await other.drain(other.committer()) == 1


async def test_a_claim_that_was_taken_without_an_answer_is_given_back(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.create_topic()
    sick = FailingOnce(rig, OutcomeUnknown("?"), lands=True, kind=Claim)
    monkeypatch.setattr(rig.replica, "propose", sick)
    async with serving(rig, replace(FAST, retry_s=600.0)):
        await until(lambda: bool(sick.failed and rig.replica.state.claims))
        monkeypatch.setattr(service_module, "runs_jobs", lambda *_: False)
        await until(lambda: not rig.replica.state.claims)


async def test_a_topic_that_is_gone_keeps_no_claim_though_its_release_failed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.create_topic()
    await rig.produce([b"1"])
    async with serving(rig) as service:
        await committed(service, "t", 1)
        sick = FailingOnce(rig, Unavailable("away"))
        monkeypatch.setattr(rig.replica, "propose", sick)
        await rig.delete_topic()
        await until(lambda: bool(sick.failed))
        assert service.committer("t") is None
        await until(lambda: not rig.replica.state.claims)
        await until(lambda: not service._jobs)


async def test_one_failing_release_keeps_no_other_claim_at_the_end(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await three(rig)
    async with serving(rig) as service:
        for name in ("a", "b", "c"):
            await committed(service, name, 1)
        monkeypatch.setattr(rig.replica, "propose", FailingOnce(rig, Unavailable("away")))
    assert len(rig.replica.state.claims) == 1


class Backlog:
    """Into topic b comes a record at every commit of it, so that it always has more; follows are counted."""

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commits, self.follows = 0, Counter[str]()
        run_once, follow = Committer.run_once, Committer.follow

        async def running(committer: Committer) -> Committed | None:
            if committer.topic != "b":
                return await run_once(committer)
            await rig.produce([b"more"], topic="b")
            done = await run_once(committer)
            assert done is not None
            assert done.more
            self.commits += 1
            return done

        async def following(committer: Committer) -> int:
            self.follows[committer.topic] += 1
            return await follow(committer)

        monkeypatch.setattr(Committer, "run_once", running)
        monkeypatch.setattr(Committer, "follow", following)


async def test_a_topic_that_always_has_more_keeps_no_other_waiting(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One commit at a time is all that this agent makes. The topic's own old rows go all the same."""
    rig.options = CommitterOptions(rows_per_commit_max=1)
    await three(rig)
    backlog = Backlog(rig, monkeypatch)
    async with serving(rig, ALONE) as service:
        await until(lambda: backlog.commits > 0)
        for number in (1, 2, 3):
            for name in ("a", "c"):
                await committed(service, name, number)
                await rig.produce([b"%d" % (number + 1)], topic=name)
        await until(lambda: backlog.follows["b"] > 1)
        monkeypatch.undo()  # nothing more comes, and the rest is committed
        rows = rig.replica.state.topics["b"].partitions[0].high_watermark
        await committed(service, "b", rows)
    assert service.status()["b"].commits == rows


async def test_a_backlog_waits_for_nothing_when_nobody_else_is_due(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next turn is taken at once: were it the next look's, this would be as many seconds."""
    rig.options = CommitterOptions(rows_per_commit_max=1)
    await rig.create_topic()
    await rig.produce([b"%d" % number for number in range(50)])
    looks: list[float] = []
    async with serving(rig, replace(FAST, interval_s=5.0)) as service:
        look = service._start_due

        def looking(now: float) -> None:
            looks.append(now)
            look(now)

        monkeypatch.setattr(service, "_start_due", looking)
        await committed(service, "t", 50)
    assert len(looks) >= 50, "a look for each turn"


async def test_damage_keeps_neither_old_rows_nor_strays_of_its_table(rig: Rig) -> None:
    """Rule 16: partition 0 cannot be read any more; partition 1's rows go with its log start, orphans too."""
    rig.options = CommitterOptions(orphan_grace_s=0)
    await rig.create_topic(floe__table__retention="follow")
    for number in range(2):
        for partition in (0, 1):
            await rig.produce([b"%d" % number], partition)
        await rig.drain(rig.committer())
    before = await files(rig)
    await rig.produce([b"2"], 1)
    with pytest.raises(Killed):
        await rig.committer(steps=KillAt(name="store-manifests")).run_once()
    strays = await files(rig) - before
    assert strays
    await rig.produce([b"lost"])
    await rig.store.delete([chunk_key(chunk_at(rig, 0, 2))])
    async with serving(rig, replace(FAST, collect_s=0.01, retry_s_max=0.1)) as service:
        await committed(service, "t", 1)
        await until(lambda: service.status()["t"].failures > 0)
        assert "records are damaged or lost" in service.status()["t"].last_error
        handle = rig.replica.state.topics["t"].partitions[1].handle
        assert isinstance(await rig.replica.propose(MoveLogStart(partition=[handle], offset=[2])), Done)
        while [row["kafka"]["offset"] for row in await rig.rows() if row["kafka"]["partition"]] != [2]:
            await rig.produce([b"more"])  # a table whose topic stands still is not looked at again
        while strays & await files(rig):
            await rig.produce([b"more"])


async def test_topics_that_come_and_go_leave_nothing_with_an_agent_that_runs_no_jobs(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "runs_jobs", lambda *_: False)
    async with serving(rig) as service:
        for number in range(3):
            await rig.create_topic(f"t{number}")
            await rig.produce([b"1"], topic=f"t{number}")
            await until(lambda number=number: f"t{number}" in service._dirty)
            await rig.delete_topic(f"t{number}")
        await until(lambda: not service._dirty)


async def test_a_look_at_very_many_topics_lets_others_run(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """One topic is deleted while the others are looked at."""
    monkeypatch.setattr(service_module, "TOPICS_STEP", 2)
    for number in range(6):
        await rig.create_topic(f"t{number}")
    service = service_module.CommitterService(rig.parts, FAST)
    look = asyncio.create_task(service._refresh(0.0))
    await asyncio.sleep(0)
    assert sorted(service._jobs) == ["t0", "t1"]
    del rig.replica.state.topics["t5"]
    await look
    assert sorted(service._jobs) == ["t0", "t1", "t2", "t3", "t4"]


async def test_a_claim_that_the_log_does_not_take_is_told(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster has as many claims as it takes: the topic has no table, and its status says why."""
    await rig.create_topic()
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "CLAIMS_MAX", 0)
        async with serving(rig) as service:
            await until(lambda: "t" in service.status() and service.status()["t"].failures > 0)
            assert "the most it takes" in service.status()["t"].last_error
            patch.undo()
            await rig.produce([b"1"])
            await committed(service, "t", 1)


async def test_a_store_that_takes_too_long_is_no_defect(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.create_topic()
    await rig.produce([b"1"])
    told = DEFECTS.counts["commit of a table"]

    async def slow(*_: object) -> None:
        raise TimeoutError

    async with serving(rig) as service:
        with monkeypatch.context() as patch:
            patch.setattr(rig.store, "put", slow)
            await until(lambda: "t" in service.status() and service.status()["t"].failures > 0)
        await committed(service, "t", 1)
    assert DEFECTS.counts["commit of a table"] == told
