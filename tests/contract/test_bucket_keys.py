"""The bucket's keys, wherever they come from, are replaced while the same store goes on: MinIO says so.

The old ones are revoked each time, so a store that kept them would be refused.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from agent.cli.audit import s3_access
from agent.config import Config, load
from coordination.clock import SystemClock
from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from iceberg.spark.session import S3Access
from objectstore.assumed import AssumedRole
from objectstore.bucket import Level, check
from objectstore.credentials import Keys, Role
from objectstore.open import StoreOptions, open_store
from objectstore.store import Denied, ObjectStore, Retryable, StoreError
from tests.equipment.bucket_keys import CONTAINER, KeyServer
from tests.equipment.certificates import Authority
from tests.equipment.tokens import Issuer, JwksServer

pytestmark = pytest.mark.services
BUCKET = "keys"
ARN = "arn:aws:iam:::role/floe"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No keys of whoever runs the tests."""
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)


@pytest.fixture
def server() -> Iterator[KeyServer]:
    """With a MinIO of its own: all keys that it has given are revoked."""
    with Minio() as minio:
        minio.make_bucket(BUCKET)
        with KeyServer(minio) as keys:
            yield keys


def opened(minio: Minio, **options: object) -> ObjectStore:
    given = {"endpoint": minio.endpoint, "region": minio.region, "allow_http": True, "retry": None}
    return open_store(f"s3://{BUCKET}/p", **(given | options))


async def written(store: ObjectStore, key: str) -> None:
    """Within a while: obstore asks for keys at most every 100 ms."""
    async with asyncio.timeout(30):
        while True:
            with suppress(Denied):
                await store.put(key, [key.encode()])
                break
            await asyncio.sleep(0.05)
    assert await store.get(key) == key.encode()


async def without_keys(store: ObjectStore, kind: type[StoreError]) -> None:
    """Within a while the store has none, and says it by this error."""
    async with asyncio.timeout(30):
        while True:
            try:
                await store.put("nobody", [b""])
            except kind as error:
                if "the store's keys cannot be had" in str(error):
                    return
            await asyncio.sleep(0.05)


