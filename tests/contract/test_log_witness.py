"""What a log of several agents says when asked about what another says: coordination.log.Witness."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from coordination.log import Log, LogEntry, Statement, Witness
from tests.contract.log_labs import EtcdLab, Lab, MemoryLab, RebasedLab, until
from tests.contract.test_log import Reader, fill, start

SERVED = pytest.mark.services


@pytest.fixture(params=["memory", pytest.param("etcd", marks=SERVED), pytest.param("rebased", marks=SERVED)])
async def lab(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Lab]:
    made: Lab = MemoryLab()
    if request.param != "memory":
        kind = EtcdLab if request.param == "etcd" else RebasedLab
        made = kind(request.getfixturevalue("own_etcd"), tmp_path)
    yield made
    await made.close()


def witness(log: Log) -> Witness:
    assert isinstance(log, Witness)
    return log


async def test_it_tells_its_newest_entry_and_whether_it_has_one_exactly(lab: Lab) -> None:
    client, chain = await start(lab)
    log = witness(client.log)
    assert (await log.testify()).newest == 0, "who registered has written nothing yet"
    revisions = await fill(chain, 3)
    entry = LogEntry(revisions[1], 1, 2, b"1")
    current = await client.log.current()
    assert await log.testify(entry) == Statement(current, revisions[-1], True)
    odd = [
        replace(entry, revision=entry.revision + 1),
        replace(entry, sequence=1),
        replace(entry, incarnation=7),
        replace(entry, payload=b"2"),
    ]
    for each in odd:
        assert not (await log.testify(each)).holds, each
    assert (await log.testify()).holds


async def test_a_trimmed_entry_cannot_be_denied(lab: Lab) -> None:
    client, chain = await start(lab)
    revisions = await fill(chain, 3)
    await client.log.trim(revisions[1])
    log = witness(client.log)
    assert (await log.testify(LogEntry(revisions[0], 1, 1, b"another"))).holds
    assert (await log.testify(LogEntry(revisions[2], 1, 3, b"2"))).holds
    assert not (await log.testify(LogEntry(revisions[2], 1, 3, b"another"))).holds


async def test_of_two_authors_the_newest_counts_and_one_that_is_gone_does_not(lab: Lab) -> None:
    client, chain = await start(lab)
    _, other = await start(lab, 2)
    first = await chain.append(b"a")
    second = await other.append(b"b")
    assert (await witness(client.log).testify()).newest == second
    await client.log.fence(2)
    found = await witness(client.log).testify()
    assert found.newest == first
    assert found.revision > second


async def test_followers_are_told_when_somebody_asks(lab: Lab) -> None:
    """A revision without an entry, of which this follower's own link has heard nothing."""
    client, chain = await start(lab)
    (revision,) = await fill(chain, 1)
    reader = Reader(client.log, lab.floor)
    await reader.reaches(revision)
    another = await lab.client()
    await start(lab, 2)
    wanted = await another.log.current()
    witness(client.log).ask_progress()
    await until(lambda: reader.through >= wanted)
    await reader.stop()
