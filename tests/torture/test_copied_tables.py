"""A cluster with tables is copied to another URL and lost with its bucket: its tables are whole and go on."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError

from deploy.services import Etcd, VersityGw
from iceberg.warehouse import s3_client_config
from tests.torture.copying import Sender, moved
from tests.torture.test_copy import SETTINGS, Lab, built, disaster, promoted

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]
TOPIC, PARTITIONS = "tabled", 2
PLACES = [TopicPartition(TOPIC, each) for each in range(PARTITIONS)]
RECORDS, MORE = 40, 10
WAIT_S_MAX = 240.0
"""For tables: a machine with few processors left commits late."""
Row = tuple[int, int, bytes]


@pytest.fixture
def lab(tmp_path: Path, etcd: Etcd, versitygw: VersityGw, bucket: Any) -> Iterator[Lab]:
    settings = {**SETTINGS, "tables": {"enabled": True, "interval_ms": 300}}
    with built(tmp_path, etcd, versitygw, f"s3://{bucket(versitygw)}/copy", settings) as made:
        yield made


@pytest.mark.thorough
async def test_tables_of_the_copy_have_every_row_and_go_on_without_the_source(lab: Lab) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=lab.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, topic_configs={"retention.ms": "-1"})])
    await admin.close()
    senders = [await Sender(lab.bootstrap, f"s{each.partition}", each).start() for each in PLACES]
    await asyncio.to_thread(lab.copy.start)
    for _ in range(RECORDS):
        await asyncio.gather(*(each.send() for each in senders))
    before = await _rows(lab, senders)
    tagged = await asyncio.to_thread(_tagged, lab)
    await _copied(lab)
    await asyncio.to_thread(disaster, lab)

    would = (await asyncio.to_thread(promoted, lab, "--dry-run"))["moved"]
    told = (await asyncio.to_thread(promoted, lab))["moved"]
    assert would == told
    (table,) = told
    assert (table["name"], table["error"], table["lost"]) == (TOPIC, "", [])
    assert table["former"].startswith("s3://floe-source")
    assert table["metadata"].startswith(f"{lab.copy_store['url']}/tables/")
    for agent in lab.agents:
        moved(agent.config_file, lab.copy_log, lab.copy_store)
        await asyncio.to_thread(agent.start)
    found = await asyncio.to_thread(_scanned, lab, tagged)
    assert found == before, "the tagged snapshot is as it was"
    for _ in range(MORE):
        await asyncio.gather(*(each.send() for each in senders))
    after = await _rows(lab, senders)
    assert after.total() == PARTITIONS * (RECORDS + MORE)
    assert "floe-source" not in await asyncio.to_thread(_metadata, lab)
    for each in senders:
        await each.stop()


async def _copied(lab: Lab) -> None:
    """The archive has the table's last commit soon, a round copies up to it."""
    rounds = len(lab.copy.rounds())
    await _until(lambda: len(lab.copy.rounds()) > rounds + 4, "rounds of the copy")


async def _until(true: Callable[[], bool], what: str) -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            if await asyncio.to_thread(true):
                return
            await asyncio.sleep(0.2)
    raise AssertionError(what)


async def _rows(lab: Lab, senders: list[Sender]) -> Counter[Row]:
    """The table's rows, once they are the records that the senders were told of: each once."""
    due = Counter((one.place.partition, one.offset, one.value) for each in senders for one in each.told)
    found: Counter[Row] = Counter()

    def all_there() -> bool:
        nonlocal found
        with suppress(NoSuchTableError):
            found = _scanned(lab)
        return not due - found

    await _until(all_there, "every record in the table")
    assert found == due
    return found


def _catalog(lab: Lab) -> RestCatalog:
    """The agents' catalog, with the keys of the store that is there: the source is gone, or the copy's."""
    source, store = lab.source, lab.copy_store
    alive = source.running
    keys = s3_client_config(
        endpoint=source.endpoint if alive else store["endpoint"],
        access_key=source.access_key if alive else store["access_key"],
        secret_key=source.secret_key if alive else store["secret_key"],
        region=source.region,
    )
    return RestCatalog("floe", uri=f"{lab.agents[0].http}/iceberg", **keys)


def _scanned(lab: Lab, snapshot: int | None = None) -> Counter[Row]:
    rows = _catalog(lab).load_table(("floe", TOPIC)).scan(snapshot_id=snapshot).to_arrow().to_pylist()
    return Counter(
        (row["kafka"]["partition"], row["kafka"]["offset"], row["value"]["__raw__"]) for row in rows
    )


def _tagged(lab: Lab) -> int:
    """The current snapshot, which a tag keeps."""
    table = _catalog(lab).load_table(("floe", TOPIC))
    current = table.current_snapshot()
    assert current is not None
    table.manage_snapshots().create_tag(current.snapshot_id, "kept").commit()
    return int(current.snapshot_id)


def _metadata(lab: Lab) -> str:
    """All that engines are told of the table."""
    url = f"{lab.agents[0].http}/iceberg/v1/namespaces/floe/tables/{TOPIC}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.dumps(json.load(answer))
