"""The agent that most benches measure: on etcd and MinIO, quiet, and without tables but where asked for."""

from __future__ import annotations

from typing import Any

from deploy.services import Etcd, Minio
from deploy.services.floe import clustered


def on_services(etcd: Etcd, minio: Minio, bucket: str, **sections: dict[str, Any]) -> dict[str, Any]:
    """Settings of an agent that keeps its log in `etcd` and its records in a bucket that is there."""
    settings = clustered(
        etcd=etcd.endpoint,
        bucket_url=f"s3://{bucket}/floe",
        store=minio,
    )
    return settings | {"logging": {"level": "warning"}, "tables": {"enabled": False}} | sections