async def test_keys_of_an_instances_role(server: KeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """IMDSv2: MinIO's keys by metadata that answers with a session token only."""
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    store = opened(server.minio)
    await written(store, "first")
    for number in range(3):
        await asyncio.to_thread(server.rotate)
        await written(store, f"after-{number}")
    server.status = 503
    await without_keys(store, Retryable)
    server.status = 404
    await without_keys(store, Denied)
    server.status = 200
    await written(store, "well-again")
    url, options = f"s3://{BUCKET}/p", StoreOptions(endpoint=server.minio.endpoint)
    found = await asyncio.to_thread(check, url, options, SystemClock().monotonic)
    assert [each for each in found if each.level is Level.FAILURE] == []


async def test_keys_that_ended_are_called_so(server: KeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.seconds = 3_600  # nobody asks for others before
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    store = opened(server.minio)
    await written(store, "first")
    keys = dict(server.keys)
    store = opened(
        server.minio,
        access_key=keys["AccessKeyId"],
        secret_key=keys["SecretAccessKey"],
        session_token=keys["Token"][:-4] + "AAAA",
    )
    with pytest.raises(Denied, match="keys have ended, or were revoked") as raised:
        await store.put("k", [b""])
    assert keys["SecretAccessKey"] not in str(raised.value)


async def test_keys_of_a_container(
    server: KeyServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """EKS Pod Identity: a URL, and a token that is read from its file each time."""
    token = tmp_path / "token"
    token.write_text("pod-token")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", server.url + CONTAINER)
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(token))
    store = opened(server.minio)
    await written(store, "first")
    await asyncio.to_thread(server.rotate)
    server.pod_token = "another"
    await without_keys(store, Denied)
    token.write_text("another")
    await written(store, "second")
    token.unlink()
    await without_keys(store, Retryable)


def role(minio: Minio, url: str = "") -> Role:
    keys = Keys(minio.access_key, minio.secret_key)
    return Role(ARN, url or minio.endpoint, minio.region, lambda: keys, 900, 5.0)


class Movable:
    """A clock that tests move on, milliseconds."""

    def __init__(self) -> None:
        self.ahead_ms, self._clock = 0, SystemClock()

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.ahead_ms


async def test_keys_of_an_assumed_role(server: KeyServer) -> None:
    store = opened(server.minio, role=role(server.minio), now_ms=SystemClock().now_ms)
    await written(store, "first")
    options = StoreOptions(endpoint=server.minio.endpoint, role=role(server.minio))
    found = await asyncio.to_thread(check, f"s3://{BUCKET}/p", options, SystemClock().monotonic)
    assert [each for each in found if each.level is Level.FAILURE] == []


def test_an_assumed_roles_keys_are_renewed_at_half_their_time(server: KeyServer) -> None:
    clock = Movable()
    assumed = AssumedRole(role(server.minio), "floe", clock.now_ms)
    first = assumed.keys()
    clock.ahead_ms = 440_000
    assert assumed.keys() == first
    clock.ahead_ms = 460_000
    assert assumed.keys() == first, "they hold while others are asked for"
    renewed = SystemClock().monotonic() + 30
    while assumed.keys() == first and SystemClock().monotonic() < renewed:
        threading.Event().wait(0.02)
    assert assumed.keys() != first
    assert first.token


def test_a_token_service_that_is_away_is_felt_when_the_keys_have_ended(server: KeyServer) -> None:
    clock = Movable()
    assumed = AssumedRole(role(server.minio), "floe", clock.now_ms)
    first = assumed.keys()
    server.minio.kill()
    clock.ahead_ms = 600_000
    assert assumed.keys() == first
    clock.ahead_ms = 901_000
    with pytest.raises(StoreError, match="was not assumed") as raised:
        assumed.keys()
    assert server.minio.secret_key not in str(raised.value)


async def test_a_role_that_cannot_be_assumed_is_told_by_name(server: KeyServer) -> None:
    away = role(server.minio, "http://127.0.0.1:9")
    store = opened(server.minio, role=away, now_ms=SystemClock().now_ms)
    with pytest.raises(Retryable, match=f"the role {ARN} was not assumed at http://127.0.0.1:9"):
        await store.put("k", [b""])
    options = StoreOptions(endpoint=server.minio.endpoint, role=away)
    found = await asyncio.to_thread(check, f"s3://{BUCKET}/p", options, SystemClock().monotonic)
    assert [(each.subject, each.level) for each in found] == [("keys", Level.FAILURE)]


class InstanceAgent(FloeAgent):
    """An agent that has no keys but those of its instance's metadata."""

    metadata: KeyServer

    def environment(self) -> dict[str, str]:
        return super().environment() | self.metadata.environment()


async def test_an_agent_goes_on_while_its_keys_are_replaced(
    server: KeyServer, etcd: Etcd, tmp_path: Path
) -> None:
    """Every record that was taken is read back, with two sets of keys revoked under the writer."""
    store = {"url": f"s3://{BUCKET}/agent", "endpoint": server.minio.endpoint, "allow_http": True}
    settings = {
        "log": {"url": f"etcd://{etcd.endpoint}/{tmp_path.name}"},
        "store": store,
        "tables": {"enabled": False},
        "fetch": {"cache_bytes_max": 1024 * 1024},
    }
    agent = InstanceAgent("instance", settings, tmp_path / "agent")
    agent.metadata = server
    with agent:
        producer = Producer({"bootstrap.servers": agent.bootstrap, "linger.ms": 0})
        values: list[bytes] = []
        for number in range(30):
            if number in (10, 20):
                await asyncio.to_thread(server.rotate)
            values.append(b"%d" % number)
            producer.produce("t", values[-1], partition=0)
            assert await asyncio.to_thread(producer.flush, 60) == 0
        assert await asyncio.to_thread(read, agent.bootstrap, len(values)) == values
    assert "SecretAccessKey" not in agent.log_path.read_text()


def read(bootstrap: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("t", 0, 0)])
    try:
        found = consumer.consume(count, timeout=60)
        return [each.value() or b"" for each in found if each.error() is None]
    finally:
        consumer.close()


def test_spark_gets_the_keys_that_the_agent_uses(server: KeyServer) -> None:
    """`floe table audit` hands a role's session token on; without keys Spark is to find its own."""
    minio = server.minio
    given = {"url": f"s3://{BUCKET}", "endpoint": minio.endpoint, "allow_http": "true", "role_arn": ARN}
    keys = {"access_key": minio.access_key, "secret_key": minio.secret_key}
    lent = s3_access(config(given | keys))
    assert lent is not None
    assert lent.session_token
    assert lent.access_key != minio.access_key
    given.pop("role_arn")
    assert s3_access(config(given)) == S3Access(minio.endpoint)


def config(store: Mapping[str, str]) -> Config:
    settings = [f"store.{name}={value}" for name, value in store.items()]
    return load(None, ["log.url=etcd://127.0.0.1:2379/x", *settings]).config


# Web identity, as pods on EKS have it.


class FederatedMinio(Minio):
    """It takes the provider's tokens for one role, which may read and write."""

    client_id = "floe-agents"
    provider = ""

    def environment(self) -> dict[str, str]:
        return super().environment() | {
            "MINIO_IDENTITY_OPENID_CONFIG_URL": self.provider,
            "MINIO_IDENTITY_OPENID_CLIENT_ID": self.client_id,
            "MINIO_IDENTITY_OPENID_ROLE_POLICY": "readwrite",
        }

    @property
    def role_arn(self) -> str:
        """As MinIO calls the role of a client."""
        digest = hashlib.sha1(self.client_id.encode(), usedforsecurity=False).digest()
        return f"arn:minio:iam:::role/{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


@pytest.fixture
def federated(tmp_path: Path) -> Iterator[tuple[FederatedMinio, JwksServer]]:
    authority = Authority(tmp_path / "authority")
    pair = authority.pair("minio")
    with JwksServer(Issuer()) as provider:
        minio = FederatedMinio(ca=authority.cert, cert=pair.cert, key=pair.key)
        minio.provider = provider.configuration
        with minio:
            minio.make_bucket(BUCKET)
            yield minio, provider


async def test_keys_by_web_identity(
    federated: tuple[FederatedMinio, JwksServer], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """AssumeRoleWithWebIdentity by obstore and by boto3, with a private authority."""
    minio, provider = federated
    token = tmp_path / "token"
    web_identity(monkeypatch, minio, token)

    def tell(issuer: Callable[..., str]) -> None:
        token.write_text(issuer(aud=minio.client_id, iss=provider.name, azp=minio.client_id))

    tell(provider.issuer.token)
    store = opened(minio, allow_http=False, ca_certificate=str(minio.ca))
    await written(store, "first")
    options = StoreOptions(endpoint=minio.endpoint, ca_certificate=str(minio.ca))
    found = await asyncio.to_thread(check, f"s3://{BUCKET}/p", options, SystemClock().monotonic)
    assert [each for each in found if each.level is Level.FAILURE] == []
    token.write_text("no token")
    stranger = opened(minio, allow_http=False, ca_certificate=str(minio.ca))
    with pytest.raises(Denied, match="the store's keys cannot be had"):
        await stranger.put("k", [b""])
    await written(store, "second")  # the keys hold an hour, whatever becomes of the file
    token.unlink()
    with pytest.raises(Retryable, match="Failed to read token file"):
        await stranger.put("k", [b""])


def web_identity(monkeypatch: pytest.MonkeyPatch, minio: FederatedMinio, token: Path) -> None:
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ROLE_ARN", minio.role_arn)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", minio.endpoint)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(minio.ca))


async def test_a_token_service_without_tls_gets_no_token(
    server: KeyServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """obstore sends an identity by https alone, whatever store.allow_http says."""
    (tmp_path / "token").write_text("anything")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", ARN)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.minio.endpoint)
    with pytest.raises(Retryable, match="AWS_ENDPOINT_URL_STS must begin with https"):
        await opened(server.minio).put("k", [b""])
