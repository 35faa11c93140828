"""What a cluster has beside Kubernetes itself: figures for autoscalers, enforced NetworkPolicies.

Both are processes of the namespace, as all others: the metrics server asks the kubelet and answers behind the
apiserver; kube-router's controller writes the policies into iptables and ipset.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from deploy.kubernetes.settings import ADDRESS, SERVICES

METRICS_API = "v1beta1.metrics.k8s.io"
METRICS_PORT = 4443
METRICS_SECONDS = 5
"""Between two looks at the kubelet; the metrics server's own command takes no fewer than ten, ours does
(deploy/tools/kubernetes/metrics.go)."""
TABLES = ("iptables", "iptables-save", "iptables-restore")
"""Names of Debian's xtables-legacy-multi. It shares kube-proxy's hooks in the kernel, not its tables."""


def metrics_server(kubeconfig: Path, certificates: Path) -> list[str]:
    """Its command line. The kubelet's certificate is one that it has made itself."""
    access = [f"--{kind}kubeconfig={kubeconfig}" for kind in ("", "authentication-", "authorization-")]
    return [
        *access,
        f"--cert-dir={certificates}",
        f"--bind-address={ADDRESS}",
        f"--secure-port={METRICS_PORT}",
        f"--metric-resolution={METRICS_SECONDS}s",
        f"--kubelet-request-timeout={METRICS_SECONDS - 1}s",
        "--kubelet-insecure-tls",
        "--kubelet-preferred-address-types=InternalIP",
    ]


def policies(kubeconfig: Path, node: str) -> list[str]:
    """The command line of what enforces NetworkPolicies on the node."""
    return [
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={node}",
        f"--service-cluster-ip-range={SERVICES}0/24",
    ]


def front(authority: Path, certificate: Path, key: Path) -> list[str]:
    """The apiserver's flags, by which servers behind it know whom it speaks for."""
    return [
        f"--requestheader-client-ca-file={authority}",
        "--requestheader-allowed-names=front",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={certificate}",
        f"--proxy-client-key-file={key}",
    ]


def objects() -> str:
    """By which the apiserver finds the metrics server, which is no pod."""
    named = {"name": "metrics-server", "namespace": "kube-system"}
    slice_of = {**named, "labels": {"kubernetes.io/service-name": named["name"]}}
    return yaml.safe_dump_all(
        [
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": named,
                "spec": {"ports": [{"name": "https", "port": 443, "targetPort": METRICS_PORT}]},
            },
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": slice_of,
                "addressType": "IPv4",
                "endpoints": [{"addresses": [ADDRESS]}],
                "ports": [{"name": "https", "port": METRICS_PORT, "protocol": "TCP"}],
            },
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": METRICS_API},
                "spec": {
                    "service": named,
                    "group": "metrics.k8s.io",
                    "version": "v1beta1",
                    "insecureSkipTLSVerify": True,
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                },
            },
        ]
    )
