"""A gateway in the cluster: Traefik, with the CRDs of the Gateway API, in a namespace of its own.

Its image has the program and nothing else. It answers in a *restricted* namespace, by a Service with ports
as people open them: 80 for HTTP, 443 for TLS, which it passes through by the name that is asked for.
"""

from __future__ import annotations

from typing import Any

import yaml

from deploy.services.build import module_files
from tests.kubernetes.manifests import USER

NAMESPACE = "gateway"
IMAGE = "docker.io/floe/gateway:1"
NAME = "edge"
CLASS = "traefik"
HTTP_PORT, TLS_PORT, PING_PORT = 8000, 8443, 8080
"""Of the pod; Traefik has a Gateway's listener where it has an entry point with the same port."""
TOOL, MODULE, CHANNEL = "gateway-api", "sigs.k8s.io/gateway-api", "config/crd/standard"
_CRDS = ("gatewayclasses", "gateways", "httproutes", "grpcroutes", "tlsroutes", "referencegrants")
_MORE = ("backendtlspolicies", "listenersets")
_HTTP = {"name": "web", "protocol": "HTTP", "port": HTTP_PORT}
_TLS = {"name": "kafka", "protocol": "TLS", "port": TLS_PORT, "tls": {"mode": "Passthrough"}}


def crds() -> str:
    """The definitions of the standard channel that Traefik watches, as YAML documents. Raises BuildError."""
    folder = module_files(TOOL, MODULE, CHANNEL)
    files = [folder / f"gateway.networking.k8s.io_{name}.yaml" for name in (*_CRDS, *_MORE)]
    return "\n---\n".join(each.read_text() for each in files)


def objects() -> str:
    """Everything but the definitions, as YAML documents."""
    return yaml.safe_dump_all([*_rights(), _deployment(), _service(), *_classes(), _gateway()])


def _rights() -> list[dict[str, Any]]:
    """Traefik's own, of its documentation: what it reads, and where it writes what became of it."""
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    look = ["get", "list", "watch"]
    gateways, networking = "gateway.networking.k8s.io", "networking.k8s.io"
    reads = [
        ("", ["namespaces", "services", "secrets", "configmaps", "nodes", "pods"]),
        ("discovery.k8s.io", ["endpointslices"]),
        (networking, ["ingresses", "ingressclasses"]),
        (gateways, [*_CRDS, *_MORE]),
    ]
    rules = [{"apiGroups": [group], "resources": kinds, "verbs": look} for group, kinds in reads]
    for group, kinds in ((gateways, [*_CRDS, *_MORE]), (networking, ["ingresses"])):
        told = [f"{kind}/status" for kind in kinds]
        rules.append({"apiGroups": [group], "resources": told, "verbs": ["update", "patch"]})
    role, rbac = {"kind": "ClusterRole", "name": NAMESPACE}, "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": restricted}},
        _named("ServiceAccount", "v1"),
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": NAMESPACE}, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": NAMESPACE},
            "roleRef": {"apiGroup": rbac, **role},
            "subjects": [subject],
        },
    ]


def _named(kind: str, version: str) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": NAME, "namespace": NAMESPACE}}


def _deployment() -> dict[str, Any]:
    arguments = [
        f"--entryPoints.web.address=:{HTTP_PORT}",
        "--entryPoints.web.asDefault=true",
        f"--entryPoints.kafka.address=:{TLS_PORT}",
        f"--entryPoints.ping.address=:{PING_PORT}",
        "--ping.entryPoint=ping",
        "--providers.kubernetesGateway=true",
        "--providers.kubernetesIngress=true",
        "--global.checkNewVersion=false",
        "--global.sendAnonymousUsage=false",
    ]
    container = {
        "name": "traefik",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "args": arguments,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "readinessProbe": {"httpGet": {"path": "/ping", "port": PING_PORT}, "periodSeconds": 1},
    }
    safe = {"runAsNonRoot": True, "runAsUser": USER, "seccompProfile": {"type": "RuntimeDefault"}}
    pod = {"serviceAccountName": NAME, "securityContext": safe, "containers": [container]}
    labels = {"app": NAME}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {**_named("Deployment", "apps/v1"), "spec": spec}


def _service() -> dict[str, Any]:
    ports = [
        {"name": "http", "port": 80, "targetPort": HTTP_PORT},
        {"name": "tls", "port": 443, "targetPort": TLS_PORT},
    ]
    return {**_named("Service", "v1"), "spec": {"selector": {"app": NAME}, "ports": ports}}


def _classes() -> list[dict[str, Any]]:
    kinds = {
        "GatewayClass": ("gateway.networking.k8s.io/v1", {"controllerName": "traefik.io/gateway-controller"}),
        "IngressClass": ("networking.k8s.io/v1", {"controller": "traefik.io/ingress-controller"}),
    }
    return [
        {"apiVersion": version, "kind": kind, "metadata": {"name": CLASS}, "spec": spec}
        for kind, (version, spec) in kinds.items()
    ]


def _gateway() -> dict[str, Any]:
    everybody = {"allowedRoutes": {"namespaces": {"from": "All"}}}
    listeners = [{**each, **everybody} for each in (_HTTP, _TLS)]
    spec = {"gatewayClassName": CLASS, "listeners": listeners}
    return {**_named("Gateway", "gateway.networking.k8s.io/v1"), "spec": spec}
