"""Several agents of one configuration: names, ports, memory of each; what cannot be together is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.config import Config, ConfigError, load, processes
from agent.config.base import MIB
from agent.config.cgroup import cores
from tests.unit.agent.config.test_memory import root_of

CLUSTER = ("log.url=etcd://e:2379/p", "store.url=s3://bucket/p", "agent.name=host")


def of(process: int, *flags: str) -> Config:
    """What one of three has."""
    return load(None, [*CLUSTER, "agent.processes=3", *flags], environment={}, process=process).config


def refusal(*flags: str, process: int = 0) -> str:
    """Why it is refused."""
    with pytest.raises(ConfigError) as caught:
        load(None, [*CLUSTER, *flags], environment={}, process=process)
    return str(caught.value)


def test_the_first_is_what_an_agent_alone_would_be() -> None:
    alone = load(None, [*CLUSTER, "agent.memory_bytes_max=0"], environment={}).config
    first = of(0)
    assert first.agent.name == alone.agent.name == "host"
    assert (first.listeners, first.http.port) == (alone.listeners, alone.http.port)


def test_the_others_have_names_and_ports_by_their_number() -> None:
    two = of(
        2,
        *("agent.port_step=10", "agent.node_id=7", "peers.port=9095", "http.advertised_port=443"),
        *("listeners.0.advertised_port=31000", "listeners.1.name=OUT", "listeners.1.port=9093"),
    )
    assert (two.agent.name, two.agent.node_id) == ("host.2", 9)
    assert [each.port for each in two.listeners] == [9112, 9113]
    assert [each.advertised_port for each in two.listeners] == [31020, 0], "0: the bound one"
    assert (two.http.port, two.http.advertised_port, two.peers.port) == (8100, 463, 9115)
    assert of(2, "listeners.0.port=0", "http.port=0").listeners[0].port == 0, "a free one anyway"
    assert of(1).agent.node_id == -1, "the cluster assigns one"


def test_placeholders_are_the_machines(tmp_path: Path) -> None:
    flags = ["listeners.0.advertised_host={pod}.x", "listeners.0.advertised_port={ordinal+31000}"]
    pod = {"POD_NAME": "floe-2"}
    given = [*CLUSTER, *flags, "agent.processes=2", "agent.port_step=100"]
    one = load(None, given, environment=pod, process=1).config.listeners[0]
    assert (one.advertised_host, one.advertised_port) == ("floe-2.x", 31102)


def test_memory_is_divided(tmp_path: Path) -> None:
    root = root_of(tmp_path, "0::/", {"sys/fs/cgroup/memory.max": str(1536 * MIB)})
    share = (1536 * MIB - processes.SUPERVISOR_BYTES) // 3
    for flags in ([], [f"agent.memory_bytes_max={1536 * MIB}"]):
        given = [*CLUSTER, "agent.processes=3", *flags]
        loaded = load(None, given, environment={}, root=root, process=1)
        assert loaded.memory_bytes == share
        alone = load(None, [*CLUSTER, f"agent.memory_bytes_max={share}"], environment={}).config
        assert loaded.config.fetch == alone.fetch
    few = load(None, [*CLUSTER, "agent.processes=9"], environment={}, root=root)
    assert "are too few" in (few.memory_problem or "")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (
            ["agent.processes=2", "log.url=sqlite:///a"],
            "agent.processes is 2, but log.url 'sqlite:///a' is for one process alone: use a log in etcd "
            "(etcd://host:2379/prefix), or agent.processes=1",
        ),
        (
            ["agent.processes=2", "http.port=9093", "http.host=0.0.0.0"],
            "agent.processes: listeners.0.port of process 1 would be 9093, which http.port of process 0 is: ",
        ),
        (
            ["agent.processes=4", "peers.port=9095"],
            "listeners.0.port of process 3 would be 9095, which peers.port of process 0 is: set agent.port_s",
        ),
        (["agent.processes=2", "http.port=8070"], "http.port of process 0 would be 8070, which agent.superv"),
        (["agent.processes=2", "http.port=65535"], "http.port of process 1 would be 65536, and 65535 is the"),
        (["agent.processes=65"], "agent.processes"),
        (["agent.processes=auto"], "agent.processes"),
    ],
)
def test_what_cannot_be_together_is_refused_with_a_remedy(flags: list[str], told: str) -> None:
    assert told in refusal(*flags)


def test_one_that_is_not_there_is_refused() -> None:
    assert "process 2: agent.processes is 2" in refusal("agent.processes=2", process=2)


def test_as_many_as_there_are_cores_and_one_without_etcd(tmp_path: Path) -> None:
    here = len(os.sched_getaffinity(0))
    loaded = load(None, [*CLUSTER, "agent.processes=0"], environment={}, root=tmp_path)
    assert loaded.config.agent.processes == here
    assert loaded.origins["agent", "processes"] == f"{here} cores"
    local = ["log.url=sqlite:///a", "store.url=file:///a", "agent.processes=0"]
    assert load(None, local, environment={}, root=tmp_path).config.agent.processes == 1


@pytest.mark.parametrize(
    ("cgroup", "files", "most"),
    [
        ("0::/", {"sys/fs/cgroup/cpu.max": "100000 100000"}, 1),
        ("0::/", {"sys/fs/cgroup/cpu.max": "50000 100000"}, 1),
        (
            "0::/a/b",
            {"sys/fs/cgroup/a/cpu.max": "100000 100000", "sys/fs/cgroup/a/b/cpu.max": "max 100000"},
            1,
        ),
        ("0::/", {"sys/fs/cgroup/cpu.max": "max 100000"}, 10_000),
        ("0::/", {"sys/fs/cgroup/cpu.max": "99900000 100000"}, 10_000),
        (
            "3:cpu,cpuacct:/",
            {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"},
            1,
        ),
        (
            "3:cpu:/",
            {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"},
            10_000,
        ),
        ("nonsense", {}, 10_000),
    ],
)
def test_the_cores_of_a_control_group(tmp_path: Path, cgroup: str, files: dict[str, str], most: int) -> None:
    assert cores(root_of(tmp_path, cgroup, files)) == min(most, len(os.sched_getaffinity(0)))
