"""What stands around the agents: scaling, Services, walls, monitors, certificates, commands of NOTES."""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy.services import Minio
from tests.deploy.test_alerts import alerts_of
from tests.deploy.test_chart import (
    CHART,
    OURS,
    agents_of,
    each_values,
    environment_of,
    given,
    matching,
    pod_of,
    render,
    resources,
    run,
    templates,
    workloads,
)
from tests.unit.agent.test_app import World, topic

pytestmark = pytest.mark.services

CI = CHART / "ci"


def of_kind(rendered: dict[str, dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {name.partition("/")[2]: d for name, d in rendered.items() if name.startswith(f"{kind}/")}


def ports_of(service: dict[str, Any]) -> set[str]:
    return {port["name"] for port in service["spec"]["ports"]}


def test_agents_that_scale_brings_have_their_services(tmp_path: Path) -> None:
    """`kubectl scale` up to maxReplicas: each has its Service, behind the port that it advertises."""
    nodes = {
        "name": "NODES",
        "port": 9093,
        "advertisedHost": "{node}",
        "advertisedPort": "{ordinal+31000}",
        "external": {"type": "NodePort", "firstNodePort": 31000},
    }
    rendered = resources(render(given(tmp_path, replicas=2, maxReplicas=5, listeners=[nodes])))
    (workload,) = workloads(rendered)
    services = of_kind(rendered, "Service")
    assert workload["spec"]["replicas"] == 2
    opened = [services[f"r-floe-{n}-nodes"]["spec"]["ports"][0]["nodePort"] for n in range(5)]
    assert opened == [31000, 31001, 31002, 31003, 31004]
    assert "r-floe-5-nodes" not in services


def started(workload: dict[str, Any], ordinal: int) -> subprocess.CompletedProcess[str]:
    """Runs the container that looks for a pod's Services, as its kubelet would."""
    (container,) = pod_of(workload)["initContainers"]
    environment = environment_of(container, {"metadata.name": f"{workload['metadata']['name']}-{ordinal}"})
    command = [sys.executable, *container["command"][1:]]
    return subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=60)


def test_an_agent_without_services_does_not_start_and_says_why() -> None:
    """Metadata never names an address that nobody answers at, however far somebody scales."""
    rendered = resources(render(CI / "autoscaling.yaml"))
    by_name = {workload["metadata"]["name"]: workload for workload in workloads(rendered)}
    services = of_kind(rendered, "Service")
    for name, first, count in (("r-floe-a", 0, 4), ("r-floe-b", 100, 4), ("r-floe-jobs", 200, 1)):
        assert f"{name}-{first + count - 1}-nodes" in services
        assert f"{name}-{first + count}-nodes" not in services
        last = started(by_name[name], first + count - 1)
        assert (last.returncode, last.stderr) == (0, "")
        beyond = started(by_name[name], first + count)
        assert beyond.returncode != 0
        told = f"{name}-{first + count} has no Service of its own for NODES: there are {count}."
        assert f"{told} Raise maxReplicas" in beyond.stderr
    without = pod_of(workloads(resources(render(CI / "minimal.yaml")))[0])
    assert "initContainers" not in without, "agents without Services of their own wait for nothing"


def test_who_scales_is_not_contradicted() -> None:
    """With an autoscaler, or `kubectl scale` by choice, an upgrade says nothing about the number."""
    rendered = resources(render(CI / "autoscaling.yaml"))
    counts = {w["metadata"]["name"]: w["spec"].get("replicas") for w in workloads(rendered)}
    assert counts == {"r-floe-a": None, "r-floe-b": None, "r-floe-jobs": 1}
    scalers = of_kind(rendered, "HorizontalPodAutoscaler")
    found = {
        name: (each["spec"]["scaleTargetRef"], each["spec"]["minReplicas"], each["spec"]["maxReplicas"])
        for name, each in scalers.items()
    }
    assert found == {
        name: ({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name}, least, 4)
        for name, least in (("r-floe-a", 2), ("r-floe-b", 1))
    }
    cpu, pods = scalers["r-floe-a"]["spec"]["metrics"]
    assert (cpu["type"], pods["type"]) == ("ContainerResource", "Pods")
    assert cpu["containerResource"]["container"] in {
        each["name"] for each in pod_of(workloads(rendered)[0])["containers"]
    }
    down = scalers["r-floe-a"]["spec"]["behavior"]["scaleDown"]
    assert down["stabilizationWindowSeconds"] == 600
    (by_hand,) = workloads(resources(render(CI / "guarded.yaml")))
    assert "replicas" not in by_hand["spec"]


def test_alerts_count_the_agents_that_are_there_in_any_case() -> None:
    extra = ("--set", "prometheusRule.enabled=true", "--set", "podMonitor.enabled=true")
    missing = alerts_of(CI / "autoscaling.yaml", *extra)["FloeAgentsMissing"]["expr"]
    assert missing == '(count(up{namespace="streams",job="streams/r-floe"} == 1) or vector(0)) < 4'


def test_a_pod_monitor_finds_each_agent_once_and_nothing_else() -> None:
    rendered = resources(render(CI / "zones.yaml", "--set", "podMonitor.enabled=true"))
    monitor = rendered["PodMonitor/r-floe"]["spec"]
    pods = {w["metadata"]["name"]: w["spec"]["template"]["metadata"]["labels"] for w in workloads(rendered)}
    tested = {name: pod["metadata"]["labels"] for name, pod in of_kind(rendered, "Pod").items()}
    assert matching(monitor["selector"]["matchLabels"], pods | tested) == set(pods)
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert endpoint["port"] == "http"
    annotations = [w["spec"]["template"]["metadata"]["annotations"] for w in workloads(rendered)]
    assert not any("prometheus.io/scrape" in each for each in annotations), "nor by its annotations again"


def test_no_service_sends_clients_to_the_pod_of_helm_test() -> None:
    rendered = resources(render(CI / "names.yaml"))
    (pod,) = of_kind(rendered, "Pod").values()
    for service in of_kind(rendered, "Service").values():
        assert not matching(service["spec"]["selector"], {"test": pod["metadata"]["labels"]})


@pytest.mark.parametrize("kind", ["ClusterIP", "NodePort", "LoadBalancer"])
def test_http_is_never_published(kind: str) -> None:
    """It asks nobody who he is: what reaches out of the cluster has Kafka's listeners only."""
    rendered = resources(render(CI / "zones.yaml", "--set", f"service.type={kind}"))
    services = of_kind(rendered, "Service")
    published = {
        n: each for n, each in services.items() if each["spec"].get("type", "ClusterIP") != "ClusterIP"
    }
    assert len(published) >= 2 * (1 + 6), "the listeners' Services"
    assert ("r-floe" in published) == (kind != "ClusterIP")
    for name, service in published.items():
        assert not ports_of(service) & {"http", "peers"}, name
    assert ports_of(services["r-floe-http"]) == {"http"}
    assert {"kafka", "external", "nodes"} <= ports_of(services["r-floe"])


def test_a_private_authority_is_where_the_agent_looks_for_it(tmp_path: Path) -> None:
    ((workload, config),) = agents_of(CI / "names.yaml", tmp_path)
    pod = pod_of(workload)
    mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    folder = config.store.ca_file.rpartition("/")[0]
    assert volumes[mounts[folder]]["configMap"] == {"name": "private-ca"}
    assert config.catalogs[0].password.get_secret_value() == "from-secret"
    assert config.fetch.cache_bytes_max == 134_217_728, "a large number arrives as it was written"


def test_etcds_certificate_is_the_one_that_is_mounted(tmp_path: Path) -> None:
    rendered = resources(render(CI / "guarded.yaml"))
    ((workload, config),) = agents_of(CI / "guarded.yaml", tmp_path)
    volumes = {volume["name"]: volume for volume in pod_of(workload)["volumes"]}
    issued = rendered["Certificate/r-floe-etcd-client"]["spec"]
    assert volumes["etcd-tls"]["secret"]["secretName"] == issued["secretName"]
    assert config.log.tls_cert_file == "/etc/floe/etcd-tls/tls.crt"
    assert issued["commonName"] == "guarded"
    assert "client auth" in issued["usages"]


def test_drains_go_on_while_no_agent_is_ready() -> None:
    for values in ("minimal", "zones"):
        budget = resources(render(CI / f"{values}.yaml"))["PodDisruptionBudget/r-floe"]["spec"]
        assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


def test_walls_let_in_who_should_come() -> None:
    """Only agents reach the port of peers; clients, metrics and `helm test` have theirs."""
    rendered = resources(render(CI / "guarded.yaml"))
    policy = rendered["NetworkPolicy/r-floe"]["spec"]
    (workload,) = workloads(rendered)
    pods = {"agent": workload["spec"]["template"]["metadata"]["labels"]}
    assert matching(policy["podSelector"]["matchLabels"], pods) == {"agent"}
    (test_pod,) = of_kind(rendered, "Pod").values()
    among, tested, clients, http = policy["ingress"]
    assert "ports" not in among
    assert matching(among["from"][0]["podSelector"]["matchLabels"], pods) == {"agent"}
    assert tested["from"][0]["podSelector"]["matchLabels"].items() <= test_pod["metadata"]["labels"].items()
    named = {port["name"] for port in pod_of(workload)["containers"][0]["ports"]}
    opened = [{port["port"] for port in rule["ports"]} for rule in (tested, clients, http)]
    assert opened == [{"kafka", "http"}, {"kafka", "inside"}, {"http"}]
    assert set().union(*opened) == named - {"peers"}
    out = {rule["ports"][0]["port"]: rule.get("to") for rule in policy["egress"][1:]}
    assert list(out) == [53, 2379, 9000, 80]
    assert out[2379] == [{"podSelector": {"matchLabels": {"app": "etcd"}}}]
    open_ones = resources(render(CI / "minimal.yaml", "--set", "networkPolicy.enabled=true"))
    spec = open_ones["NetworkPolicy/r-floe"]["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    assert "from" not in spec["ingress"][2], "by default Kafka's clients come from everywhere"
    assert spec["ingress"][3]["from"] == [{"podSelector": {}}], "and HTTP's from the namespace"


@pytest.mark.parametrize(
    ("endpoint", "port"),
    [
        ("", 443),
        ("https://store.example", 443),
        ("https://store.example:9000/x:1", 9000),
        ("http://[fd00::1]", 80),
        ("http://[fd00::1]:9000", 9000),
    ],
)
def test_the_stores_port_is_let_out(endpoint: str, port: int, tmp_path: Path) -> None:
    store = {"url": "s3://floe-demo/demo", "endpoint": endpoint, "allowHttp": True}
    walls = {"enabled": True, "egress": {"enabled": True}}
    rendered = resources(render(given(tmp_path, objectStore=store, networkPolicy=walls)))
    rules = rendered["NetworkPolicy/r-floe"]["spec"]["egress"]
    assert rules[-1]["ports"] == [{"port": port}]


def test_the_ingress_leads_to_a_service_that_is_there() -> None:
    rendered = resources(render(CI / "guarded.yaml"))
    spec = rendered["Ingress/r-floe"]["spec"]
    (rule,) = spec["rules"]
    (path,) = rule["http"]["paths"]
    backend = path["backend"]["service"]
    assert (rule["host"], path["path"]) == ("lake.example", "/iceberg")
    assert backend["port"]["name"] in ports_of(rendered[f"Service/{backend['name']}"])


def test_routes_of_gateways_lead_to_the_agent_that_each_name_is_of() -> None:
    rendered = resources(render(CI / "doors.yaml"))
    services = of_kind(rendered, "Service")
    http = rendered["HTTPRoute/r-floe"]["spec"]
    assert http["hostnames"] == ["lake.example"]
    assert http["rules"][0]["matches"] == [{"path": {"type": "PathPrefix", "value": "/iceberg"}}]
    found = of_kind(rendered, "TLSRoute")
    assert set(found) == {"r-floe-routed", *(f"r-floe-{n}-routed" for n in range(3))}
    for name, route in found.items():
        pod, spec = name.removesuffix("-routed"), services[name]["spec"]
        whole = pod == "r-floe"
        assert route["spec"]["hostnames"] == ["routed.example" if whole else f"{pod}.routed.example"]
        assert whole or spec["selector"] == {"statefulset.kubernetes.io/pod-name": pod}
        assert spec["type"] == "ClusterIP"
    for spec in (http, *(route["spec"] for route in found.values())):
        ((backend,),) = (rule["backendRefs"] for rule in spec["rules"])
        assert backend["port"] in {port["port"] for port in services[backend["name"]]["spec"]["ports"]}
        assert (spec["parentRefs"][0]["name"], spec["parentRefs"][0]["namespace"]) == ("edge", "gateways")
    names = rendered["Certificate/r-floe-routed-tls"]["spec"]["dnsNames"]
    assert {"*.routed.example", "routed.example"} <= set(names)


ROUTED = {
    "name": "ROUTED", "port": 9096, "advertisedHost": "{pod}.x", "protocol": "SSL",
    "tls": {"secretName": "x"},
    "external": {"type": "TLSRoute", "bootstrapHost": "x", "parentRefs": [{"name": "edge"}]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"protocol": "PLAINTEXT", "tls": {}}, "go by the name in TLS"),
        ({"advertisedHost": "{ip}"}, "no other placeholder"),
        ({"advertisedHost": "one.x"}, "a name with {pod} or {ordinal}"),
        ({"external": {"type": "TLSRoute", "bootstrapHost": "x"}}, "external.parentRefs"),
    ],
)
def test_routes_that_lead_nowhere_are_refused(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    assert resources(render(given(tmp_path, listeners=[ROUTED])))
    values = given(tmp_path, listeners=[ROUTED | changed])
    refused = run("helm", "template", "r", str(CHART), "-f", str(values))
    assert refused.returncode != 0
    assert said in refused.stderr


def test_overrides_name_everything_and_find_their_pods() -> None:
    extra = ("--set", "nameOverride=events", "--set", "fullnameOverride=kafka-of-events")
    rendered = resources(render(CI / "zones.yaml", *extra))
    assert not [name for name in rendered if not name.partition("/")[2].startswith("kafka-of-events")]
    (first, *_) = workloads(rendered)
    labels = first["spec"]["template"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/name"] == "events"
    selector = rendered["Service/kafka-of-events"]["spec"]["selector"]
    assert selector.items() <= labels.items()
    (name_only, *_) = workloads(resources(render(CI / "minimal.yaml", "--set", "nameOverride=events")))
    assert name_only["metadata"]["name"] == "r-events"


@each_values
def test_common_labels_are_everywhere_and_select_nothing(values: Path) -> None:
    """A selector cannot change: what people label today must not keep them from an upgrade tomorrow."""
    extra = ("--set", "commonLabels.cost=x,commonAnnotations.contact=y")
    rendered = resources(render(values, *extra))
    for name, document in rendered.items():
        if name in ("ConfigMap/r-floe-hints", "ConfigMap/as-text"):
            continue  # people's own
        assert document["metadata"]["labels"]["cost"] == "x", name
        assert document["metadata"]["annotations"]["contact"] == "y", name
        selector = document["spec"].get("selector", {}) if "spec" in document else {}
        assert "cost" not in selector.get("matchLabels", selector), name
    for name, pod in templates(rendered):
        metadata = pod["metadata"]
        assert (metadata["labels"]["cost"], metadata.get("annotations", {}).get("contact")) == ("x", "y"), (
            name
        )


def test_what_people_add_is_there_and_the_agent_is_first() -> None:
    rendered = resources(render(CI / "names.yaml"))
    (workload,) = workloads(rendered)
    pod = pod_of(workload)
    assert [each["name"] for each in pod["containers"]] == ["agent", "proxy"]
    assert [each["name"] for each in pod["initContainers"]] == ["tail"]
    assert pod["containers"][0]["image"].endswith("@sha256:" + "1" * 64)
    assert pod["serviceAccountName"] == "existing"
    assert not of_kind(rendered, "ServiceAccount")
    hints = rendered["ConfigMap/r-floe-hints"]["data"]
    assert hints == {"bootstrap": "r-floe:9092"}
    assert rendered["ConfigMap/as-text"]["data"] == {"namespace": "streams"}
    (spread,) = pod["topologySpreadConstraints"]
    assert (spread["maxSkew"], spread["whenUnsatisfiable"]) == (2, "DoNotSchedule")
    (term,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    labels = {"agent": workload["spec"]["template"]["metadata"]["labels"]}
    for selector in (spread["labelSelector"], term["labelSelector"]):
        assert matching(selector["matchLabels"], labels) == {"agent"}
    soft = pod_of(workloads(resources(render(CI / "minimal.yaml", "--set", "podAntiAffinity=soft")))[0])
    assert "preferredDuringSchedulingIgnoredDuringExecution" in soft["affinity"]["podAntiAffinity"]


def notes(values: Path) -> str:
    done = run("helm", "install", "r", str(CHART), "-f", str(values), "-n", "streams", "--dry-run=client")
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("NOTES:")[2]


def test_the_commands_of_notes_and_of_helm_test_work_on_an_agent(tmp_path: Path) -> None:
    """What NOTES and the hook tell people and Kubernetes to run, run against a real agent."""
    text = notes(CI / "minimal.yaml")
    (told,) = re.findall(r"exec statefulset/r-floe -c agent -- floe (.*)", text)
    (hook,) = of_kind(resources(render(CI / "minimal.yaml")), "Pod").values()
    commands = [shlex.split(told), *(each["args"] for each in hook["spec"]["containers"])]
    assert len(commands) == 3

    async def story() -> list[tuple[int | None, str]]:
        world = World()
        app = await world.start("a")
        await topic(app)
        found = []
        for command in commands:
            ours = {":8080": f":{app.http_port}", ":9092": f":{app.kafka_port}"}
            words = [re.sub(r"r-floe(-http)?:", "127.0.0.1:", word) for word in command]
            for asked, real in ours.items():
                words = [word.replace(asked, real) for word in words]
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "agent", *words, stdout=-1, stderr=asyncio.subprocess.STDOUT
            )
            shown, _ = await process.communicate()
            found.append((process.returncode, shown.decode()))
        await app.stop()
        return found

    for (status, shown), command in zip(asyncio.run(story()), commands, strict=True):
        assert status == 0, f"{command}: {shown}"


@each_values
def test_notes_name_what_is_there(values: Path) -> None:
    text, rendered = notes(values), resources(render(values))
    service = re.findall(r"^  (?:https?://)?(\S+)\.streams\.svc:(\d+)", text, re.MULTILINE)
    assert len(service) == 2
    for name, port in service:
        opened = {each["port"] for each in rendered[f"Service/{name}"]["spec"]["ports"]}
        assert int(port) in opened
    for kind, name in re.findall(r"exec (\w+)/(\S+) -c agent", text):
        (workload,) = [w for w in workloads(rendered) if w["metadata"]["name"] == name]
        assert workload["kind"].lower() == kind
        assert OURS[0] in {each["name"] for each in pod_of(workload)["containers"]}


def test_a_job_makes_the_bucket_and_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    """Its container, run as a kubelet would: first while no store is there, then against a real one."""
    store = Minio()
    credentials = {"FLOE_STORE__ACCESS_KEY": store.access_key, "FLOE_STORE__SECRET_KEY": store.secret_key}
    where = {"url": "s3://fresh-bucket/floe", "endpoint": store.endpoint, "allowHttp": True, "prepare": True}
    numbered = {"name": "X", "port": 1, "advertisedHost": "h", "advertisedPort": "{ordinal+31000}"}
    rendered = resources(render(given(tmp_path, objectStore=where, listeners=[numbered])))
    (job,) = of_kind(rendered, "Job").values()
    (container,) = job["spec"]["template"]["spec"]["containers"]
    config = tmp_path / "floe.yaml"
    config.write_text(rendered["ConfigMap/r-floe"]["data"]["floe.yaml"])
    arguments = [str(config) if each == "/etc/floe/floe.yaml" else each for each in container["args"]]
    fields = {"metadata.name": "r-floe-bucket-1-x7k2p", "status.podIP": "10.0.0.1", "spec.nodeName": "n"}
    environment = environment_of(container, fields) | credentials

    def ran() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "agent", *arguments]
        return subprocess.run(
            command, check=False, env=environment, capture_output=True, text=True, timeout=120
        )

    assert ran().returncode == 1, "no store is there yet"
    with store:
        prepared = ran()
        assert prepared.returncode == 0, prepared
        assert [each["Name"] for each in store.client().list_buckets()["Buckets"]] == ["fresh-bucket"]
        assert ran().returncode == 0, "with every upgrade again"
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert "helm.sh/hook" not in str(job), "agents wait for it, and --wait for agents"


def test_only_an_s3_bucket_is_made(tmp_path: Path) -> None:
    values = given(tmp_path, objectStore={"url": "gs://bucket/floe", "prepare": True})
    done = run("helm", "template", "r", str(CHART), "-f", str(values))
    assert done.returncode != 0
    assert 'objectStore.prepare: "gs://bucket/floe" is no s3:// bucket' in done.stderr
