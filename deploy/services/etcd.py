"""A one-member etcd of its own."""

from __future__ import annotations

import json
import shutil
import ssl
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from deploy.services.build import tool_path
from deploy.services.service import Service, answers, free_port


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
        self, directory: Path | None = None, *, fsync: bool = True, tls: EtcdTls | None = None
    ) -> None:
        super().__init__(directory)
        self._fsync = fsync
        self._tls = tls
        self.port = free_port()
        self.peer_port = free_port()
        self.endpoint = f"127.0.0.1:{self.port}"
        self.data = self.directory / "data"

    def command(self) -> list[str]:
        """etcd's command line; TLS on the client port when files were given."""
        client = f"{self._scheme}://{self.endpoint}"
        peer = f"http://127.0.0.1:{self.peer_port}"
        command = [str(tool_path("etcd")), "--name=floe", f"--data-dir={self.data}"]
        command += [f"--listen-client-urls={client}", f"--advertise-client-urls={client}"]
        command += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"]
        command += [f"--initial-cluster=floe={peer}", "--log-level=warn"]
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
        return answers(f"{self._scheme}://{self.endpoint}/health", context)

    def compact(self) -> int:
        """Compact everything up to the newest revision, whoever still wants it; returns that revision."""
        status = self._call("maintenance/status", {})
        revision = int(status["header"]["revision"])
        self._call("kv/compaction", {"revision": revision, "physical": True})
        return revision

    def _call(self, method: str, body: dict[str, object]) -> dict[str, dict[str, str]]:
        """etcd's JSON gateway (without TLS): enough for administration, no client of its own needed."""
        url = f"http://{self.endpoint}/v3/{method}"
        with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=5) as response:
            answer: dict[str, dict[str, str]] = json.load(response)
            return answer

    def backup(self, target: Path) -> None:
        """Copy the data of a stopped member to `target`."""
        shutil.copytree(self.data, target)

    def restore(self, source: Path) -> None:
        """Replace the data of a stopped member by a copy made with backup(): etcd goes back in time."""
        shutil.rmtree(self.data, ignore_errors=True)
        shutil.copytree(source, self.data)
