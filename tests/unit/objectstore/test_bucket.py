"""What bucket rules and policies would do, judged without a server."""

from __future__ import annotations

import time

import pytest

from objectstore.bucket import Level, check, is_public, judge_lock, judge_rule, judge_versioning
from objectstore.open import StoreOptions


def test_a_server_that_is_not_there() -> None:
    given = StoreOptions(endpoint="http://127.0.0.1:1", access_key="a", secret_key="b", allow_http=True)
    [finding] = check("s3://bucket", given, time.monotonic)
    assert (finding.level, finding.remedy) == (Level.FAILURE, "start the server or correct store.endpoint")


def test_other_clouds_are_refused() -> None:
    with pytest.raises(ValueError, match="is for s3://"):
        check("gs://bucket", StoreOptions(), time.monotonic)


EXPIRE = {"Status": "Enabled", "Expiration": {"Days": 1}}


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        (EXPIRE, True),
        (EXPIRE | {"Prefix": "floe/"}, True),
        (EXPIRE | {"Filter": {"Prefix": "floe/chunks/"}}, True),
        (EXPIRE | {"Filter": {"And": {"Prefix": "fl", "ObjectSizeGreaterThan": 5}}}, True),
        (EXPIRE | {"Filter": {"Prefix": "other/"}}, False),
        (EXPIRE | {"Filter": {"Tag": {"Key": "a", "Value": "b"}}}, False),
        (EXPIRE | {"Filter": {"And": {"Prefix": "", "Tags": [{"Key": "a", "Value": "b"}]}}}, False),
        (EXPIRE | {"Status": "Disabled"}, False),
        ({"Status": "Enabled", "Expiration": {"ExpiredObjectDeleteMarker": True}}, False),
        ({"Status": "Enabled", "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7}}, False),
        ({"Status": "Enabled", "NoncurrentVersionExpiration": {"NoncurrentDays": 1}}, False),
        ({"Status": "Enabled", "Transitions": [{"Days": 1, "StorageClass": "GLACIER"}]}, True),
        ({"Status": "Enabled", "Transitions": [{"Days": 1, "StorageClass": "STANDARD_IA"}]}, False),
    ],
)
def test_lifecycle_rules(rule: dict[str, object], bad: bool) -> None:
    findings = list(judge_rule(rule, "floe/"))
    assert bool(findings) is bad
    assert all(each.level is Level.FAILURE and each.remedy for each in findings)


@pytest.mark.parametrize(
    ("statement", "public"),
    [
        ({"Effect": "Allow", "Principal": "*"}, True),
        ({"Effect": "Allow", "Principal": {"AWS": "*"}}, True),
        ({"Effect": "Allow", "Principal": {"AWS": ["arn:x", "*"]}}, True),
        ({"Effect": "Deny", "Principal": "*"}, False),
        ({"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::1:role/floe"}}, False),
        ({"Effect": "Allow", "Principal": "*", "Condition": {"StringEquals": {"aws:SourceVpc": "v"}}}, False),
    ],
)
def test_public_statements(statement: dict[str, object], public: bool) -> None:
    assert is_public(statement) is public


OLD = {"Status": "Enabled", "NoncurrentVersionExpiration": {"NoncurrentDays": 5}}


@pytest.mark.parametrize(
    ("status", "rule", "level", "told"),
    [
        ("Disabled", {}, Level.OK, "is disabled"),
        ("Suspended", {}, Level.OK, "stay until"),
        ("Enabled", {}, Level.WARNING, "for ever"),
        ("Enabled", OLD, Level.OK, "after 5 days"),
        ("Enabled", OLD | {"Status": "Disabled"}, Level.WARNING, "for ever"),
        ("Enabled", OLD | {"Filter": {"Prefix": "floe/chunks/"}}, Level.WARNING, "for ever"),
        ("Enabled", OLD | {"Filter": {"Tag": {"Key": "a", "Value": "b"}}}, Level.WARNING, "for ever"),
        ("Enabled", OLD | {"Filter": {"Prefix": "floe/"}}, Level.OK, "after 5 days"),
    ],
)
def test_versions_help_as_long_as_they_go_again(
    status: str, rule: dict[str, object], level: Level, told: str
) -> None:
    found = judge_versioning(status, [rule] if rule else [], "floe/")
    assert (found.level, told in found.message) == (level, True)


def test_a_default_retention_keeps_what_floe_deletes() -> None:
    rule = {"DefaultRetention": {"Mode": "COMPLIANCE", "Years": 2}}
    found = judge_lock({"ObjectLockEnabled": "Enabled", "Rule": rule})
    assert (found.level, "2 years (COMPLIANCE)" in found.message) == (Level.WARNING, True)
    empty: dict[str, object] = {}
    for harmless in (empty, {"ObjectLockEnabled": "Enabled"}):
        assert judge_lock(harmless).level is Level.OK
