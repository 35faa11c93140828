"""Bad input over real sockets against a real agent: an error in Kafka's terms, nothing lost, nothing dead.

Bad batches have a file of their own (test_bad_batches_embedded.py); bad command lines, configuration files
and .proto files too (tests/unit/agent/cli).
"""

from __future__ import annotations

import itertools
import os
import socket
import ssl
import struct
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from agent.net.wire.api import BY_NAME
from agent.net.wire.frame import encode_request_header, frame_request
from agent.net.wire.generated import api_versions
from coordination.kafka_codes import Code
from objectstore.batch import HEADER_BYTES, NewRecord, build, peek, seal
from tests.bench.load import Wire, create_topic
from tests.compat import raw
from tests.compat.conftest import Embedded, start

NOW = int(time.time() * 1000)  # retention lets it be
SECONDS_MAX = 10
UNKNOWN_API = 32_000
_numbers = itertools.count(1)


def batch(**changes: int) -> bytes:
    """A batch of one record, with another header where wanted and a right CRC."""
    sound = build([NewRecord(NOW, b"k", b"v")])
    return seal(peek(sound)._replace(**changes), sound[HEADER_BYTES:])


@pytest.fixture
async def topic(embedded: Embedded) -> AsyncIterator[str]:
    """A topic with one record. After the test the agent is the same process, serves, and has kept it all."""
    name = f"input-{next(_numbers)}"
    await create_topic(embedded.bootstrap, name, 1)
    assert (await raw.produce(embedded.bootstrap, name, batch())).base_offset == 0
    yield name
    assert embedded.process.poll() is None, "the agent died of it"
    before = await raw.high_watermark(embedded.bootstrap, name)
    assert (await raw.produce(embedded.bootstrap, name, batch())).base_offset == before
    assert len(await raw.fetch_batches(embedded.bootstrap, name, 0)) == before + 1


def connect(embedded: Embedded) -> socket.socket:
    host, port = embedded.bootstrap.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=SECONDS_MAX)


def is_closed_for(embedded: Embedded, data: bytes) -> bool:
    """Whether the agent hangs up on these bytes without an answer. Raises TimeoutError when it waits."""
    with connect(embedded) as client:
        client.sendall(data)
        try:
            return client.recv(1) == b""
        except ConnectionResetError:
            return True


def request(api: str, version: int, body: bytes = b"", *, key: int | None = None) -> bytes:
    """A frame with a sound header of that API, or with another key in its place."""
    header = bytearray(encode_request_header(BY_NAME[api], version, 1, "tester"))
    if key is not None:
        struct.pack_into(">h", header, 0, key)
    return frame_request(bytes(header), [body])


FRAMES = {
    # Read as a length it is beyond what a frame may have: of a smaller one the agent would await the rest.
    "garbage": b"\x5f" + os.urandom(63),
    "text": b"hello, are you a mail server?\r\n" * 4,
    "TLS ClientHello": bytes.fromhex("16030100c8010000c40303") + bytes(189),
    "HTTP GET": b"GET / HTTP/1.1\r\nHost: floe\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "oversized frame": struct.pack(">i", 2**31 - 1) + b"\x00" * 32,
    "negative frame": struct.pack(">i", -1) + b"\x00" * 32,
    "empty frame": struct.pack(">i", 0),
    "header cut off": struct.pack(">i", 4) + b"\x00\x03\x00\x09",
    "unknown API": request("Metadata", 9, key=UNKNOWN_API),
    "unsupported version": request("Metadata", 9)[:6] + b"\x03\xe7" + request("Metadata", 9)[8:],
    "body cut off": request("Metadata", 9, b"\x05"),
    "an array of two billion": request("Metadata", 8, struct.pack(">i", 2**31 - 1)),
}


@pytest.mark.parametrize("name", FRAMES)
def test_bytes_that_are_no_request_end_their_connection_only(
    embedded: Embedded, topic: str, name: str
) -> None:
    with connect(embedded) as bystander:
        assert is_closed_for(embedded, FRAMES[name])
        bystander.sendall(request("ApiVersions", 0))
        assert len(bystander.recv(4)) == 4, "others are not disturbed"


def test_a_tls_client_is_turned_away(embedded: Embedded, topic: str) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with connect(embedded) as client, pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(client)


