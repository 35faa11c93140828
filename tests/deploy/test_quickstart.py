"""The chart's quickstart: its etcd and MinIO run by the chart's own commands, and what NOTES tells."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.images import __main__ as images
from deploy.services.build import tool_path
from deploy.services.ports import free_port
from deploy.services.service import Service, answers
from tests.deploy.test_chart import CHART, environment_of, pod_of, refused_with, render, resources
from tests.deploy.test_chart_parts import notes

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]
QUICKSTART = CHART / "quickstart.yaml"
TOOLS = {"etcd": 2379, "minio": 9000}
"""What is brought along, and its port in the pod."""


LONG = ",".join(
    (
        f"fullnameOverride={'n' * 47}",
        f"etcd.endpoints={{{'n' * 47}-etcd:2379}}",
        f"objectStore.endpoint=http://{'n' * 47}-minio:9000",
        f"objectStore.credentialsSecretName={'n' * 47}-minio",
    )
)
"""What is brought along, under a name that is too long."""


class Container(Service):
    """A container of the chart as a process: its command, variables and probe; port, folders of its own."""

    def __init__(self, name: str, workload: dict[str, Any], secrets: dict[str, str], directory: Path) -> None:
        self.name = name
        super().__init__(directory)
        (self._spec,) = pod_of(workload)["containers"]
        self.port = free_port()
        self._secrets = secrets

    def command(self) -> list[str]:
        """The chart's, with the port and folders that this one has."""
        (program, *words) = self._spec["command"]
        assert program == self.name
        here = [
            each.replace("/data", f"{self.directory}/data").replace("/tmp", f"{self.directory}/tmp")
            for each in words
        ]
        here = [each.replace(f":{TOOLS[self.name]}", f":{self.port}") for each in here]
        here = [each.replace("floe-etcd", "127.0.0.1").replace("0.0.0.0", "127.0.0.1") for each in here]
        peers = [f"--listen-peer-urls=http://127.0.0.1:{free_port()}"] if self.name == "etcd" else []
        return [str(tool_path(program)), *here, *peers]

    def environment(self) -> dict[str, str]:
        """Variables with what the Secret holds."""
        asked = {each["name"]: each["valueFrom"]["secretKeyRef"]["key"] for each in self._spec.get("env", [])}
        return super().environment() | {name: self._secrets[key] for name, key in asked.items()}

    def ready(self) -> bool:
        """What the probe asks."""
        return answers(f"http://127.0.0.1:{self.port}{self._spec['readinessProbe']['httpGet']['path']}")


def agent_files(
    rendered: dict[str, Any], started: dict[str, Container], secret: dict[str, str], here: Path
) -> Path:
    """The agent's configuration, where Services and mounted Secrets are on this machine."""
    text = rendered["ConfigMap/floe"]["data"]["floe.yaml"]
    for name, port in TOOLS.items():
        text = text.replace(f"floe-{name}:{port}", f"127.0.0.1:{started[name].port}")
    for key, value in secret.items():
        (here / key).write_text(value)
        text = text.replace(f"/etc/floe/store-keys/{key}", str(here / key))
    tree = yaml.safe_load(text)
    for section in (tree["listeners"][0], tree["http"], tree["peers"]):
        section["port"] = free_port()
    file = here / "floe.yaml"
    file.write_text(yaml.safe_dump(tree))
    return file


class Agent(Service):
    """The chart's agent as a process."""

    name = "agent"

    def __init__(self, file: Path, environment: dict[str, str], directory: Path) -> None:
        super().__init__(directory)
        self._file, self._own = file, environment
        tree = yaml.safe_load(file.read_text())
        self.kafka, self.http = tree["listeners"][0]["port"], tree["http"]["port"]

    def command(self) -> list[str]:
        """`floe serve`."""
        return [sys.executable, "-m", "agent", "serve", "--config", str(self._file)]

    def environment(self) -> dict[str, str]:
        """What the pod gives it."""
        return super().environment() | self._own

    def ready(self) -> bool:
        """As the readiness probe."""
        return answers(f"http://127.0.0.1:{self.http}/readyz")


