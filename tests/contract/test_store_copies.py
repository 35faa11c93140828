"""A store that has both buckets copies by itself: what is asked of it, and what happens where it refuses."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import pytest

from coordination.clock import SystemClock
from deploy.services.minio import Minio
from deploy.services.s3 import S3Service
from objectstore.across import BucketCopies, across
from objectstore.copying import Copier, CopyOptions, Refused, Verify, side_by_side
from objectstore.credentials import Keys, Role
from objectstore.open import StoreOptions, open_store
from objectstore.retry import RetryPolicy
from objectstore.store import NotFound, ObjectMeta, ObjectStore
from objectstore.sts import Sts

pytestmark = pytest.mark.services
MIB = 1 << 20
ODD = "tables/a b/é+ü%2F~(1).parquet"
LARGE = "chunks/large.chunk"


class Lab(NamedTuple):
    """Two buckets of one server, and prefixes in them."""

    server: S3Service
    buckets: tuple[str, str]
    source: ObjectStore
    target: ObjectStore
    options: StoreOptions

    @property
    def urls(self) -> tuple[str, str]:
        return f"s3://{self.buckets[0]}/the source/main", f"s3://{self.buckets[1]}/copy"

    def across(self, options: StoreOptions | None = None) -> BucketCopies:
        given = options or self.options
        keys = Keys(given.access_key, given.secret_key, given.session_token)
        made = across(self.urls, (self.options, given), lambda: keys)
        assert made is not None
        return made


@pytest.fixture(params=["minio", "versitygw"])
async def lab(request: pytest.FixtureRequest, bucket: Callable[[S3Service], str]) -> AsyncIterator[Lab]:
    server: S3Service = request.getfixturevalue(request.param)
    buckets = bucket(server), bucket(server)
    options = options_of(server, Keys(server.access_key, server.secret_key))
    source, target = (
        opened(url, options) for url in (f"s3://{buckets[0]}/the source/main", f"s3://{buckets[1]}/copy")
    )
    yield Lab(server, buckets, source, target, options)
    for each in (source, target):
        await each.close()


def options_of(server: S3Service, keys: Keys) -> StoreOptions:
    return StoreOptions(
        endpoint=server.endpoint,
        region=server.region,
        access_key=keys.access,
        secret_key=keys.secret,
        session_token=keys.token,
        allow_http=True,
        retry=RetryPolicy(tries_max=2, wait_s_first=0.01),
        pace=SystemClock(),
    )


def opened(url: str, options: StoreOptions) -> ObjectStore:
    names = StoreOptions.__dataclass_fields__
    return open_store(url, **{name: getattr(options, name) for name in names})


async def metas(store: ObjectStore) -> list[ObjectMeta]:
    return [meta async for page in store.list("") for meta in page]


async def copied(lab: Lab, made: BucketCopies, verify: Verify = Verify.ETAG) -> Copier:
    """All that is due; the two are the same then."""
    copier = Copier(lab.source, lab.target, CopyOptions(verify=verify), made)
    async for pair in side_by_side(lab.source, lab.target, ""):
        assert pair.source is not None
        await copier.begin(pair.source)
    await copier.end()
    ours, theirs = await metas(lab.source), await metas(lab.target)
    assert [(each.key, each.size) for each in ours] == [(each.key, each.size) for each in theirs]
    for each in ours:
        assert await lab.source.get(each.key) == await lab.target.get(each.key), each.key
    return copier


async def fill(lab: Lab) -> None:
    for key, size in ((ODD, 3 * MIB), ("chunks/1.chunk", 100), ("manifests/empty", 0)):
        await lab.source.put(key, [os.urandom(size)])


@pytest.mark.parametrize("verify", Verify)
async def test_the_store_copies_by_itself_and_what_it_made_is_verified(lab: Lab, verify: Verify) -> None:
    await fill(lab)
    copier = await copied(lab, lab.across(), verify)
    assert (copier.counts.by_store, copier.counts.refused) == (3, "")
    assert copier.counts.read_back == (3 if verify is Verify.READ else 0)


async def test_what_the_source_has_no_more_is_told(lab: Lab) -> None:
    with pytest.raises(NotFound):
        await lab.across().copy("chunks/gone.chunk", 1)


async def test_a_large_object_is_copied_in_parts_and_leaves_none_behind(lab: Lab) -> None:
    """Its ETag is one of parts, so its bytes are compared; parts of a try that died are given up."""
    client, bucket = lab.server.client(), lab.buckets[1]
    await lab.source.put(LARGE, [os.urandom(13 * MIB)])
    client.create_multipart_upload(Bucket=bucket, Key=f"copy/{LARGE}")
    made = lab.across()
    made.copy_bytes_max = made.parts.part_bytes = 5 * MIB
    copier = await copied(lab, made)
    assert (copier.counts.by_store, copier.counts.read_back) == (1, 1)
    assert client.list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []
    with pytest.raises(NotFound):
        await made.copy("chunks/gone.chunk", 13 * MIB)
    assert client.list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []


async def test_a_bucket_that_the_store_does_not_have_is_a_refusal(lab: Lab) -> None:
    elsewhere = lab._replace(buckets=("no-such-bucket", lab.buckets[1])).across()
    with pytest.raises(Refused, match="NoSuchBucket"):
        await elsewhere.copy(ODD, 1)
    elsewhere.copy_bytes_max = 0
    with pytest.raises(Refused, match="NoSuchBucket"):
        await elsewhere.copy(ODD, 1)


@pytest.mark.parametrize("lab", ["minio"], indirect=True)
async def test_keys_that_may_not_read_the_source_have_it_read_here(lab: Lab) -> None:
    """The target's keys are of its bucket alone, as MinIO's token service lends them."""
    assert isinstance(lab.server, Minio)
    root = Keys(lab.server.access_key, lab.server.secret_key)
    role = Role("arn:aws:iam:::role/floe", lab.server.endpoint, lab.server.region, lambda: root, 900, 60)
    own = f'"arn:aws:s3:::{lab.buckets[1]}", "arn:aws:s3:::{lab.buckets[1]}/*"'
    policy = f"""{{"Version": "2012-10-17", "Statement": [
        {{"Effect": "Allow", "Action": ["s3:*"], "Resource": [{own}]}}]}}"""
    lent = Sts(role).assume("copy", policy)
    less = options_of(lab.server, Keys(lent.access, lent.secret, lent.token))
    await fill(lab)
    with pytest.raises(Refused, match="AccessDenied"):
        await lab.across(less).copy(ODD, 3 * MIB)
    copier = await copied(lab, lab.across(less))
    assert (copier.counts.by_store, copier.counts.objects) == (0, 3)
    assert "AccessDenied" in copier.counts.refused


@pytest.mark.parametrize("lab", ["minio"], indirect=True)
@pytest.mark.parametrize("body", ["", "<Error><Code>NotImplemented</Code></Error>"])
async def test_a_store_that_cannot_copy_is_not_asked_again(lab: Lab, body: str) -> None:
    asked: list[str] = []

    class Cannot(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            asked.append(self.headers["x-amz-copy-source"])
            self.send_response(501)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    await fill(lab)
    with ThreadingHTTPServer(("127.0.0.1", 0), Cannot) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        there = replace(lab.options, endpoint=f"http://127.0.0.1:{server.server_port}")
        made = across(lab.urls, (there, there), lambda: None)
        assert made is not None
        copier = Copier(lab.source, lab.target, None, made)
        for meta in await metas(lab.source):
            await copier.one(meta)
        await asyncio.to_thread(server.shutdown)
    assert (copier.counts.by_store, copier.counts.objects, len(asked)) == (0, 3, 1)
    assert "501" in copier.counts.refused
    assert asked[0].startswith(f"{lab.buckets[0]}/the%20source/main/")


def test_only_buckets_that_are_known_to_be_one_stores_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    urls = "s3://a/x", "s3://b"
    here = StoreOptions(endpoint="https://s3.example", access_key="k", secret_key="s")

    def found(source: StoreOptions, target: StoreOptions, urls: tuple[str, str] = urls) -> bool:
        return across(urls, (source, target), lambda: None) is not None

    assert found(here, replace(here, endpoint="https://s3.example/"))
    assert not found(here, replace(here, endpoint="https://other.example"))
    assert not found(here, here, ("s3://a", "gs://b"))
    assert not found(here, replace(here, virtual_hosted_style=True))
    assert not found(here, replace(here, extra={"aws_endpoint": "https://other.example"}))
    amazon = replace(here, endpoint="")
    assert found(amazon, replace(amazon, region="eu-west-1", virtual_hosted_style=True))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://other.example")
    assert not found(amazon, amazon)
