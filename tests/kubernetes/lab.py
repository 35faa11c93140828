"""The cluster under test: the node, etcd, MinIO and the chart, and what is done to them."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import signal
import time
import urllib.request
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from deploy.kubernetes.namespaces import CGROUPS, GROUP, PATIENCE
from deploy.kubernetes.node import RUN, Node, NodeError
from tests.kubernetes.manifests import ETCD_MEMBERS, NAMESPACE, all_of_it

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "floe"
READY_SECONDS_MAX = 240 * PATIENCE
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
RELEASE, AGENTS = "floe", 3
BEHIND = CGROUPS / "cpu" / GROUP / "behind"
BEHIND_SHARES = 2
"""The fewest there are, against the 1024 of all else in the namespaces."""
TOO_MANY = 429
"""The apiserver's answer to an eviction that the budget does not allow yet."""
EVICTION_SECONDS = 0.5
POD_LOGS = RUN / "logs" / "pods"
HUNGRY = """\
number=0
while [ $((number += 1)) -le 24 ]; do
    python -c 'taken = b"x" * (64 << 20); import time; time.sleep(60)' &
done
wait"""
VALUES: dict[str, Any] = {
    "image": {"pullPolicy": "Never"},
    "etcd": {"endpoints": [f"etcd-{n}.etcd:2379" for n in range(ETCD_MEMBERS)]},
    "objectStore": {
        "prepare": True,
        "endpoint": "http://minio:9000",
        "allowHttp": True,
        "credentialsSecretName": "minio",
    },
    "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
    "preStopSeconds": 0,  # no load balancer is here that has to hear of it; kube-proxy needs milliseconds
    "minReadySeconds": 0,
}


