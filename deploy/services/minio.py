"""A one-drive MinIO of its own."""

from __future__ import annotations

from deploy.services.build import tool_path
from deploy.services.s3 import S3Service
from deploy.services.service import answers


class Minio(S3Service):
    """MinIO over one local folder."""

    name = "minio"

    def command(self) -> list[str]:
        """MinIO's command line."""
        return [str(tool_path("minio")), "server", f"--address=127.0.0.1:{self.port}", str(self.data)]

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
        return answers(f"{self.endpoint}/minio/health/ready")
