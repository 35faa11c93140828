"""The chart's NetworkPolicy, enforced: who reaches what before it, with it, and when it is gone again.

Two pods with Python, there before it begins: one with the label that the policy lets in, one
without. The load comes from the node itself, which Kubernetes' rules let in to every pod.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from deploy.kubernetes.namespaces import PATIENCE
from deploy.kubernetes.node import NodeError
from tests.kubernetes.manifests import USER

if TYPE_CHECKING:
    from tests.kubernetes.lab import Lab

NAME = "network policy"
WAIT_S = 120 * PATIENCE
LET_IN = {"role": "client"}
POLICY = {
    "enabled": True,
    "clients": [{"podSelector": {"matchLabels": LET_IN}}],
    "http": [{"podSelector": {"matchLabels": LET_IN}}],
    "egress": {"enabled": True},
}
CONNECT = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def reached(place):
    host, port = place.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), 2).close()
    except OSError:
        return False
    return True
with ThreadPoolExecutor() as all_at_once:
    found = list(all_at_once.map(reached, sys.argv[1:]))
print(json.dumps([place for place, there in zip(sys.argv[1:], found) if there]))
"""
NEEDED = ("minio:9000", "etcd-0.etcd:2379")
NOT_NEEDED = ("etcd-0.etcd:2380", "kubernetes.default.svc:443")
"""What an agent reaches where nobody forbids it: etcd's port for its own peers, the apiserver."""


def prepared(lab: Lab) -> None:
    """The two pods that ask, ready. Raises NodeError."""
    lab.kubectl("apply", "-f", "-", given=json.dumps({"kind": "List", "apiVersion": "v1", "items": _pods()}))
    lab.kubectl("wait", "--for=condition=Ready", "pod/client", "pod/stranger", f"--timeout={WAIT_S}s")


def enforced(lab: Lab) -> str:
    """Policy on, an agent replaced and `helm test` behind it, policy off."""
    kafka, http, peers = "floe:9092", "floe-http:8080", "floe-0.floe-agents:9095"
    open_to_all = {
        "client": {kafka, http, peers},
        "stranger": {kafka, http, peers},
        "floe-0": {*NEEDED, *NOT_NEEDED},
    }
    closed = {"client": {kafka, http}, "stranger": set[str](), "floe-0": {*NEEDED}}
    _until(lab, open_to_all, open_to_all)
    lab.install("upgrade", "--set-json", f"networkPolicy={json.dumps(POLICY)}")
    _until(lab, open_to_all, closed)
    lab.kubectl("delete", "pod", "floe-1")
    tested = "Succeeded" in lab.helm("test", "floe")
    lab.until_ready()
    _until(lab, open_to_all, closed)
    lab.install("upgrade")
    _until(lab, open_to_all, open_to_all)
    if not tested:
        raise NodeError("helm test failed behind the policy")
    return (
        "with it a pod that is let in reached Kafka and HTTP and not the peers' port, a stranger none of the "
        "three, an agent etcd and MinIO and neither etcd's peers nor the apiserver; without it, before and "
        "after, all reached all. Behind it an agent was replaced and `helm test` passed meanwhile"
    )


def _until(lab: Lab, asked: dict[str, set[str]], wanted: dict[str, set[str]]) -> None:
    """Wait until each pod reaches, of what is asked, just what is wanted. Raises NodeError."""
    with ThreadPoolExecutor(len(asked)) as beside:
        waiting = [beside.submit(_pod_until, lab, pod, asked[pod], wanted[pod]) for pod in asked]
    for each in waiting:
        each.result()


def _pod_until(lab: Lab, pod: str, places: set[str], wanted: set[str]) -> None:
    found: list[set[str]] = []

    def as_wanted() -> bool:
        said = lab.kubectl("exec", pod, "--", "python", "-c", CONNECT, *sorted(places))
        found.append(set(json.loads(said)))
        return found[-1] == wanted

    try:
        lab.until(as_wanted, "")
    except NodeError:
        told = sorted(found[-1]) if found else "nothing that it could say"
        raise NodeError(f"{pod} reaches {told}, not {sorted(wanted)}") from None


def _pods() -> list[dict[str, Any]]:
    safe = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "runAsUser": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": False,
                "containers": [
                    {
                        "name": "python",
                        "image": "floe/agent:0.1.0",
                        "imagePullPolicy": "Never",
                        "command": ["python", "-c", "import time; time.sleep(3600)"],
                        "securityContext": safe,
                        # without one they stand behind all other pods, and answer when nobody else works
                        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
                    }
                ],
            },
        }
        for name, labels in {"client": LET_IN, "stranger": {"role": "none"}}.items()
    ]
