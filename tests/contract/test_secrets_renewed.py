"""Secrets rotated on disk are used without a restart: etcd's certificates and password, S3's keys."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from coordination.clock import SystemClock
from coordination.etcd.client import EtcdClient, Tls
from coordination.etcd.proto import rpc_pb2 as pb
from coordination.etcd.rebased import RebasedLog
from coordination.etcd.stubs import unary
from coordination.log import Unavailable
from coordination.open import open_log
from deploy.services import Etcd, Minio
from deploy.services.etcd import EtcdTls
from objectstore.credentials import KeyFiles
from objectstore.open import open_store
from objectstore.store import Denied
from tests.contract.log_labs import CLUSTER
from tests.contract.test_log_etcd import certificates, enable_passwords

pytestmark = pytest.mark.services


async def test_another_authority_and_certificate_of_etcd(tmp_path: Path) -> None:
    """A new authority and new pairs under the same paths. What is no pair is refused, and not used."""
    folders = [tmp_path / name for name in ("now", "next")]
    for folder in folders:
        folder.mkdir()
    files, following = [await asyncio.to_thread(certificates, folder) for folder in folders]
    tls = Tls(ca=str(files.ca), cert=str(files.client_cert), key=str(files.client_key))
    with Etcd(tmp_path / "etcd", tls=files) as etcd:
        log = open_log(f"etcd://{etcd.endpoint}/{CLUSTER}", SystemClock(), tls=tls, call_timeout_s=2.0)
        assert isinstance(log, RebasedLog)
        chain = await log.register(1, b"", 60.0)
        await chain.append(b"one")
        assert not await log.renew(), "nothing changed"
        await asyncio.to_thread(etcd.kill)
        await asyncio.to_thread(shutil.copy, following.client_key, files.client_key)
        with pytest.raises(OSError, match=r"(?i)key values mismatch"):
            await log.renew()
        _replace(files, following)
        await asyncio.to_thread(etcd.start)
        with pytest.raises(Unavailable):
            await log.current()
        assert await log.renew()
        revision = await chain.append(b"two")
        assert await log.current() >= revision
        await log.close()


def _replace(files: EtcdTls, by: EtcdTls) -> None:
    for name in ("ca", "cert", "key", "client_cert", "client_key"):
        shutil.copy(getattr(by, name), getattr(files, name))


async def test_another_password_of_etcds_user(own_etcd: Etcd, tmp_path: Path) -> None:
    """etcd forgets all tokens with a change: the next call signs in with what the file holds then."""
    await enable_passwords(own_etcd)
    file = tmp_path / "password"
    file.write_text("secret\n")
    client = EtcdClient([own_etcd.endpoint], SystemClock(), user="root", password_file=str(file))
    await client.put(pb.PutRequest(key=b"k", value=b"v"))
    change = pb.AuthUserAddRequest(name="root", password="another")  # of the same shape
    endpoint = client._endpoint()
    call = unary(
        endpoint.channel,
        "Auth/UserChangePassword",
        pb.AuthUserAddRequest,
        pb.AuthUserAddResponse,
    )
    await call(change, metadata=await client._metadata(endpoint))
    file.write_text("another\n")
    assert (await client.range(pb.RangeRequest(key=b"k"))).count == 1
    await client.close()


async def test_other_keys_of_the_store(tmp_path: Path) -> None:
    """MinIO comes back with other keys; the files change. The same store object goes on with them."""
    access, secret = tmp_path / "access", tmp_path / "secret"
    with Minio() as minio:
        access.write_text(minio.access_key)
        secret.write_text(minio.secret_key + "\n")
        client = minio.client()
        client.create_bucket(Bucket="renewed")
        client.close()
        store = open_store(
            "s3://renewed/p",
            endpoint=minio.endpoint,
            region=minio.region,
            allow_http=True,
            key_files=KeyFiles(str(access), str(secret)),
            keys_renewed_s=0.1,
            now_ms=SystemClock().now_ms,
        )
        await store.put("k", [b"v"])
        await asyncio.to_thread(minio.kill)
        minio.access_key, minio.secret_key = "floe-rotated", "floe-rotated-secret"
        await asyncio.to_thread(minio.start)
        with pytest.raises(Denied):
            await store.get("k")
        access.write_text("floe-rotated")
        secret.write_text("floe-rotated-secret")
        async with asyncio.timeout(30):
            while True:
                try:
                    assert await store.get("k") == b"v"
                    break
                except Denied:
                    await asyncio.sleep(0.1)
        await store.close()


def test_keys_that_cannot_be_read_are_told_with_their_file(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text(" \n")
    for file, part in ((empty, "empty"), (tmp_path / "absent", "No such file")):
        with pytest.raises((OSError, ValueError), match=part) as caught:
            KeyFiles(str(file), str(file)).read()
        assert str(file) in str(caught.value)
