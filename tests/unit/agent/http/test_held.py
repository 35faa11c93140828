"""Records below the log start over HTTP: what is held is told, brought back, let go of, by who may."""

from __future__ import annotations

from pathlib import Path

import httpx

from coordination.commands import DeleteTopic, MoveLogStart
from coordination.state import held
from coordination.state.acl_types import Operation, ResourceType
from objectstore.batch import contents
from tests.unit.agent.http.conftest import Edge
from tests.unit.agent.http.console_rig import by, console, let
from tests.unit.agent.kafka.test_handlers_produce_fetch import produce
from tests.unit.agent.rig import batch

HTTP = {"host": "127.0.0.1", "port": 0, "authentication": "required", "barrier_timeout_ms": 10_000}
GRACE = {held.GRACE: "3600000"}
PATH = "/admin/topics/orders/held"


async def taken(edge: Edge, offset: int, name: str = "orders") -> None:
    """Delete the records of partition 0 below the offset."""
    handle = edge.replica.state.topics[name].partitions[0].handle
    await edge.replica.propose(MoveLogStart(partition=[handle], offset=[offset]))


async def test_what_is_held_is_told_comes_back_and_goes(tmp_path: Path) -> None:
    async with console(tmp_path, http=HTTP) as (edge, agent):
        await edge.topic("orders", partitions=2, **GRACE)
        for values in ((b"a", b"b"), (b"c",)):
            assert (await produce(agent, batch(*values), name="orders")).error_code == 0
        whole = edge.replica.state.topics["orders"].partitions[0].size_bytes
        async with by(edge, "root") as client:
            assert (await client.get(PATH)).json() == {
                "topic": "orders",
                "grace_ms": 3_600_000,
                "partitions": [],
            }
            await taken(edge, 2)
            (row,) = (await client.get(PATH)).json()["partitions"]
            assert (row["partition"], row["held_start"], row["start"]) == (0, 0, 2)
            assert (row["size_bytes"], 0 < row["held_bytes"] < whole) == (whole, True)
            assert [(each["from"], each["below"]) for each in row["ranges"]] == [(0, 2)]
            back = await client.post(f"{PATH}/undelete", json={"partition": 0, "offset": 1})
            assert back.json() == {"topic": "orders", "partitions": [{"partition": 0, "start": 1}]}
            all_of_it = await client.post(f"{PATH}/undelete", json={})
            assert [each["start"] for each in all_of_it.json()["partitions"]] == [0, 0]
            await taken(edge, 2)
            gone = await client.post(f"{PATH}/purge", json={})
            assert gone.json() == {"topic": "orders", "purged_offsets": 2}
            refused = await client.post(f"{PATH}/undelete", json={"partition": 0, "offset": 0})
            assert (refused.status_code, "orders-0: to 0" in refused.text) == (409, True)


async def test_what_nobody_can_mean_is_told_with_the_remedy(edge: Edge, client: httpx.AsyncClient) -> None:
    await edge.topic("orders", 2, **GRACE)
    for body, status, told in (
        ({"offset": 3}, 400, "name the partition"),
        ({"partition": 2}, 404, "partitions 0 to 1"),
        ({"partition": -1}, 400, "partition"),
        ({"of": 1}, 400, "fields are partition, offset"),
        ({"partition": 0, "offset": 1 << 63}, 400, "offset"),
    ):
        for what in ("undelete", "purge"):
            answer = await client.post(f"{PATH}/{what}", json=body)
            assert (answer.status_code, told in answer.text) == (status, True), (body, answer.text)
    assert (await client.get("/admin/topics/none/held")).status_code == 404


async def test_batches_below_the_log_start_are_for_who_asks_for_them_and_may(tmp_path: Path) -> None:
    async with console(tmp_path, "enforce", http=HTTP) as (edge, agent):
        await edge.topic("orders", **GRACE)
        for values in ((b"a", b"b"), (b"c",)):
            assert (await produce(agent, batch(*values), name="orders")).error_code == 0
        await taken(edge, 2)
        batches = "/admin/restorable/orders/batches?partition=0&offset=0"
        await let(edge, "ann", Operation.READ, ResourceType.TOPIC, "orders")
        async with by(edge, "ann") as ann, by(edge, "root") as root:
            assert (await ann.get(batches)).status_code == 409, "readers do not see them"
            assert (await ann.get(f"{batches}&held=true")).status_code == 403
            await let(edge, "ann", Operation.ALTER, ResourceType.TOPIC, "orders")
            found = (await ann.get(f"{batches}&held=true")).content
            assert [each.value for each in contents(found)] == [b"a", b"b", b"c"]
            told = (await ann.get("/admin/restorable/orders?held=true")).json()
            assert told["partitions"] == [{"partition": 0, "start": 0, "end": 3}]
            told = (await ann.get("/admin/restorable/orders")).json()
            assert told["partitions"] == [{"partition": 0, "start": 2, "end": 3}]
            assert (await ann.get("/admin/restorable/orders?held=1")).status_code == 400
            assert (await ann.post(f"{PATH}/purge", json={})).status_code == 403
            await edge.replica.propose(DeleteTopic(name="orders"))
            found = (await root.get(f"{batches}&held=true")).content
            assert [each.value for each in contents(found)] == [b"a", b"b", b"c"], "also of a deleted one"
