"""Where agents on Amazon get the bucket's keys from, for tests: instance metadata, a container's endpoint.

The keys are real ones of a MinIO's token service, which can be revoked.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from deploy.services import Minio

SESSION, ROLE_NAME = "metadata-session", "floe-node"
METADATA, CONTAINER = f"/latest/meta-data/iam/security-credentials/{ROLE_NAME}", "/container"


def lent(minio: Minio) -> Mapping[str, str]:
    """Keys of MinIO's token service, as metadata services write them."""
    asking = boto3.client(
        "sts",
        endpoint_url=minio.endpoint,
        region_name=minio.region,
        aws_access_key_id=minio.access_key,
        aws_secret_access_key=minio.secret_key,
    )
    for attempts_left in reversed(range(300)):  # a MinIO that serves objects may not know its users yet
        try:
            answer = asking.assume_role(RoleArn="arn:aws:iam:::role/floe", RoleSessionName="tests")
            break
        except ClientError as error:
            if not attempts_left or "not initialized" not in str(error):
                raise
            time.sleep(0.1)
    found = answer["Credentials"]
    return {
        "AccessKeyId": found["AccessKeyId"],
        "SecretAccessKey": found["SecretAccessKey"],
        "Token": found["SessionToken"],
    }


def revoke(minio: Minio) -> None:
    """End all keys that MinIO's token service has given so far."""
    url = f"{minio.endpoint}/minio/admin/v3/revoke-tokens/builtin?fullRevoke=true&user={minio.access_key}"
    headers = {"x-amz-content-sha256": hashlib.sha256(b"").hexdigest()}
    request = AWSRequest("POST", url, data=b"", headers=headers)
    SigV4Auth(Credentials(minio.access_key, minio.secret_key), "s3", minio.region).add_auth(request)
    sent = urllib.request.Request(url, data=b"", method="POST", headers=dict(request.headers))
    with urllib.request.urlopen(sent, timeout=10):
        pass


class KeyServer:
    """`with KeyServer(minio) as server`: it hands out `keys`, which it says end after `seconds`."""

    def __init__(self, minio: Minio, seconds: float = 5.0) -> None:
        self.minio, self.seconds = minio, seconds
        self.keys = lent(minio)
        self.status, self.pod_token, self.given = 200, "pod-token", 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                found = self.path == "/latest/api/token"
                self._answer(200 if found else 404, SESSION.encode())

            def do_GET(self) -> None:
                if self.path == CONTAINER:
                    self._hand_out(allowed=self.headers.get("Authorization") == outer.pod_token)
                    return
                allowed = self.headers.get("X-aws-ec2-metadata-token") == SESSION  # IMDSv1 is off
                if self.path == METADATA:
                    self._hand_out(allowed=allowed)
                else:
                    self._answer(200 if allowed else 401, ROLE_NAME.encode())

            def _hand_out(self, *, allowed: bool) -> None:
                status = outer.status if allowed else 401
                outer.given += status == 200
                self._answer(status, outer.content() if status == 200 else b"")

            def _answer(self, status: int, content: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("X-aws-ec2-metadata-token-ttl-seconds", "600")
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Nowhere."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def content(self) -> bytes:
        """The keys as both services write them."""
        until = datetime.now(UTC) + timedelta(seconds=self.seconds)
        said: dict[str, Any] = {"Code": "Success", "Type": "AWS-HMAC", "LastUpdated": "2026-01-01T00:00:00Z"}
        return json.dumps({**said, **self.keys, "Expiration": f"{until:%Y-%m-%dT%H:%M:%SZ}"}).encode()

    def rotate(self) -> None:
        """Revoke all keys that are out, and hand out others from now on."""
        revoke(self.minio)
        self.keys = lent(self.minio)

    def environment(self) -> dict[str, str]:
        """What has obstore and boto3 take this for the instance's metadata."""
        return {"AWS_METADATA_ENDPOINT": self.url, "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.url}

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
