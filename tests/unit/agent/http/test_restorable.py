"""A topic as it lies in the log, for `floe restore topic`: who may have it, also when it is deleted."""

from __future__ import annotations

from pathlib import Path

from agent.http.restorable import BYTES_MAX
from coordination.commands import DeleteTopic, MoveLogStart, PurgeTopics
from coordination.state.acl_types import Operation, ResourceType
from coordination.state.types import Done
from objectstore.batch import contents
from tests.unit.agent.http.console_rig import by, console, let, table_of
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
        tables = (f"{PATH}/orders/rows", f"{PATH}/orders/file?location=x&offset=0")
        async with by(edge, "ann") as ann:
            assert {(await ann.get(path)).status_code for path in (*paths, *tables)} == {403}
            await let(edge, "ann", Operation.READ, ResourceType.TOPIC, "orders")
            assert {(await ann.get(path)).status_code for path in paths} == {200}
            assert {(await ann.get(path)).status_code for path in tables} == {404}, "it has no table"
            await edge.replica.propose(DeleteTopic(name="orders"))
            assert {(await ann.get(path)).status_code for path in (*paths, *tables)} == {403}
            await let(edge, "ann", Operation.ALTER, ResourceType.CLUSTER, "kafka-cluster")
            assert {(await ann.get(path)).status_code for path in paths} == {200}
            assert {(await ann.get(path)).status_code for path in tables} == {404}, "it has no table"


async def test_what_redacts_is_for_cleared_principals_only(tmp_path: Path) -> None:
    redaction = {"cleared_principals": "sam"}
    async with console(tmp_path, http=HTTP, redaction=redaction) as (edge, _):
        await edge.topic("people", **{"floe.redact": "mask"})
        for deleted in (False, True):
            if deleted:
                await edge.replica.propose(DeleteTopic(name="people"))
            for path, status in (
                (f"{PATH}/people", 200),
                (f"{PATH}/people/batches?partition=0&offset=0", 200),
                (f"{PATH}/people/rows", 404),
                (f"{PATH}/people/file?location=x&offset=0", 404),
            ):
                async with by(edge, "ann") as ann, by(edge, "sam") as sam:
                    refused = await ann.get(path)
                    assert (refused.status_code, "cleared_principals" in refused.text) == (403, True)
                    assert (await sam.get(path)).status_code == status


async def test_a_table_tells_its_files_with_rows_below_the_log_start_and_gives_them(tmp_path: Path) -> None:
    async with console(tmp_path, http=HTTP) as (edge, agent):
        for name in ("orders", "others"):
            await edge.topic(name, partitions=2)
            for values in ((b"a", b"b"), (b"c",)):
                assert (await produce(agent, batch(*values), name=name)).error_code == 0
                assert await table_of(edge, name).run_once() is not None
        handle = edge.replica.state.topics["orders"].partitions[0].handle
        async with by(edge, "root") as client:
            told = (await client.get(f"{PATH}/orders/rows")).json()
            assert told == {"table": "floe.orders", "partitions": []}, "nothing left the log"
            assert isinstance(await edge.replica.propose(MoveLogStart(partition=[handle], offset=[1])), Done)
            await edge.replica.propose(DeleteTopic(name="orders"))
            (told,) = (await client.get(f"{PATH}/orders/rows")).json()["partitions"]
            assert (told["partition"], told["start"], told["next_offset"]) == (0, 1, 3)
            ((location, size, *what),) = told["files"]
            assert what == [2, 0, 1], "the other file's rows are in the log still"
            ask = {"location": location, "offset": 0}
            whole = (await client.get(f"{PATH}/orders/file", params=ask)).content
            assert (len(whole), whole[:4], whole[-4:]) == (size, b"PAR1", b"PAR1")
            part = await client.get(f"{PATH}/orders/file", params=ask | {"offset": 5, "bytes": 7})
            assert part.content == whole[5:12]
            assert (await client.get(f"{PATH}/orders/file", params=ask | {"offset": size})).content == b""


async def test_only_data_files_of_the_topics_own_table_are_given(tmp_path: Path) -> None:
    async with console(tmp_path, http=HTTP) as (edge, agent):
        for name in ("orders", "others"):
            await edge.topic(name)
            assert (await produce(agent, batch(b"a"), name=name)).error_code == 0
        assert await table_of(edge, "orders").run_once() is not None
        metadata = edge.replica.state.tables["floe", "orders"].metadata_location
        folder = metadata.rpartition("/metadata/")[0]
        async with by(edge, "root") as client:
            none = await client.get(f"{PATH}/others/rows")
            assert (none.status_code, "has no table" in none.text) == (404, True)
            assert await table_of(edge, "others").run_once() is not None
            others = edge.replica.state.tables["floe", "others"].metadata_location.rpartition("/metadata/")[0]
            for location in (
                metadata,
                f"{others}/data/x.parquet",
                f"{folder}/../others/x.parquet",
                f"{folder}x/y.parquet",
                "x.parquet",
                "",
            ):
                ask = {"location": location, "offset": 0}
                answer = await client.get(f"{PATH}/orders/file", params=ask)
                assert (answer.status_code, "is no data file of" in answer.text) == (404, True), location
            ask = {"location": f"{folder}/data/gone.parquet", "offset": 0}
            gone = await client.get(f"{PATH}/orders/file", params=ask)
            assert (gone.status_code, "begin anew" in gone.text) == (409, True), gone.text


async def test_records_are_shown_to_nobody_where_http_asks_nobody_and_kafka_does(tmp_path: Path) -> None:
    async with console(tmp_path, "enforce", http={**HTTP, "authentication": "none"}) as (edge, _):
        await edge.topic("orders")
        async with by(edge, "root") as client:
            for last in ("batches?partition=0&offset=0", "rows", "file?location=x&offset=0"):
                answer = await client.get(f"{PATH}/orders/{last}")
                assert (answer.status_code, "records are not shown" in answer.text) == (403, True), last
