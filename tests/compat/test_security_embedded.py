"""Real clients by each of Kafka's protocols and mechanisms, and what they are told who may not come in."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import aiokafka
import pytest
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from deploy.services.ports import free_port
from tests.compat.conftest import Embedded, start, stop
from tests.compat.kafka_python import KafkaConsumer, KafkaProducer
from tests.equipment.certificates import Authority, Pair

ADMIN, ALICE, BOB = ("root", "first-password"), ("alice", "alice-password"), ("bob", "bob-password")
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class Secured:
    """An agent with a listener of each protocol."""

    agent: Embedded
    authority: Authority
    client: Pair
    ports: dict[str, int]

    def bootstrap(self, protocol: str) -> str:
        return f"localhost:{self.ports[protocol]}"

    def librdkafka(
        self, protocol: str, login: tuple[str, str] = ALICE, mechanism: str = ""
    ) -> dict[str, Any]:
        """Settings of a client."""
        settings = {
            "bootstrap.servers": self.bootstrap(protocol),
            "security.protocol": protocol,
            "ssl.ca.location": str(self.authority.cert),
        }
        if protocol == "SSL":
            settings["ssl.certificate.location"] = str(self.client.cert)
            settings["ssl.key.location"] = str(self.client.key)
        if mechanism:
            settings |= {"sasl.mechanism": mechanism, "sasl.username": login[0], "sasl.password": login[1]}
        return settings

    def log(self) -> str:
        """What the agent has logged so far."""
        return (self.agent.data.parent / "agent.log").read_text()


def hashed(user: str, password: str) -> str:
    """The line that `floe user hash` prints."""
    command = [sys.executable, "-m", "agent", "user", "hash", user]
    done = subprocess.run(command, input=password + "\n", text=True, capture_output=True, check=True)
    return done.stdout


def listeners(ports: dict[str, int], pair: Pair, authority: Authority) -> Iterator[str]:
    for number, (protocol, port) in enumerate(ports.items(), 1):
        settings = {"name": protocol, "host": "127.0.0.1", "port": port, "protocol": protocol}
        settings["advertised_host"] = "localhost"
        if protocol.endswith("SSL"):
            settings |= {"tls_cert_file": pair.cert, "tls_key_file": pair.key}
        if protocol == "SSL":
            settings |= {"tls_ca_file": authority.cert, "tls_client_auth": "required"}
            settings["tls_principal_rules"] = "RULE:^CN=([^,]*).*$/$1/L"
        else:
            settings["sasl_mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
        yield from (f"listeners.{number}.{name}={value}" for name, value in settings.items())


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder / "authority")
    ports = {protocol: free_port() for protocol in ("SSL", "SASL_PLAINTEXT", "SASL_SSL")}
    users = folder / "users"
    users.write_text(hashed(*ALICE))
    agent = start(
        folder / "data",
        *listeners(ports, authority.pair("server"), authority),
        f"sasl.users_file={users}",
        f"sasl.admin_user={ADMIN[0]}",
        f"sasl.admin_password={ADMIN[1]}",
        "logging.level=info",
        "logging.period_ms=0",
    )
    secured = Secured(agent, authority, authority.pair("client", "/O=Example/CN=Client"), ports)
    admin = AdminClient(secured.librdkafka("SASL_SSL", ADMIN, "SCRAM-SHA-512"))
    upserts = [
        UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 4096), password.encode())
        for name, password in (ALICE, BOB)
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    ]
    for future in admin.alter_user_scram_credentials(upserts).values():
        future.result(30)
    yield secured
    assert stop(agent) == 0


def ways() -> list[tuple[str, str]]:
    """Protocol and mechanism."""
    return [("SSL", "")] + [
        (protocol, mechanism)
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL")
        for mechanism in ("PLAIN", *SCRAM)
    ]


@pytest.mark.parametrize(("protocol", "mechanism"), ways())
def test_librdkafka(secured: Secured, protocol: str, mechanism: str) -> None:
    topic = f"rd-{protocol}-{mechanism}"
    settings = secured.librdkafka(protocol, mechanism=mechanism)
    producer = Producer(settings)
    told: list[Any] = []
    for number in range(500):
        producer.produce(topic, bytes(2_000), str(number), on_delivery=lambda error, _: told.append(error))
        producer.poll(0)
    assert producer.flush(180) == 0
    assert told == [None] * 500
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen, end = 0, time.monotonic() + 60
    while seen < 500 and time.monotonic() < end:
        seen += sum(message.error() is None for message in consumer.consume(500, 1))
    consumer.close()
    assert seen == 500


def context_of(secured: Secured, protocol: str) -> ssl.SSLContext | None:
    if not protocol.endswith("SSL"):
        return None
    return secured.authority.client(secured.client if protocol == "SSL" else None)


def python_settings(
    secured: Secured, protocol: str, mechanism: str, password: str = ALICE[1]
) -> dict[str, Any]:
    """Of aiokafka and kafka-python, which name them alike."""
    settings: dict[str, Any] = {
        "bootstrap_servers": secured.bootstrap(protocol),
        "security_protocol": protocol,
        "ssl_context": context_of(secured, protocol),
    }
    if mechanism:
        settings |= {"sasl_mechanism": mechanism, "sasl_plain_username": ALICE[0]}
        settings["sasl_plain_password"] = password
    return settings


# By TLS each client is in tests/compat/suite/test_logins.py.
IN_THE_CLEAR = [way for way in ways() if way[0] == "SASL_PLAINTEXT"]


@pytest.mark.parametrize(("protocol", "mechanism"), IN_THE_CLEAR)
def test_aiokafka(secured: Secured, protocol: str, mechanism: str) -> None:
    async def both_ways() -> bytes | None:
        settings = python_settings(secured, protocol, mechanism)
        topic = f"aio-{protocol}-{mechanism}"
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"value")
        async with aiokafka.AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
            value: bytes | None = (await asyncio.wait_for(consumer.getone(), 30)).value
            return value

    assert asyncio.run(both_ways()) == b"value"


@pytest.mark.parametrize(("protocol", "mechanism"), IN_THE_CLEAR)
def test_kafka_python(secured: Secured, protocol: str, mechanism: str) -> None:
    settings = python_settings(secured, protocol, mechanism)
    topic = f"py-{protocol}-{mechanism}"
    producer = KafkaProducer(**settings)
    producer.send(topic, b"value").get(30)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **settings)
    assert next(consumer).value == b"value"
    consumer.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
@pytest.mark.parametrize("login", [(ALICE[0], "wrong"), ("nobody", ALICE[1])], ids=["password", "user"])
def test_whoever_is_not_who_they_say_is_told_so(
    secured: Secured, mechanism: str, login: tuple[str, str]
) -> None:
    errors: list[KafkaError] = []
    settings = secured.librdkafka("SASL_SSL", login, mechanism)
    client = AdminClient({**settings, "error_cb": errors.append})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=5)
    client.poll(1)
    assert KafkaError._AUTHENTICATION in [error.code() for error in errors]
    assert any("Authentication failed" in error.str() for error in errors)


def test_aiokafka_is_told_as_well(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    async def comes_in() -> None:
        settings = python_settings(secured, "SASL_PLAINTEXT", "SCRAM-SHA-256", "wrong")
        producer = aiokafka.AIOKafkaProducer(**settings)
        try:
            await producer.start()
        finally:
            await producer.stop()

    caplog.set_level(logging.INFO, logger="aiokafka")  # commands of this process turn it down
    with pytest.raises(AioKafkaError):
        asyncio.run(comes_in())
    assert "SaslAuthenticationFailed" in caplog.text


def test_nobody_comes_in_without_a_certificate_or_a_login(secured: Secured) -> None:
    no_certificate = secured.librdkafka("SSL")
    del no_certificate["ssl.certificate.location"], no_certificate["ssl.key.location"]
    in_the_clear = {"bootstrap.servers": secured.bootstrap("SASL_PLAINTEXT")}
    for settings in (no_certificate, in_the_clear):
        with pytest.raises(KafkaException):
            AdminClient(settings).list_topics(timeout=3)


def test_credentials_are_told_changed_and_deleted(secured: Secured) -> None:
    admin = AdminClient(secured.librdkafka("SASL_SSL", ADMIN, "PLAIN"))
    found = admin.describe_user_scram_credentials([BOB[0]])[BOB[0]].result(30)
    assert [(info.mechanism, info.iterations) for info in found.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 4096),
        (ScramMechanism.SCRAM_SHA_512, 4096),
    ]
    bob = secured.librdkafka("SASL_SSL", BOB, "SCRAM-SHA-256")
    assert AdminClient(bob).list_topics(timeout=30)
    weak = UserScramCredentialUpsertion(BOB[0], ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 5), b"x")
    with pytest.raises(KafkaException) as refused:
        admin.alter_user_scram_credentials([weak])[BOB[0]].result(30)
    assert refused.value.args[0].code() == KafkaError.UNACCEPTABLE_CREDENTIAL
    deletions = [UserScramCredentialDeletion(BOB[0], ScramMechanism.SCRAM_SHA_256)]
    admin.alter_user_scram_credentials(deletions)[BOB[0]].result(30)
    with pytest.raises(KafkaException):
        AdminClient(bob).list_topics(timeout=3)
    with pytest.raises(KafkaException) as gone:
        admin.alter_user_scram_credentials(deletions)[BOB[0]].result(30)
    assert gone.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND


def test_no_secret_is_ever_shown(secured: Secured) -> None:
    """In the log, the status, the metrics and the configuration."""
    wrong = secured.librdkafka("SASL_SSL", ("alice\nforged line", "wrong-password"), "PLAIN")
    with pytest.raises(KafkaException):
        AdminClient(wrong).list_topics(timeout=3)
    log = secured.log()
    assert "login" in log
    assert "\nforged" not in log
    shown = [log]
    for path in ("/status.json", "/status.html", "/metrics"):
        with urllib.request.urlopen(secured.agent.http + path, timeout=60) as answer:
            shown.append(answer.read().decode())
    command = [sys.executable, "-m", "agent", "config", "--output", "json"]
    for setting in ("log.url=memory:", "store.url=file:///x", f"sasl.admin_password={ADMIN[1]}"):
        command += ["--set", setting]
    done = subprocess.run(
        [*command, "--set", "sasl.admin_user=root", "--set", "listeners.0.tls_key_password=key-password"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    shown.append(done.stdout + done.stderr)
    for secret in (ADMIN[1], ALICE[1], BOB[1], "wrong-password", "key-password"):
        assert not [text for text in shown if secret in text]
    assert "floe_logins_total" in shown[3]
    json.loads(shown[1])


def test_a_frame_beyond_the_receive_size_is_not_read_before_the_login(secured: Secured) -> None:
    with socket.create_connection(("localhost", secured.ports["SASL_PLAINTEXT"]), 10) as client:
        client.sendall((64 * 1024 + 1).to_bytes(4, "big") + bytes(8))
        assert client.recv(1) == b""
    assert "sasl.receive_bytes_max" in secured.log()


def floe(secured: Secured, protocol: str, config: dict[str, Any], *words: str, stdin: str = "") -> Any:
    """One of floe's own commands, with a file of properties as Kafka's tools take it."""
    path = secured.agent.data.parent / "command.properties"
    path.write_text("# for floe\n" + "".join(f"{name}={value}\n" for name, value in config.items()))
    command = [sys.executable, "-m", "agent", *words, "--bootstrap", secured.bootstrap(protocol)]
    environment = {**os.environ, "FLOE_COMMAND_CONFIG": str(path)}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, input=stdin, timeout=120
    )


def properties(secured: Secured, protocol: str, mechanism: str, password: str = ALICE[1]) -> dict[str, Any]:
    trusting = {"ssl.truststore.type": "PEM", "ssl.truststore.location": secured.authority.cert}
    found: dict[str, Any] = {"security.protocol": protocol, "request.timeout.ms": "5000"}
    if protocol.endswith("SSL"):
        found |= trusting
    if protocol == "SSL":
        both = secured.agent.data.parent / "both.pem"
        both.write_text(secured.client.key.read_text() + secured.client.cert.read_text())
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": both}
    if mechanism:
        login = f'org.example.LoginModule required username="{ALICE[0]}" password="{password}";'
        found |= {"sasl.mechanism": mechanism, "sasl.jaas.config": login}
    return found


@pytest.mark.parametrize(
    ("protocol", "mechanism"), [("SSL", ""), ("SASL_PLAINTEXT", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-512")]
)
def test_floe_s_own_commands(secured: Secured, protocol: str, mechanism: str) -> None:
    config = properties(secured, protocol, mechanism)
    topic = f"floe-{protocol}"
    made = floe(secured, protocol, config, "topic", "create", topic)
    assert made.returncode == 0, made
    sent = floe(secured, protocol, config, "produce", topic, stdin="hello\n")
    assert sent.returncode == 0, sent
    read = floe(secured, protocol, config, "consume", topic)
    assert read.returncode == 0, read
    assert "hello" in read.stdout


def test_floe_s_own_commands_are_told_why_not(secured: Secured) -> None:
    good = properties(secured, "SASL_SSL", "SCRAM-SHA-256")
    for changed, status, told in (
        (properties(secured, "SASL_SSL", "SCRAM-SHA-256", "wrong-password"), 5, "does not let 'alice' in"),
        ({**good, "sasl.mechanism": "GSSAPI"}, 3, "sasl.mechanism is one of"),
        ({**good, "ssl.truststore.type": "JKS"}, 3, "PEM"),
        ({**good, "sasl.login.class": "x"}, 3, "sasl.login.class is not known"),
        ({**good, "security.protocol": "SASL_PLAINTEXT"}, 4, "closed the connection"),
        ({"security.protocol": "SASL_SSL", **{k: good[k] for k in good if "sasl" in k}}, 4, "not believed"),
    ):
        done = floe(secured, "SASL_SSL", changed, "topic", "list")
        assert (done.returncode, told in done.stderr) == (status, True), done
        assert not [secret for secret in (ALICE[1], "wrong-password") if secret in done.stderr]