class Lab:
    """The node with a namespace, and a release of the chart in it: a cluster of its own, beside which there
    may be others on the same etcd and MinIO."""

    def __init__(self, node: Node, release: str = RELEASE, replicas: int = AGENTS) -> None:
        self.node, self.release, self.replicas = node, release, replicas
        self.selector = f"app.kubernetes.io/instance={release},app.kubernetes.io/name=floe"
        self.values = copy.deepcopy(VALUES) | {"clusterName": release, "replicas": replicas}
        """What each installation and upgrade starts from: who changes something else changes only that."""
        self.values["objectStore"]["url"] = f"s3://floe/{release}"

    def kubectl(self, *arguments: str, given: str = "", timeout_s: float = READY_SECONDS_MAX + 30) -> str:
        """kubectl in the namespace."""
        return self.node.kubectl("-n", NAMESPACE, *arguments, given=given, timeout_s=timeout_s)

    def helm(self, *arguments: str) -> str:
        """helm in the namespace, with the values where it takes some."""
        return self.node.run("helm", "-n", NAMESPACE, *arguments, timeout_s=READY_SECONDS_MAX + 30)

    def install(self, verb: str = "install", *more: str, wait: bool = True) -> None:
        """`helm install` or `upgrade` with `values`, and what else is said. Once the bucket is there, no Job
        that makes it comes with those that follow."""
        file = RUN / f"values-{self.release}.json"
        file.write_text(json.dumps(self.values))
        waiting = ["--wait", f"--timeout={READY_SECONDS_MAX}s"] if wait else []
        self.helm(verb, self.release, str(CHART), "-f", str(file), *waiting, *more)
        self.values["objectStore"]["prepare"] = False

    def services(self) -> None:
        """etcd and MinIO, until they are ready."""
        self.kubectl("apply", "-f", "-", given=all_of_it(RUN / "volumes"))
        for name in ("etcd", "minio"):
            self.rolled_out(name)

    def rolled_out(self, workload: str) -> None:
        """Wait until all pods of a StatefulSet are there and ready."""
        waiting = f"--timeout={READY_SECONDS_MAX}s"
        self.kubectl("rollout", "status", f"statefulset/{workload}", waiting)

    def replaced(self, workload: str, *pods: str) -> None:
        """Delete pods (and what else kubectl is told); wait until others of their names are ready."""
        before = self._uids(workload)
        self.kubectl("delete", "pod", *pods)
        named = [each for each in pods if not each.startswith("-")]

        def all_new() -> bool:
            now = self._uids(workload)
            return all(now.get(name) not in (None, before[name]) for name in named)

        self.until(all_new, f"{workload} has no new pods")
        self.rolled_out(workload)

    def _uids(self, workload: str) -> dict[str, str]:
        """Of ready pods, by name."""
        pods = self.node.listed(PODS, f"app={workload}")
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in pods if _ready(each)}

    @property
    def bootstrap(self) -> str:
        """The address of the chart's Service."""
        return self.kubectl("get", "service", self.release, "-o", "jsonpath={.spec.clusterIP}") + ":9092"

    def agents(self) -> list[dict[str, Any]]:
        """The agents' pods."""
        return self.node.listed(PODS, self.selector)

    def uids(self) -> set[str]:
        """Of the agents' pods."""
        return {each["metadata"]["uid"] for each in self.agents()}

    def ready_agents(self) -> int:
        """How many are ready and not on their way out."""
        return sum(map(_stays_ready, self.agents()))

    def start_seconds(self, begin: Callable[[], object]) -> float:
        """What the first new agent after `begin` takes from its container's start to ready, as the apiserver
        is seen to know it: its own times are whole seconds. Raises NodeError, and what `begin` raises."""
        known = self.uids()
        started, deadline = 0.0, time.monotonic() + READY_SECONDS_MAX
        with ThreadPoolExecutor(1) as beside:
            beginning = beside.submit(begin)
            while time.monotonic() < deadline:
                if beginning.done():
                    beginning.result()
                for pod in self.agents():
                    if pod["metadata"]["uid"] in known:
                        continue
                    states = [each["state"] for each in pod["status"].get("containerStatuses", [])]
                    started = started or (time.monotonic() if any("running" in s for s in states) else 0.0)
                    if _ready(pod):
                        return time.monotonic() - started
                time.sleep(0.02)
        raise NodeError(f"no new agent was ready after {READY_SECONDS_MAX} s")

    def until_ready(self, count: int = 0) -> None:
        """Wait for exactly so many ready agents, else for as many as were installed, and no other pods of
        them. Raises NodeError."""
        wanted = count or self.replicas

        def all_ready() -> bool:
            pods = self.agents()
            return len(pods) == wanted and all(map(_stays_ready, pods))

        self.until(all_ready, f"there are no {wanted} ready agents of {self.release}")

    def until(
        self, holds: Callable[[], bool], otherwise: str, seconds_max: float = READY_SECONDS_MAX
    ) -> None:
        """Wait. Raises NodeError."""
        deadline = time.monotonic() + seconds_max
        while not holds():
            if time.monotonic() > deadline:
                raise NodeError(f"{otherwise}:\n{self.kubectl('get', 'pods', '-o', 'wide')}")
            time.sleep(0.25)

    def kill(self, pod: str) -> int:
        """SIGKILL to all processes of an agent's container; how many there were."""
        found = next(each for each in self.agents() if each["metadata"]["name"] == pod)
        pids = _processes(found)
        if not pids:
            raise NodeError(f"no process of {pod} is to be found")
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return len(pids)

    def put_behind(self, selector: str) -> None:
        """What runs in these pods by now, and all that it starts, takes of the processors what everybody else
        leaves. A pod's own weight would not do: it counts among pods, and these as one against the rest."""
        BEHIND.mkdir(exist_ok=True)
        (BEHIND / "cpu.shares").write_text(str(BEHIND_SHARES))
        for pod in self.node.listed(PODS, selector):
            for pid in _processes(pod):
                with contextlib.suppress(ProcessLookupError):  # it has ended
                    (BEHIND / "cgroup.procs").write_text(str(pid))

    def exhaust(self, pod: str) -> None:
        """Start processes in an agent's container that take its memory, each less than the agent has."""
        with contextlib.suppress(NodeError):  # they go with the container
            self.kubectl("exec", pod, "-c", "agent", "--", "sh", "-c", HUNGRY)

    def ended_by(self, pod: str) -> str:
        """Why the last container of an agent ended, in the kubelet's word."""
        found = next(each for each in self.agents() if each["metadata"]["name"] == pod)
        last = found["status"]["containerStatuses"][0].get("lastState", {})
        return str(last.get("terminated", {}).get("reason", ""))

    def evict(self, pod: str) -> int:
        """As `kubectl drain` does: ask until the budget allows it. How often it refused."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": NAMESPACE},
        }
        path, refused = f"{PODS}/{pod}/eviction", 0
        deadline = time.monotonic() + READY_SECONDS_MAX
        while (status := self.node.posted(path, eviction)) == TOO_MANY and time.monotonic() < deadline:
            refused += 1
            time.sleep(EVICTION_SECONDS)
        if status not in (200, 201):
            raise NodeError(f"the eviction of {pod} was answered with {status}")
        return refused

    def etcd_leader(self) -> str:
        """The pod of etcd's leader."""
        for pod in self.node.listed(PODS, "app=etcd"):
            url = f"http://{pod['status']['podIP']}:2379/v3/maintenance/status"
            with contextlib.suppress(OSError), urllib.request.urlopen(url, b"{}", timeout=5) as answer:
                status = json.load(answer)
                if status["leader"] == status["header"]["member_id"]:
                    return str(pod["metadata"]["name"])
        raise NodeError("no member of etcd says that it is the leader")

    def said(self, agent: dict[str, Any]) -> str:
        """The log of an agent's pod, which may be gone."""
        name = f"{agent['metadata']['name']}-{agent['metadata']['uid'][:8]}-agent-*.log"
        return "".join(each.read_text(errors="replace") for each in sorted(POD_LOGS.glob(name)))

    def restarts(self, but: Collection[str] = ()) -> int:
        """Of all agents that are there, but for pods with these uids."""
        return sum(
            status["restartCount"]
            for pod in self.agents()
            if pod["metadata"]["uid"] not in but
            for status in pod["status"].get("containerStatuses", [])
        )


def _processes(pod: dict[str, Any]) -> list[int]:
    """Of its first container; none when that does not run. The pod has requests and no limits as high, by
    which the kubelet names its group."""
    pods = CGROUPS / "pids" / GROUP / "kubepods" / "burstable"
    for status in pod["status"].get("containerStatuses", [])[:1]:
        container = status.get("containerID", "").rpartition("/")[2] or "none"
        with contextlib.suppress(FileNotFoundError):  # not there yet, or gone
            told = (pods / f"pod{pod['metadata']['uid']}" / container / "cgroup.procs").read_text()
            return [int(each) for each in told.split()]
    return []


def _stays_ready(pod: dict[str, Any]) -> bool:
    return _ready(pod) and "deletionTimestamp" not in pod["metadata"]


def _ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
