"""Secrets nowhere: each is planted, an agent does all that it does with it, and what is shown is searched.

Logs of the level debug, failures and tracebacks included; status, metrics, configuration, `floe check` where
all is well and where it is not; the audit log's lines and records.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from agent.kafka.login import scram
from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent, clustered
from deploy.services.ports import free_port
from tests.compat.test_security_embedded import hashed
from tests.contract.test_log_etcd import enable_passwords
from tests.equipment.certificates import Authority
from tests.equipment.tokens import AUDIENCE, ISSUER, Issuer, JwksServer
from tests.unit.agent.kafka.login.test_delegation import create
from tests.unit.agent.kafka.login.test_gate import Raw, step_of

pytestmark = pytest.mark.services

ETCD, STORE, STORE_USER = "planted-etcd-password", "planted-store-secret-key", "planted-store-user"
ADMIN, ALICE, BOB = "planted-admin-password", "planted-alice-password", "planted-bob-password"
DELEGATION, PEERS = "planted-delegation-secret-of-32-characters", "planted-peers-secret-of-32-characters!"
KEY, WRONG = "planted-key-password", "planted-wrong-guess"
OPTION, HEADER, LOGIN = "planted-option-of-store", "planted-header-of-catalog", "planted-login-in-a-url"
DIGITS = "735142869073"
SALT, ROUNDS = b"planted-salt-of-bob-26-chr", 4_096
AUDIT = "floe.audit"
"""The topic."""


@dataclass
class Planted:
    """A running agent, and all secrets that it was given."""

    agent: FloeAgent
    ports: dict[str, int]
    issuer: Issuer
    authority: Authority
    secrets: list[bytes] = field(default_factory=list)

    def plant(self, *secrets: str | bytes) -> None:
        """To be searched for in each form in which one might show it."""
        for one in secrets:
            raw = one.encode() if isinstance(one, str) else one
            forms = (raw, b64encode(raw), urlsafe_b64encode(raw).rstrip(b"="), raw.hex().encode())
            self.secrets += [*forms, repr(raw)[2:-1].encode(), quote(raw).encode()]

    def client(self, protocol: str, mechanism: str, user: str, password: str) -> dict[str, Any]:
        """Settings of librdkafka."""
        return {
            "bootstrap.servers": f"localhost:{self.ports[protocol]}",
            "security.protocol": protocol,
            "ssl.ca.location": str(self.authority.cert),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }


def encrypted_key(folder: Path, plain: Path) -> Path:
    """The key under a password."""
    made = folder / "encrypted.key"
    command = ["openssl", "pkey", "-in", str(plain), "-aes256", "-passout", f"pass:{KEY}", "-out", str(made)]
    subprocess.run(command, check=True, capture_output=True)
    return made


def listeners(ports: dict[str, int], folder: Path, authority: Authority) -> list[dict[str, Any]]:
    pair = authority.pair("server")
    common = {"host": "127.0.0.1", "sasl_mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER"}
    tls = {
        "tls_cert_file": str(pair.cert),
        "tls_key_file": str(encrypted_key(folder, pair.key)),
        "tls_key_password": KEY,
    }
    return [
        {"name": each.replace("_", ""), "protocol": each, "port": port, "advertised_host": "localhost"}
        | common
        | (tls if each == "SASL_SSL" else {})
        for each, port in ports.items()
    ]


def settings(etcd: Etcd, minio: Minio, folder: Path, jwks: str) -> dict[str, Any]:
    """Without listeners."""
    (folder / "users").write_text(hashed("alice", ALICE))
    tree = clustered(etcd=etcd.endpoint, bucket_url="s3://planted/floe", store=minio)
    tree["log"] |= {"user": "root", "password": ETCD}
    tree["store"]["options"] = {"aws_metadata_endpoint": f"http://{OPTION}"}
    catalog = {"name": "away", "type": "rest", "uri": "http://127.0.0.1:1"}
    return tree | {
        "sasl": {
            "admin_user": "root", "admin_password": ADMIN, "users_file": str(folder / "users"),
            "failed_delay_ms": 0,
        },
        "delegation": {"secret": DELEGATION},
        "peers": {"secret": PEERS, "host": "127.0.0.1"},
        "oauth": {"jwks_url": jwks, "issuer": ISSUER, "audience": AUDIENCE},
        "authorizer": {"mode": "shadow"},
        "audit_log": {"topic": AUDIT, "access": True},
        "logging": {"format": "json", "level": "debug", "period_ms": 0},
        "tables": {"enabled": True},
        "catalogs": [catalog | {"headers": {"Authorization": f"Bearer {HEADER}"}}],
    }  # fmt: skip


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    folder = tmp_path_factory.mktemp("planted")
    authority, issuer = Authority(folder / "authority"), Issuer()
    minio = Minio()
    minio.access_key, minio.secret_key = STORE_USER, STORE
    with Etcd(fsync=False) as etcd, minio, JwksServer(issuer) as jwks:
        asyncio.run(enable_passwords(etcd, ETCD))
        client = minio.client()
        client.create_bucket(Bucket="planted")
        client.close()
        ports = {each: free_port() for each in ("SASL_SSL", "SASL_PLAINTEXT")}
        tree = settings(etcd, minio, folder, jwks.url) | {"listeners": listeners(ports, folder, authority)}
        with FloeAgent("planted", tree) as agent:
            made = Planted(agent, ports, issuer, authority)
            made.plant(ETCD, STORE, ADMIN, ALICE, BOB, DELEGATION, PEERS, KEY, WRONG, "planted-short")
            made.plant(OPTION, HEADER, LOGIN, DIGITS)
            made.plant((folder / "users").read_text().strip().rpartition(":")[2])
            yield made


def do_everything(planted: Planted) -> None:
    """Logins by each mechanism, good ones and bad ones; users and tokens are made; a topic is written to."""
    admin = AdminClient(planted.client("SASL_SSL", "SCRAM-SHA-256", "root", ADMIN))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, ROUNDS)
    upsert = UserScramCredentialUpsertion("bob", info, BOB.encode(), SALT)
    admin.alter_user_scram_credentials([upsert])["bob"].result(30)
    salted = scram.salted("sha256", BOB, SALT, ROUNDS)
    planted.plant(salted, *scram.keys("sha256", salted))
    for mechanism, user, password in (
        ("PLAIN", "alice", ALICE), ("SCRAM-SHA-256", "bob", BOB), ("PLAIN", "root", ADMIN),
    ):  # fmt: skip
        assert AdminClient(planted.client("SASL_SSL", mechanism, user, password)).list_topics(timeout=30)
        wrong = AdminClient(planted.client("SASL_SSL", mechanism, user, WRONG))
        with pytest.raises(KafkaException):
            wrong.list_topics(timeout=3)
    asyncio.run(by_tokens(planted))


async def by_tokens(planted: Planted) -> None:
    """OAuth tokens that are let in and that are not, and a delegation token."""
    for token in (planted.issuer.token(), planted.issuer.token(iss="other"), planted.issuer.token(exp=1)):
        planted.plant(token, *token.split("."))
        raw = await opened(planted)
        await raw.ask(step_of("SaslHandshake", mechanism="OAUTHBEARER"))
        sent = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
        assert await raw.ask(step_of("SaslAuthenticate", auth_bytes=sent)) is not None
        await closed(raw)
    raw = await opened(planted)
    await raw.ask("plain")
    done = await raw.ask(step_of("SaslAuthenticate", auth_bytes=f"\0alice\0{ALICE}".encode()))
    assert not done.error_code
    token = await create(raw)
    assert not token.error_code
    assert token.hmac == hmac.digest(DELEGATION.encode(), token.token_id.encode(), "sha512")
    planted.plant(token.hmac)
    await closed(raw)


async def opened(planted: Planted) -> Raw:
    return Raw(*await asyncio.open_connection("localhost", planted.ports["SASL_PLAINTEXT"]))


async def closed(raw: Raw) -> None:
    raw.writer.close()
    await raw.writer.wait_closed()


def audited(planted: Planted) -> bytes:
    """Records of the audit log's topic, as they are."""
    consumer = Consumer(
        {
            **planted.client("SASL_SSL", "PLAIN", "root", ADMIN),
            "group.id": "audit",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(AUDIT, 0, 0)])
    found = b""
    while message := consumer.poll(10):
        if message.error() is None:
            found += bytes(message.value() or b"")
            if b"CreateDelegationToken" in found:
                break
    consumer.close()
    return found


