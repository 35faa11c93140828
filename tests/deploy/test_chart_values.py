"""What the chart refuses, what it says about its values, and that it knows the agent's settings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from annotated_types import Ge, Gt, Le, Lt
from jsonschema import Draft7Validator
from pydantic import SecretStr, ValidationError

from agent.config.schema import Setting, settings
from agent.config.tree import Tree
from deploy import chart
from tests.deploy.test_chart import CHART, given, listener, refused, run

CI = CHART / "ci"
SECURE = "etcd.tls.enabled=true,etcd.tls.secretName=s"
FOUR = "processes=4,resources.limits.memory=8Gi"


def test_the_generated_pages_are_fresh() -> None:
    assert chart.SCHEMA.read_text() == chart.schema(), "run `python -m deploy.chart`"
    assert chart.PAGE.read_text() == chart.page(), "run `python -m deploy.chart`"


def test_every_value_is_documented() -> None:
    """Also those of a section that has a comment; and one without is an error."""
    values = yaml.safe_load(chart.VALUES.read_text())
    rows = {name: (json.loads(default), meaning) for name, default, meaning in documented()}
    assert {name.partition(".")[0] for name in rows} == set(values)
    for name, (default, meaning) in rows.items():
        place = values
        for part in name.split("."):
            place = place[part]
        assert default == place, name
        assert meaning, name
    with pytest.raises(chart.UndocumentedError, match=r"b\.c: write a comment"):
        list(chart.documented("# -- one\na: 1\nb:\n  c: 2\n"))


def documented() -> Iterator[tuple[str, str, str]]:
    return chart.documented(chart.VALUES.read_text())


def test_the_schema_has_every_value_and_no_other() -> None:
    """A value that the schema lacks could not be set; one that values.yaml lacks would not be documented."""
    schema = json.loads(chart.SCHEMA.read_text())
    values = yaml.safe_load(chart.VALUES.read_text())
    assert set(schema["properties"]) - {"global"} == set(values)
    for name, section in schema["properties"].items():
        node = resolved(schema, section)
        closed = node.get("additionalProperties") is False and name not in ("config", "resources")
        if closed and isinstance(values.get(name), dict):
            assert set(node["properties"]) == set(values[name]), name


def resolved(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    reference = node.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = schema["definitions"][reference] if reference else node
    return found


ELSEWHERE = ("listeners", "agent")
NUMBERS = [
    each
    for each in settings(Tree)
    if each.field.annotation in (int, float)
    and "*" not in each.path
    and each.path[0] not in ELSEWHERE
    and each.path[-1] not in ("port", "advertised_port")
]


def nested(path: tuple[str, ...], value: object) -> dict[str, Any]:
    for part in reversed(path):
        value = {part: value}
    assert isinstance(value, dict)
    return value


def edges(setting: Setting) -> Iterator[int | float]:
    for bound in setting.field.metadata:
        for kind, name in ((Ge, "ge"), (Gt, "gt"), (Le, "le"), (Lt, "lt")):
            if isinstance(bound, kind):
                at = getattr(bound, name)
                yield from (at - 1, at, at + 1)


@pytest.fixture(scope="module")
def config_schema() -> Draft7Validator:
    return Draft7Validator(chart.agent_config())


def test_the_chart_knows_every_setting_and_its_range_as_the_agent_does(
    config_schema: Draft7Validator,
) -> None:
    least = {"log": {"url": "memory:"}, "store": {"url": "memory:"}}
    assert len(NUMBERS) > 90
    looked_at = 0
    for setting in NUMBERS:
        for value in edges(setting):
            said = nested(setting.path, value)
            whole = {**least, **{key: {**least.get(key, {}), **part} for key, part in said.items()}}
            try:
                Tree.model_validate(whole)
                accepted = True
            except ValidationError:
                accepted = False
            assert config_schema.is_valid(said) is accepted, (setting.name, value)
            looked_at += 1
    assert looked_at > 450


def test_the_defaults_are_possible_and_secrets_are_not(config_schema: Draft7Validator) -> None:
    """Also what is text, a choice or a switch. Credentials do not belong into a ConfigMap."""
    secrets = 0
    for setting in settings(Tree):
        if setting.path[0] in ELSEWHERE or "*" in setting.path:
            continue
        if setting.field.annotation is SecretStr:
            secrets += 1
            assert not config_schema.is_valid(nested(setting.path, "x")), setting.name
        elif not setting.field.is_required():
            default = setting.field.get_default(call_default_factory=True)
            assert config_schema.is_valid(nested(setting.path, default)), setting.name
        assert not config_schema.is_valid(nested((*setting.path[:-1], setting.path[-1] + "x"), 1))
    assert secrets >= 4
    lake = {"name": "lake", "type": "rest", "uri": "https://lake.example"}
    assert config_schema.is_valid({"catalogs": [lake]})
    assert not config_schema.is_valid({"catalogs": [{**lake, "token": "x"}]})
    assert not config_schema.is_valid({"catalogs": [{"name": "lake"}]}), "a whole one, or none"
    assert config_schema.is_valid({"store": {"options": {"timeout": "30s"}}})
    assert not config_schema.is_valid({"store": {"options": {"timeout": 30}}})


@pytest.mark.services
@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("config.produce.lingerms=5", "at '/config/produce': additional properties 'lingerms' not allowed"),
        ("config.produce.linger_ms=-1", "/config/produce/linger_ms"),
        ("config.prodduce.linger_ms=5", "additional properties 'prodduce' not allowed"),
        ("config.logging.level=loud", "/config/logging/level"),
        ("config.store.secret_key=x", "additional properties 'secret_key' not allowed"),
        ("config.agent.zone=a", "config.agent: set zone, groups or processes instead"),
        (f"{listener(name='HTTP')}", "/listeners/0/name"),
        (f"{listener(name='AGENTS', external='NodePort')}", "r-floe-agents would be there twice"),
        ("resources.limits.memory=2Gib", "/resources/limits/memory"),
        ("resources.limits.memory=lots", "/resources/limits/memory"),
        ("resources.limits.cpu=-1", "/resources/limits/cpu"),
        ("resources.request.cpu=1", "additional properties 'request' not allowed"),
        ("scratch.sizeLimit=512MB", "/scratch/sizeLimit"),
        ("podDisruptionBudget.maxUnavailable=0", "/podDisruptionBudget/maxUnavailable"),
        ("podDisruptionBudget.maxUnavailable=0%", "/podDisruptionBudget/maxUnavailable"),
        ("podDisruptionBudget.maxUnavailable=120%", "/podDisruptionBudget/maxUnavailable"),
        (
            "podDisruptionBudget.unhealthyPodEvictionPolicy=Never",
            "/podDisruptionBudget/unhealthyPodEvictionPolicy",
        ),
        ("etcd.tls.certManager.enabled=true", "needs etcd.tls.enabled"),
        ("etcd.tls.enabled=true,etcd.tls.certManager.enabled=true", "issuerRef.name is empty"),
        ("serviceMonitor.enabled=true,podMonitor.enabled=true", "would be scraped twice: choose one"),
        ("serviceMonitor.interval=often", "/serviceMonitor/interval"),
        ("ingress.enabled=true", "ingress.enabled needs ingress.hosts"),
        ("httpRoute.enabled=true,httpRoute.hosts={a}", "needs httpRoute.hosts and httpRoute.parentRefs"),
        (
            "autoscaling.enabled=true,autoscaling.maxReplicas=2",
            "(2) of group all is less than minReplicas (3)",
        ),
        ("autoscaling.enabled=true,autoscaling.targetCPUUtilizationPercentage=0", "has no metric"),
        ("autoscaling.enabled=true,resources.requests.cpu=null", "is a part of resources.requests.cpu"),
        ("maxReplicas=2", "maxReplicas (2) of group all is less than its replicas (3)"),
        (
            "commonLabels.app\\.kubernetes\\.io/name=x",
            "commonLabels: app.kubernetes.io/name is the chart's own",
        ),
        ("podLabels.team=a b", "/podLabels/team"),
        ("podAnnotations.checksum/config=x", "podAnnotations: checksum/config is the chart's own"),
        ("fullnameOverride=Upper", "/fullnameOverride"),
        (f"fullnameOverride={'n' * 53}", "/fullnameOverride"),
        ("extraEnv[0].name=POD_IP", "extraEnv: POD_IP is there already: the chart sets it"),
        ("extraEnv[0].name=FLOE_AGENT__ZONE", "extraEnv: FLOE_AGENT__ZONE is there already: set zone"),
        ("extraEnv[0].name=A,extraEnv[1].name=A", "extraEnv: A is there already"),
        ("extraVolumes[0].name=config", "extraVolumes: the volume config is the chart's own"),
        ("extraVolumeMounts[0].name=x,extraVolumeMounts[0].mountPath=/x", "extraVolumes has no such volume"),
        (
            "extraVolumes[0].name=x,extraVolumeMounts[0].name=x,extraVolumeMounts[0].mountPath=/var/lib/floe/",
            "something is mounted at /var/lib/floe/ already",
        ),
        ("sidecars[0].name=agent", "the container agent is the chart's own or there twice"),
        ("sidecars[0].name=x,sidecars[0].ports[0].containerPort=8080", "the port 8080 of x is the agent's"),
        (
            f"{listener(name='A_B')},sidecars[0].name=x,sidecars[0].ports[0].name=a-b,"
            "sidecars[0].ports[0].containerPort=9",
            "the port a-b of x is the agent's",
        ),
        (
            "http.tls.secretName=s,extraVolumes[0].name=http-tls",
            "extraVolumes: the volume http-tls is the chart's own",
        ),
        (
            "http.tls.secretName=s,extraVolumes[0].name=x,extraVolumeMounts[0].name=x,"
            "extraVolumeMounts[0].mountPath=/etc/floe/tls/http",
            "something is mounted at /etc/floe/tls/http already",
        ),
        (f"{SECURE},extraVolumes[0].name=etcd-tls", "the volume etcd-tls is the chart's own"),
        (
            f"{SECURE},{listener(name='ETCD')},listeners[0].protocol=SSL,listeners[0].tls.secretName=s",
            "listeners: ETCD speaks SSL, and the volume etcd-tls of its certificate is the one of etcd.tls",
        ),
        (
            f"{SECURE},etcd.tls.certManager.enabled=true,etcd.tls.certManager.issuerRef.name=i,"
            "etcd.tls.certManager.duration=719h59m",
            "etcd: tls.certManager.duration (719h59m) must be more than tls.certManager.renewBefore (720h)",
        ),
        (
            "kafka.protocol=SSL,kafka.tls.certManager.enabled=true,kafka.tls.certManager.issuerRef.name=i,"
            "kafka.tls.certManager.renewBefore=2160h0m",
            "kafka: tls.certManager.duration (2160h) must be more than tls.certManager.renewBefore (2160h0m)",
        ),
        (f"{FOUR},{listener(name='SUPERVISOR')}", "the port supervisor would be there twice"),
        (f"{FOUR},{listener(name='HTTP_3')}", "with processes=4, for http-3 of a pod's other agents: rename"),
        (
            f"{FOUR},{listener(name='X')},{listener(1, name='X_1', port=2)}",
            "the port x-1 would be there twice",
        ),
        (f"{FOUR},sidecars[0].name=x,sidecars[0].ports[0].containerPort=8070", "the port 8070 of x is the"),
        (f"{FOUR},sidecars[0].name=x,sidecars[0].ports[0].containerPort=9392", "the port 9392 of x is the"),
        ("imagePullSecrets[0]=pull", "/imagePullSecrets/0"),
        ("podAntiAffinity=soft,affinity.podAntiAffinity.x=1", "leave one of them out"),
    ],
)
def test_nonsense_is_refused_by_name(setting: str, complaint: str) -> None:
    refused("r", setting, complaint)


@pytest.mark.services
def test_quantities_and_budgets_that_are_some_pass(tmp_path: Path) -> None:
    for memory in ("2Gi", "1.5G", "1e9", "500M", "1073741824", 1073741824, "128974848000m"):
        values = given(tmp_path, resources={"limits": {"memory": memory, "cpu": 0.5}})
        done = run("helm", "lint", "--strict", str(CHART), "-f", str(values))
        assert done.returncode == 0, (memory, done.stdout)
    for budget in (1, 3, "1%", "100%"):
        values = given(tmp_path, podDisruptionBudget={"maxUnavailable": budget})
        done = run("helm", "template", "r", str(CHART), "-f", str(values))
        assert f"maxUnavailable: {budget}\n" in done.stdout, done.stderr


@pytest.mark.services
@pytest.mark.parametrize(
    ("version", "possible"),
    [("1.33.4", False), ("1.34.1-eks-1", False), ("1.35.0", True), ("1.35.1-gke.100", True)],
)
def test_zones_by_label_need_a_kubernetes_that_has_them(version: str, possible: bool) -> None:
    """1.33 rendered, and its agents had no zone without a word."""
    values = str(CI / "topology-label.yaml")
    done = run("helm", "template", "r", str(CHART), "-f", values, "--kube-version", version)
    assert (done.returncode == 0) is possible
    if not possible:
        told = f"Kubernetes v{version} does not copy its nodes' labels to pods"
        assert told in done.stderr
        assert "give each zone a group" in done.stderr
