"""Keys that are lent read the folders that they were lent for, and do nothing else: MinIO says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from coordination.clock import SystemClock
from deploy.services.minio import Minio
from deploy.services.s3 import S3Service
from objectstore.credentials import Keys, Lent, Role
from objectstore.lending import Bounds, KeyLender, policy_of, session_name
from objectstore.store import StoreError

ROLE = "arn:aws:iam:::role/floe"
MINE, OTHER = "tables/floe/mine/", "tables/floe/mine-too/"
pytestmark = pytest.mark.services


@pytest.fixture
def filled(minio: Minio, bucket: Callable[[S3Service], str]) -> str:
    name = bucket(minio)
    own = client(minio, Lent(minio.access_key, minio.secret_key, "", 0))
    for key in (f"{MINE}a", f"{MINE}deep/b", f"{OTHER}c", "tables/floe/mine", "chunks/d"):
        own.put_object(Bucket=name, Key=key, Body=key.encode())
    return name


def client(minio: Minio, lent: Lent) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=minio.endpoint,
        region_name="us-east-1",
        aws_access_key_id=lent.access,
        aws_secret_access_key=lent.secret,
        aws_session_token=lent.token or None,
    )


def lender(minio: Minio, bucket: str, *, kept_max: int = 10, secret: str = "") -> KeyLender:
    role = Role(
        arn=ROLE,
        url=minio.endpoint,
        region="us-east-1",
        keys=lambda: Keys(minio.access_key, secret or minio.secret_key),
        duration_s=900,
        timeout_s=10,
    )
    return KeyLender(role, bucket, Bounds(2, kept_max), SystemClock().now_ms)


def refused(ask: Callable[[], object]) -> bool:
    with pytest.raises(ClientError) as raised:
        ask()
    return raised.value.response["Error"]["Code"] in ("AccessDenied", "403")


async def test_lent_keys_read_their_folder_and_do_nothing_else(minio: Minio, filled: str) -> None:
    lent = await lender(minio, filled).lend("alice", [MINE])
    there = client(minio, lent)
    for key in (f"{MINE}a", f"{MINE}deep/b"):
        assert there.get_object(Bucket=filled, Key=key)["Body"].read() == key.encode()
        there.head_object(Bucket=filled, Key=key)
    for key in (f"{OTHER}c", "tables/floe/mine", "chunks/d"):
        assert refused(partial(there.get_object, Bucket=filled, Key=key)), key
    assert refused(lambda: there.put_object(Bucket=filled, Key=f"{MINE}a", Body=b"mine now"))
    assert refused(lambda: there.put_object(Bucket=filled, Key=f"{MINE}new", Body=b""))
    assert refused(lambda: there.delete_object(Bucket=filled, Key=f"{MINE}a"))
    assert refused(lambda: there.list_objects_v2(Bucket=filled))
    assert refused(lambda: there.list_objects_v2(Bucket=filled, Prefix=MINE))
    assert refused(there.list_buckets)


async def test_a_folder_called_as_a_pattern_is_meant_as_it_is_written(minio: Minio, filled: str) -> None:
    """An engine chooses its table's name: `*` in it is no key to the neighbours."""
    lent = await lender(minio, filled).lend("mallory", ["tables/floe/mi*/", "tables/?loe/mine/", "${aws:x}/"])
    there = client(minio, lent)
    assert refused(lambda: there.get_object(Bucket=filled, Key=f"{MINE}a"))
    assert refused(lambda: there.get_object(Bucket=filled, Key=f"{OTHER}c"))


async def test_keys_are_kept_for_whoever_asks_the_same(minio: Minio, filled: str) -> None:
    lending = lender(minio, filled, kept_max=2)
    first, again = await asyncio.gather(lending.lend("alice", [MINE]), lending.lend("alice", [MINE]))
    assert first == again == await lending.lend("alice", [MINE])
    assert first != await lending.lend("bob", [MINE])
    assert first != await lending.lend("alice", [OTHER])  # two others are kept now
    assert first != await lending.lend("alice", [MINE])


async def test_what_the_service_refuses_is_told_without_the_secret(minio: Minio, filled: str) -> None:
    lending = lender(minio, filled, secret="not-the-secret-of-this-server")
    with pytest.raises(StoreError, match="was not assumed") as raised:
        await lending.lend("alice", [MINE])
    assert "not-the-secret" not in str(raised.value)
    with pytest.raises(StoreError):  # and the next one asks again
        await lending.lend("alice", [MINE])


def test_policies_and_names_are_bounded() -> None:
    with pytest.raises(StoreError, match="5 folders"):
        policy_of(ROLE, "b", [f"{each}/" for each in range(5)])
    with pytest.raises(StoreError, match="characters"):
        policy_of(ROLE, "b", ["x" * 2_048])
    assert "arn:aws-cn:s3:::b/t/*" in policy_of("arn:aws-cn:iam::1:role/r", "b", ["t/"])
    assert session_name("CN=ä b/" + "c" * 100) == ("floe-CN=__b_" + "c" * 100)[:64]
