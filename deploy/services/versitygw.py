"""A versitygw of its own: the second S3 server, independent of MinIO's code."""

from __future__ import annotations

from pathlib import Path

from deploy.services.build import tool_path
from deploy.services.s3 import S3Service
from deploy.services.service import answers


class VersityGw(S3Service):
    """versitygw's posix backend; metadata in a sidecar folder, so no extended attributes are needed."""

    name = "versitygw"

    def __init__(self, directory: Path | None = None) -> None:
        super().__init__(directory)
        self.sidecar = self.directory / "sidecar"
        self.sidecar.mkdir(exist_ok=True)

    def command(self) -> list[str]:
        """versitygw's command line."""
        command = [str(tool_path("versitygw")), f"--port=127.0.0.1:{self.port}", "--health=/health"]
        command += ["--quiet", f"--region={self.region}"]
        return [*command, "posix", "--sidecar", str(self.sidecar), str(self.data)]

    def environment(self) -> dict[str, str]:
        """The root account."""
        return super().environment() | {
            "ROOT_ACCESS_KEY": self.access_key,
            "ROOT_SECRET_KEY": self.secret_key,
        }

    def ready(self) -> bool:
        """Whether the gateway answers."""
        return answers(f"{self.endpoint}/health")
