"""Raw requests through our own wire codecs: what no client library would send, or show."""

from __future__ import annotations

from typing import Any

from agent.net.wire.generated import fetch as f
from agent.net.wire.generated import incremental_alter_configs as ia
from agent.net.wire.generated import list_offsets as lo
from agent.net.wire.generated import metadata as m
from agent.net.wire.generated import produce as p
from objectstore.batch import split
from tests.bench.load import Wire
from tests.equipment.forms import unwatched

BYTES_MAX = 1 << 24


async def call(bootstrap: str, name: str, request: Any, version: int) -> Any:
    """One request on a connection of its own."""
    wire = await Wire.open(bootstrap.split(",")[0])
    try:
        return await wire.call(name, request, version)
    finally:
        await wire.close()


async def set_broker_config(bootstrap: str, name: str, value: str) -> int:
    """Set a config of the whole cluster; the error code."""
    change = ia.AlterableConfig(name, 0, value)
    request = ia.IncrementalAlterConfigsRequest([ia.AlterConfigsResource(4, "", [change])], False)
    with unwatched():
        code: int = (await call(bootstrap, "IncrementalAlterConfigs", request, 1)).responses[0].error_code
    return code


async def topic_id(bootstrap: str, topic: str) -> bytes:
    """The id under which the cluster knows the topic."""
    request = m.MetadataRequest(topics=[m.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    found: bytes = (await call(bootstrap, "Metadata", request, 12)).topics[0].topic_id
    return found


async def high_watermark(bootstrap: str, topic: str, partition: int = 0) -> int:
    """The offset after the last record, as the first agent says after catching up."""
    part = lo.ListOffsetsPartition(partition_index=partition, timestamp=-1)
    request = lo.ListOffsetsRequest(replica_id=-1, topics=[lo.ListOffsetsTopic(topic, [part])])
    answer = (await call(bootstrap, "ListOffsets", request, 9)).topics[0].partitions[0]
    assert answer.error_code == 0, answer.error_code
    offset: int = answer.offset
    return offset


async def fetch_batches(bootstrap: str, topic: str, partition: int) -> list[bytes]:
    """The record batches of one partition, from the first agent, at most BYTES_MAX bytes of them."""
    if await high_watermark(bootstrap, topic, partition) == 0:
        return []
    part = f.FetchPartition(partition, fetch_offset=0, partition_max_bytes=BYTES_MAX)
    request = f.FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=BYTES_MAX, topics=[f.FetchTopic(topic=topic, partitions=[part])]
    )
    answer = await call(bootstrap, "Fetch", request, 12)
    data = answer.responses[0].partitions[0]
    assert data.error_code == 0, data.error_code
    raw = bytes(data.records or b"")
    return [raw[start : start + length] for start, length in split(raw)]


async def produce(bootstrap: str, topic: str, records: bytes, partition: int = 0, acks: int = -1) -> Any:
    """One batch as it is; the partition's answer."""
    data = p.TopicProduceData(topic, partition_data=[p.PartitionProduceData(partition, memoryview(records))])
    request = p.ProduceRequest(acks=acks, timeout_ms=20_000, topic_data=[data])
    return (await call(bootstrap, "Produce", request, 9)).responses[0].partition_responses[0]
