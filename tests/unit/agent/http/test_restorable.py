"""A topic as it lies in the log, for `floe restore topic`: who may have it, also when it is deleted."""

from __future__ import annotations

from pathlib import Path

from agent.http.restorable import BYTES_MAX
from coordination.commands import DeleteTopic, PurgeTopics
from coordination.state.acl_types import Operation, ResourceType
from objectstore.batch import contents
from tests.unit.agent.http.console_rig import by, console, let
from tests.unit.agent.kafka.test_handlers_produce_fetch import produce
from tests.unit.agent.rig import batch

PATH = "/admin/restorable"
HTTP = {"host": "127.0.0.1", "port": 0, "authentication": "required", "barrier_timeout_ms": 10_000}


async def test_batches_come_from_an_offset_on_also_of_a_deleted_topic(tmp_path: Path) -> None:
    async with console(tmp_path, http=HTTP) as (edge, agent):
        await edge.topic("orders", partitions=2, **{"retention.ms": "123456789"})
        for values in ((b"a", b"b"), (b"c",)):
            assert (await produce(agent, batch(*values), name="orders")).error_code == 0
        topic_id = edge.replica.state.topics["orders"].topic_id
        async with by(edge, "root") as client:
            told = (await client.get(f"{PATH}/orders")).json()
            assert (told["deleted"], told["configs"]) == (False, {"retention.ms": "123456789"})
            await edge.replica.propose(DeleteTopic(name="orders"))
            for name in ("orders", topic_id.hex()):
                told = (await client.get(f"{PATH}/{name}")).json()
                assert (told["deleted"], told["topic_id"]) == (True, topic_id.hex())
                assert told["partitions"] == [
                    {"partition": 0, "start": 0, "end": 3},
                    {"partition": 1, "start": 0, "end": 0},
                ]
            for offset, there in ((0, [b"a", b"b", b"c"]), (1, [b"a", b"b", b"c"]), (2, [b"c"]), (3, [])):
                answer = await client.get(f"{PATH}/orders/batches?partition=0&offset={offset}")
                found = contents(answer.content) if answer.content else ()
                assert [each.value for each in found] == there
            few = await client.get(f"{PATH}/orders/batches?partition=0&offset=0&bytes=1")
            assert [each.value for each in contents(few.content)] == [b"a", b"b"], (
                "whole batches, one at least"
            )
            beyond = await client.get(f"{PATH}/orders/batches?partition=0&offset=4&bytes={BYTES_MAX + 1}")
            assert (beyond.status_code, "OFFSET_OUT_OF_RANGE" in beyond.text) == (409, True)
            assert (await client.get(f"{PATH}/orders/batches?partition=2&offset=0")).status_code == 404
            await edge.replica.propose(PurgeTopics(topic_id=[topic_id]))
            assert (await client.get(f"{PATH}/orders")).status_code == 404


async def test_it_asks_for_read_and_where_it_is_deleted_for_alter_of_the_cluster(tmp_path: Path) -> None:
    async with console(tmp_path, "enforce", http=HTTP) as (edge, _):
        await edge.topic("orders")
        paths = (f"{PATH}/orders", f"{PATH}/orders/batches?partition=0&offset=0")
        async with by(edge, "ann") as ann:
            assert {(await ann.get(path)).status_code for path in paths} == {403}
            await let(edge, "ann", Operation.READ, ResourceType.TOPIC, "orders")
            assert {(await ann.get(path)).status_code for path in paths} == {200}
            await edge.replica.propose(DeleteTopic(name="orders"))
            assert {(await ann.get(path)).status_code for path in paths} == {403}
            await let(edge, "ann", Operation.ALTER, ResourceType.CLUSTER, "kafka-cluster")
            assert {(await ann.get(path)).status_code for path in paths} == {200}


async def test_what_redacts_is_for_cleared_principals_only(tmp_path: Path) -> None:
    redaction = {"cleared_principals": "sam"}
    async with console(tmp_path, http=HTTP, redaction=redaction) as (edge, _):
        await edge.topic("people", **{"floe.redact": "mask"})
        for deleted in (False, True):
            if deleted:
                await edge.replica.propose(DeleteTopic(name="people"))
            for path in (f"{PATH}/people", f"{PATH}/people/batches?partition=0&offset=0"):
                async with by(edge, "ann") as ann, by(edge, "sam") as sam:
                    refused = await ann.get(path)
                    assert (refused.status_code, "cleared_principals" in refused.text) == (403, True)
                    assert (await sam.get(path)).status_code == 200
