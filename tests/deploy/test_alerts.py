"""The chart's alerts: Prometheus finds each agent once, and each alert asks for what agents show."""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.http import gauges
from agent.telemetry.docs import own
from agent.telemetry.metrics import Metrics
from deploy.setup.prometheus import prometheus_command
from objectstore.tasks import Defects
from tests.deploy.test_chart import CHART, each_values, matching, render, resources, workloads
from tests.unit.agent.test_app import World, http, topic

pytestmark = pytest.mark.services


@each_values
def test_prometheus_finds_each_agent_once(values: Path) -> None:
    """An agent that two Services show is scraped twice: each sum is double, and each alert comes twice."""
    rendered = resources(render(values, "--set", "serviceMonitor.enabled=true"))
    (found,) = (document for name, document in rendered.items() if name.startswith("ServiceMonitor/"))
    monitor, name_of_all = found["spec"], found["metadata"]["name"]
    (endpoint,) = monitor["endpoints"]
    services = {
        name: service["spec"]
        for name, service in rendered.items()
        if name.startswith("Service/")
        and monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        and endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    }
    agents = f"Service/{name_of_all}-agents"
    assert set(services) == {agents}
    made = (d for d in workloads(rendered) if d["metadata"]["name"].startswith(name_of_all))
    pods = {d["metadata"]["name"]: d["spec"]["template"]["metadata"]["labels"] for d in made}
    pods = {name: labels for name, labels in pods.items() if name.removeprefix(name_of_all) not in BROUGHT}
    assert matching(services[agents]["selector"], pods) == set(pods), "and every agent"
    assert services[agents]["publishNotReadyAddresses"], "also those that are not ready"


BROUGHT = ("-etcd", "-minio")  # by the quickstart, and no agents
TARGET_LABELS = {"job", "instance", "namespace", "pod", "service", "endpoint", "container", "node"}
"""What Prometheus and its operator call a target: a metric's own label of that name becomes `exported_…`."""


SELDOM = {
    "floe_memory_limit_bytes",
    "floe_memory_needed_bytes",
    "floe_process_up",
    "floe_restart_needed",
    "floe_rules_failed_total",
    "floe_tls_expires_seconds",
    "floe_tls_renewal_failing",
}
"""What an agent alone, without TLS, rules, a limit of memory and renewed secrets does not show."""


