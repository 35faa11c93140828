"""Each client by each mechanism that it knows, by TLS, under ACLs: let in, and refused as by Kafka."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.compat.suite import logins_java
from tests.compat.suite.clients import AIOKAFKA, JAVA, KAFKA_PYTHON, KAFKAJS, KCAT, LIBRDKAFKA, PLATFORMATIC
from tests.compat.suite.conftest import Saw
from tests.compat.suite.doors import (
    ALICE,
    CERTIFICATE,
    KEPT,
    MECHANISMS,
    OAUTH,
    OPEN,
    PLAIN,
    SCRAM_256,
    SCRAM_512,
    WAYS,
    Doors,
    Login,
    told,
)
from tests.compat.suite.java import Jvm
from tests.compat.suite.logins import (
    DONE,
    Client,
    aiokafka_read,
    aiokafka_write,
    kafka_python_read,
    kafka_python_write,
    kcat_read,
    kcat_write,
    rdkafka_read,
    rdkafka_write,
)
from tests.compat.suite.node import drive

OWN = (*MECHANISMS, CERTIFICATE)  # without delegation tokens: only Java's clients have SCRAM's `tokenauth`
PYTHON = (
    Client(LIBRDKAFKA, rdkafka_write, rdkafka_read, OWN),
    Client(AIOKAFKA, aiokafka_write, aiokafka_read, OWN),
    Client(KAFKA_PYTHON, kafka_python_write, kafka_python_read, OWN),
    Client(KCAT, kcat_write, kcat_read, (PLAIN, CERTIFICATE)),
)
NODE = {KAFKAJS: "kafkajs", PLATFORMATIC: "platformatic"}

Outcomes = dict[str, str]


def cases(client: Client) -> list[Any]:
    """One for each way."""
    mark = pytest.mark.client(client.name)
    return [pytest.param(client, way, marks=mark, id=f"{client.name} {way}") for way in client.ways]


def judge(outcomes: Outcomes, saw: Saw) -> None:
    """What must hold with any client; what it said goes to `saw`."""
    assert {name: outcomes[name] for name in ("write", "read")} == {"write": DONE, "read": DONE}
    for name in ("wrong", "write kept", "read kept"):
        assert outcomes[name] != DONE, name
        saw(name, outcomes[name])
    for name in ("write kept", "read kept"):
        assert "authoriz" in outcomes[name].lower(), outcomes[name]


def tries(client: Client, doors: Doors, way: str) -> Outcomes:
    """All of one login, one after the other."""
    good, wrong, value = doors.login(way), doors.wrong(way), f"{client.name} {way}"
    group = f"{OPEN}-{client.name}-{way}"
    return {
        "write": client.write(doors, good, OPEN, value),
        "read": client.read(doors, good, OPEN, value, group),
        "wrong": client.write(doors, wrong, OPEN, value),
        "write kept": client.write(doors, good, KEPT, value),
        "read kept": client.read(doors, good, KEPT, value, group),
    }


@pytest.mark.parametrize(("client", "way"), [case for client in PYTHON for case in cases(client)])
def test_login(client: Client, way: str, doors: Doors, saw: Saw) -> None:
    """Logs in over TLS, writes and reads what ACLs allow; is told why not when it is not who it says, and for
    a topic that is not its own."""
    judge(tries(client, doors, way), saw)


@pytest.mark.client(JAVA)
@pytest.mark.parametrize("way", WAYS)
def test_login_of_java(way: str, doors: Doors, jvm: Jvm, saw: Saw) -> None:
    """Logs in over TLS, writes and reads what ACLs allow; is told why not when it is not who it says, and for
    a topic that is not its own."""
    if not doors.tokens:
        logins_java.delegate(jvm, doors)
    client = Client(JAVA, partial(logins_java.write, jvm), partial(logins_java.read, jvm), WAYS)
    judge(tries(client, doors, way), saw)


@pytest.fixture(scope="module")
def node(doors: Doors) -> Callable[[str], dict[str, Outcomes]]:
    """client → way → outcomes: one process for all ways of a client."""
    found: dict[str, dict[str, Outcomes]] = {}

    def door(login: Login) -> dict[str, Any]:
        files = {"ca": str(doors.authority.cert)}
        if login.way == CERTIFICATE and login.secret:
            files |= {"cert": str(doors.pairs[ALICE].cert), "key": str(doors.pairs[ALICE].key)}
        shown = {"mechanism": login.mechanism, "user": login.user, "secret": login.secret}
        return {"address": doors.address(login), "login": shown, "files": files}

    def run(client: str) -> dict[str, Outcomes]:
        if client not in found:
            rows = [
                {"way": way, "good": door(doors.login(way)), "wrong": door(doors.wrong(way)),
                 "value": f"{client} {way}", "group": f"{OPEN}-{client}-{way}"}
                for way in OWN
            ]  # fmt: skip
            found[client] = drive("logins", NODE[client], "", doors=rows, open=OPEN, kept=KEPT)
        return found[client]

    return run


@pytest.mark.parametrize(
    ("client", "way"),
    [
        pytest.param(client, way, marks=pytest.mark.client(client), id=f"{client} {way}")
        for client in NODE
        for way in OWN
    ],
)
def test_login_of_node(client: str, way: str, node: Callable[[str], dict[str, Outcomes]], saw: Saw) -> None:
    """Logs in over TLS, writes and reads what ACLs allow; is told why not when it is not who it says, and for
    a topic that is not its own."""
    judge({name: told(said) for name, said in node(client)[way].items()}, saw)


@pytest.mark.client(KCAT)
@pytest.mark.parametrize("way", [SCRAM_256, SCRAM_512, OAUTH])
def test_logins_that_kcat_has_not(way: str, doors: Doors, saw: Saw) -> None:
    """The librdkafka that Debian's kcat has ends SCRAM with another nonce than the broker's, and makes only
    tokens without a signature: neither lets anybody in."""
    said = kcat_write(doors, doors.login(way), OPEN, "not in")
    assert said != DONE
    saw("refused", said)