def test_an_http_client_is_turned_away(embedded: Embedded, topic: str) -> None:
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        urllib.request.urlopen(f"http://{embedded.bootstrap}/", timeout=SECONDS_MAX)


def test_kafka_on_the_http_port_is_turned_away(embedded: Embedded, topic: str) -> None:
    host, port = embedded.http.removeprefix("http://").rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=SECONDS_MAX) as client:
        client.sendall(request("ApiVersions", 0))
        client.shutdown(socket.SHUT_WR)
        answer = client.recv(1 << 16)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400"), answer


def test_an_announced_frame_that_never_comes_holds_nobody_up(embedded: Embedded, topic: str) -> None:
    with connect(embedded) as stalled, connect(embedded) as other:
        stalled.sendall(struct.pack(">i", 50_000_000) + b"\x00\x00\x00\x09")
        other.sendall(request("ApiVersions", 0))
        assert len(other.recv(4)) == 4


async def test_an_unknown_version_of_api_versions_is_told_what_there_is(
    embedded: Embedded, topic: str
) -> None:
    wire = await Wire.open(embedded.bootstrap)
    frame = request("ApiVersions", 3)
    await wire.send(frame[:6] + b"\x00\x63" + frame[8:])
    answer = api_versions.decode_response(memoryview(await wire.receive())[4:], 0)
    await wire.close()
    assert answer.error_code == Code.UNSUPPORTED_VERSION
    assert [(each.api_key, each.min_version) for each in answer.api_keys] == [(18, 0)]


async def test_an_unknown_producer_may_begin_anywhere_and_must_go_on_from_there(
    embedded: Embedded, topic: str
) -> None:
    """KIP-360: the state of an old producer may have expired, so any first sequence is taken."""

    def numbered(sequence: int) -> bytes:
        return batch(producer_id=10**15, producer_epoch=2, base_sequence=sequence)

    first = await raw.produce(embedded.bootstrap, topic, numbered(41))
    gap = await raw.produce(embedded.bootstrap, topic, numbered(43))
    following = await raw.produce(embedded.bootstrap, topic, numbered(42))
    assert (first.error_code, first.base_offset) == (0, 1)
    assert (gap.error_code, gap.base_offset) == (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert (following.error_code, following.base_offset) == (0, 2)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "a" * 250, "ä", "a\x00b"])
async def test_a_topic_name_that_kafka_refuses(embedded: Embedded, topic: str, name: str) -> None:
    from agent.net.wire.generated import create_topics as ct

    wanted = ct.CreateTopicsRequest(
        topics=[ct.CreatableTopic(name=name, num_partitions=1, replication_factor=1)], timeout_ms=5_000
    )
    answer = (await raw.call(embedded.bootstrap, "CreateTopics", wanted, 7)).topics[0]
    assert answer.error_code == Code.INVALID_TOPIC_EXCEPTION
    assert answer.error_message
    refused = await raw.produce(embedded.bootstrap, name, batch())
    assert refused.error_code in (Code.INVALID_TOPIC_EXCEPTION, Code.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("no.such.config", "1"),
        ("retention.ms", "soon"),
        ("max.message.bytes", "-5"),
        ("cleanup.policy", "burn"),
    ],
)
def test_configs_that_cannot_be(embedded: Embedded, topic: str, key: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": embedded.bootstrap})
    made = admin.create_topics([NewTopic(f"{topic}-x", 1, 1, config={key: value})])
    with pytest.raises(KafkaException, match=key):
        made[f"{topic}-x"].result(SECONDS_MAX)
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    (altered,) = admin.incremental_alter_configs([change]).values()
    with pytest.raises(KafkaException, match=key):
        altered.result(SECONDS_MAX)
    assert f"{topic}-x" not in admin.list_topics(timeout=SECONDS_MAX).topics


def test_a_bucket_of_another_cluster_is_refused_and_left_as_it_was(
    embedded: Embedded, topic: str, tmp_path: Path
) -> None:
    """An agent with a log of its own on the store of a running cluster ends at once, in one line."""

    own = tmp_path / "own"
    with pytest.raises(AssertionError, match="did not start") as failure:
        start(own, f"store.url=file://{embedded.data}/store")
    told = [line for line in str(failure.value).splitlines() if "floe: " in line]
    assert len(told) == 1, failure.value
    assert "use an empty prefix" in told[0]
