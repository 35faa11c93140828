"""Bucket administration with boto3: is this bucket fit to hold a cluster's only copy, and make it so.

Calls block; from a coroutine use asyncio.to_thread. Everything found comes with its remedy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError

from objectstore.credentials import Keys
from objectstore.odd_keys import REMEDY, found_in
from objectstore.open import StoreOptions
from objectstore.store import StoreError
from objectstore.sts import Sts

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

PROBE_NAME = "floe-bucket-check"  # beside chunks/, never listed by anything else
PROBE_BYTES = 64 * 1024
PROBE_ROUNDS = 9
LATE_MS = 150  # a PUT slower than this makes a produce slow
MULTIPART_DAYS = 7
ODD_MAX = 10  # keys that are told
_ABSENT = ("NoSuchBucket", "404", "NotFound")
_UNSET = (
    "NoSuchLifecycleConfiguration",
    "NoSuchBucketPolicy",
    "NoSuchPublicAccessBlockConfiguration",
    "ObjectLockConfigurationNotFoundError",
)
_UNKNOWN = ("NotImplemented", "MethodNotAllowed", "501", "405", "XNotImplemented", "UnsupportedOperation")
_ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")
_EVERYBODY = ("/global/AllUsers", "/global/AuthenticatedUsers")


class Level(Enum):
    """How bad a finding is. FAILURE: do not run a cluster on this bucket."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. `remedy` is empty where there is nothing to do."""

    subject: str
    level: Level
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Bucket:
    """An open client for one bucket and prefix (ending with a slash, or empty)."""

    client: S3Client
    name: str
    prefix: str


def open_bucket(url: str, options: StoreOptions) -> Bucket:
    """Raises ValueError for anything but s3://bucket/prefix: other clouds have tools of their own.

    OSError and ValueError for files that hold no keys, StoreError for a role that is not assumed.
    """
    parsed = urlsplit(url)
    if parsed.scheme != "s3" or not parsed.netloc:
        raise ValueError(f"store URL {url!r}: bucket administration is for s3://bucket/prefix")
    path = parsed.path.strip("/")
    keys = _keys(options)
    client = boto3.session.Session().client(  # the default one keeps keys of an environment that was
        "s3",
        endpoint_url=options.endpoint or None,
        region_name=options.region,
        aws_access_key_id=keys.access or None,
        aws_secret_access_key=keys.secret or None,
        aws_session_token=keys.token or None,
        verify=options.ca_certificate or None,
        config=Config(
            s3={"addressing_style": "virtual" if options.virtual_hosted_style else "path"},
            retries={"max_attempts": 2},
            connect_timeout=options.connect_s_max,
            read_timeout=options.request_s_max,
        ),
    )
    return Bucket(client, parsed.netloc, f"{path}/" if path else "")


def _keys(options: StoreOptions) -> Keys:
    """Empty ones: the environment's."""
    if options.role is not None:
        return Keys(*Sts(options.role).assume(options.role_session)[:3])
    if options.key_files is not None:
        return options.key_files.read()
    return Keys(options.access_key, options.secret_key, options.session_token)


def check(url: str, options: StoreOptions, monotonic: Callable[[], float]) -> list[Finding]:
    """Look at everything; changes nothing but one probe object, which is removed again."""
    try:
        bucket = open_bucket(url, options)
    except StoreError as error:
        return [_no_keys(error)]
    try:
        return list(_check(bucket, monotonic))
    finally:
        bucket.client.close()


def _no_keys(error: StoreError) -> Finding:
    remedy = "correct store.role_arn and store.role_sts_url, or let these keys assume the role"
    return Finding("keys", Level.FAILURE, str(error), remedy)


def prepare(url: str, options: StoreOptions, monotonic: Callable[[], float]) -> list[Finding]:
    """Make the bucket if it is missing, close it to the public, clean up broken uploads; then check.

    Existing rules and policies are never changed: what is wrong with them is told.
    """
    try:
        bucket = open_bucket(url, options)
    except StoreError as error:
        return [_no_keys(error)]
    try:
        found = list(_prepare(bucket, options.region))
        if any(each.level is Level.FAILURE for each in found):
            return found
        return found + list(_check(bucket, monotonic))
    finally:
        bucket.client.close()


