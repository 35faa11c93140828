"""The chart: lints, renders for every value file, is valid Kubernetes, and its agents accept what it says."""

from __future__ import annotations

import json
import subprocess
from importlib.metadata import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.config import load
from deploy.services.build import tool_path

pytestmark = pytest.mark.services

CHART = Path(__file__).resolve().parents[2] / "helm" / "floe"
VALUE_FILES = sorted((CHART / "ci").glob("*.yaml"))
KUBERNETES = "1.36.0"
NAMES = {"ids": lambda path: path.stem}


def run(tool: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(tool_path(tool)), *arguments]
    return subprocess.run(command, check=False, input=stdin, capture_output=True, text=True, timeout=120)


def render(values: Path, *extra: str) -> str:
    done = run("helm", "template", "r", str(CHART), "-f", str(values), "--namespace", "streams", *extra)
    assert done.returncode == 0, done.stderr
    return done.stdout


def resources(rendered: str) -> dict[str, dict[str, Any]]:
    documents = [d for d in yaml.safe_load_all(rendered) if d]
    return {f"{d['kind']}/{d['metadata']['name']}": d for d in documents}


@pytest.fixture(scope="session")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kubernetes' own schemas of one version as local files (from the package kubernetes-validate)."""
    found = [f for f in files("kubernetes-validate") or [] if f.parent.name == f"v{KUBERNETES}-local-strict"]
    assert found, f"the package kubernetes-validate holds no schemas of {KUBERNETES}"
    folder = tmp_path_factory.mktemp("kubernetes-schemas")
    for file in found:
        # The package names them by URL; as files they refer to their neighbour.
        text = Path(str(file.locate())).read_text().replace('"/api/_definitions.json#', '"_definitions.json#')
        schema = json.loads(text)
        schema.pop("$id", None)
        (folder / file.name).write_text(json.dumps(schema))
    return folder


@pytest.mark.parametrize("values", VALUE_FILES, **NAMES)
def test_lint(values: Path) -> None:
    done = run("helm", "lint", "--strict", str(CHART), "-f", str(values))
    assert done.returncode == 0, done.stdout + done.stderr


def conform(rendered: str, schemas: Path) -> subprocess.CompletedProcess[str]:
    # ServiceMonitor is Prometheus' own kind: Kubernetes' schemas do not know it.
    options = ["-strict", "-summary", "-kubernetes-version", KUBERNETES, "-skip", "ServiceMonitor"]
    location = f"{schemas}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    return run("kubeconform", *options, "-schema-location", location, "-", stdin=rendered)


@pytest.mark.parametrize("values", VALUE_FILES, **NAMES)
def test_rendered_is_valid_kubernetes(values: Path, schemas: Path) -> None:
    rendered = render(values)
    done = conform(rendered, schemas)
    assert done.returncode == 0, done.stdout + done.stderr
    monitors = sum(name.startswith("ServiceMonitor/") for name in resources(rendered))
    assert f"Valid: {len(resources(rendered)) - monitors}, Invalid: 0, Errors: 0" in done.stdout


def test_the_validity_check_can_fail(schemas: Path) -> None:
    done = conform(render(VALUE_FILES[0]).replace("replicas: 6", "replicas: many"), schemas)
    assert done.returncode != 0
    assert "replicas" in done.stdout


@pytest.mark.parametrize("values", VALUE_FILES, **NAMES)
def test_an_agent_accepts_the_configuration(values: Path, tmp_path: Path) -> None:
    rendered = resources(render(values))
    config_map = next(d for name, d in rendered.items() if name.startswith("ConfigMap/"))
    deployment = next(d for name, d in rendered.items() if name.startswith("Deployment/"))
    file = tmp_path / "floe.yaml"
    file.write_text(config_map["data"]["floe.yaml"])
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    pod = {"POD_NAME": "floe-abc", "POD_IP": "10.1.2.3", "NODE_NAME": "node-1"}
    environment = {}
    for variable in container["env"]:
        text = variable.get("value", "from-secret")
        for name, value in pod.items():
            text = text.replace(f"$({name})", value)
        environment[variable["name"]] = text
    config = load(file, environment=environment).config
    assert config.agent_name == "floe-abc"
    assert config.listeners[0].advertised_host == environment["FLOE_LISTENERS__0__ADVERTISED_HOST"]
    assert "$(" not in config.listeners[0].advertised_host
    grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert config.shutdown.timeout_ms < grace * 1000


@pytest.mark.parametrize("values", VALUE_FILES, **NAMES)
def test_the_pod_has_no_more_rights_than_it_needs(values: Path) -> None:
    deployment = next(d for n, d in resources(render(values)).items() if n.startswith("Deployment/"))
    pod = deployment["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("etcd.endpoints={}", "/etcd/endpoints"),
        ("objectStore.url=ftp://bucket", "objectStore/url"),
        ("clusterName=Not_A_Name", "clusterName"),
        ("replicas=0", "replicas"),
        ("replica=3", "replica"),
        ("etcd.tls.enabled=true", "secretName"),
    ],
)
def test_bad_values_are_refused_by_name(setting: str, complaint: str) -> None:
    done = run(
        "helm", "template", "r", str(CHART), "-f", str(CHART / "ci" / "minimal.yaml"), "--set", setting
    )
    assert done.returncode != 0
    assert complaint in done.stderr
