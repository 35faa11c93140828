"""Agents of one pod: Services lead to each, probes and Prometheus find them; what cannot be is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.config import Config, load
from tests.deploy.test_chart import CHART, environment_of, pod_of, render, resources, run, workloads

pytestmark = pytest.mark.services

VALUES = CHART / "ci" / "processes.yaml"


def rendered(*settings: str) -> dict[str, dict[str, Any]]:
    return resources(render(VALUES, *(word for each in settings for word in ("--set", each))))


def agents(found: dict[str, dict[str, Any]], folder: Path, pod: str) -> list[Config]:
    """The configuration of each agent of a pod."""
    file = folder / "floe.yaml"
    file.write_text(found["ConfigMap/r-floe"]["data"]["floe.yaml"])
    (workload,) = workloads(found)
    given = {"metadata.name": pod, "status.podIP": "10.1.2.3", "spec.nodeName": "node-1"}
    environment = environment_of(pod_of(workload)["containers"][0], given)
    return [load(file, environment=environment, process=number).config for number in range(3)]


def test_each_agents_port_is_open_where_its_clients_are_sent(tmp_path: Path) -> None:
    found = rendered()
    names = []
    for pod in ("r-floe-0", "r-floe-2"):
        ports = found[f"Service/{pod}-nodes"]["spec"]["ports"]
        opened = {each["nodePort"]: each["targetPort"] for each in ports}
        for config in agents(found, tmp_path, pod):
            names.append(config.agent_name)
            outside = config.listeners[1]
            assert opened[outside.advertised_port] in (outside.port, "nodes")
            headless = {each["port"] for each in found["Service/r-floe-agents"]["spec"]["ports"]}
            assert {config.listeners[0].port, outside.port, config.http.port} <= headless
    assert names == ["r-floe-0", "r-floe-0.1", "r-floe-0.2", "r-floe-2", "r-floe-2.1", "r-floe-2.2"]


def scraped(*settings: str) -> list[str]:
    endpoints = rendered(*settings)["ServiceMonitor/r-floe"]["spec"]["endpoints"]
    return [each["port"] for each in endpoints]


def test_prometheus_reads_one_page_of_a_pod_or_each_agent_where_it_says_who_it_is() -> None:
    assert scraped() == ["supervisor"]
    closed = ("http.authentication=required", "http.metricsOpen=false")
    assert scraped(*closed) == ["http", "http-1", "http-2"]
    assert scraped(*closed, "processes=1") == ["http"]
    annotations = rendered("serviceMonitor.enabled=false")["StatefulSet/r-floe"]["spec"]["template"][
        "metadata"
    ]
    assert annotations["annotations"]["prometheus.io/port"] == "8070"


def test_alerts_count_what_is_scraped_and_ask_for_what_is_shown_there() -> None:
    """A page of all of a pod, or one of each agent: then a pod that is gone takes several targets along."""
    ring = ("prometheusRule.enabled=true", "replicas=4")
    closed = ("http.authentication=required", "http.metricsOpen=false")
    for settings, targets in (((), 4), (closed, 12), ((*closed, "processes=1"), 4)):
        found = rendered(*ring, *settings)
        (group,) = found["PrometheusRule/r-floe"]["spec"]["groups"]
        rules = {rule["alert"]: rule["expr"] for rule in group["rules"]}
        assert rules["FloeAgentsMissing"].endswith(f" == 1) or vector(0)) < {targets}")
        assert len(found["ServiceMonitor/r-floe"]["spec"]["endpoints"]) * 4 == targets
        assert ("FloeProcessDown" in rules) == (targets == 4), "the watching process's page is not read"


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("processes=14", "processes: each of the 14 agents in a pod of group all would have 287 MiB of res"),
        ("processes=65", "/processes"),
        (
            "supervisorPort=9193",
            "the port 9193 would be taken twice, by supervisorPort and by the port of li",
        ),
        (
            "kafka.port=9293",
            "the port 9293 would be taken twice, by kafka.port and by the port of listener N",
        ),
        ("http.port=65400", "http.port of a pod's last agent would be 65600, and 65535 is the last port"),
        ("listeners[0].external.firstNodePort=65400", "listeners: NODES would have the node port 65600"),
        ("maxReplicas=101", "node port 31100 would be taken twice"),
        ("config.agent.processes=2", "config.agent: set zone, groups or processes instead"),
        ("extraEnv[0].name=FLOE_AGENT__PROCESSES", "FLOE_AGENT__PROCESSES is there already: set processes"),
    ],
)
def test_what_cannot_be_is_refused(setting: str, complaint: str) -> None:
    done = run("helm", "template", "r", str(CHART), "-f", str(VALUES), "--set", setting)
    assert (done.returncode != 0, complaint in done.stderr) == (True, True), done.stderr[-500:]