def ran(words: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "agent", *words],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def test_what_is_brought_along_serves_and_the_commands_of_notes_work(tmp_path: Path) -> None:
    rendered = resources(render(QUICKSTART))
    secret = rendered["Secret/floe-minio"]["stringData"]
    started = {
        name: Container(name, rendered[f"StatefulSet/floe-{name}"], secret, tmp_path / name) for name in TOOLS
    }
    file = agent_files(rendered, started, secret, tmp_path)
    (container,) = pod_of(rendered["StatefulSet/floe"])["containers"]
    fields = {"metadata.name": "floe-0", "status.podIP": "127.0.0.1", "spec.nodeName": "n"}
    environment = environment_of(container, fields) | {"TMPDIR": str(tmp_path)}
    with started["etcd"], started["minio"]:
        (job,) = [each for name, each in rendered.items() if name.startswith("Job/")]
        (prepare,) = job["spec"]["template"]["spec"]["containers"]
        ran([str(file) if each == "/etc/floe/floe.yaml" else each for each in prepare["args"]], environment)
        with Agent(file, environment, tmp_path / "agent") as agent:
            told = re.findall(r"exec statefulset/floe -c agent -- floe (.*)", notes(QUICKSTART))
            assert [each.split()[0] for each in told] == ["status", "topic", "produce", "consume"]
            ours = {":9092": f":{agent.kafka}", ":8080": f":{agent.http}"}
            for command in told:
                for asked, real in ours.items():
                    command = command.replace(asked, real)
                shown = ran(shlex.split(command), environment)
            assert '"value": "world"' in shown


def test_its_services_lead_to_what_is_brought_along() -> None:
    rendered = resources(render(QUICKSTART))
    config = yaml.safe_load(rendered["ConfigMap/floe"]["data"]["floe.yaml"])
    assert config["log"]["url"] == "etcd://floe-etcd:2379/try"
    assert config["store"]["endpoint"] == "http://floe-minio:9000"
    agents = rendered["Service/floe"]["spec"]["selector"]
    for name, port in TOOLS.items():
        service, workload = rendered[f"Service/floe-{name}"]["spec"], rendered[f"StatefulSet/floe-{name}"]
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert service["selector"].items() <= labels.items()
        assert not agents.items() <= labels.items(), "clients are never sent to it"
        assert service["ports"][0]["port"] == port
        (container,) = pod_of(workload)["containers"]
        assert container["ports"] == [{"name": name, "containerPort": port}]
        assert re.search(r":\S+@sha256:[0-9a-f]{64}$", container["image"]), "pinned, and readable"
        (claim,) = workload["spec"]["volumeClaimTemplates"]
        assert claim["metadata"]["name"] in {each["name"] for each in container["volumeMounts"]}
        assert workload["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Delete"
    assert "FOR TRYING ONLY" in notes(QUICKSTART)
    assert "FOR TRYING ONLY" not in notes(CHART / "ci" / "minimal.yaml")


def test_where_an_image_is_named_that_nobody_publishes_it_is_said() -> None:
    """Its name is somebody else's elsewhere: README says the same of the package's."""
    name = yaml.safe_load((CHART / "values.yaml").read_text())["image"]["repository"]
    readme = (CHART.parent / "README.md").read_text()
    command = "helm install try helm/floe"
    for text in (readme[: readme.index(command)], QUICKSTART.read_text(), notes(QUICKSTART)):
        told = " ".join(text.replace("\n# ", " ").split())
        assert re.search(rf"{name}`? is published nowhere", told), text
        for way in ("make image", "images import", "kind load image-archive", "image.repository="):
            assert way in told
    assert f"/{name}:" in images.NAME
    assert "published nowhere" not in notes(CHART / "ci" / "names.yaml"), "one of a registry of theirs"


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("fullnameOverride=other", 'etcd.endpoints is "floe-etcd:2379": set it to other-etcd:2379'),
        ("objectStore.endpoint=https://s3.example", "objectStore.endpoint is"),
        ("objectStore.credentialsSecretName=mine", "set it to floe-minio"),
        ("quickstart.secretKey=short", "/quickstart/secretKey"),
        (
            "listeners[0].name=ETCD,listeners[0].port=1,listeners[0].advertisedHost=h,"
            "listeners[0].external.type=LoadBalancer",
            "the Service floe-etcd would be there twice",
        ),
        (LONG, "quickstart.enabled: the StatefulSet " + "n" * 47 + "-minio has a name of 53 characters"),
        ("groups[0].name=minio", "the StatefulSet floe-minio would be there twice, for quickstart.enabled"),
    ],
)
def test_what_does_not_go_with_it_is_refused(setting: str, complaint: str) -> None:
    refused_with(QUICKSTART, "r", setting, complaint)
