"""What the two S3 servers have in common: an endpoint, one account, buckets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deploy.services.ports import free_port
from deploy.services.service import Service

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client


class S3Service(Service):
    """An S3 server with path-style addressing. `endpoint` is a URL; credentials are one root account."""

    access_key = "floe-local"
    secret_key = "floe-local-secret"
    region = "us-east-1"

    def __init__(self, directory: Path | None = None, *, ca: Path | None = None) -> None:
        """`ca`: PEM file of the authority of a server that speaks TLS."""
        super().__init__(directory)
        self.port = free_port()
        self.ca = ca
        self.endpoint = f"{'https' if ca else 'http'}://127.0.0.1:{self.port}"
        self.data = self.directory / "data"
        self.data.mkdir(exist_ok=True)

    def client(self) -> S3Client:
        """A boto3 client for administration and for looking behind Floe's back."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
            verify=str(self.ca) if self.ca else None,
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 3}),
        )

    def make_bucket(self, name: str) -> str:
        """Create the bucket (at least 3 letters) and return its name."""
        client = self.client()
        client.create_bucket(Bucket=name)
        client.close()
        return name
