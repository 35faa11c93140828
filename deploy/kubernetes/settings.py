"""The configuration files of the node's programs, as texts."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from deploy.kubernetes.namespaces import GROUP
from deploy.services.certificates import Pair

ADDRESS = "10.89.0.1"
DNS = ADDRESS
PODS = "10.88.0.0/16"
SERVICES = "10.96.0."
"""Services have 10.96.0.0/24."""
PAUSE = "docker.io/floe/pause:1"


def kubeconfig(authority: Path, admin: Pair) -> str:
    """For every program and for kubectl: the administrator's certificate."""
    user = {"client-certificate": str(admin.cert), "client-key": str(admin.key)}
    cluster = {"server": "https://127.0.0.1:6443", "certificate-authority": str(authority)}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "floe", "cluster": cluster}],
            "users": [{"name": "admin", "user": user}],
            "contexts": [{"name": "floe", "context": {"cluster": "floe", "user": "admin"}}],
            "current-context": "floe",
        }
    )


def containerd(run: Path, packages: Path) -> str:
    """containerd 1.6, configuration of version 2. No score is lowered: that needs CAP_SYS_RESOURCE."""
    return f"""\
version = 2
root = "{run}/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{packages}/usr/lib/cni"
conf_dir = "{run}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "{packages}/usr/sbin/runc"
SystemdCgroup = false
"""


def kubelet(run: Path, authority: Path) -> str:
    """Cgroups of version 1 below a group of our own; its evictions only when the disk is full."""
    return yaml.safe_dump(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{GROUP}",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "authentication": {"x509": {"clientCAFile": str(authority)}, "anonymous": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "clusterDNS": [DNS],
            "clusterDomain": "cluster.local",
            "resolvConf": f"{run}/resolv.conf",
            "podLogsDir": f"{run}/pods",
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
            },
            "nodeStatusUpdateFrequency": "5s",
            "syncFrequency": "10s",
        }
    )


def proxy(kubeconfig: Path) -> str:
    """nftables, and the machine's limits of connections left alone."""
    untouched = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
    return yaml.safe_dump(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            "clusterCIDR": PODS,
            "conntrack": untouched,
            "oomScoreAdj": 0,
        }
    )


def corefile(kubeconfig: Path) -> str:
    """Names of the cluster, kept for a second as long as they hold."""
    return f"""\
.:53 {{
    bind {DNS}
    errors
    ready {ADDRESS}:8181
    kubernetes cluster.local {{
        kubeconfig {kubeconfig} floe
        ttl 5
    }}
    cache 5
}}
"""


def cni() -> str:
    """Each pod on a link of its own to the node, which routes."""
    addresses = {"type": "host-local", "ranges": [[{"subnet": PODS}]], "routes": [{"dst": "0.0.0.0/0"}]}
    return json.dumps(
        {
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [{"type": "ptp", "ipMasq": False, "ipam": addresses}],
        }
    )