def told_by(*words: str, config: Path, **changed: str) -> str:
    """All that a command prints, with settings changed."""
    command = [sys.executable, "-m", "agent", *words, "--config", str(config)]
    for name, value in changed.items():
        command += ["--set", f"{name.replace('__', '.')}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.stdout + done.stderr


def mistyped(config: Path) -> Path:
    """The same with a header of digits alone, which YAML takes for a number."""
    tree = yaml.safe_load(config.read_text())
    tree["catalogs"][0]["headers"]["Authorization"] = int(DIGITS)
    made = config.with_name("mistyped.yaml")
    made.write_text(yaml.safe_dump(tree))
    return made


def shown(planted: Planted) -> dict[str, str | bytes]:
    """By where it is."""
    config = planted.agent.config_file
    found: dict[str, str | bytes] = {"audit": audited(planted)}
    for path in ("/status.json", "/status.html", "/status", "/metrics", "/admin/acls", "/readyz"):
        try:
            with urllib.request.urlopen(planted.agent.http + path, timeout=60) as answer:
                found[path] = answer.read()
        except urllib.error.HTTPError as error:
            found[path] = error.read()
    for form in ("table", "json"):
        found[f"config {form}"] = told_by("config", "--output", form, config=config)
        found[f"check {form}"] = told_by("check", "--output", form, config=config)
    found["etcd's is wrong"] = told_by("check", config=config, log__password=WRONG)
    found["the store's is wrong"] = told_by("check", config=config, store__secret_key=WRONG)
    found["the key's is wrong"] = told_by("serve", config=config, listeners__0__tls_key_password=WRONG)
    found["a setting is wrong"] = told_by("config", config=config, delegation__secret="planted-short")
    for scheme in ("https", "sftp"):
        url = f"{scheme}://me:{LOGIN}@host/path"
        found[f"a login in a URL, {scheme}"] = told_by("config", config=config, traces__endpoint=url)
    found["a header is no text"] = told_by("config", config=mistyped(config))
    found["log"] = planted.agent.log_path.read_bytes()
    return found


def test_secrets_nowhere(planted: Planted) -> None:
    do_everything(planted)
    found = shown(planted)
    assert b"CreateDelegationToken" in bytes(found["audit"])
    assert b"floe_logins_total" in bytes(found["/metrics"])
    assert "********" in str(found["config json"])
    json.loads(bytes(found["/status.json"]))
    log = bytes(found["log"])
    assert log.count(b'"login failed"') >= 4
    assert b"debug" in log
    for name in ("etcd's is wrong", "the store's is wrong", "the key's is wrong", "a setting is wrong"):
        assert len(str(found[name])) > 20, name
    seen = {
        name: secret
        for name, text in found.items()
        for secret in planted.secrets
        if len(secret) >= 12 and secret in (text.encode() if isinstance(text, str) else text)
    }
    assert not seen


def test_what_is_planted_would_be_found(planted: Planted) -> None:
    """The agent's own file has most of them in the clear: the search finds them there."""
    text = planted.agent.config_file.read_bytes()
    assert sum(secret in text for secret in planted.secrets) >= 7
    assert yaml.safe_load(text)["log"]["password"] == ETCD
