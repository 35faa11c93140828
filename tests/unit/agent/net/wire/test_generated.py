"""The generated codecs are what the generator writes, and know what the project promises."""

import pytest

from agent.net.wire import generate
from agent.net.wire.api import APIS
from agent.net.wire.errors import WireError
from agent.net.wire.generated import delete_groups
from agent.net.wire.generated.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from agent.net.wire.primitives import TEXT_BYTES_MAX

# The APIs that clients rely on, key by key.
NEEDED = {
    *range(4),
    *range(8, 27),
    *range(28, 52),
    55,
    57,
    60,
    61,
    65,
    66,
    68,
    69,
}


def test_committed_text_is_what_the_generator_writes() -> None:
    assert generate.stale(generate.generate()) == []


def test_a_changed_definition_makes_the_text_stale() -> None:
    files = generate.generate()
    files["produce.py"] += "# another line\n"
    del files["fetch.py"]
    assert generate.stale(files) == ["fetch.py", "produce.py"]


def test_every_promised_api_is_there() -> None:
    assert set(APIS) == NEEDED | {27, 74, 75}
    assert (APIS[0].min, APIS[0].max) == (0, 13)  # from 0: older librdkafka stops compressing otherwise
    assert APIS[22].max == 5  # InitProducerId 6 belongs to two-phase commit, which is not spoken


def test_records_are_views_of_the_frame_and_leave_uncopied() -> None:
    batch = bytes(range(200))
    request = ProduceRequest(
        None, -1, 30_000, [TopicProduceData("t", partition_data=[PartitionProduceData(3, None)])]
    )
    request.topic_data[0].partition_data[0].records = memoryview(batch)
    parts = encode_request(request, 7)
    assert any(isinstance(part, memoryview) and part.obj is batch for part in parts)
    frame = b"".join(parts)
    records = decode_request(memoryview(frame), 7).topic_data[0].partition_data[0].records
    assert records is not None
    assert records.obj is frame
    assert records == batch


def test_produce_0_to_2_can_be_read_and_refused() -> None:
    frame = bytes.fromhex("0001 000003e8 00000001 0001 74 00000001 00000005 00000003 616263")
    for version in range(3):
        request = decode_request(frame, version)
        assert (request.acks, request.timeout_ms, request.topic_data[0].name) == (1, 1000, "t")
        partition = request.topic_data[0].partition_data[0]
        assert (partition.index, bytes(partition.records or b"")) == (5, b"abc")
    refusal = ProduceResponse(
        [TopicProduceResponse("t", partition_responses=[PartitionProduceResponse(5, 35, -1)])]
    )
    sizes = [len(b"".join(encode_response(refusal, version))) for version in range(3)]
    assert sizes == [25, 29, 37]
    assert decode_response(b"".join(encode_response(refusal, 2)), 2) == refusal


def test_a_string_is_at_most_as_long_as_kafka_takes_it() -> None:
    """Kafka's brokers hang up on a longer one: "string field topics had invalid length"."""
    for length in (TEXT_BYTES_MAX, TEXT_BYTES_MAX + 1):
        request = delete_groups.DeleteGroupsRequest(["g" * length])
        frame = b"".join(delete_groups.encode_request(request, 2))
        if length == TEXT_BYTES_MAX:
            assert delete_groups.decode_request(memoryview(frame), 2) == request
        else:
            with pytest.raises(WireError, match="a string of 32768 bytes, more than 32767"):
                delete_groups.decode_request(memoryview(frame), 2)
