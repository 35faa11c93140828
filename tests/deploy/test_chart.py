"""The chart: lints, renders for every value file, is valid Kubernetes, and its agents accept what it says."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.metadata import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.config import Config, load
from deploy.services.build import tool_path
from tests.equipment.thorough import one_in

pytestmark = pytest.mark.services

CHART = Path(__file__).resolve().parents[2] / "helm" / "floe"
VALUE_FILES = [*sorted((CHART / "ci").glob("*.yaml")), CHART / "quickstart.yaml"]
KUBERNETES = tuple(f"1.{minor}.0" for minor in range(31, 38))
FOREIGN = ("ServiceMonitor", "PodMonitor", "PrometheusRule", "Certificate", "HTTPRoute", "TLSRoute")
"""Kinds of other projects, which Kubernetes' schemas do not know."""
PROBES = ("startup", "liveness", "readiness")
ZONE_LABEL = "topology.kubernetes.io/zone"
each_values = pytest.mark.parametrize("values", VALUE_FILES, ids=lambda path: path.stem)


def run(tool: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(tool_path(tool)), *arguments]
    return subprocess.run(command, check=False, input=stdin, capture_output=True, text=True, timeout=120)


def render(values: Path, *extra: str) -> str:
    return _rendered(values, values.read_text(), *extra)


@cache
def _rendered(values: Path, _: str, *extra: str) -> str:
    """Once for each text of a file."""
    done = run("helm", "template", "r", str(CHART), "-f", str(values), "--namespace", "streams", *extra)
    assert done.returncode == 0, done.stderr
    return done.stdout


def resources(rendered: str) -> dict[str, dict[str, Any]]:
    documents = [d for d in yaml.load_all(rendered, yaml.CSafeLoader) if d]  # ten times as fast
    return {f"{d['kind']}/{d['metadata']['name']}": d for d in documents}


@pytest.fixture(scope="session")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kubernetes' schemas as local files, a folder for each version (from kubernetes-validate)."""
    root = tmp_path_factory.mktemp("kubernetes-schemas")
    for version in KUBERNETES:
        name = f"v{version}-local-strict"
        found = [f for f in files("kubernetes-validate") or [] if f.parent.name == name]
        assert found, f"the package kubernetes-validate holds no schemas of {version}"
        (root / version).mkdir()
        for file in found:
            # The package names them by URL; as files they refer to their neighbour.
            text = (
                Path(str(file.locate()))
                .read_text()
                .replace('"/api/_definitions.json#', '"_definitions.json#')
            )
            schema = json.loads(text)
            schema.pop("$id", None)
            (root / version / file.name).write_text(json.dumps(schema))
    return root


@each_values
def test_lint(values: Path) -> None:
    done = run("helm", "lint", "--strict", str(CHART), "-f", str(values))
    assert done.returncode == 0, done.stdout + done.stderr


def conform(rendered: str, schemas: Path, version: str) -> subprocess.CompletedProcess[str]:
    options = ["-strict", "-summary", "-kubernetes-version", version, "-skip", ",".join(FOREIGN)]
    location = f"{schemas}/{version}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    return run("kubeconform", *options, "-schema-location", location, "-", stdin=rendered)


@pytest.mark.parametrize("version", one_in(len(KUBERNETES) - 1, KUBERNETES))
def test_rendered_is_valid_kubernetes(version: str, schemas: Path) -> None:
    """Every value file, on every Kubernetes that the chart allows and has schemas for."""
    texts = [render(values) for values in VALUE_FILES]
    done = conform("\n---\n".join(texts), schemas, version)
    assert done.returncode == 0, done.stdout + done.stderr
    known = [name for text in texts for name in resources(text) if not name.startswith(FOREIGN)]
    assert f"Valid: {len(known)}, Invalid: 0, Errors: 0" in done.stdout


def test_the_validity_check_can_fail(schemas: Path) -> None:
    broken = render(CHART / "ci" / "full.yaml").replace("replicas: 6", "replicas: many")
    done = conform(broken, schemas, KUBERNETES[-1])
    assert done.returncode != 0
    assert "replicas" in done.stdout


@each_values
def test_the_chart_renders_what_is_written_down(values: Path, request: pytest.FixtureRequest) -> None:
    """Whoever changes a template sees in the diff what that does. `--rewrite-golden` writes it anew."""
    golden = Path(__file__).parent / "golden" / values.name
    if request.config.getoption("--rewrite-golden"):
        golden.write_text(render(values))
    assert render(values) == golden.read_text()