def alerts_of(values: Path, *extra: str) -> dict[str, dict[str, Any]]:
    (group,) = resources(render(values, *extra))["PrometheusRule/r-floe"]["spec"]["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def metrics_of(text: str) -> dict[str, list[set[str]]]:
    """The names of the labels of each sample, by metric."""
    found: dict[str, list[set[str]]] = {}
    for name, labels in re.findall(r"^([a-z_]+)(?:\{(.*)\})? ", text, re.MULTILINE):
        found.setdefault(name, []).append(set(re.findall(r'([a-z_]+)="', labels)))
    return found


async def test_alerts_ask_for_metrics_that_agents_have_and_docs_explain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each rule of the chart names metrics that an agent shows, and stands in the table of the docs."""
    asked = alerts_of(CHART / "ci" / "full.yaml", "--set", "serviceMonitor.enabled=false")
    defects = Defects()
    monkeypatch.setattr(gauges, "DEFECTS", defects)
    world = World()
    app = await world.start("a")
    fresh = metrics_of((await http(app, "/metrics")).text)
    await topic(app)
    app.damages.note(app.replica.state.topics["t"].partitions[0], 0, 1, "lost")
    defects.note("here", RuntimeError("odd"), asyncio.get_running_loop().time())
    app.health.troubles.failed("nobody's job", "full")  # one that runs may succeed before this is read
    metrics = app.metrics
    of_tables = (metrics.table_seconds_behind, metrics.table_problems)
    of_latest = (metrics.latest_seconds_behind, metrics.latest_problems)
    for told in (*of_tables, *of_latest, metrics.audit_findings, metrics.audit_last_equal_seconds):
        told.labels("t").set(1)
    metrics.before_reading.append(lambda: metrics.group_lag_seconds.labels("g", "t").set(1))
    late = metrics.table_publish_seconds_behind
    metrics.before_reading.append(lambda: late.labels("lake", "t").set(1))
    shown = metrics_of((await http(app, "/metrics")).text)
    await app.stop()
    docs = (CHART.parents[1] / "docs" / "operations.md").read_text()
    seldom = {row.name: set(row.labels) for row in own() if row.name in SELDOM}
    for alert, rule in asked.items():
        expression = rule["expr"]
        assert f"`{expression}`" in docs, f"{alert}: the table of alerts lacks {expression}"
        named = set(re.findall(r"\$labels\.([a-z_]+)", rule["annotations"]["summary"]))
        for metric in set(re.findall(r"floe_[a-z_]+", expression)):
            assert metric in shown or metric in seldom, f"{alert}: no agent has {metric}"
            told_by = shown.get(metric) or [seldom[metric]]
            assert all(named <= labels for labels in told_by), f"{alert}: {metric} has no label {named}"
            if re.search(r"increase|rate", expression) and f"{metric} unless" not in expression:
                begun = fresh.get(metric, [{"of an event"}])
                assert all(had <= {"le"} for had in begun), f"{alert}: {metric} begins with its first event"
    assert {"floe_ready == 0 unless floe_drained == 1", "floe_check == 0"} <= {
        rule["expr"] for rule in asked.values()
    }
    labels = {name for samples in shown.values() for sample in samples for name in sample}
    assert {"topic", "place", "name"} <= labels, "metrics with labels were looked at"
    assert not labels & TARGET_LABELS


def test_no_metric_has_a_label_that_prometheus_gives_its_targets() -> None:
    """Also of those that show nothing yet."""
    own = [getattr(metric, "_labelnames", ()) for metric in vars(Metrics()).values()]
    labels = {name for names in own for name in names}
    assert {"api", "topic", "route"} <= labels
    assert not labels & TARGET_LABELS


@pytest.mark.parametrize("values", ["full", "zones"])
def test_agents_that_are_gone_are_told_of(values: str) -> None:
    """By the targets of the chart's own ServiceMonitor: without it nobody knows what they are called."""
    file = CHART / "ci" / f"{values}.yaml"
    without = alerts_of(file, "--set", "prometheusRule.enabled=true", "--set", "serviceMonitor.enabled=false")
    assert not [rule for rule in without.values() if re.search(r"\bup\b", rule["expr"])]
    extra = ("--set", "prometheusRule.enabled=true", "--set", "serviceMonitor.enabled=true")
    asked = alerts_of(file, *extra)
    target = 'up{namespace="streams",job="r-floe-agents"}'
    assert asked["FloeAgentDown"]["expr"] == f"{target} == 0"
    rendered = resources(render(file, *extra))
    assert "Service/r-floe-agents" in rendered, "what the operator calls the job"
    agents = sum(each["spec"]["replicas"] for each in workloads(rendered))
    assert asked["FloeAgentsMissing"]["expr"] == f"(count({target} == 1) or vector(0)) < {agents}"
    docs = (CHART.parents[1] / "docs" / "operations.md").read_text()
    assert "`up == 0`" in docs
    assert "`(count(up == 1) or vector(0)) < 3`" in docs


DRAINS = {
    'floe_ready{instance="drained"}': "1 1 0x60",
    'floe_drained{instance="drained"}': "0 0 1x60",
    'floe_ready{instance="ill"}': "0x800",
    'floe_drained{instance="ill"}': "1x10 0x789",
    'floe_ready{instance="forgotten"}': "0x800",
    'floe_drained{instance="forgotten"}': "1x800",
    'floe_ready{instance="well"}': "1x800",
    'floe_drained{instance="well"}': "0x800",
}
"""Minute by minute, as promtool reads it: "ill" was drained and then falls ill."""


def test_who_is_drained_rings_only_for_something_else_or_when_forgotten(tmp_path: Path) -> None:
    """Prometheus judges the chart's rules over what is written down: no waiting."""
    alerts = alerts_of(CHART / "ci" / "full.yaml", "--set", "serviceMonitor.enabled=false")
    rules = {name: alerts[name] for name in ("FloeAgentNotReady", "FloeDrainedForLong")}

    def told(alert: str, at: str, *instances: str) -> dict[str, Any]:
        severity, texts = rules[alert]["labels"]["severity"], rules[alert]["annotations"]
        rung = [{"instance": each, "severity": severity} for each in instances]
        expected = [{"exp_labels": labels, "exp_annotations": texts} for labels in rung]
        return {"eval_time": at, "alertname": alert, "exp_alerts": expected}

    expected = [
        told("FloeAgentNotReady", "9m"),
        told("FloeAgentNotReady", "30m", "ill"),
        told("FloeDrainedForLong", "700m"),
        told("FloeDrainedForLong", "730m", "forgotten"),
    ]
    judged(tmp_path, list(rules.values()), DRAINS, expected)


def judged(folder: Path, rules: list[Any], series: dict[str, str], expected: list[Any]) -> None:
    """Has promtool look at what these rules make of these series, a value each minute."""
    given = [{"series": name, "values": values} for name, values in series.items()]
    tests = [{"interval": "1m", "input_series": given, "alert_rule_test": expected}]
    asked = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    groups = {"groups": [{"name": "floe", "rules": rules}]}
    for name, content in (("rules.yaml", groups), ("tests.yaml", asked)):
        (folder / name).write_text(yaml.safe_dump(content))
    *loader, prometheus = prometheus_command()
    command = [*loader, str(Path(prometheus).with_name("promtool")), "test", "rules", "tests.yaml"]
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def rung(rule: dict[str, Any], at: str, *labels: dict[str, str]) -> dict[str, Any]:
    """That the rule rings then for these, and for nothing else."""
    texts = {"exp_annotations": rule["annotations"]}
    alerts = [{"exp_labels": each | rule["labels"], **texts} for each in labels]
    return {"eval_time": at, "alertname": rule["alert"], "exp_alerts": alerts}


AUDITS = {
    'floe_audit_last_equal_seconds{namespace="streams",job="r-floe-agents",topic="t"}': "0x1800",
    'floe_audit_last_equal_seconds{namespace="others",job="r-floe-agents",topic="t"}': "0+60x1800",
    'floe_audit_last_equal_seconds{namespace="third",job="r-floe-agents",topic="t"}': "0x1800",
}
"""Of three clusters with a topic of one name only the second one's is audited."""


@pytest.mark.parametrize("own", [True, False], ids=["chart", "file"])
def test_no_cluster_answers_for_a_topic_of_another(tmp_path: Path, own: bool) -> None:
    """In one Prometheus: the file's rules ring for each, a release's for its own agents."""
    file = CHART.parents[1] / "deploy" / "alerts.yaml"
    (group,) = yaml.safe_load(file.read_text())["groups"]
    rule = {each["alert"]: each for each in group["rules"]}["FloeAuditOld"]
    if own:
        rule = alerts_of(CHART / "ci" / "full.yaml")["FloeAuditOld"]
    annotations = {key: text.replace("{{ $labels.topic }}", "t") for key, text in rule["annotations"].items()}
    told = [{"namespace": each, "topic": "t"} for each in ("streams", *([] if own else ["third"]))]
    expected = [rung(rule | {"annotations": annotations}, "1600m", *told)]
    judged(tmp_path, [rule], AUDITS, expected)


@pytest.mark.parametrize("monitor", ["serviceMonitor", "podMonitor"])
def test_rates_have_a_few_scrapes_however_seldom_these_are(tmp_path: Path, monitor: str) -> None:
    """Scraped once a minute, a rate over one minute is none, and each PUT may take eight seconds unseen."""
    off = ("--set", "serviceMonitor.enabled=false", "--set", f"{monitor}.enabled=true")
    often = alerts_of(CHART / "ci" / "full.yaml", *off)
    seldom = alerts_of(CHART / "ci" / "full.yaml", *off, "--set", f"{monitor}.interval=1m")
    changed = {name for name in often if often[name]["expr"] != seldom[name]["expr"]}
    assert changed == {"FloeStoreSlow", "FloeLogSlow"}, "longer windows have scrapes enough"
    rule, instance = seldom["FloeStoreSlow"], {"instance": "a", "namespace": "streams"}
    instance["job"] = "r-floe-agents" if monitor == "serviceMonitor" else "streams/r-floe"
    labels = ",".join(f'{name}="{value}"' for name, value in instance.items())
    buckets = {"1": "0x60", "10": "0+300x60", "+Inf": "0+300x60"}
    series = {f'floe_put_seconds_bucket{{{labels},le="{le}"}}': each for le, each in buckets.items()}
    judged(tmp_path, [rule], series, [rung(rule, "30m", instance), rung(rule, "41m", instance)])
