"""`floe bucket check|prepare` over two S3 servers: what is wrong is found and told with its remedy."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from deploy.services.s3 import S3Service
from objectstore.bucket import Finding, Level, check, prepare
from objectstore.open import StoreOptions, open_store
from tests.contract.test_store import s3_options


def options(server: S3Service, **changes: str) -> StoreOptions:
    given: dict[str, Any] = {"access_key": server.access_key, "secret_key": server.secret_key, **changes}
    return StoreOptions(endpoint=server.endpoint, region=server.region, allow_http=True, **given)


def by_subject(findings: list[Finding]) -> dict[str, Finding]:
    return {each.subject: each for each in findings}


@pytest.fixture(params=["minio", "versitygw"])
def server(request: pytest.FixtureRequest) -> S3Service:
    found: S3Service = request.getfixturevalue(request.param)
    return found


pytestmark = pytest.mark.services


def test_a_good_bucket_passes(server: S3Service, bucket: Callable[[S3Service], str]) -> None:
    name = bucket(server)
    findings = check(f"s3://{name}/some/prefix", options(server), time.monotonic)
    assert [each for each in findings if each.level is Level.FAILURE] == []
    told = by_subject(findings)
    assert told["conditional PUT"].level is Level.OK
    assert "PUT" in told["latency"].message
    assert told["rights"].level is Level.OK
    client = server.client()
    assert "Contents" not in client.list_objects_v2(Bucket=name)
    client.close()


async def test_a_key_that_cannot_be_asked_for_is_told_and_passed_over(
    server: S3Service, bucket: Callable[[S3Service], str]
) -> None:
    """One with two slashes in a row neither of these servers has: they look at keys as files."""
    name = bucket(server)
    url, client = f"s3://{name}/p", server.client()
    store = open_store(url, **s3_options(server))
    for key in ("snapshots/a", "snapshots/b"):
        await store.put(key, [b"x"])
    client.put_object(Bucket=name, Key="p/snapshots/a\tb", Body=b"x")
    client.close()
    assert [meta.key async for page in store.list("snapshots/") for meta in page] == [
        "snapshots/a",
        "snapshots/b",
    ]
    assert await store.list_folders("") == ["snapshots"]
    await store.close()
    found = check(url, options(server), time.monotonic)
    told = [each for each in found if each.subject == "keys" and each.level is Level.WARNING]
    assert [repr("p/snapshots/a\tb") in each.message for each in told] == [True]


def test_prepare_makes_the_bucket_and_is_harmless_again(server: S3Service) -> None:
    url = f"s3://prepared-by-floe-{server.name}/p"
    before = check(url, options(server), time.monotonic)
    assert [(each.subject, each.level) for each in before] == [("exists", Level.FAILURE)]
    assert "floe bucket prepare" in before[0].remedy
    for _ in range(2):
        findings = prepare(url, options(server), time.monotonic)
        assert [each for each in findings if each.level is Level.FAILURE] == []
        assert by_subject(findings)["rights"].level is Level.OK


def test_versioning_is_told(minio: S3Service, bucket: Callable[[S3Service], str]) -> None:
    name = bucket(minio)
    client = minio.client()
    client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    client.close()
    finding = by_subject(check(f"s3://{name}", options(minio), time.monotonic))["versioning"]
    assert finding.level is Level.WARNING
    assert "noncurrent" in finding.remedy


def test_versions_that_expire_help(minio: S3Service, bucket: Callable[[S3Service], str]) -> None:
    name = bucket(minio)
    client = minio.client()
    client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    rule: Any = {"ID": "old", "Status": "Enabled", "Filter": {"Prefix": ""}}
    rule["NoncurrentVersionExpiration"] = {"NoncurrentDays": 3}
    client.put_bucket_lifecycle_configuration(Bucket=name, LifecycleConfiguration={"Rules": [rule]})
    client.close()
    told = by_subject(check(f"s3://{name}/p", options(minio), time.monotonic))
    assert told["versioning"].level is Level.OK
    assert "after 3 days" in told["versioning"].message
    assert told["lifecycle"].level is Level.OK


def test_object_lock_that_keeps_everything_is_told(
    minio: S3Service, bucket: Callable[[S3Service], str]
) -> None:
    plain = by_subject(check(f"s3://{bucket(minio)}", options(minio), time.monotonic))["object lock"]
    assert (plain.level, plain.message) == (Level.OK, "none set")
    client, name = minio.client(), f"locked-{time.monotonic_ns():x}"
    client.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
    told = by_subject(check(f"s3://{name}", options(minio), time.monotonic))["object lock"]
    assert (told.level, "harmless" in told.message) == (Level.OK, True)
    retention: Any = {"Mode": "GOVERNANCE", "Days": 1}
    client.put_object_lock_configuration(
        Bucket=name,
        ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": retention}},
    )
    client.close()
    told = by_subject(check(f"s3://{name}", options(minio), time.monotonic))["object lock"]
    assert told.level is Level.WARNING
    assert "1 days (GOVERNANCE)" in told.message


def test_a_public_policy_is_a_failure(server: S3Service, bucket: Callable[[S3Service], str]) -> None:
    name = bucket(server)
    statement = {
        "Sid": "Open",
        "Effect": "Allow",
        "Principal": "*",
        "Action": ["s3:GetObject"],
        "Resource": [f"arn:aws:s3:::{name}/*"],
    }
    client = server.client()
    client.put_bucket_policy(
        Bucket=name, Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    )
    client.close()
    finding = by_subject(check(f"s3://{name}/p", options(server), time.monotonic))["policy"]
    assert finding.level is Level.FAILURE


def test_wrong_credentials_are_one_clear_failure(
    server: S3Service, bucket: Callable[[S3Service], str]
) -> None:
    name = bucket(server)
    findings = check(f"s3://{name}", options(server, secret_key="wrong"), time.monotonic)
    assert [(each.subject, each.level) for each in findings] == [("exists", Level.FAILURE)]
    assert "credentials" in findings[0].remedy


def test_rules_that_eat_live_data_are_failures_on_a_real_server(
    minio: S3Service, bucket: Callable[[S3Service], str]
) -> None:
    name = bucket(minio)
    client = minio.client()
    rule: Any = {"ID": "tidy", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 30}}
    client.put_bucket_lifecycle_configuration(Bucket=name, LifecycleConfiguration={"Rules": [rule]})
    client.close()
    finding = by_subject(check(f"s3://{name}/p", options(minio), time.monotonic))["lifecycle"]
    assert finding.level is Level.FAILURE
    assert "'tidy' deletes objects" in finding.message
