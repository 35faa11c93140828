"""Python's clients at a door: each writes one record and reads it back, and says in a word what became of it.

`write(doors, login, topic, value)` and `read(doors, login, topic, value, group)` give `done`, or what the
client said.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import aiokafka
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, Producer

from deploy.setup.kcat import kcat_command
from tests.compat.kafka_python import KafkaConsumer, KafkaProducer
from tests.compat.kafka_python import KafkaError as PyKafkaError
from tests.compat.suite.doors import CERTIFICATE, OAUTH, Doors, Login, told

DONE = "done"
WAIT_S = 30
WRONG_S = 5  # how long somebody tries who is not let in

Write = Callable[[Doors, Login, str, str], str]
Read = Callable[[Doors, Login, str, str, str], str]


@dataclass(frozen=True)
class Client:
    """By its name of suite.clients, with the ways that it knows."""

    name: str
    write: Write
    read: Read
    ways: tuple[str, ...]


def rdkafka(doors: Doors, login: Login) -> dict[str, Any]:
    """Settings of librdkafka, kcat's too but for tokens."""
    found: dict[str, Any] = {
        "bootstrap.servers": doors.address(login),
        "security.protocol": login.protocol,
        "ssl.ca.location": str(doors.authority.cert),
    }
    if login.way == CERTIFICATE:
        pair = doors.pairs[login.user]
        if login.secret:
            found |= {"ssl.certificate.location": str(pair.cert), "ssl.key.location": str(pair.key)}
        return found
    found["sasl.mechanism"] = login.mechanism
    if login.way == OAUTH:
        return found | {"oauth_cb": lambda _: (login.secret, time.time() + 200)}
    return found | {"sasl.username": login.user, "sasl.password": login.secret}


def _said(errors: list[KafkaError], error: KafkaError) -> str:
    """The door's word if there was one, else what the call says."""
    doors = (KafkaError._AUTHENTICATION, KafkaError._SSL)
    found = next((each for each in errors if each.code() in doors), error)
    return told(f"{found.name()}: {found.str()}")


def rdkafka_write(doors: Doors, login: Login, topic: str, value: str) -> str:
    """librdkafka."""
    errors: list[KafkaError] = []
    outcome: list[KafkaError | None] = []
    timeout = WRONG_S * 1000
    more = {"error_cb": errors.append, "message.timeout.ms": timeout, "linger.ms": 0}
    producer = Producer(rdkafka(doors, login) | more)
    producer.produce(topic, value.encode(), on_delivery=lambda error, _: outcome.append(error))
    end = time.monotonic() + WAIT_S
    while not outcome and not errors and time.monotonic() < end:
        producer.poll(0.1)
    error = outcome[0] if outcome else errors[0]
    producer.purge()
    return DONE if error is None else _said(errors, error)


