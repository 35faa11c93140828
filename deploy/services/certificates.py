"""Certificates by the openssl command, for local clusters and tests: an authority, and pairs of its own."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

_EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, PEM files."""

    cert: Path
    key: Path


class Authority:
    """An authority in a folder of its own."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        self.folder = folder
        self.cert = folder / "ca.crt"
        folder.mkdir(parents=True, exist_ok=True)
        _openssl(folder, "req", "-x509", *_EC, "-keyout", "ca.key", "-out", "ca.crt", "-subj", f"/CN={name}")

    def pair(
        self, name: str, subject: str = "", san: str = "DNS:localhost,IP:127.0.0.1", days: int = 30
    ) -> Pair:
        """A pair with this subject (`/CN=…`; else its name) and SAN. `days` of -1: it is over."""
        folder, subject = self.folder, subject or f"/CN={name}"
        _openssl(
            folder, "req", "-new", *_EC, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject
        )
        (folder / f"{name}.ext").write_text(f"subjectAltName={san}\n" if san else "")
        signing = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", str(days))
        extensions = ("-extfile", f"{name}.ext")
        _openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.crt", *signing, *extensions)
        return Pair(folder / f"{name}.crt", folder / f"{name}.key")

    def client(self, pair: Pair | None = None) -> ssl.SSLContext:
        """What a client speaks TLS with that trusts this authority, and shows a pair of its own."""
        context = ssl.create_default_context(cafile=str(self.cert))
        if pair is not None:
            context.load_cert_chain(pair.cert, pair.key)
        return context


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
