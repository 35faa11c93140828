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


def patient(settings: dict[str, Any]) -> dict[str, Any]:
    """The same for an agent that is to keep its lease and its clients on a machine that is very busy."""
    return settings | {"log": {**settings["log"], "lease_ttl_s": 60}, "health": {"step_aside": False}}
