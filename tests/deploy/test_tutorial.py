"""docs/tutorials/kubernetes.md: what helm is told there renders, is valid, and the agent takes it."""

from __future__ import annotations

import shlex
from pathlib import Path

import kubernetes_validate  # type: ignore[import-untyped]  # it has no stubs
import pytest
import yaml

from agent.config import load
from tests.deploy.test_chart import CHART, resources, run
from tests.equipment.pages import blocks

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorials" / "kubernetes.md"
KUBERNETES = "1.36.0"

pytestmark = pytest.mark.services


def test_what_helm_is_told_renders_and_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("POD_NAME", "floe-0"), ("POD_IP", "10.0.0.1"), ("NODE_NAME", "n")):
        monkeypatch.setenv(name, value)
    rendered = 0
    for block in blocks(PAGE):
        if block.name.endswith(".yaml"):
            (tmp_path / block.name).write_text(block.text)
        elif block.name == "helm":
            (command,) = block.text.splitlines()
            helm, verb, release, chart, *rest = shlex.split(command)
            assert (helm, verb in ("install", "upgrade"), ROOT / chart) == ("helm", True, CHART)
            given = [str(tmp_path / word) if word.endswith(".yaml") else word for word in rest]
            done = run("helm", "template", release, str(CHART), *given)
            assert done.returncode == 0, done.stderr
            found = resources(done.stdout)
            for each in found.values():
                kubernetes_validate.validate(each, KUBERNETES, strict=True)
            agents = found["StatefulSet/floe"]["spec"]
            assert agents["replicas"] == (5 if "replicas=5" in command else 3)
            assert found["Service/floe"]["spec"]["ports"], "clients begin there"
            file = tmp_path / "floe.yaml"
            file.write_text(found["ConfigMap/floe"]["data"]["floe.yaml"])
            assert load(file, ["agent.name=floe-0"]).config.produce.linger_ms == 20
            rendered += 1
    assert rendered == 2


def test_commands_for_a_cluster_name_what_the_chart_makes() -> None:
    values = next(block.text for block in blocks(PAGE) if block.name == "values.yaml")
    told = "".join(block.text for block in blocks(PAGE) if block.name == "cluster")
    secret = yaml.safe_load(values)["objectStore"]["credentialsSecretName"]
    assert f"secret generic {secret} --from-literal=access-key=" in told
    assert "--from-literal=secret-key=" in told
