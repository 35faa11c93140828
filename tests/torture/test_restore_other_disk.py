"""etcd is lost after one of its members had another log, and that member's agent was who archived it.

Three real members. What is not archived yet is changed in the `db` of one of them, in entries that the
newest snapshot has already: an agent that starts there has the right state, so nothing tells it that what it
reads for the archive is wrong. Then all members lose their data, and the bucket its newest snapshots, so that
the restored log comes from the archive alone. Nothing that was acknowledged is lost or another partition's.
The control is an agent that does not ask the other members.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from deploy.services.etcd import EtcdCluster
from deploy.services.floe import FloeAgent
from objectstore.naming import parse_snapshot_key
from tests.torture.other_disk import Victim, change_disk, status, told_by, until, victims
from tests.torture.restoring import restore
from tests.torture.run import create_topic, unexplained
from tests.torture.unasking_agent import UnaskingAgent
from tests.torture.verdict import judge
from tests.torture.workload import Writer, read_all

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]

TOPIC, PARTITIONS = "divergent", (0, 1, 2)
REFUSED = "not as most copies of the log have them"


class Lab(NamedTuple):
    """The servers. `agent` makes one that follows the member of that number first."""

    etcd: EtcdCluster
    bucket: Path
    agent: Callable[..., FloeAgent]

    def snapshots(self) -> dict[int, Path]:
        """By revision, oldest first."""
        found: dict[int, Path] = {}
        for path in sorted((self.bucket / "snapshots").glob("*.snap")):
            named = parse_snapshot_key(f"snapshots/{path.name}")
            assert named is not None
            found[named.revision] = path
        return found

    def victim(self) -> Victim | None:
        """An entry that the newest snapshot has and the log still has, too."""
        newest = max(self.snapshots(), default=0)
        return next((each for each in victims(self.etcd.members[0]) if each.revision <= newest), None)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with ExitStack() as stack:
        etcd = stack.enter_context(EtcdCluster())

        def agent(name: str, first: int, kind: type[FloeAgent] = FloeAgent, **more: Any) -> FloeAgent:
            endpoints = etcd.endpoints[first:] + etcd.endpoints[:first]
            settings: dict[str, Any] = {
                "log": {"url": f"etcd://{','.join(endpoints)}/floe", "lease_ttl_s": 5},
                "store": {"url": f"file://{tmp_path / 'bucket'}"},
                "snapshots": {"interval_s": 3_600},
                "shutdown": {"drain_ms": 0},
                "tables": {"enabled": False},
            }
            return stack.enter_context(kind(name, settings | more))

        yield Lab(etcd, tmp_path / "bucket", agent)


@pytest.mark.parametrize(
    "asks",
    [pytest.param(True, id="asked"), pytest.param(False, id="control", marks=pytest.mark.thorough)],
)
def test_what_a_member_with_another_log_has_is_not_what_is_restored(lab: Lab, asks: bool) -> None:
    early = _before_the_archive(lab)
    victim = lab.victim()
    assert victim is not None, "the log has entries that the newest snapshot has"
    change_disk(lab.etcd.members[2], victim)
    archiving = {"log_archive": {"interval_ms": 500}}
    writes = lab.agent("agent-2", 2, FloeAgent if asks else UnaskingAgent, **archiving)
    other = lab.agent("agent-3", 0, log_archive={"enabled": False})
    late = Writer("late", f"{writes.bootstrap},{other.bootstrap}", TOPIC, PARTITIONS, rate=100)
    _send(late, 300)
    until(lambda: _archived(writes), "all is archived")
    assert bool(told_by(writes, REFUSED)) == asks, told_by(writes, "archive")
    for agent in (writes, other):
        agent.kill()
    _lose(lab, victim.revision)
    report = restore(lab.bucket, lab.etcd.members[0])
    begun_at = parse_snapshot_key(report["snapshot"])
    assert begun_at is not None, report
    assert begun_at.revision < victim.revision, report
    for agent in (writes, other):
        agent.start()
    verdict = judge(early.sent + late.sent, read_all(other.bootstrap, TOPIC, PARTITIONS), [])
    verdict.findings += unexplained([early, late])
    if asks:
        assert verdict.findings == [], verdict.report()
        assert verdict.acknowledged > 600
    else:
        assert verdict.findings, "records of one partition are another's"


def _before_the_archive(lab: Lab) -> Writer:
    """Records, snapshots and a trimmed log, and nothing archived yet; no agent runs any more."""
    often = {"snapshots": {"interval_s": 2}, "log_archive": {"enabled": False}}
    agents = [lab.agent(f"agent-{number}", number, **often) for number in range(2)]
    bootstrap = ",".join(agent.bootstrap for agent in agents)
    create_topic(bootstrap, TOPIC, len(PARTITIONS))
    writer = Writer("early", bootstrap, TOPIC, PARTITIONS, rate=100)
    writer.start()
    until(lambda: sum(each.outcome == "ok" for each in writer.sent) > 300, "records are acknowledged")
    until(
        lambda: len(lab.snapshots()) > 1 and lab.victim() is not None,
        "snapshots are ahead of the log's begin",
    )
    writer.stop()
    for agent in agents:
        agent.kill()
    return writer


def _send(writer: Writer, count: int) -> None:
    writer.start()
    until(lambda: sum(each.outcome == "ok" for each in writer.sent) > count, "records are acknowledged")
    writer.stop()


def _archived(agent: FloeAgent) -> bool:
    """Whether nothing but what an idle cluster writes is in no piece."""
    told = status(agent).get("log_archive") or {}
    return bool(told.get("writes") and told["through"] and told["lag_seconds"] == 0)


def _lose(lab: Lab, revision: int) -> None:
    """All members' data, and each snapshot that has what is at `revision`."""
    for member in lab.etcd.members:
        member.kill()
        shutil.rmtree(member.data)
    lab.etcd.start()
    for at, path in lab.snapshots().items():
        if at >= revision:
            path.unlink()
