"""An etcd member whose disk holds another log than the others': who follows it is found out by the agents.

Three real members, three agents on MinIO, under load. One member is stopped, a value is changed inside its
`db` (etcd has no checksum of values), and it is started again; then an agent is started on it. The agents
find out before it serves, the chart's alert rings, and it makes its state anew from another member. Nothing
that was acknowledged is lost, and nobody reads another record. The control is an agent that does not compare:
it has another state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from deploy.services.etcd import EtcdCluster
from deploy.services.floe import FloeAgent, clustered
from deploy.services.minio import Minio
from deploy.services.prometheus import Prometheus
from tests.torture.alarms.__main__ import JOB, chart_rules
from tests.torture.other_disk import change_disk, status, told_by, until, victims
from tests.torture.run import create_topic, unexplained
from tests.torture.uncomparing_agent import UncomparingAgent
from tests.torture.verdict import judge
from tests.torture.workload import Writer, read_all

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]

TOPIC, PARTITIONS = "divergent", (0, 1, 2)
ALERT, OFTEN_S = "FloeStatesDiffer", 3
SETTINGS: dict[str, Any] = {
    "log": {"lease_ttl_s": 5},
    "replica": {"heartbeat_ms": 1_000},
    "snapshots": {"interval_s": 3_600},  # who starts reads the whole log, and so what was changed
    "log_archive": {"interval_ms": 500},
    "shutdown": {"drain_ms": 0},
    "tables": {"enabled": False},
}


class Lab(NamedTuple):
    """The servers, and two agents on sound members. `third` makes one that follows the last member first."""

    etcd: EtcdCluster
    agents: list[FloeAgent]
    third: Callable[[type[FloeAgent]], FloeAgent]

    @property
    def bootstrap(self) -> str:
        return ",".join(agent.bootstrap for agent in self.agents)


@pytest.fixture
def lab(minio: Minio, bucket: Any) -> Iterator[Lab]:
    with ExitStack() as stack:
        etcd = stack.enter_context(EtcdCluster())
        url = f"s3://{bucket(minio)}/divergent"

        def agent(number: int, kind: type[FloeAgent] = FloeAgent) -> FloeAgent:
            first = etcd.endpoints[number:] + etcd.endpoints[:number]
            tree = clustered(etcd=",".join(first), bucket_url=url, store=minio)
            for section, values in SETTINGS.items():
                tree[section] = {**tree.get(section, {}), **values}
            return stack.enter_context(kind(f"agent-{number}", tree))

        yield Lab(etcd, [agent(0), agent(1)], lambda kind: agent(2, kind))


@pytest.fixture
def prometheus() -> Iterator[Prometheus]:
    """With the chart's alerts, evaluated every OFTEN_S."""
    groups = [group | {"interval": f"{OFTEN_S}s"} for group in chart_rules()]
    with Prometheus(groups=groups, labels=JOB, interval_s=OFTEN_S) as made:
        yield made


def _scrape(prometheus: Prometheus, agents: list[FloeAgent]) -> None:
    """A counter grows only for who has seen it before."""
    targets = {agent.http.removeprefix("http://") for agent in agents}
    prometheus.scrape(targets)
    until(
        lambda: {told["instance"] for told, _ in prometheus.value("floe_state_disputes_total")} == targets,
        "the agents are scraped",
    )


@pytest.mark.parametrize("compares", [True, False], ids=["compared", "control"])
def test_an_agent_on_a_member_with_another_log_is_found_out(
    lab: Lab, prometheus: Prometheus, compares: bool
) -> None:
    create_topic(lab.bootstrap, TOPIC, len(PARTITIONS))
    writer = Writer("w", lab.bootstrap, TOPIC, PARTITIONS, rate=100)
    writer.start()
    until(lambda: sum(each.outcome == "ok" for each in writer.sent) > 300, "records are acknowledged")
    member = lab.etcd.members[0]
    until(lambda: any(victims(member)), "a chunk of two partitions is committed")
    change_disk(lab.etcd.members[2], next(victims(member)))
    if not compares:
        writer.stop()  # with two states its client would end with a fatal error
    _scrape(prometheus, lab.agents)
    third = lab.third(FloeAgent if compares else UncomparingAgent)
    if not compares:
        assert _states(third, lab.agents[0]) == 2, "what was changed must be another state"
        assert ALERT not in prometheus.firing()
        return
    until(lambda: ALERT in prometheus.firing(), f"{ALERT} rings")
    before = len(writer.sent)
    until(lambda: len(writer.sent) > before + 300, "the load goes on")
    until(lambda: status(third)["ready"], "it serves")
    writer.stop()
    disputes = _disputes(third)
    assert disputes.get("rebuilt"), f"it was not found out: {disputes}"
    assert lab.etcd.endpoints[2] in told_by(third, "a copy of the log is not as the others are")
    for sound in lab.agents:
        assert not _disputes(sound).get("rebuilt"), "the others are right, and go on"
        assert not _disputes(sound).get("wrong")
    for agent in (third, *lab.agents):
        assert agent.ended_by_itself is None
        verdict = judge(writer.sent, read_all(agent.bootstrap, TOPIC, PARTITIONS), [])
        verdict.findings += unexplained([writer])
        assert verdict.findings == [], verdict.report()
    assert _states(third, *lab.agents) == 1


def _disputes(agent: FloeAgent) -> dict[str, int]:
    found: dict[str, int] = status(agent)["replica"]["state_disputes"]
    return found


def _states(*agents: FloeAgent) -> int:
    """How many different ones they have at one revision."""
    hashes: set[str] = set()

    def at_one_revision() -> bool:
        told = [status(agent) for agent in agents]
        hashes.clear()
        hashes.update(str(each.get("state_hash")) for each in told)
        return len({each.get("revision") for each in told}) == 1

    until(at_one_revision, "they are at one revision")
    return len(hashes)
