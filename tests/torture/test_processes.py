"""Two agents of one `floe serve` under load: one is killed, both are replaced, both stop. 0 lost, 0 twice."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from agent.cli.app import app
from deploy.services import Etcd
from tests.equipment.machine import Machine
from tests.torture.run import create_topic
from tests.torture.verdict import judge
from tests.torture.workload import BASE, Writer, read_all

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]

PARTITIONS = 4
WAIT_S_MAX = 90.0


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Over an etcd, and a folder that both agents share."""
    folder = tmp_path_factory.mktemp("machine")
    with Etcd() as etcd:
        settings = {
            "log": {"url": f"etcd://{etcd.endpoint}/processes"},
            "store": {"url": f"file://{folder}/store"},
            "tables": {"enabled": False},
            "shutdown": {"drain_ms": 100},
        }
        with Machine("host", settings, folder) as running:
            yield running


def until(true: Callable[[], bool], what: str) -> None:
    """Wait for it."""
    deadline = time.monotonic() + WAIT_S_MAX
    while not true():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.1)


def pids(machine: Machine) -> list[int]:
    """Of both agents."""
    return [each["pid"] for each in machine.processes()]


def test_clients_are_told_of_each_by_its_own_name_and_port(machine: Machine) -> None:
    found = AdminClient({**BASE, "bootstrap.servers": machine.bootstrap}).list_topics(timeout=30)
    ports = sorted(each.port for each in found.brokers.values())
    assert ports == [machine.kafka_port, machine.kafka_port + machine.step]
    assert [each["name"] for each in machine.processes()] == ["host", "host.1"]


def test_metrics_of_both_are_one_page(machine: Machine) -> None:
    page = machine.asked("/metrics")
    families = [line.split(" ")[2] for line in page.splitlines() if line.startswith("# TYPE")]
    assert len(families) == len(set(families)) > 100
    samples = [sample for each in text_string_to_metric_families(page) for sample in each.samples]
    places = {(each.name, tuple(sorted(each.labels.items()))) for each in samples}
    assert len(places) == len(samples), "no sample is there twice"
    assert all("process" in each.labels for each in samples)
    until(lambda: _shown(machine, "floe_process_up") == {"0": 1.0, "1": 1.0}, "both run")
    until(lambda: _shown(machine, "floe_ready") == {"0": 1.0, "1": 1.0}, "both are ready")


def _shown(machine: Machine, metric: str) -> dict[str, float]:
    """By process. One that gets no processor for a while is not ready, and says so."""
    families = text_string_to_metric_families(machine.asked("/metrics"))
    samples = (each for family in families for each in family.samples)
    return {each.labels["process"]: each.value for each in samples if each.name == metric}


def test_commands_find_both_by_either_address(machine: Machine) -> None:
    for http in (machine.supervisor, machine.http):
        told = floe("status", "--http", http, "-o", "json")
        assert sorted(each["name"] for each in told["brokers"]) == ["host", "host.1"]
        assert sorted(each["agent"] for each in floe("top", "--http", http, "-o", "json")) == [
            "host",
            "host.1",
        ]
        assert floe("doctor", "--http", http, "-o", "json")["answered"] == 2
        assert floe("drain", "host.1", "--undo", "--http", http, "-o", "json")["agent"] == "host.1"
    shown = CliRunner().invoke(app, ["status", "--http", machine.supervisor]).output
    assert "last end" in shown


def floe(*words: str) -> Any:
    """A command's JSON."""
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_one_is_killed_then_all_are_replaced_under_load_and_nothing_is_lost_or_doubled(
    machine: Machine,
) -> None:
    create_topic(machine.everywhere, "load", PARTITIONS)
    writer = Writer("w", machine.everywhere, "load", range(PARTITIONS), rate=200)
    writer.start()
    before = pids(machine)
    os.kill(before[1], signal.SIGKILL)
    until(lambda: _replaced(machine) == [0, 1] and machine.ready(), "another agent in place of the killed")
    assert machine.processes()[1]["last_end"] == "ended, SIGKILL"
    assert pids(machine)[0] == before[0], "the other one was left alone"
    os.kill(machine.pid, signal.SIGHUP)
    until(lambda: _replaced(machine) == [1, 2] and machine.ready(), "both replaced, one after the other")
    assert machine.processes()[0]["last_end"] == "asked, status 0", "it left in good order"
    sent = len(writer.sent)
    until(lambda: len(writer.sent) > sent, "a record acknowledged by those that came")
    writer.stop()
    verdict = judge(writer.sent, read_all(machine.everywhere, "load", range(PARTITIONS)), [])
    assert verdict.findings == []
    assert {each.outcome for each in writer.sent} == {"ok"}
    assert len(writer.sent) == writer.attempted


def _replaced(machine: Machine) -> list[Any]:
    return [each["replaced"] for each in machine.processes()]


def test_all_end_with_the_one_that_watches_them(machine: Machine) -> None:
    before = pids(machine)
    machine.kill()
    until(lambda: not any(map(_exists, before)), "agents whose supervisor is gone end by themselves")
    machine.start()
    before = pids(machine)
    machine.terminate()
    assert not any(map(_exists, before)), "it waits for them"
    assert "does not end by itself" not in machine.log_tail(40)


def _exists(pid: int) -> bool:
    """Whether it runs; one that ended and whom nobody has taken leave of does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except FileNotFoundError:
        return False
    return state != "Z"
