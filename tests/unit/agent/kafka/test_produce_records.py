"""A batch of garbage under a good CRC is refused at the door: once stored it would stop every consumer."""

from __future__ import annotations

import random

import pytest

from agent.kafka.produce.records import INLINE_BYTES_MAX
from coordination.commands import AlterTopicConfigs
from coordination.kafka_codes import Code
from coordination.state.types import Done
from objectstore import batch
from objectstore.batch import HEADER_BYTES, CorruptBatch, NewRecord, build, look_through, peek, records, seal
from objectstore.compression import Compression, compress
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, fetch, produce, values
from tests.unit.agent.rig import Agent

AT = 1_700_000_000_000
GIVEN = [NewRecord(AT + n, b"k%d" % n, b"v" * 20, (("h", b"1"), ("n", None))) for n in range(3)]
SOUND = build(GIVEN)
PLAIN = SOUND[HEADER_BYTES:]


def sealed(content: bytes, codec: Compression = Compression.NONE, **changes: int) -> bytes:
    """The sound batch's header over other bytes, with a right CRC."""
    header = peek(SOUND)._replace(attributes=int(codec), **changes)
    return seal(header, compress(codec, content) if codec else content)


BROKEN = {
    "garbage": b"\x55" * 100,
    "nothing": b"",
    "zeros": bytes(100),
    "cut off": PLAIN[:-5],
    "left over": PLAIN + b"\x00",
    "a record too few": build(GIVEN[:2])[HEADER_BYTES:],
    "a record too many": build([*GIVEN, GIVEN[0]])[HEADER_BYTES:],
    "a length that never ends": b"\xff" * 40,
    "a length below": bytes([PLAIN[0] - 2]) + PLAIN[1:],
    "a key beyond the record": PLAIN[:4] + b"\x7f" + PLAIN[5:],
}


@pytest.fixture(autouse=True, params=["native", "codec"] if batch.NATIVE else ["codec"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the native walk, and without, as where nobody compiled it."""
    if request.param == "codec":
        monkeypatch.setattr(batch, "_look", None)


@pytest.mark.parametrize("name", BROKEN)
async def test_uncompressed_garbage_is_refused_and_never_stored(agent: Agent, name: str) -> None:
    await create(agent)
    answer = await produce(agent, sealed(BROKEN[name]))
    assert (answer.error_code, answer.base_offset) == (Code.INVALID_RECORD, -1)
    assert "cannot be read" in answer.error_message
    assert (await produce(agent, SOUND)).base_offset == 0
    assert len(values(await fetch(agent, 0))) == 3


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD, Compression.LZ4, Compression.SNAPPY])
@pytest.mark.parametrize("check", ["uncompressed", "full"])
async def test_compressed_batches_are_opened_when_the_topic_wants_it(
    agent: Agent, codec: Compression, check: str
) -> None:
    await create(agent)
    change = AlterTopicConfigs.Change(name="floe.produce.check", value=check)
    altered = await agent.services.replica.propose(AlterTopicConfigs(topic="t", changes=[change]))
    assert isinstance(altered, Done)
    wanted = Code.INVALID_RECORD if check == "full" else Code.NONE
    for raw in (
        sealed(BROKEN["left over"], codec),
        seal(peek(SOUND)._replace(attributes=codec), b"no codec's"),
    ):
        assert (await produce(agent, raw)).error_code == wanted
    assert (await produce(agent, sealed(PLAIN, codec))).error_code == 0


async def test_offsets_of_compressed_records_are_side_by_side(agent: Agent) -> None:
    """As Kafka: deltas 0, 0, 2 are stored as sent uncompressed, and refused compressed."""
    await create(agent)
    full = AlterTopicConfigs.Change(name="floe.produce.check", value="full")
    await agent.services.replica.propose(AlterTopicConfigs(topic="t", changes=[full]))
    twice = bytearray(PLAIN)
    second = 1 + (PLAIN[0] >> 1)
    assert twice[second + 3] == 2, "the second record's offset delta, zigzag"
    twice[second + 3] = 0
    assert (await produce(agent, sealed(bytes(twice)))).error_code == 0
    assert (await produce(agent, sealed(bytes(twice), Compression.ZSTD))).error_code == Code.INVALID_RECORD


async def test_a_large_batch_is_looked_through_too(agent: Agent) -> None:
    await create(agent)
    large = build([NewRecord(AT, None, b"v" * 1000)] * (2 * INLINE_BYTES_MAX // 1000))
    broken = seal(peek(large), large[HEADER_BYTES:-1] + b"\x02")
    assert (await produce(agent, broken)).error_code == Code.INVALID_RECORD
    assert (await produce(agent, large)).error_code == 0


async def test_headers_only_is_as_it_was(agent: Agent) -> None:
    await create(agent)
    only = AlterTopicConfigs.Change(name="floe.produce.check", value="headers")
    await agent.services.replica.propose(AlterTopicConfigs(topic="t", changes=[only]))
    assert (await produce(agent, sealed(BROKEN["garbage"]))).error_code == 0


@pytest.mark.parametrize("seed", range(300))
def test_what_passes_can_be_read_by_everybody(seed: int) -> None:
    """One or some bytes changed at random: whoever is let in gives as many records as its header says."""
    rng = random.Random(seed)
    content = bytearray(PLAIN)
    for _ in range(rng.randint(1, 3)):
        content[rng.randrange(len(content))] = rng.randrange(256)
    raw = sealed(bytes(content))
    try:
        look_through(raw)
    except CorruptBatch:
        return
    assert len(list(records(raw))) == 3


def test_a_batch_that_is_not_compressed_has_no_more_room_than_others() -> None:
    large = build([NewRecord(0, None, bytes(1_000))])
    with pytest.raises(CorruptBatch, match="limit of 900 bytes"):
        look_through(large, 900)
    look_through(large, len(large))


def test_a_batch_of_fewer_records_than_none_is_not_sound() -> None:
    header = peek(build([NewRecord(0, None, b"v")]))
    with pytest.raises(CorruptBatch, match="record count -1"):
        look_through(seal(header._replace(record_count=-1), b""))
