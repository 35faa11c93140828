"""A client of boto3 for the few requests that obstore does not have. Calls block: they belong in threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3
from botocore.config import Config

from objectstore.credentials import Keys

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

    from objectstore.open import StoreOptions


def s3_client(options: StoreOptions, keys: Keys | None) -> S3Client:
    """With these keys; None: the environment's. One try for each request."""
    found = keys or Keys("", "")
    return boto3.session.Session().client(  # the default session is not for several threads
        "s3",
        endpoint_url=options.endpoint or None,
        region_name=options.region,
        aws_access_key_id=found.access or None,
        aws_secret_access_key=found.secret or None,
        aws_session_token=found.token or None,
        verify=options.ca_certificate or None,
        config=Config(
            s3={"addressing_style": "path"},
            connect_timeout=options.connect_s_max,
            read_timeout=options.request_s_max,
            retries={"total_max_attempts": 1},
        ),
    )
