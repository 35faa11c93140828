"""What the chart needs beside it: a *restricted* namespace, etcd with three members, MinIO, their disks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from deploy.kubernetes.node import NAME

NAMESPACE = "floe"
SERVERS = "docker.io/floe/servers:1"
ETCD_MEMBERS = 3
USER = 10002
CLASS = "local"
_SAFE = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
_POD = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "fsGroup": USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def all_of_it(volumes: Path) -> str:
    """The objects as YAML documents; disks are folders of `volumes`."""
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": restricted}},
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": CLASS},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        *(_disk(volumes, f"disk-{number}") for number in range(ETCD_MEMBERS + 1)),
        {
            **_named("Secret", "minio", "v1"),
            "stringData": {"access-key": "floe-kubernetes", "secret-key": "floe-kubernetes"},
        },
        *_server("etcd", ETCD_MEMBERS, _etcd(), {"client": 2379, "peer": 2380}, headless=True),
        *_server("minio", 1, _minio(), {"http": 9000}, headless=False),
    ]
    return yaml.safe_dump_all(objects)


def _disk(volumes: Path, name: str) -> dict[str, Any]:
    folder = volumes / name
    folder.mkdir(parents=True, exist_ok=True)
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NAME]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": CLASS,
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }


def _named(kind: str, name: str, version: str = "apps/v1") -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}}


def _etcd() -> dict[str, Any]:
    peers = ",".join(f"etcd-{n}=http://etcd-{n}.etcd:2380" for n in range(ETCD_MEMBERS))
    return {
        "command": ["/etcd"],
        "args": [
            "--name=$(POD)",
            "--data-dir=/data/etcd",
            "--log-level=warn",
            "--listen-client-urls=http://0.0.0.0:2379",
            "--advertise-client-urls=http://$(POD).etcd:2379",
            "--listen-peer-urls=http://0.0.0.0:2380",
            "--initial-advertise-peer-urls=http://$(POD).etcd:2380",
            f"--initial-cluster={peers}",
        ],
        "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 2379}, "periodSeconds": 1},
    }


def _minio() -> dict[str, Any]:
    def secret(variable: str, key: str) -> dict[str, Any]:
        return {"name": variable, "valueFrom": {"secretKeyRef": {"name": "minio", "key": key}}}

    return {
        "command": ["/minio", "server", "--address=:9000", "--certs-dir=/tmp/certs", "/data/minio"],
        "env": [
            secret("MINIO_ROOT_USER", "access-key"),
            secret("MINIO_ROOT_PASSWORD", "secret-key"),
            {"name": "HOME", "value": "/tmp"},
        ],
        "readinessProbe": {"httpGet": {"path": "/minio/health/ready", "port": 9000}, "periodSeconds": 1},
    }


def _pod(name: str, container: dict[str, Any]) -> dict[str, Any]:
    mounts = [{"name": "data", "mountPath": "/data"}, {"name": "tmp", "mountPath": "/tmp"}]
    whole = {
        "name": name,
        "image": SERVERS,
        "imagePullPolicy": "Never",
        "securityContext": _SAFE,
        "resources": {"requests": {"cpu": "200m", "memory": "128Mi"}},  # everybody waits for these two
        "volumeMounts": mounts,
        **container,
    }
    return {
        "securityContext": _POD,
        "automountServiceAccountToken": False,
        "containers": [whole],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }


def _server(
    name: str, replicas: int, container: dict[str, Any], ports: dict[str, int], *, headless: bool
) -> list[dict[str, Any]]:
    """A StatefulSet whose pods keep their disks, and its Service."""
    labels = {"app": name}
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": CLASS,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    workload = {
        "replicas": replicas,
        "serviceName": name,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": _pod(name, container)},
        "volumeClaimTemplates": [claim],
    }
    service: dict[str, Any] = {
        "selector": labels,
        "ports": [{"name": each, "port": port} for each, port in ports.items()],
    }
    if headless:
        service |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    return [
        {**_named("Service", name, "v1"), "spec": service},
        {**_named("StatefulSet", name), "spec": workload},
    ]