def _prepare(bucket: Bucket, region: str) -> Iterator[Finding]:
    exists = _exists(bucket)
    if exists.level is Level.OK:
        yield Finding("create", Level.OK, f"bucket {bucket.name} exists already")
        return
    place: Any = (
        {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    )
    try:
        bucket.client.create_bucket(Bucket=bucket.name, **place)
        yield Finding("create", Level.OK, f"made bucket {bucket.name} in {region}")
    except (ClientError, BotoCoreError) as error:
        yield Finding(
            "create", Level.FAILURE, _told(error), "allow s3:CreateBucket, or make the bucket yourself"
        )
        return
    yield _set("public access", lambda: _block_public(bucket))
    yield _set("lifecycle", lambda: _abort_uploads(bucket))


def _block_public(bucket: Bucket) -> None:
    bucket.client.put_public_access_block(
        Bucket=bucket.name,
        PublicAccessBlockConfiguration={
            "BlockPublicAcls": True,
            "IgnorePublicAcls": True,
            "BlockPublicPolicy": True,
            "RestrictPublicBuckets": True,
        },
    )


def _abort_uploads(bucket: Bucket) -> None:
    rule: Any = {
        "ID": "floe-abort-incomplete-uploads",
        "Status": "Enabled",
        "Filter": {"Prefix": bucket.prefix},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": MULTIPART_DAYS},
    }
    bucket.client.put_bucket_lifecycle_configuration(
        Bucket=bucket.name, LifecycleConfiguration={"Rules": [rule]}
    )


def _set(subject: str, change: Callable[[], None]) -> Finding:
    try:
        change()
    except (ClientError, BotoCoreError) as error:
        if _code(error) in _UNKNOWN:
            return Finding(subject, Level.OK, "this server does not have it")
        return Finding(subject, Level.WARNING, f"could not be set: {_told(error)}", "set it by hand")
    return Finding(subject, Level.OK, "set")


def _check(bucket: Bucket, monotonic: Callable[[], float]) -> Iterator[Finding]:
    exists = _exists(bucket)
    yield exists
    if exists.level is Level.FAILURE:
        return
    for subject, look in _LOOKS.items():
        try:
            yield from look(bucket)
        except (ClientError, BotoCoreError) as error:
            yield _not_told(subject, error)
    yield from _probe(bucket, monotonic)


def _exists(bucket: Bucket) -> Finding:
    try:
        bucket.client.head_bucket(Bucket=bucket.name)
    except EndpointConnectionError as error:
        return Finding("exists", Level.FAILURE, _told(error), "start the server or correct store.endpoint")
    except (ClientError, BotoCoreError) as error:
        if _code(error) in _ABSENT:
            remedy = "run `floe bucket prepare`, or correct the bucket's name and the access key in store"
            return Finding("exists", Level.FAILURE, f"there is no bucket {bucket.name}", remedy)
        return Finding("exists", Level.FAILURE, _told(error), "correct the credentials and their permissions")
    return Finding("exists", Level.OK, f"bucket {bucket.name} is there")


def _not_told(subject: str, error: ClientError | BotoCoreError) -> Finding:
    code = _code(error)
    if code in _UNSET:
        return Finding(subject, Level.OK, "none set")
    if code in _UNKNOWN:
        return Finding(subject, Level.OK, "this server does not have it")
    return Finding(
        subject, Level.WARNING, f"could not be read: {_told(error)}", "allow reading it, or look yourself"
    )


def _rules(bucket: Bucket) -> Sequence[Mapping[str, Any]]:
    """The lifecycle rules; none where there are none, or the server has no such thing."""
    try:
        answer = bucket.client.get_bucket_lifecycle_configuration(Bucket=bucket.name)
    except ClientError as error:
        if _code(error) in (*_UNSET, *_UNKNOWN):
            return []
        raise
    rules: Sequence[Mapping[str, Any]] = answer.get("Rules", [])
    return rules


def _versioning(bucket: Bucket) -> Iterator[Finding]:
    status = bucket.client.get_bucket_versioning(Bucket=bucket.name).get("Status", "Disabled")
    yield judge_versioning(status, _rules(bucket), bucket.prefix)


def judge_versioning(status: str, rules: Sequence[Mapping[str, Any]], prefix: str) -> Finding:
    """What versions help (to bring back what was damaged), and cost, below `prefix`."""
    if status != "Enabled":
        told = f"versioning is {status.lower()}"
        if status != "Disabled":
            told += ": versions from before stay until a lifecycle rule for noncurrent versions expires them"
        return Finding("versioning", Level.OK, told)
    days = [
        rule["NoncurrentVersionExpiration"].get("NoncurrentDays")
        for rule in rules
        if rule.get("NoncurrentVersionExpiration") and _covers(rule, prefix)
    ]
    if days:
        first = min(map(int, filter(None, days)), default=0)
        told = f"versioning is on; noncurrent versions go after {first} days"
        return Finding("versioning", Level.OK, f"{told}: until then what was damaged can be brought back")
    return Finding(
        "versioning",
        Level.WARNING,
        "versioning is on and nothing expires noncurrent versions: objects that Floe deletes stay, and are "
        "billed, for ever",
        "add a lifecycle rule that expires noncurrent versions after a few days, or suspend versioning",
    )


def _covers(rule: Mapping[str, Any], prefix: str) -> bool:
    """Whether an enabled rule applies to everything below `prefix`."""
    return rule.get("Status") == "Enabled" and not _tagged(rule) and prefix.startswith(_reach(rule))


def _reach(rule: Mapping[str, Any]) -> str:
    where = rule.get("Filter") or {}
    return str(rule.get("Prefix") or where.get("Prefix") or (where.get("And") or {}).get("Prefix") or "")


def _tagged(rule: Mapping[str, Any]) -> bool:
    where = rule.get("Filter") or {}
    return "Tag" in where or bool((where.get("And") or {}).get("Tags"))


def _object_lock(bucket: Bucket) -> Iterator[Finding]:
    answer = bucket.client.get_object_lock_configuration(Bucket=bucket.name)
    yield judge_lock(answer.get("ObjectLockConfiguration") or {})


def judge_lock(found: Mapping[str, Any]) -> Finding:
    """What object lock does to what Floe deletes."""
    kept = (found.get("Rule") or {}).get("DefaultRetention") or {}
    if found.get("ObjectLockEnabled") != "Enabled":
        return Finding("object lock", Level.OK, "object lock is off")
    if not kept:
        return Finding("object lock", Level.OK, "object lock is on, without a default retention: harmless")
    period = f"{kept['Days']} days" if kept.get("Days") else f"{kept.get('Years')} years"
    return Finding(
        "object lock",
        Level.WARNING,
        f"object lock keeps every version for {period} ({kept.get('Mode')}): what merging, retention and "
        "collection delete stays and is billed as long, all that is written several times over",
        "remove the default retention, and keep backups in another bucket (replication) that has it",
    )


def _lifecycle(bucket: Bucket) -> Iterator[Finding]:
    answer = bucket.client.get_bucket_lifecycle_configuration(Bucket=bucket.name)
    rules: Sequence[Mapping[str, Any]] = answer.get("Rules", [])
    bad = [finding for rule in rules for finding in judge_rule(rule, bucket.prefix)]
    if bad:
        yield from bad
        return
    told = f"{len(rules)} rules, none touches live data"
    if any(rule.get("AbortIncompleteMultipartUpload") and _covers(rule, bucket.prefix) for rule in rules):
        told += "; broken uploads are cleaned up"
    yield Finding("lifecycle", Level.OK, told)


def judge_rule(rule: Mapping[str, Any], prefix: str) -> Iterator[Finding]:
    """What a lifecycle rule would do to objects below `prefix`. Floe's objects carry no tags."""
    name = rule.get("ID") or "without a name"
    reach = _reach(rule)
    if rule.get("Status") != "Enabled" or _tagged(rule):
        return
    if not (prefix.startswith(reach) or reach.startswith(prefix)):
        return
    expiration = rule.get("Expiration") or {}
    if "Days" in expiration or "Date" in expiration:
        yield Finding(
            "lifecycle",
            Level.FAILURE,
            f"rule {name!r} deletes objects below {reach!r} by age: that is live data",
            "remove the rule or give it another prefix; Floe deletes by itself what is no longer needed",
        )
    classes = [each.get("StorageClass", "") for each in rule.get("Transitions") or []]
    archives = [each for each in classes if each in _ARCHIVES]
    if archives:
        yield Finding(
            "lifecycle",
            Level.FAILURE,
            f"rule {name!r} moves objects below {reach!r} to {', '.join(archives)}: unreadable there",
            "remove the transition or give the rule another prefix",
        )


def _public_block(bucket: Bucket) -> Iterator[Finding]:
    block = bucket.client.get_public_access_block(Bucket=bucket.name)["PublicAccessBlockConfiguration"]
    missing = sorted(name for name, on in block.items() if on is False)
    if missing:
        remedy = "turn all four settings of the bucket's public access block on"
        yield Finding("public access block", Level.WARNING, f"off: {', '.join(missing)}", remedy)
    else:
        yield Finding("public access block", Level.OK, "all on")


def _acl(bucket: Bucket) -> Iterator[Finding]:
    grants = bucket.client.get_bucket_acl(Bucket=bucket.name).get("Grants", [])
    public = [each for each in grants if each.get("Grantee", {}).get("URI", "").endswith(_EVERYBODY)]
    if public:
        rights = ", ".join(sorted(str(each.get("Permission")) for each in public))
        yield Finding(
            "access list", Level.FAILURE, f"everybody has {rights}", "set the bucket's ACL to private"
        )
    else:
        yield Finding("access list", Level.OK, "not public")


def _policy(bucket: Bucket) -> Iterator[Finding]:
    policy = json.loads(bucket.client.get_bucket_policy(Bucket=bucket.name)["Policy"])
    statements = policy.get("Statement", [])
    public = [each for each in statements if is_public(each)]
    if public:
        names = ", ".join(str(each.get("Sid") or each.get("Action")) for each in public)
        remedy = "name the principals that may use the bucket"
        yield Finding("policy", Level.FAILURE, f"statements for everybody: {names}", remedy)
    else:
        yield Finding("policy", Level.OK, "no statement is for everybody")


def is_public(statement: Mapping[str, Any]) -> bool:
    """Whether a policy statement allows something to everybody without a condition."""
    principal = statement.get("Principal")
    named = principal.get("AWS") if isinstance(principal, dict) else principal
    everybody = "*" in named if isinstance(named, list) else named == "*"
    return statement.get("Effect") == "Allow" and everybody and not statement.get("Condition")


def _odd(bucket: Bucket) -> Iterator[Finding]:
    found = list(islice(found_in(bucket.client, bucket.name, bucket.prefix), ODD_MAX))
    if not found:
        yield Finding("keys", Level.OK, "no object has a key that cannot be asked for")
    for key in found:
        told = f"the object {key!r} has a key that Floe passes over, at the cost of slower listings"
        yield Finding("keys", Level.WARNING, told, REMEDY)


_LOOKS: dict[str, Callable[[Bucket], Iterator[Finding]]] = {
    "versioning": _versioning,
    "lifecycle": _lifecycle,
    "object lock": _object_lock,
    "public access block": _public_block,
    "access list": _acl,
    "policy": _policy,
    "keys": _odd,
}


def _probe(bucket: Bucket, monotonic: Callable[[], float]) -> Iterator[Finding]:
    """Write, read and remove one object: the rights, the conditions and the time they take."""
    key = bucket.prefix + PROBE_NAME
    try:
        bucket.client.delete_object(Bucket=bucket.name, Key=key)
        yield _conditions(bucket, key)
        yield _latency(bucket, key, monotonic)
        bucket.client.delete_object(Bucket=bucket.name, Key=key)
        yield Finding("rights", Level.OK, "objects can be written, read and deleted")
    except (ClientError, BotoCoreError) as error:
        remedy = f"allow s3:PutObject, s3:GetObject and s3:DeleteObject below {bucket.prefix!r}"
        yield Finding("rights", Level.FAILURE, _told(error), remedy)


def _conditions(bucket: Bucket, key: str) -> Finding:
    """Create-only and replace-if-unchanged must refuse; a server that ignores them loses data."""
    put = partial(bucket.client.put_object, Bucket=bucket.name, Key=key)
    etag = put(Body=b"1", IfNoneMatch="*")["ETag"]
    ignored = []
    if not _refused(lambda: put(Body=b"2", IfNoneMatch="*")):
        ignored.append("If-None-Match")
    newer = put(Body=b"3", IfMatch=etag)["ETag"]
    if newer == etag or not _refused(lambda: put(Body=b"4", IfMatch=etag)):
        ignored.append("If-Match")
    if ignored:
        remedy = "use a store with conditional writes; without them two writers overwrite each other"
        return Finding(
            "conditional PUT", Level.FAILURE, f"the server ignores {' and '.join(ignored)}", remedy
        )
    return Finding("conditional PUT", Level.OK, "create-only and replace-if-unchanged refuse as they should")


def _refused(put: Callable[[], object]) -> bool:
    try:
        put()
    except ClientError as error:
        if _code(error) in ("PreconditionFailed", "412", "ConditionalRequestConflict"):
            return True
        raise
    return False


def _latency(bucket: Bucket, key: str, monotonic: Callable[[], float]) -> Finding:
    puts, gets = [], []
    body = bytes(PROBE_BYTES)
    for _ in range(PROBE_ROUNDS):
        started = monotonic()
        bucket.client.put_object(Bucket=bucket.name, Key=key, Body=body)
        written = monotonic()
        bucket.client.get_object(Bucket=bucket.name, Key=key)["Body"].read()
        puts.append((written - started) * 1000)
        gets.append((monotonic() - written) * 1000)
    put, get = sorted(puts)[PROBE_ROUNDS // 2], sorted(gets)[PROBE_ROUNDS // 2]
    told = f"median of {PROBE_ROUNDS}, {PROBE_BYTES // 1024} KiB: PUT {put:.1f} ms, GET {get:.1f} ms"
    if put > LATE_MS:
        remedy = "run the agents in the bucket's region; a produce takes at least one PUT"
        return Finding("latency", Level.WARNING, told, remedy)
    return Finding("latency", Level.OK, told)


def _code(error: ClientError | BotoCoreError) -> str:
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def _told(error: ClientError | BotoCoreError) -> str:
    cause = error.kwargs.get("error") if isinstance(error, EndpointConnectionError) else None
    told = str(error).partition("\n")[0]
    return told if cause is None else f"{told}: {str(cause).rpartition(': ')[2]}"
