"""Real clients by tokens: OAUTHBEARER of an authorization server, and delegation tokens."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from deploy.services.ports import free_port
from tests.compat.against.secured import LOGIN, SECRET, USERS, settings_of
from tests.compat.conftest import Embedded, start, stop
from tests.compat.kafka_python import KafkaConsumer, KafkaProducer
from tests.compat.suite.java import Jvm
from tests.equipment.tokens import Issuer, JwksServer

WAIT_S_MAX = 60
FAILED = "Authentication failed during authentication due to invalid credentials"


class Rig:
    """An agent whose tokens are signed by `issuer`."""

    def __init__(self, agent: Embedded, port: int, issuer: Issuer, server: JwksServer, folder: Path) -> None:
        self.agent, self.issuer, self.server, self.folder = agent, issuer, server, folder
        self.bootstrap = f"localhost:{port}"

    def log(self) -> str:
        """What the agent has logged so far."""
        return (self.agent.data.parent / "agent.log").read_text()

    def librdkafka(self, token: str | None = None, **more: Any) -> dict[str, Any]:
        """Settings of a client whose callback gives that token, or a good one."""

        def callback(_: str) -> tuple[str, float]:
            return token or self.issuer.token(), time.time() + 200

        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "OAUTHBEARER",
            "oauth_cb": callback,
            **more,
        }


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("tokens")
    issuer, port = Issuer(), free_port()
    with JwksServer(issuer) as server:
        settings = [
            one for one in settings_of(port, folder, folder / "none") if not one.startswith("oauth.jwks_file")
        ]
        agent = start(
            folder / "data",
            *settings,
            "listeners.1.advertised_host=localhost",
            f"oauth.jwks_url={server.url}",
            "oauth.jwks_lookup_ms_min=100",
            "sasl.admin_user=root",
            f"sasl.admin_password={USERS['root']}",
            "logging.level=info",
            "logging.period_ms=0",
        )
        yield Rig(agent, port, issuer, server, folder)
        assert stop(agent) == 0


def test_librdkafka(rig: Rig) -> None:
    producer, told = Producer(rig.librdkafka()), []
    for number in range(100):
        producer.produce("oauth-rd", b"v", str(number), on_delivery=lambda error, _: told.append(error))
    assert producer.flush(WAIT_S_MAX) == 0
    assert told == [None] * 100
    consumer = Consumer(rig.librdkafka(**{"group.id": "oauth-rd", "auto.offset.reset": "earliest"}))
    consumer.subscribe(["oauth-rd"])
    seen, end = 0, time.monotonic() + WAIT_S_MAX
    while seen < 100 and time.monotonic() < end:
        seen += sum(message.error() is None for message in consumer.consume(100, 1))
    consumer.close()
    assert seen == 100


def test_librdkafka_is_told_why_not(rig: Rig) -> None:
    errors: list[KafkaError] = []
    client = AdminClient(rig.librdkafka(rig.issuer.token(aud="billing"), error_cb=errors.append))
    with pytest.raises(KafkaException):
        client.list_topics(timeout=5)
    client.poll(1)
    assert any('{"status":"invalid_token"}' in error.str() for error in errors), errors


def test_a_rotated_key_and_an_authorization_server_that_is_away(rig: Rig) -> None:
    rig.issuer.new_key("rotated")
    assert AdminClient(rig.librdkafka()).list_topics(timeout=WAIT_S_MAX)
    rig.server.up = False
    try:
        assert AdminClient(rig.librdkafka()).list_topics(timeout=WAIT_S_MAX)
    finally:
        rig.server.up = True


def test_aiokafka(rig: Rig) -> None:
    class Provider(AioTokenProvider):
        async def token(self) -> str:
            return rig.issuer.token()

    async def both_ways() -> bytes | None:
        settings: dict[str, Any] = {
            "bootstrap_servers": rig.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": Provider(),
        }
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait("oauth-aio", b"value")
        async with aiokafka.AIOKafkaConsumer(
            "oauth-aio", auto_offset_reset="earliest", **settings
        ) as consumer:
            value: bytes | None = (await asyncio.wait_for(consumer.getone(), WAIT_S_MAX)).value
            return value

    assert asyncio.run(both_ways()) == b"value"


def test_kafka_python(rig: Rig) -> None:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return rig.issuer.token()

    settings: dict[str, Any] = {
        "bootstrap_servers": rig.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Provider(),
    }
    producer = KafkaProducer(**settings)
    producer.send("oauth-py", b"value").get(30)
    producer.close()
    consumer = KafkaConsumer("oauth-py", auto_offset_reset="earliest", consumer_timeout_ms=30_000, **settings)
    assert next(consumer).value == b"value"
    consumer.close()


@pytest.fixture(scope="module")
def jvm() -> Iterator[Jvm]:
    with Jvm() as running:
        yield running


def properties(rig: Rig, name: str, mechanism: str, login: str, **more: str) -> str:
    """A file for `--command-config`."""
    path = rig.folder / f"{name}.properties"
    lines = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{LOGIN}.{login};",
    } | {key.replace("_", "."): value for key, value in more.items()}
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return str(path)


def plain(rig: Rig, user: str) -> str:
    login = f'plain.PlainLoginModule required username="{user}" password="{USERS[user]}"'
    return properties(rig, user, "PLAIN", login)


@pytest.mark.services
def test_java_with_a_token_from_a_file(rig: Rig, jvm: Jvm) -> None:
    """As a mounted service account token comes."""
    token = rig.folder / "token"
    token.write_text(rig.issuer.token())
    jvm.java.lang.System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", token.as_uri())
    config = properties(
        rig,
        "oauth",
        "OAUTHBEARER",
        "oauthbearer.OAuthBearerLoginModule required",
        sasl_login_callback_handler_class=f"{LOGIN}.oauthbearer.OAuthBearerLoginCallbackHandler",
        sasl_oauthbearer_token_endpoint_url=token.as_uri(),
    )
    words = ("--bootstrap-server", rig.bootstrap, "--command-config", config)
    done = jvm.tool("topics", *words, "--create", "--topic", "oauth-java", "--partitions", "1")
    assert done.status == 0, done
    assert "oauth-java" in jvm.tool("topics", *words, "--list").out


@pytest.mark.services
def test_users_of_scram_by_kafka_configs(rig: Rig, jvm: Jvm) -> None:
    words = ("--bootstrap-server", rig.bootstrap, "--command-config", plain(rig, "root"))
    users = ("--entity-type", "users", "--entity-name", "frank")
    credential = "SCRAM-SHA-512=[iterations=8192,password=frank-password]"
    made = jvm.tool("configs", *words, *users, "--alter", "--add-config", credential)
    assert made.status == 0, made
    assert "Completed updating config for user frank." in made.out
    assert "SCRAM-SHA-512=iterations=8192" in jvm.tool("configs", *words, *users, "--describe").out
    login = 'scram.ScramLoginModule required username="frank" password="frank-password"'
    frank = properties(rig, "frank", "SCRAM-SHA-512", login)
    listed = ("--bootstrap-server", rig.bootstrap, "--command-config", frank, "--list")
    assert jvm.tool("topics", *listed).status == 0
    gone = jvm.tool("configs", *words, *users, "--alter", "--delete-config", "SCRAM-SHA-512")
    assert gone.status == 0, gone
    refused = jvm.tool("topics", *listed)
    assert refused.status != 0
    assert FAILED in refused.out + refused.err


@pytest.mark.services
def test_kafka_delegation_tokens(rig: Rig, jvm: Jvm) -> None:
    words = ("--bootstrap-server", rig.bootstrap, "--command-config", plain(rig, "alice"))
    renewer = ("--renewer-principal", "User:root", "--max-life-time-period", "-1")
    made = jvm.tool("delegation-tokens", *words, "--create", *renewer)
    assert made.status == 0, made
    row = next(line for line in made.out.splitlines() if "User:alice" in line).split()
    token_id, password = row[0], row[1]
    login = f'scram.ScramLoginModule required username="{token_id}" password="{password}" tokenauth="true"'
    config = properties(rig, "token", "SCRAM-SHA-256", login)
    by_token = ("--bootstrap-server", rig.bootstrap, "--command-config", config)
    assert jvm.tool("topics", *by_token, "--list").status == 0
    refused = jvm.tool("delegation-tokens", *by_token, "--create", *renewer)
    assert "DelegationTokenDisabledException" not in refused.out + refused.err
    assert "Delegation Token requests are not allowed" in refused.out + refused.err
    described = jvm.tool("delegation-tokens", *words, "--describe", "--owner-principal", "User:alice")
    assert token_id in described.out
    renewed = jvm.tool(
        "delegation-tokens", *words, "--renew", "--renew-time-period", "-1", "--hmac", password
    )
    assert renewed.status == 0, renewed
    expired = jvm.tool(
        "delegation-tokens", *words, "--expire", "--expiry-time-period", "-1", "--hmac", password
    )
    assert expired.status == 0, expired
    over = jvm.tool("topics", *by_token, "--list")
    assert FAILED in over.out + over.err


def test_no_secret_of_tokens_is_ever_shown(rig: Rig) -> None:
    """In the log, the status, the metrics and the configuration."""
    token = rig.issuer.token(iss="forged\nline")
    with pytest.raises(KafkaException):
        AdminClient(rig.librdkafka(token)).list_topics(timeout=3)
    shown = [rig.log()]
    assert "login failed" in shown[0]
    assert "\nline" not in shown[0]
    for path in ("/status.json", "/status.html", "/metrics"):
        with urllib.request.urlopen(rig.agent.http + path, timeout=60) as answer:
            shown.append(answer.read().decode())
    assert "floe_jwks_lookups_total" in shown[3]
    json.loads(shown[1])
    command = [sys.executable, "-m", "agent", "config", "--output", "json"]
    for setting in ("log.url=memory:", "store.url=file:///x", f"delegation.secret={SECRET}"):
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    shown.append(done.stdout + done.stderr)
    for secret in (SECRET, *token.split("."), *USERS.values()):
        assert not [text for text in shown if secret in text]
