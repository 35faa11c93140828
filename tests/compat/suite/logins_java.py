"""Java's clients at a door, as logins.py has Python's; and delegation tokens, which Java's alone make."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.compat.suite.doors import ALICE, ALLOWED, CAROL, OAUTH, SCRAM_256, Doors, Login, told
from tests.compat.suite.java import Jvm
from tests.compat.suite.java_clients import Java, Sent, failed
from tests.compat.suite.logins import DONE, WAIT_S, WRONG_S


def java(jvm: Jvm, doors: Doors, login: Login) -> tuple[Java, Mapping[str, str]]:
    """Clients, and the properties they take."""
    settings = doors.java(login) | {"max.block.ms": str(WRONG_S * 1000)}
    if login.way == OAUTH:
        url = settings["sasl.oauthbearer.token.endpoint.url"]
        jvm.java.lang.System.setProperty(ALLOWED, url)
    return Java(jvm, settings.pop("bootstrap.servers")), settings


def write(jvm: Jvm, doors: Doors, login: Login, topic: str, value: str) -> str:
    """One record by a KafkaProducer: `done`, or the innermost exception."""
    clients, settings = java(jvm, doors, login)

    def work() -> str:
        clients.produce(topic, [Sent(value.encode())], **settings)
        return DONE

    return told(failed(work))


def read(jvm: Jvm, doors: Doors, login: Login, topic: str, value: str, group: str) -> str:
    """That record by a KafkaConsumer."""
    clients, settings = java(jvm, doors, login)

    def work() -> str:
        end = time.monotonic() + WAIT_S
        with clients.consumer(**settings, group_id=group) as consumer:
            consumer.subscribe([topic])
            while time.monotonic() < end:
                if any(each.value == value.encode() for each in clients.poll(consumer)):
                    return DONE
        return "nothing came"

    return told(failed(work))


@contextmanager
def admin(jvm: Jvm, doors: Doors, login: Login) -> Iterator[Any]:
    """org.apache.kafka.clients.admin.Admin, closed at the end."""
    settings = doors.java(login)
    java(jvm, doors, login)
    opened = jvm.kafka.clients.admin.Admin.create(jvm.properties(settings))
    try:
        yield opened
    finally:
        opened.close()


def delegate(jvm: Jvm, doors: Doors) -> None:
    """A token of their own for everybody."""
    for user in (ALICE, CAROL):
        with admin(jvm, doors, doors.login(SCRAM_256, user)) as client:
            token = client.createDelegationToken().delegationToken().get()
            doors.tokens[user] = (token.tokenInfo().tokenId(), token.hmacAsBase64String())


def outcome(call: Callable[[], object]) -> str:
    """What the call gives, or the innermost exception, without addresses."""
    return told(failed(call))
