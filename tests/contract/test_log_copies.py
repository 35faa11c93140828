"""What the copies of a log say of its entries, each for itself: coordination.log.Copied (decision 0043)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coordination.clock import SystemClock
from coordination.etcd.follower import FollowOptions
from coordination.etcd.log import EtcdLog, EtcdOptions
from coordination.log import Copied, Log, LogEntry
from coordination.state.digest import print_of
from deploy.services import EtcdCluster
from tests.contract.log_labs import CLUSTER, EtcdLab, Lab, MemoryLab, RebasedLab
from tests.contract.test_log import Reader, fill, start

SERVED = pytest.mark.services
QUICK = EtcdOptions(attempt_timeout_s=2.0, call_timeout_s=5.0, follow=FollowOptions(0.2, 2.0))
VALUE, OTHER = b"a value that is found in the file", b"another one, which is just as long"[:33]


@pytest.fixture(params=["memory", pytest.param("etcd", marks=SERVED), pytest.param("rebased", marks=SERVED)])
async def lab(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Lab]:
    made: Lab = MemoryLab()
    if request.param != "memory":
        kind = EtcdLab if request.param == "etcd" else RebasedLab
        made = kind(request.getfixturevalue("own_etcd"), tmp_path)
    yield made
    await made.close()


def copied(log: Log) -> Copied:
    assert isinstance(log, Copied)
    return log


async def test_each_copy_tells_its_entries_between_two_revisions(lab: Lab) -> None:
    client, chain = await start(lab)
    revisions = await fill(chain, 600)  # more than a page
    log = copied(client.log)
    found = await log.copies(revisions[1], revisions[-2])
    assert found
    for copy in found.values():
        assert copy is not None
        assert list(copy.prints) == revisions[2:-1]
        assert copy.prints[revisions[2]] == print_of(LogEntry(0, 1, 3, b"2"))
    assert all(copy and not copy.prints for copy in (await log.copies(revisions[3], revisions[3])).values())


async def test_what_is_trimmed_is_told_so(lab: Lab) -> None:
    client, chain = await start(lab)
    revisions = await fill(chain, 4)
    await client.log.trim(revisions[1])
    for copy in (await copied(client.log).copies(0, revisions[-1])).values():
        assert copy is not None
        assert copy.trimmed == revisions[1]
        assert list(copy.prints) == revisions[2:]


async def test_who_turns_from_its_only_copy_goes_on_with_it(lab: Lab) -> None:
    client, chain = await start(lab)
    await fill(chain, 2)
    log = copied(client.log)
    log.turn_from(())
    log.turn_from(list(await log.copies(0, 1)))
    assert await client.log.current() > 0


@pytest.mark.services
async def test_a_member_with_another_value_on_its_disk_is_told_from_the_others() -> None:
    """And one that is away is told as such; who turned from a member reads from another one."""
    cluster = EtcdCluster()
    await asyncio.to_thread(cluster.start)
    log = EtcdLog(cluster.endpoints, CLUSTER, SystemClock(), QUICK)
    try:
        chain = await log.register(1, b"", 60.0)
        revisions = [await chain.append(VALUE) for _ in range(3)]
        await asyncio.to_thread(_change, cluster)
        found = await log.copies(0, revisions[-1])
        prints = {name: {} if copy is None else copy.prints for name, copy in found.items()}
        odd, *others = cluster.endpoints
        assert prints[others[0]] == prints[others[1]]
        assert prints[odd] == dict.fromkeys(revisions) | {
            at: print_of(LogEntry(at, 1, number, OTHER)) for number, at in enumerate(revisions, 1)
        }
        log.turn_from([odd])
        reader = Reader(log)
        assert {each.payload for each in await reader.reaches(revisions[-1])} == {VALUE}
        await reader.stop()
        await asyncio.to_thread(cluster.members[1].kill)
        assert (await log.copies(0, revisions[-1]))[others[0]] is None
    finally:
        await log.close()
        cluster.stop()


def _change(cluster: EtcdCluster) -> None:
    member = cluster.members[0]
    member.terminate()
    path = member.data / "member" / "snap" / "db"
    content = path.read_bytes()
    assert VALUE in content
    path.write_bytes(content.replace(VALUE, OTHER))
    member.start()
