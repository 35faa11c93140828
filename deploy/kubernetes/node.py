"""One node of a real Kubernetes, inside the namespaces: mounts, network, certificates, ten programs.

etcd, apiserver, controller-manager, scheduler, containerd, kubelet, kube-proxy (nftables), CoreDNS, metrics
server and kube-router (policies only) are processes of the namespace; pods are containers of containerd and
runc. Nothing of it reaches outside: the network has no way out, files are below `STATE/run`, and /run,
/var/lib, /var/log, images and the pods' volumes are memory: what is seen is not what else the disk does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from deploy.kubernetes.extras import METRICS_API, TABLES, front, metrics_server, objects, policies
from deploy.kubernetes.namespaces import PATIENCE, STATE
from deploy.kubernetes.settings import (
    ADDRESS,
    DNS,
    SERVICES,
    cni,
    containerd,
    corefile,
    kubeconfig,
    kubelet,
    proxy,
)
from deploy.services.build import tool_path
from deploy.services.certificates import Authority, Pair
from deploy.setup.debian import unpacked

RUN = STATE / "run"
NAME = "node-0"
ZONE = "zone-a"
SOCKET = "/run/containerd/containerd.sock"
READY_SECONDS_MAX = 180 * PATIENCE
IMPORT_SECONDS_MAX = 300 * PATIENCE
ANSWER_SECONDS_MAX = 120.0 * PATIENCE
LIST_ATTEMPTS = 5
AUTOSCALER_SECONDS = 2
"""Between two decisions of autoscalers, and how long a new pod's figures do not count; Kubernetes' defaults,
15 s, and 30 s and 5 minutes, are for clusters with many."""
HOUSEKEEPING_SECONDS = 2
"""Between two looks of the kubelet at what containers take, of which autoscalers hear; by default 10."""
PROGRAMS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
    "coredns",
    "kube-router",
    "metrics-server",
)
# What a kubelet sets for the whole machine; here it finds its values and leaves the machine's alone.
KERNEL = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


class NodeError(Exception):
    """The node does not come up; the message has the end of the log that says why."""


class Node:
    """`start()`, then `kubectl(…)`. Ends with the namespace."""

    def __init__(self) -> None:
        self.bin = RUN / "bin"
        self.kubeconfig = RUN / "admin.conf"
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        packages = unpacked("containers")
        self._packages = packages
        path = [self.bin, packages / "usr/bin", packages / "usr/sbin"]
        self.environment = {
            "PATH": ":".join([*map(str, path), "/usr/sbin:/usr/bin:/sbin:/bin"]),
            "LD_LIBRARY_PATH": str(packages / "usr/lib/x86_64-linux-gnu"),
            "XTABLES_LIBDIR": str(packages / "usr/lib/x86_64-linux-gnu/xtables"),
            "HOME": str(RUN),
            "KUBECONFIG": str(self.kubeconfig),
        }

    def start(self, images: Sequence[Path]) -> None:
        """Bring it up until the node is ready, its images there. Raises NodeError."""
        self._folders()
        _mounts()
        _network()
        self._certificates()
        self._control_plane()
        self._node_programs()
        for image in images:
            self.bring(image)
        ready = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
        self._until("kubelet", "get", "node", NAME, "-o", ready, wanted="True")
        self._policies()
        answers = 'jsonpath={.status.conditions[?(@.type=="Available")].status}'
        self._until("metrics-server", "get", "apiservice", METRICS_API, "-o", answers, wanted="True")

    def bring(self, image: Path) -> None:
        """An OCI archive into the node's images. Raises NodeError."""
        command = ("ctr", "--address", SOCKET, "-n", "k8s.io", "images", "import", str(image))
        self.run(*command, timeout_s=IMPORT_SECONDS_MAX)

    def listed(self, path: str, selector: str) -> list[dict[str, Any]]:
        """What the apiserver lists at a path. Raises NodeError."""
        found: list[dict[str, Any]] = self.asked(f"{path}?{urlencode({'labelSelector': selector})}")["items"]
        return found

    def asked(self, path: str) -> dict[str, Any]:
        """What the apiserver has at a path, without a kubectl that starts for it. Raises NodeError."""
        url = f"https://127.0.0.1:6443{path}"
        for _ in range(LIST_ATTEMPTS):
            try:
                with urllib.request.urlopen(url, context=self._client, timeout=10) as answer:
                    found: dict[str, Any] = json.load(answer)
                    return found
            except OSError as error:
                why = error
                time.sleep(1)
        raise NodeError(f"{url}: {why}")

    def posted(self, path: str, body: object) -> int:
        """The status of the apiserver's answer to a new object at a path. Raises OSError."""
        request = urllib.request.Request(f"https://127.0.0.1:6443{path}", json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, context=self._client, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def kubectl(self, *arguments: str, given: str = "", timeout_s: float = ANSWER_SECONDS_MAX) -> str:
        """kubectl's answer. Raises NodeError with what it says."""
        return self.run("kubectl", *arguments, given=given, timeout_s=timeout_s)

    def run(self, *command: str, given: str = "", timeout_s: float = ANSWER_SECONDS_MAX) -> str:
        """What a program of the node prints. Raises NodeError."""
        program = shutil.which(command[0], path=self.environment["PATH"]) or command[0]
        ran = subprocess.run(
            [program, *command[1:]],
            input=given,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env=self.environment,
        )
        if ran.returncode:
            raise NodeError(f"{' '.join(command)}: {ran.stderr.strip() or ran.stdout.strip()}")
        return ran.stdout

    def core_seconds(self) -> dict[str, float]:
        """What each program took so far, with those of its own that have ended."""
        ticks, found = os.sysconf("SC_CLK_TCK"), dict[str, float]()
        for name, child in self._children.items():
            fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
            found[name] = sum(map(int, fields[11:15])) / ticks  # utime, stime, and of children both
        return found

    def _folders(self) -> None:
        shutil.rmtree(RUN, ignore_errors=True)
        for name in ("bin", "logs", "etcd", "containerd", "kubelet", "pods", "cni", "volumes"):
            (RUN / name).mkdir(parents=True)
        binary = tool_path("kubernetes")
        for program in PROGRAMS:
            (self.bin / program).symlink_to(binary)
        for program in TABLES:
            (self.bin / program).symlink_to(self._packages / "usr/sbin/xtables-legacy-multi")
        (self.bin / "helm").symlink_to(tool_path("helm"))
        (RUN / "resolv.conf").write_text(f"nameserver {DNS}\n")

    def _certificates(self) -> None:
        authority = Authority(RUN / "pki", "floe-kubernetes")
        names = "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:localhost"
        self._serving = authority.pair("apiserver", san=f"{names},IP:127.0.0.1,IP:{ADDRESS},IP:{SERVICES}1")
        self._admin = authority.pair("admin", "/O=system:masters/CN=admin", san="")
        self._tokens = authority.pair("tokens")
        before = Authority(RUN / "pki" / "front", "floe-kubernetes-front")
        pair = before.pair("front", san="")
        self._front = front(before.cert, pair.cert, pair.key)
        self._authority, self._client = authority.cert, authority.client(self._admin)
        self.kubeconfig.write_text(kubeconfig(authority.cert, self._admin))

    def _control_plane(self) -> None:
        clients = "http://127.0.0.1:2379"
        self._spawn(
            "etcd",
            str(tool_path("etcd")),
            f"--data-dir={RUN}/etcd",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            "--listen-peer-urls=http://127.0.0.1:2380",
        )
        flags = _apiserver(self._authority, self._serving, self._admin, self._tokens)
        self._spawn("kube-apiserver", *flags, *self._front)
        self._until("kube-apiserver", "get", "--raw", "/readyz", wanted="ok")
        configured = f"--kubeconfig={self.kubeconfig}"
        self._spawn(
            "kube-controller-manager",
            configured,
            "--leader-elect=false",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={self._tokens.key}",
            f"--root-ca-file={self._authority}",
            f"--horizontal-pod-autoscaler-sync-period={AUTOSCALER_SECONDS}s",
            f"--horizontal-pod-autoscaler-initial-readiness-delay={AUTOSCALER_SECONDS}s",
            f"--horizontal-pod-autoscaler-cpu-initialization-period={AUTOSCALER_SECONDS}s",
        )
        self._spawn("kube-scheduler", configured, "--leader-elect=false")

    def _node_programs(self) -> None:
        files = {
            "containerd.toml": containerd(RUN, self._packages),
            "kubelet.yaml": kubelet(RUN, self._authority),
            "proxy.yaml": proxy(self.kubeconfig),
            "Corefile": corefile(self.kubeconfig),
            "cni/10-pods.conflist": cni(),
        }
        for name, text in files.items():
            (RUN / name).write_text(text)
        self._spawn("containerd", f"--config={RUN}/containerd.toml")
        self._until_there(Path(SOCKET), "containerd")
        self._spawn(
            "kubelet",
            f"--config={RUN}/kubelet.yaml",
            f"--kubeconfig={self.kubeconfig}",
            f"--root-dir={RUN}/kubelet",
            f"--hostname-override={NAME}",
            f"--node-ip={ADDRESS}",
            f"--housekeeping-interval={HOUSEKEEPING_SECONDS}s",
            f"--node-labels=topology.kubernetes.io/zone={ZONE}",
        )
        self._spawn("kube-proxy", f"--config={RUN}/proxy.yaml", f"--hostname-override={NAME}")
        self._spawn("coredns", "-conf", f"{RUN}/Corefile")
        self.kubectl("apply", "-f", "-", given=objects())
        self._spawn("metrics-server", *metrics_server(self.kubeconfig, RUN / "pki" / "metrics"))

    def _policies(self) -> None:
        """Once the node is there: what enforces policies asks for its address."""
        self._spawn("kube-router", *policies(self.kubeconfig, NAME))

    def _spawn(self, name: str, *arguments: str) -> None:
        command = list(arguments) if arguments[0].startswith("/") else [name, *arguments]
        program = shutil.which(command[0], path=self.environment["PATH"])
        if program is None:
            raise NodeError(f"no program {command[0]} in {self.environment['PATH']}")
        argv0 = program if name not in PROGRAMS else name
        with (RUN / "logs" / f"{name}.log").open("wb") as log:
            self._children[name] = subprocess.Popen(
                [argv0, *command[1:]], executable=program, stdout=log, stderr=log, env=self.environment
            )

    def _until(self, program: str, *arguments: str, wanted: str) -> None:
        deadline = time.monotonic() + READY_SECONDS_MAX
        while True:
            try:
                if self.kubectl(*arguments).strip() == wanted:
                    return
            except NodeError:
                pass  # it has not come up
            self._alive(program, deadline)
            time.sleep(0.3)

    def _until_there(self, path: Path, program: str) -> None:
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not path.exists():
            self._alive(program, deadline)
            time.sleep(0.1)

    def _alive(self, program: str, deadline: float) -> None:
        dead = [name for name, child in self._children.items() if child.poll() is not None]
        if dead or time.monotonic() > deadline:
            name = dead[0] if dead else program
            end = "\n".join((RUN / "logs" / f"{name}.log").read_text(errors="replace").splitlines()[-15:])
            how = f"has ended ({self._children[name].returncode})" if dead else "does not come up"
            raise NodeError(f"{name} {how}:\n{end}")


def _apiserver(authority: Path, serving: Pair, admin: Pair, tokens: Pair) -> list[str]:
    return [
        "--etcd-servers=http://127.0.0.1:2379",
        f"--advertise-address={ADDRESS}",
        f"--service-cluster-ip-range={SERVICES}0/24",
        f"--tls-cert-file={serving.cert}",
        f"--tls-private-key-file={serving.key}",
        f"--client-ca-file={authority}",
        f"--kubelet-client-certificate={admin.cert}",
        f"--kubelet-client-key={admin.key}",
        f"--service-account-key-file={tokens.cert}",
        f"--service-account-signing-key-file={tokens.key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=Node,RBAC",
        "--kubelet-preferred-address-types=InternalIP",
    ]


def _mounts() -> None:
    """Memory over what programs write to by fixed names; the kernel's settings as they want them."""
    for folder in ("/run", "/var/lib", "/var/log", str(RUN / "containerd"), str(RUN / "volumes")):
        _do("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", folder)
    for name in ("containerd", "netns", "lock"):
        Path("/run", name).mkdir()
    fixed = RUN / "kernel"
    fixed.mkdir()
    for name, value in KERNEL.items():
        file = fixed / name.replace("/", "-")
        file.write_text(value + "\n")
        _do("mount", "--bind", str(file), f"/proc/sys/{name}")


def _network() -> None:
    """Loopback and one interface that leads nowhere, whose address is the node's."""
    _do("ip", "link", "set", "lo", "up")
    _do("ip", "link", "add", "node0", "type", "veth", "peer", "name", "nowhere")
    _do("ip", "address", "add", f"{ADDRESS}/24", "dev", "node0")
    for each in ("node0", "nowhere"):
        _do("ip", "link", "set", each, "up")
    _do("ip", "route", "add", "default", "dev", "node0")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _do(*command: str) -> None:
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]}
    )
    if ran.returncode:
        raise NodeError(f"{' '.join(command)}: {ran.stderr.strip()}")