def rdkafka_read(doors: Doors, login: Login, topic: str, value: str, group: str) -> str:
    """librdkafka."""
    consumer = Consumer(rdkafka(doors, login) | {"group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    end = time.monotonic() + WAIT_S
    try:
        while time.monotonic() < end:
            message = consumer.poll(1)
            if message is not None and message.error() is not None:
                return _said([], message.error())
            if message is not None and message.value() == value.encode():
                return DONE
    finally:
        consumer.close()
    return "nothing came"


def _python(doors: Doors, login: Login, provider: Any) -> dict[str, Any]:
    """Settings of aiokafka and kafka-python, which name them alike."""
    shown = doors.pairs[login.user] if login.way == CERTIFICATE and login.secret else None
    found: dict[str, Any] = {
        "bootstrap_servers": doors.address(login),
        "security_protocol": login.protocol,
        "ssl_context": doors.authority.client(shown),
    }
    if login.way == CERTIFICATE:
        return found
    found["sasl_mechanism"] = login.mechanism
    if login.way == OAUTH:
        return found | {"sasl_oauth_token_provider": provider}
    return found | {"sasl_plain_username": login.user, "sasl_plain_password": login.secret}


class _Heard(logging.Handler):
    """What a library logs of connections: its errors tell only that there was none."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def why(self, word: str) -> str:
        """The first line that begins so, or nothing."""
        return next((line for line in self.lines if word in line), "")


@contextmanager
def _hearing(name: str) -> Iterator[_Heard]:
    """What the library's logger says meanwhile; sockets that it leaves open are nobody's fault here."""
    heard, logger = _Heard(), logging.getLogger(name)
    level, propagates = logger.level, logger.propagate
    logger.setLevel(logging.INFO)
    logger.propagate = False  # a record that is kept keeps its connection
    logger.addHandler(heard)
    try:
        yield heard
    finally:
        logger.removeHandler(heard)
        logger.setLevel(level)
        logger.propagate = propagates
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def _aiokafka(doors: Doors, login: Login, work: Callable[[dict[str, Any]], Any]) -> str:
    class Provider(AioTokenProvider):
        async def token(self) -> str:
            return login.secret

    async def run() -> None:
        async with asyncio.timeout(WAIT_S):
            await work(_python(doors, login, Provider()))

    with _hearing("aiokafka") as heard:
        try:
            asyncio.run(run())
        except TimeoutError:
            return "nothing: it waits"
        except AioKafkaError as error:
            return told(f"{type(error).__name__}: {heard.why('Unable connect to') or error}")
    return DONE


def aiokafka_write(doors: Doors, login: Login, topic: str, value: str) -> str:
    """aiokafka."""

    async def work(settings: dict[str, Any]) -> None:
        producer = aiokafka.AIOKafkaProducer(**settings)
        try:
            await producer.start()
            await producer.send_and_wait(topic, value.encode())
        finally:
            await producer.stop()

    return _aiokafka(doors, login, work)


def aiokafka_read(doors: Doors, login: Login, topic: str, value: str, group: str) -> str:
    """aiokafka."""

    async def work(settings: dict[str, Any]) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            topic, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False, **settings
        )
        try:
            await consumer.start()
            while (await consumer.getone()).value != value.encode():
                pass
        finally:
            await consumer.stop()

    return _aiokafka(doors, login, work)


def _kafka_python(doors: Doors, login: Login, work: Callable[[dict[str, Any]], None]) -> str:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return login.secret

    with _hearing("kafka"):  # why is in its log alone, and not always: it tries on, and is cut off
        try:
            work(_python(doors, login, Provider()) | {"bootstrap_timeout_ms": WRONG_S * 1000})
        except PyKafkaError as error:
            return told(f"{type(error).__name__}: {error}")
    return DONE


def kafka_python_write(doors: Doors, login: Login, topic: str, value: str) -> str:
    """kafka-python."""

    def work(settings: dict[str, Any]) -> None:
        producer = KafkaProducer(max_block_ms=WRONG_S * 1000, **settings)
        try:
            producer.send(topic, value.encode()).get(WAIT_S)
        finally:
            producer.close(timeout=0)

    return _kafka_python(doors, login, work)


def kafka_python_read(doors: Doors, login: Login, topic: str, value: str, group: str) -> str:
    """kafka-python."""

    came = False

    def work(settings: dict[str, Any]) -> None:
        nonlocal came
        consumer = KafkaConsumer(
            topic,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            consumer_timeout_ms=WRONG_S * 1000,
            **settings,
        )
        try:
            came = any(message.value == value.encode() for message in consumer)
        finally:
            consumer.close()

    with _hearing("kafka") as heard:  # a member of a group is told of its topics by the log alone
        said = _kafka_python(doors, login, work)
    return said if came or said != DONE else told(heard.why("not authorized"))


def _kcat(doors: Doors, login: Login, *arguments: str, stdin: str = "") -> str:
    """What it prints when it succeeds, else the line of its complaint that says most."""
    settings = rdkafka(doors, login)
    if settings.pop("oauth_cb", None):  # tokens it knows only unsigned
        settings |= {"enable.sasl.oauthbearer.unsecure.jwt": "true"}
        settings |= {"sasl.oauthbearer.config": f"principal={login.user}"}
    words = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
    command = [*kcat_command(), *words, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=WAIT_S)
    if done.returncode == 0:
        return done.stdout
    lines = [line for line in done.stderr.splitlines() if line]
    found = [line for line in lines if "uthenti" in line or "SSL" in line or "uthoriz" in line]
    return told((found or lines)[0])


def kcat_write(doors: Doors, login: Login, topic: str, value: str) -> str:
    """kcat."""
    timeout = ("-X", f"message.timeout.ms={WRONG_S * 1000}")
    return _kcat(doors, login, *timeout, "-P", "-t", topic, stdin=value) or DONE


def kcat_read(doors: Doors, login: Login, topic: str, value: str, group: str) -> str:
    """kcat."""
    earliest = ("-X", "auto.offset.reset=earliest", "-q")
    found = _kcat(doors, login, *earliest, "-G", group, "-e", topic)
    return DONE if value in found.splitlines() else found
