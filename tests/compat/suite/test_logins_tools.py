"""Kafka's tools for ACLs, users, quotas and delegation tokens by each mechanism; Streams and Connect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.suite import logins_java
from tests.compat.suite.clients import CONNECT, STREAMS, TOOLS
from tests.compat.suite.conftest import Saw
from tests.compat.suite.doors import (
    ALICE,
    CAROL,
    CONNIE,
    DELEGATION,
    OPEN,
    SAM,
    SCRAM_512,
    WAIT_S,
    WAYS,
    Doors,
    Login,
    told,
)
from tests.compat.suite.doors import CONNECT as CONNIES
from tests.compat.suite.doors import STREAMS as SAMS
from tests.compat.suite.java import Jvm, Said
from tests.compat.suite.rdkafka import consumer, produce, read
from tests.compat.suite.test_connect import Files, eventually
from tests.compat.suite.tools import Tools
from tests.compat.suite.workers import ConnectWorker

USER = ("--entity-type", "users", "--entity-name", "tom")
JOBS = {
    "acls": ("acls", "--add", "--allow-principal", "User:tom", "--operation", "Read", "--topic", "tom"),
    "users": ("configs", "--alter", "--add-config", "SCRAM-SHA-256=[iterations=4096,password=t]", *USER),
    "quotas": ("configs", "--alter", "--add-config", "producer_byte_rate=1000000", *USER),
    "tokens": ("delegation-tokens", "--create", "--max-life-time-period", "-1"),
}


def run(jvm: Jvm, doors: Doors, login: Login, name: str, *arguments: str) -> Said:
    """The tool, with a file of properties."""
    properties = doors.java(login)
    logins_java.java(jvm, doors, login)
    config = doors.folder / "command.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    where = ("--bootstrap-server", doors.address(login), "--command-config", str(config))
    return jvm.tool(name, *where, *arguments)


@pytest.mark.client(TOOLS)
@pytest.mark.parametrize("way", WAYS)
def test_tools_log_in(way: str, doors: Doors, jvm: Jvm, saw: Saw) -> None:
    """By TLS, kafka-acls, kafka-configs (users, quotas) and kafka-delegation-tokens do their work for who
    may, and say why not to who is not who they say, and to who may not."""
    if not doors.tokens:
        logins_java.delegate(jvm, doors)
    carol = doors.login(way, CAROL)
    for job, arguments in JOBS.items():
        done = run(jvm, doors, carol, *arguments)
        if job == "tokens" and way == DELEGATION:
            saw("token of a token", told(Tools.reason(done)))
        else:
            assert done.status == 0, done
            saw(job, done.status)
    assert "User:tom" in run(jvm, doors, carol, "acls", "--list", "--topic", "tom").out
    saw("wrong", told(Tools.reason(run(jvm, doors, doors.wrong(way, CAROL), *JOBS["acls"]))))
    alice = doors.login(way, ALICE)
    for job in ("acls", "users", "quotas"):
        refused = run(jvm, doors, alice, *JOBS[job])
        exceptions = [word for word in Tools.reason(refused).split() if "Exception:" in word]
        assert exceptions, refused
        saw(f"{job} by who may not", exceptions[-1].rpartition(".")[2].strip(":"))


def counting(jvm: Jvm, doors: Doors, application: str) -> Any:
    """A Streams application of sam's, not started: how often a key is in `streams-in`, to `streams-out`."""
    streams, serdes = jvm.kafka.streams, jvm.kafka.common.serialization.Serdes
    builder = streams.StreamsBuilder()
    words = builder.stream(
        f"{SAMS}-in", getattr(streams.kstream.Consumed, "with")(serdes.String(), serdes.String())
    )
    store = streams.state.Stores.inMemoryKeyValueStore("counts")
    counts = words.groupByKey().count(getattr(streams.kstream.Materialized, "as")(store))
    written = getattr(streams.kstream.Produced, "with")(serdes.String(), serdes.Long())
    counts.toStream().to(f"{SAMS}-out", written)
    properties = doors.java(doors.login(SCRAM_512, SAM)) | {
        "application.id": application,
        "state.dir": str(doors.folder / application),
        "commit.interval.ms": "100",
    }
    return streams.KafkaStreams(builder.build(), jvm.properties(properties))


@pytest.mark.client(STREAMS)
def test_streams_logs_in(doors: Doors, jvm: Jvm, saw: Saw) -> None:
    """An application with a principal of its own makes its inner topics and counts; under another name, whose
    topics and groups are not its own, it stops with an error."""
    admin = AdminClient({"bootstrap.servers": doors.plain})
    topics = [f"{SAMS}-in", f"{SAMS}-out"]
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in topics]).values():
        future.result(WAIT_S)
    produce(doors.plain, topics[0], [{"key": key, "value": key} for key in ("a", "b", "a")])
    with closed(counting(jvm, doors, f"{SAMS}-app")) as program, consumer(doors.plain) as reader:
        program.start()
        reader.assign([TopicPartition(topics[1], 0, 0)])
        found: dict[str, int] = {}
        while found != {"a": 2, "b": 1}:
            (message,) = read(reader, 1)
            found[message.key().decode()] = int.from_bytes(message.value(), "big")
    assert f"{SAMS}-app-counts-changelog" in admin.list_topics(timeout=WAIT_S).topics
    with closed(counting(jvm, doors, "another-app")) as program:
        program.start()
        eventually(lambda: program.state().toString(), lambda: "ERROR")
    saw("another's name", "ERROR")


@contextmanager
def closed(program: Any) -> Iterator[Any]:
    """A Streams application that is closed at the end."""
    try:
        yield program
    finally:
        program.close()


@pytest.mark.client(CONNECT)
def test_connect_logs_in(doors: Doors, tmp_path: Path, saw: Saw) -> None:
    """A worker logs in as itself and its connectors as somebody else; a connector that logs in as the worker
    may not write where only the other may."""
    login = doors.java(doors.login(SCRAM_512, CONNIE))
    bootstrap = login.pop("bootstrap.servers")
    roles = {
        f"{role}{name}": value for name, value in login.items() for role in ("", "producer.", "consumer.")
    }
    own = roles | {"connector.client.config.override.policy": "All"}
    alice = doors.java(doors.login(SCRAM_512, ALICE))["sasl.jaas.config"]
    files = Files(tmp_path, OPEN)
    source, sink = files.connectors["source"], files.connectors["sink"]
    with ConnectWorker(tmp_path, bootstrap, CONNIES, own=own) as worker:
        theirs = {**source, "producer.override.sasl.jaas.config": alice}
        worker.rest("POST", "/connectors", {"name": "source", "config": theirs})
        reading = {
            "consumer.override.sasl.jaas.config": alice,
            "consumer.override.group.id": f"{OPEN}-connect",
        }
        worker.rest("POST", "/connectors", {"name": "sink", "config": {**sink, **reading}})
        worker.rest("POST", "/connectors", {"name": "refused", "config": source})
        files.append("by Connect", 10)
        eventually(lambda: set(files.sent) <= set(files.arrived()), lambda: True)

        def refused() -> dict[str, str]:
            tasks = worker.rest("GET", "/connectors/refused/status")["tasks"]
            return tasks[0] if tasks else {"state": "none"}

        eventually(lambda: refused()["state"], lambda: "FAILED")
        lines = [line for line in refused()["trace"].splitlines() if "Caused by" in line]
    assert "TopicAuthorizationException" in lines[-1]
    saw("refused", told(lines[-1]))
