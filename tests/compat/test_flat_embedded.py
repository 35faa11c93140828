"""A flat table of a real agent: Kafka's client writes, pyiceberg and DuckDB read by plain names."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.expressions import EqualTo

from tests.compat.conftest import Embedded, start, stop
from tests.compat.test_latest_embedded import QUICK, WAIT_S_MAX, caught_up
from tests.unit.agent.cli.conftest import inside
from tests.unit.iceberg.duck import connect
from tests.unit.iceberg.test_tables_bindings import encoded
from tests.unit.iceberg.test_tables_flat import VIEW

LAYOUT = "floe.table.layout"


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Embedded]:
    """An agent of its own."""
    found = start(tmp_path / "data", *QUICK)
    yield found
    assert stop(found) == 0


def create(admin: AdminClient, name: str, **config: str) -> None:
    """A topic of one partition."""
    made = NewTopic(name, 1, config={each.replace("__", "."): value for each, value in config.items()})
    admin.create_topics([made])[name].result(30)


def configure(admin: AdminClient, name: str, value: str) -> None:
    """Set the layout of a topic."""
    entry = ConfigEntry(LAYOUT, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


def bind(agent: Embedded, folder: Path, topic: str) -> None:
    """The message VIEW."""
    (folder / "m.proto").write_bytes(VIEW)
    where = ("--proto", str(folder / "m.proto"), "--message", "p.M", "--tombstones")
    bound = inside("topic", "bind", topic, *where, FLOE_HTTP=agent.http)
    assert bound.status == 0, bound.err


def produce(agent: Embedded, topic: str, first: int) -> None:
    """Ten views, and a tombstone of the last one's key."""
    producer = Producer({"bootstrap.servers": agent.bootstrap})
    for number in range(first, first + 10):
        producer.produce(topic, key=b"%d" % number, value=encoded(VIEW, user_id=number, key=f"k{number}"))
    producer.produce(topic, key=b"%d" % number, value=None)
    assert producer.flush(180) == 0
    caught_up(agent, f"floe.{topic}")


def by_duckdb(agent: Embedded, query: str) -> list[tuple[Any, ...]]:
    """What DuckDB answers."""
    connection = connect("avro", "httpfs", "iceberg")
    options = f"TYPE iceberg, ENDPOINT '{agent.http}/iceberg', AUTHORIZATION_TYPE 'none'"
    connection.execute(f"ATTACH 'floe' AS lake ({options})")
    return connection.execute(query).fetchall()


def test_columns_are_read_by_plain_names(agent: Embedded, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": agent.bootstrap})
    terms = {"floe__table__mode": "upsert", "floe__table__partition": "bucket(4, user_id)"}
    create(admin, "views", floe__table__layout="flat", **terms)
    bind(agent, tmp_path, "views")
    for first in (0, 10):
        produce(agent, "views", first)
    caught_up(agent, "floe.views__latest")
    catalog = RestCatalog("floe", uri=f"{agent.http}/iceberg", warehouse="floe")
    table = catalog.load_table("floe.views")
    rows = table.scan(selected_fields=("user_id", "key__16")).to_arrow().to_pylist()
    assert sorted((row["user_id"], row["key__16"]) for row in rows if row["user_id"] is not None) == [
        (number, f"k{number}") for number in range(20)
    ]
    assert len(rows) == 22, "tombstones too"
    one = table.scan(row_filter=EqualTo("user_id", 3), selected_fields=("user_id",))
    assert one.to_arrow().to_pylist() == [{"user_id": 3}]
    assert len([*one.plan_files()]) < len([*table.scan().plan_files()]), "by partitions and bounds"
    query = 'SELECT user_id, key__16, "value".__raw__ FROM lake.floe.views WHERE user_id >= 18 ORDER BY 1'
    wanted = [(n, f"k{n}", encoded(VIEW, user_id=n, key=f"k{n}")) for n in (18, 19)]
    assert by_duckdb(agent, query) == wanted
    latest = by_duckdb(agent, "SELECT user_id FROM lake.floe.views__latest ORDER BY 1")
    assert latest == [(n,) for n in range(20) if n not in (9, 19)]


def test_a_layout_that_nobody_knows_and_one_that_comes_too_late_are_told(
    agent: Embedded, tmp_path: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": agent.bootstrap})
    with pytest.raises(
        KafkaException, match=r"floe.table.layout: String must be one of: nested, flat"
    ) as refused:
        create(admin, "odd", floe__table__layout="wide")
    assert refused.value.args[0].name() == "INVALID_CONFIG"
    create(admin, "views")
    bind(agent, tmp_path, "views")
    produce(agent, "views", 0)
    configure(admin, "views", "flat")
    assert "floe.table.layout=flat: the table is nested already" in problems(agent, some=True)
    listed = inside("table", "list", FLOE_HTTP=agent.http)
    assert "set the config back to nested" in " ".join(listed.out.split())
    configure(admin, "views", "nested")
    assert problems(agent, some=False) == ""


def problems(agent: Embedded, *, some: bool) -> str:
    """What /status tells of the table, without a record more, once it does, or does not any more."""
    end = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < end:
        found = "; ".join(caught_up(agent, "floe.views")["problems"])
        if bool(found) == some:
            return found
        time.sleep(0.05)
    raise AssertionError(f"problems: {found!r}")
