"""A one-drive MinIO of its own."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path

from deploy.services.build import tool_path
from deploy.services.s3 import S3Service
from deploy.services.service import answers


class Minio(S3Service):
    """MinIO over one local folder."""

    name = "minio"

    def __init__(
        self,
        directory: Path | None = None,
        *,
        ca: Path | None = None,
        cert: Path | None = None,
        key: Path | None = None,
    ) -> None:
        """`cert` and `key`, PEM files vouched for by `ca`: it speaks TLS."""
        super().__init__(directory, ca=ca)
        self._certificates = self.directory / "certs"
        self._certificates.mkdir(exist_ok=True)
        for file, name in ((cert, "public.crt"), (key, "private.key")):
            if file is not None:
                shutil.copyfile(file, self._certificates / name)

    def command(self) -> list[str]:
        """MinIO's command line."""
        words = [str(tool_path("minio")), "server", f"--address=127.0.0.1:{self.port}"]
        return [*words, f"--certs-dir={self._certificates}", str(self.data)]

    def environment(self) -> dict[str, str]:
        """Credentials; no console, no look for updates."""
        return super().environment() | {
            "MINIO_ROOT_USER": self.access_key,
            "MINIO_ROOT_PASSWORD": self.secret_key,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
        }

    def ready(self) -> bool:
        """Whether MinIO can serve."""
        context = ssl.create_default_context(cafile=str(self.ca)) if self.ca else None
        return answers(f"{self.endpoint}/minio/health/ready", context)