def workloads(rendered: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of agents: the quickstart's etcd and MinIO are none."""
    sets = [d for name, d in rendered.items() if name.startswith(("Deployment/", "StatefulSet/"))]
    return [each for each in sets if "floe/group" in each["metadata"]["labels"]]


def templates(rendered: dict[str, dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The pods of everything that makes some, by what makes them: all but the one of `helm test`."""
    for name, each in rendered.items():
        spec = each["spec"]["jobTemplate"]["spec"] if name.startswith("CronJob/") else each.get("spec", {})
        if name.startswith(("StatefulSet/", "Deployment/", "Job/", "CronJob/")):
            yield name, spec["template"]


def other_pods(rendered: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Pods of everything that is neither an agent nor asked for by `helm test`."""
    agents = workloads(rendered)
    return [pod["spec"] for name, pod in templates(rendered) if rendered[name] not in agents]


def pod_of(workload: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = workload["spec"]["template"]["spec"]
    return pod


def environment_of(container: dict[str, Any], given: dict[str, str]) -> dict[str, str]:
    """What Kubernetes puts into the container's environment; `given` by the path of a field."""
    environment: dict[str, str] = {}
    for variable in container["env"]:
        source = variable.get("valueFrom", {})
        if "fieldRef" in source:
            text = given[source["fieldRef"]["fieldPath"]]
        else:
            text = "from-secret" if source else variable["value"]
        for name, value in environment.items():
            text = text.replace(f"$({name})", value)
        environment[variable["name"]] = text
    return environment


def agents_of(values: Path, folder: Path) -> Iterator[tuple[dict[str, Any], Config]]:
    """Each workload, and the configuration of its first pod as an agent loads it."""
    rendered = resources(render(values))
    config_map = next(d for name, d in rendered.items() if name.startswith("ConfigMap/"))
    file = folder / "floe.yaml"
    file.write_text(config_map["data"]["floe.yaml"])
    for workload in workloads(rendered):
        pod = pod_of(workload)
        selected = pod.get("nodeSelector", {}).get(ZONE_LABEL)
        ordinal = workload["spec"].get("ordinals", {}).get("start", "abc")
        given = {
            "metadata.name": f"{workload['metadata']['name']}-{ordinal}",
            "status.podIP": "10.1.2.3",
            "spec.nodeName": "node-1",
            f"metadata.labels['{ZONE_LABEL}']": selected or "labelled-zone",
        }
        environment = environment_of(pod["containers"][0], given)
        yield workload, load(file, environment=environment).config


@each_values
def test_an_agent_accepts_the_configuration(values: Path, tmp_path: Path) -> None:
    agents = list(agents_of(values, tmp_path))
    assert agents
    for workload, config in agents:
        pod = pod_of(workload)
        assert config.agent_name.startswith(workload["metadata"]["name"])
        assert (config.peers.advertised_host, config.http.advertised_host) == ("10.1.2.3", "10.1.2.3")
        ports = {each["containerPort"] for each in pod["containers"][0]["ports"]}
        first = {config.http.port, config.peers.port, *(each.port for each in config.listeners)}
        several = config.agent.processes > 1
        steps = [config.agent.port_step * number for number in range(config.agent.processes)]
        bound = {port + step for port in first for step in steps}
        bound |= {config.agent.supervisor_port} if several else set()
        probed = {pod["containers"][0][f"{kind}Probe"]["httpGet"]["port"] for kind in PROBES}
        assert probed == {"supervisor" if several else "http"}
        assert ports == bound, "what an agent listens on is what the pod shows"
        delay = pod["containers"][0].get("lifecycle", {}).get("preStop", {"sleep": {"seconds": 0}})
        grace = pod["terminationGracePeriodSeconds"] - delay["sleep"]["seconds"]
        assert config.shutdown.drain_ms < config.shutdown.timeout_ms < grace * 1000


def test_a_group_per_zone_with_its_roles_and_addresses(tmp_path: Path) -> None:
    agents = {
        workload["metadata"]["name"]: (pod_of(workload).get("nodeSelector"), config)
        for workload, config in agents_of(CHART / "ci" / "zones.yaml", tmp_path)
    }
    found = {name: (config.agent.zone, *config.roles) for name, (_, config) in agents.items()}
    assert found == {
        "r-floe-a": ("eu-1a", "produce", "fetch"),
        "r-floe-b": ("eu-1b", "produce", "fetch"),
        "r-floe-c": ("eu-1c", "produce", "fetch"),
        "r-floe-jobs": ("", "background"),
    }
    assert agents["r-floe-c"][0] == {"disk": "none", ZONE_LABEL: "eu-1c"}, "they run in the zone they name"
    assert agents["r-floe-jobs"][0] is None
    listeners = agents["r-floe-b"][1].listeners
    assert [(each.advertised_host, each.advertised_port) for each in listeners] == [
        ("10.1.2.3", 0),
        ("r-floe-b-100.kafka.example", 0),
        ("node-1", 31100),
    ]
    assert [each.zone for each in listeners] == ["", "", "eu-1b"]


def test_clients_outside_reach_every_agent_where_it_says(tmp_path: Path) -> None:
    """The port that an agent advertises is the one that its own Service opens."""
    values = CHART / "ci" / "zones.yaml"
    services = {
        n.removeprefix("Service/"): d for n, d in resources(render(values)).items() if "Service/" in n
    }
    for workload, config in agents_of(values, tmp_path):
        external = services[f"{config.agent_name}-external"]
        name = external["metadata"]["annotations"]["external-dns.alpha.kubernetes.io/hostname"]
        assert (external["spec"]["type"], name) == ("LoadBalancer", config.listeners[1].advertised_host)
        nodes = services[f"{config.agent_name}-nodes"]["spec"]
        assert nodes["ports"][0]["nodePort"] == config.listeners[2].advertised_port
        assert nodes["selector"] == {"statefulset.kubernetes.io/pod-name": config.agent_name}
        last = workload["spec"]["ordinals"]["start"] + workload["spec"]["replicas"] - 1
        assert f"{workload['metadata']['name']}-{last}-nodes" in services, "every replica has its Service"


def given(folder: Path, **values: Any) -> Path:
    """A file with the values of an installation that says only what it must, and these."""
    file = folder / "values.yaml"
    file.write_text(json.dumps(yaml.safe_load((CHART / "ci" / "minimal.yaml").read_text()) | values))
    return file


def test_what_a_group_says_counts_also_when_it_is_nothing(tmp_path: Path) -> None:
    """0, "" and {} are something else than nothing said: that is the release's."""
    release = {
        "replicas": 4,
        "zone": "z",
        "resources": {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "3Gi"}},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
    }
    nothing = {
        "replicas": 0,
        "zone": "",
        "resources": {},
        "nodeSelector": {},
        "tolerations": [],
        "affinity": {},
    }
    part = {"requests": {"cpu": "1"}}
    groups = [{"name": "none", **nothing}, {"name": "all"}, {"name": "part", "resources": part}]
    found = {}
    for workload, config in agents_of(given(tmp_path, **release, groups=groups), tmp_path):
        pod = pod_of(workload)
        pod.setdefault("nodeSelector", {}).pop(ZONE_LABEL, None)
        found[workload["metadata"]["name"]] = {
            "replicas": workload["spec"]["replicas"],
            "zone": config.agent.zone,
            "resources": pod["containers"][0]["resources"],
            "tolerations": pod.get("tolerations", []),
            **{name: pod.get(name, {}) for name in ("nodeSelector", "affinity")},
        }
    assert found == {
        "r-floe-none": nothing,
        "r-floe-all": release,
        "r-floe-part": {**release, "resources": part},
    }


def test_the_zone_comes_from_the_pods_label(tmp_path: Path) -> None:
    ((_, config),) = agents_of(CHART / "ci" / "topology-label.yaml", tmp_path)
    assert config.agent.zone == "labelled-zone"


OURS = ("agent", "has-services", "ready", "topics", "bucket", "etcd", "minio", "spark")


@each_values
def test_pods_have_no_more_rights_than_they_need(values: Path) -> None:
    """What Pod Security calls restricted, and less: no token, no file that they could change."""
    rendered = resources(render(values))
    tested = [d["spec"] for name, d in rendered.items() if name.startswith("Pod/")]
    agents = [pod_of(workload) for workload in workloads(rendered)]
    assert agents
    assert len(tested) == int(values.stem != "doors"), "where nothing is in the clear nothing is tested"
    for pod in (*tested, *agents, *other_pods(rendered)):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert not [volume for volume in pod.get("volumes", []) if "hostPath" in volume]
        ours = [each for each in (*pod.get("initContainers", []), *pod["containers"]) if each["name"] in OURS]
        for container in ours:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert (security["allowPrivilegeEscalation"], security["capabilities"]) == (
                False,
                {"drop": ["ALL"]},
            )
    for pod in agents:
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= pod["containers"][0].keys()


@each_values
def test_selectors_find_their_pods(values: Path) -> None:
    """A workload its own pods only, the disruption budget and the Service those of all groups."""
    rendered = resources(render(values))
    pods = {d["metadata"]["name"]: d["spec"]["template"]["metadata"]["labels"] for d in workloads(rendered)}
    for workload in workloads(rendered):
        assert matching(workload["spec"]["selector"]["matchLabels"], pods) == {workload["metadata"]["name"]}
    for name, document in rendered.items():
        if name == "Service/r-floe":
            assert matching(document["spec"]["selector"], pods) == set(pods)
        if name.startswith("PodDisruptionBudget/"):
            assert matching(document["spec"]["selector"]["matchLabels"], pods) == set(pods)


def matching(selector: dict[str, str], pods: dict[str, dict[str, str]]) -> set[str]:
    return {name for name, labels in pods.items() if selector.items() <= labels.items()}


def listener(index: int = 0, *, name: str = "X", port: int = 1, external: str = "") -> str:
    """Settings of one listener."""
    start = f"listeners[{index}]"
    said = f"{start}.name={name},{start}.port={port},{start}.advertisedHost=h"
    return f"{said},{start}.external.type={external}" if external else said


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("etcd.endpoints={}", "/etcd/endpoints"),
        ("objectStore.url=ftp://bucket", "objectStore/url"),
        ("clusterName=Not_A_Name", "clusterName"),
        ("replicas=0", "replicas"),
        ("replica=3", "replica"),
        ("etcd.tls.enabled=true", "secretName"),
        ("groups[0].name=a,groups[0].roles={write}", "roles"),
        ("groups[0].name=a,groups[1].name=a", '"a" is there twice'),
        ("zone=a,zoneFromTopologyLabel=true", "leave zone empty"),
        ("preStopSeconds=40", "must be at least preStopSeconds"),
        ("http.port=9092", "must differ"),
        ("kind=DaemonSet", "kind"),
        (
            "kind=Deployment,listeners[0].name=X,listeners[0].port=1,listeners[0].advertisedHost=h,"
            "listeners[0].external.type=NodePort",
            "needs kind: StatefulSet",
        ),
        (
            "groups[0].name=a,groups[1].name=b,listeners[0].name=X,listeners[0].port=1,"
            "listeners[0].advertisedHost=h,listeners[0].external.type=NodePort,"
            "listeners[0].external.firstNodePort=31000",
            "node port 31000 would be taken twice",
        ),
        ("terminationGracePeriodSeconds=611", "(611) must be at most preStopSeconds (5) + 605"),
        (f"{listener()},{listener(1, port=2)}", '"X" is there twice'),
        ("objectStore.endpoint=http://minio:9000", "set objectStore.allowHttp=true"),
        (
            "objectStore.endpoint=http://minio:9000,objectStore.allowHttp=true,config.store.allow_http=false",
            "set objectStore.allowHttp=true",
        ),
        ("config.store.endpoint=http://minio:9000", "set objectStore.allowHttp=true"),
        ("objectStore.region=", "objectStore/region"),
        (
            f"{listener(external='NodePort')},listeners[0].external.firstNodePort=32000",
            'such as "{ordinal+32000}" with firstNodePort: 32000',
        ),
        (listener(external="NodePort"), "X is a NodePort without advertisedPort"),
        (
            f"{listener(external='NodePort')},listeners[0].external.firstNodePort=65534,replicas=3",
            "X would have the node port 65536",
        ),
        (listener(name="AGENTS", external="LoadBalancer"), "r-floe-agents would be there twice"),
        (
            f"groups[0].name=a,{listener(external='LoadBalancer')},"
            f"{listener(1, name='A_0_X', port=2, external='LoadBalancer')}",
            "r-floe-a-0-x would be there twice, for listener A_0_X and for listener X for an agent",
        ),
        ("config.listeners[0].name=X", "config.listeners: set kafka and listeners instead"),
        ("config.http.port=8081", "config.http.port: set http.port instead"),
        ("config.peers.port=0", "config.peers.port: set peers.port instead"),
        ("extraEnv[0].name=FLOE_HTTP__PORT", "instead of FLOE_HTTP__PORT set kafka"),
        ("extraEnv[0].name=FLOE_LISTENERS__0__PORT", "instead of FLOE_LISTENERS__0__PORT set kafka"),
        ("groups[0].name=a,groups[0].roles={all,fetch}", "/groups/0/roles"),
        ("kind=Deployment,kafka.advertisedHost=k-\\{ordinal}.x", "{ordinal} in an advertised address needs"),
        ("groups[0].name=a,kafka.advertisedHost=\\{zone}.x", "group a has none; set zone"),
        ("podLabels.floe/group=x", "podLabels: floe/group is the chart's own"),
        ("podLabels.helm\\.sh/chart=x", "podLabels: helm.sh/chart is the chart's own"),
        (listener(name="A__B"), "'A__B' does not match pattern"),
        (listener(name="A_"), "'A_' does not match pattern"),
    ],
)
def test_bad_values_are_refused_by_name(setting: str, complaint: str) -> None:
    refused("r", setting, complaint)


@pytest.mark.parametrize(
    ("release", "setting", "complaint"),
    [
        ("r" * 32, "groups[0].name=" + "g" * 16, "has a name of 54 characters, and 52 are possible"),
        (
            "r" * 47,
            listener(name="A" * 12, external="LoadBalancer"),
            f"{'r' * 47}-floe-{'a' * 12}, for listener {'A' * 12}, has a name of 65 characters",
        ),
        (
            "r" * 47,
            listener(name="A" * 9, external="LoadBalancer"),
            f"-floe-0-{'a' * 9}, for listener {'A' * 9} for an agent of group all, has a name of 64",
        ),
        ("1st", "replicas=1", "let it begin with a letter"),
        ("a.b", "replicas=1", "the release's name a.b cannot be a Service's"),
    ],
    ids=["group", "bootstrap", "agent", "number", "dot"],
)
def test_names_that_kubernetes_would_refuse_are_refused(release: str, setting: str, complaint: str) -> None:
    refused(release, setting, complaint)


def refused(release: str, setting: str, complaint: str) -> None:
    refused_with(CHART / "ci" / "minimal.yaml", release, setting, complaint)


def refused_with(values: Path, release: str, setting: str, complaint: str) -> None:
    done = run("helm", "template", release, str(CHART), "-f", str(values), "--set", setting)
    assert done.returncode != 0
    assert complaint in done.stderr


def test_the_longest_that_is_not_refused_is_possible(schemas: Path, tmp_path: Path) -> None:
    """Names that fill what Kubernetes allows, the longest time to stop, listeners that are almost taken."""
    external = {"type": "NodePort", "firstNodePort": 65534}
    listeners = [
        {"name": "A_1_B", "port": 9093, "advertisedHost": "h", "advertisedPort": 7, "external": external},
        {"name": "AGENTS", "port": 9094, "advertisedHost": "h"},
    ]
    more = {
        "groups": [{"name": "g" * 20, "replicas": 2}],
        "terminationGracePeriodSeconds": 610,
        "listeners": listeners,
        "objectStore": {"url": "s3://floe-demo/demo", "endpoint": "http://minio:9000"},
        "config": {"store": {"allow_http": True}, "http": {"host": "::"}},
    }
    values = given(tmp_path, **more)
    release = "r" * (52 - 1 - 20 - len("-floe"))
    done = run("helm", "template", release, str(CHART), "-f", str(values))
    assert done.returncode == 0, done.stderr
    assert conform(done.stdout, schemas, KUBERNETES[-1]).returncode == 0
    rendered = resources(done.stdout)
    (workload,) = workloads(rendered)
    assert len(workload["metadata"]["name"]) == 52
    assert max(len(name.partition("/")[2]) for name in rendered) <= 63
    ((_, config),) = agents_of(values, tmp_path)
    assert config.shutdown.timeout_ms == 600_000
    values = given(tmp_path, terminationGracePeriodSeconds=900, config={"shutdown": {"timeout_ms": 500_000}})
    ((_, config),) = agents_of(values, tmp_path)
    assert config.shutdown.timeout_ms == 500_000, "who says it is asked no more"
