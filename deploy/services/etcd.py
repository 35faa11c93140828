"""An etcd of its own, of one member or of several."""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from deploy.services.build import tool_path
from deploy.services.ports import free_port
from deploy.services.service import Service, ServiceError, answers


@dataclass(frozen=True)
class EtcdTls:
    """Files (PEM) of a server that speaks TLS only and asks clients for a certificate of `ca`."""

    ca: Path
    cert: Path
    key: Path
    client_cert: Path
    client_key: Path


class Etcd(Service):
    """`endpoint` is host:port of the client API. `fsync=False` trades durability for speed in tests
    that never lose power; a killed process loses nothing either way."""

    name = "etcd"

    def __init__(
        self,
        directory: Path | None = None,
        *,
        fsync: bool = True,
        tls: EtcdTls | None = None,
        quota_bytes: int = 0,
    ) -> None:
        """`quota_bytes`: size of its file at which it takes no more writes; 0: etcd's own, 2 GiB."""
        super().__init__(directory)
        self.quota_bytes = quota_bytes
        self._fsync = fsync
        self._tls = tls
        self.port = free_port()
        self.peer_port = free_port()
        self.endpoint = f"127.0.0.1:{self.port}"
        self.data = self.directory / "data"
        self.peers = [self]

    @property
    def member(self) -> str:
        """The member's name in its cluster."""
        return f"floe-{self.peers.index(self)}"

    @property
    def peer_url(self) -> str:
        """Where the other members find it."""
        return f"http://127.0.0.1:{self.peer_port}"

    def command(self) -> list[str]:
        """etcd's command line; TLS on the client port when files were given."""
        client = f"{self._scheme}://{self.endpoint}"
        peer, everyone = self.peer_url, ",".join(f"{peer.member}={peer.peer_url}" for peer in self.peers)
        command = [str(tool_path("etcd")), f"--name={self.member}", f"--data-dir={self.data}"]
        command += [f"--listen-client-urls={client}", f"--advertise-client-urls={client}"]
        command += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"]
        command += [f"--initial-cluster={everyone}", "--log-level=warn"]
        if self.quota_bytes:
            command.append(f"--quota-backend-bytes={self.quota_bytes}")
        if not self._fsync:
            command.append("--unsafe-no-fsync")
        if self._tls is not None:
            command += [f"--cert-file={self._tls.cert}", f"--key-file={self._tls.key}"]
            command += [f"--trusted-ca-file={self._tls.ca}", "--client-cert-auth"]
        return command

    @property
    def _scheme(self) -> str:
        return "http" if self._tls is None else "https"

    def ready(self) -> bool:
        """Whether the member has a leader and answers."""
        context = None
        if self._tls is not None:
            context = ssl.create_default_context(cafile=str(self._tls.ca))
            context.load_cert_chain(self._tls.client_cert, self._tls.client_key)
        return answers(f"{self._scheme}://{self.endpoint}/health?exclude=NOSPACE", context)

    def compact(self) -> int:
        """Compact everything up to the newest revision, whoever still wants it; returns that revision."""
        status = self._call("maintenance/status", {})
        revision = int(status["header"]["revision"])
        self._call("kv/compaction", {"revision": revision, "physical": True})
        return revision

    def revoke_lease_of(self, key: str) -> bool:
        """Revoke the lease that a key hangs on: the key is gone, its owner hears nothing of it.

        False when there is no such key.
        """
        encoded = base64.b64encode(key.encode()).decode()
        found = self._call("kv/range", {"key": encoded}).get("kvs", [])
        for each in found:
            self._call("lease/revoke", {"ID": each["lease"]})
        return bool(found)

    def _call(self, method: str, body: dict[str, object]) -> dict[str, Any]:
        """etcd's JSON gateway (without TLS): enough for administration, no client of its own needed."""
        url = f"http://{self.endpoint}/v3/{method}"
        with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=5) as response:
            answer: dict[str, Any] = json.load(response)
            return answer

    def backup(self, target: Path) -> None:
        """Copy the data of a stopped member to `target`."""
        shutil.copytree(self.data, target)

    def restore(self, source: Path) -> None:
        """Replace the data of a stopped member by a copy made with backup(): etcd goes back in time."""
        shutil.rmtree(self.data, ignore_errors=True)
        shutil.copytree(source, self.data)


class EtcdCluster:
    """Several members: `with EtcdCluster() as cluster: cluster.leader().kill()`."""

    def __init__(self, size: int = 3) -> None:
        self.members = [Etcd() for _ in range(size)]
        for member in self.members:
            member.peers = self.members

    @property
    def endpoints(self) -> list[str]:
        """host:port of every member's client API."""
        return [member.endpoint for member in self.members]

    def start(self) -> Self:
        """Start all members side by side: none is ready before most are. Raises ServiceError."""
        tool_path("etcd")
        try:
            with ThreadPoolExecutor(len(self.members)) as together:
                list(together.map(Etcd.start, self.members))
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop all members."""
        for member in self.members:
            member.stop()

    def leader(self) -> Etcd:
        """The member that leads now. Raises ServiceError when none does."""
        for member in self.members:
            if member.running and _is_leader(member):
                return member
        raise ServiceError("no member of the etcd cluster leads")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _is_leader(member: Etcd) -> bool:
    """Asked of etcd's metrics, which need no client."""
    try:
        with urllib.request.urlopen(f"http://{member.endpoint}/metrics", timeout=2) as response:
            return b"\netcd_server_is_leader 1\n" in response.read()
    except OSError:
        return False
