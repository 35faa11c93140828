"""Finding damage in the store, and deciding to go on without it, over HTTP."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from coordination.commands import CommitChunk
from objectstore.chunk import PartitionBatches, encode
from objectstore.faulty import Fault
from objectstore.naming import ChunkId, chunk_key
from tests.unit.agent.http.conftest import Edge
from tests.unit.agent.rig import batch

DAMAGED = "/admin/topics/orders/damaged?partition=0"
SKIPPED = "/admin/topics/orders/skipped"


async def filled(edge: Edge) -> list[ChunkId]:
    """A topic with three chunks of two records each in partition 0."""
    await edge.topic("orders", 2)
    chunks = []
    for number in range(1, 4):
        content = batch(b"a%d" % number, b"b%d" % number)
        chunk = ChunkId(edge.replica.incarnation, number)
        made = encode(bytes(16), chunk, [PartitionBatches(0, [content])])
        await edge.store.put(chunk_key(chunk), made.parts)
        commit = CommitChunk(
            number=number,
            size=made.size,
            first_position=made.positions[0],
            partition=[0],
            length=[len(content)],
            offsets=[2],
            max_timestamp_ms=[1],
        )
        await edge.replica.propose(commit, incarnation=edge.replica.incarnation)
        chunks.append(chunk)
    return chunks


async def get(client: httpx.AsyncClient, path: str) -> Any:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def ranges(found: Any) -> list[tuple[int, int, bool]]:
    return [(each["from_offset"], each["to_offset"], each["skipped"]) for each in found["damaged"]]


async def test_damage_is_found_decided_on_and_shown(edge: Edge, client: httpx.AsyncClient) -> None:
    chunks = await filled(edge)
    assert await get(client, DAMAGED) == {
        "topic": "orders", "partition": 0, "from": 0, "to": 6, "end": 6, "damaged": [],
    }  # fmt: skip
    data = bytearray(await edge.store.get(chunk_key(chunks[0])))
    data[data.index(b"b1")] ^= 1
    await edge.store.put(chunk_key(chunks[0]), [data])
    await edge.store.delete([chunk_key(chunks[2])])
    found = await get(client, DAMAGED)
    assert ranges(found) == [(0, 2, False), (4, 6, False)]
    assert [
        chunk_key(chunks[number]) in row["reason"]
        for number, row in zip((0, 2), found["damaged"], strict=True)
    ]
    assert ranges(await get(client, f"{DAMAGED}&from=5")) == [(5, 6, False)]
    answer = await client.post(SKIPPED, json={"partition": 0, "ranges": [[4, 6]], "by": "me"})
    assert answer.status_code == 200, answer.text
    (row,) = answer.json()["skipped"]
    assert (row["partition"], row["from_offset"], row["to_offset"], row["by"]) == (0, 4, 6, "me")
    assert row["since_ms"] > 0
    assert (await get(client, SKIPPED))["skipped"] == [row]
    assert ranges(await get(client, DAMAGED)) == [(0, 2, False), (4, 6, True)]


async def test_a_long_partition_is_looked_through_piece_by_piece(
    edge: Edge, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = await filled(edge)
    await edge.store.delete([chunk_key(chunks[1])])
    monkeypatch.setattr("agent.http.damage.BYTES_PER_LOOK", 1)
    monkeypatch.setattr("objectstore.verification.PIECE_BYTES", 1)
    looks, start = [], 0
    while start < 6:
        found = await get(client, f"{DAMAGED}&from={start}")
        looks.append(ranges(found))
        assert found["to"] > start
        start = found["to"]
    assert looks == [[], [(2, 4, False)], []]


async def test_a_store_out_of_reach_tells_nothing_of_damage(edge: Edge, client: httpx.AsyncClient) -> None:
    await filled(edge)
    edge.store.order("get_range", *[Fault.REFUSED] * 9)
    answer = await client.get(DAMAGED)
    assert (answer.status_code, "cannot be read" in answer.text) == (503, True)


@pytest.mark.parametrize(
    ("body", "status", "part"),
    [
        ({"partition": 9, "ranges": [[0, 1]], "by": "me"}, 404, "no partition 9: it has 2"),
        ({"partition": 0, "ranges": [[0, 7]], "by": "me"}, 409, "no range of offsets below its end, 6"),
        ({"partition": 0, "ranges": [], "by": "me"}, 400, "ranges"),
        ({"partition": 0, "ranges": [[0]], "by": "me"}, 400, "ranges.0.1"),
        ({"partition": 0, "ranges": [[0, 1 << 64]], "by": "me"}, 400, "63 bits"),
        ({"partition": 0, "ranges": [[0, 1]]}, 400, "by"),
        ({"partition": 0, "ranges": [[0, 1]], "by": "me", "yes": True}, 400, "yes"),
    ],
)
async def test_what_is_refused(
    edge: Edge, client: httpx.AsyncClient, body: dict[str, Any], status: int, part: str
) -> None:
    await filled(edge)
    answer = await client.post(SKIPPED, json=body)
    assert (answer.status_code, part in answer.text) == (status, True), answer.text
    assert (await get(client, SKIPPED))["skipped"] == []


@pytest.mark.parametrize(
    ("path", "status", "part"),
    [
        ("/admin/topics/absent/damaged?partition=0", 404, "absent"),
        ("/admin/topics/absent/skipped", 404, "absent"),
        ("/admin/topics/orders/damaged", 400, "partition"),
        ("/admin/topics/orders/damaged?partition=x", 400, "partition"),
        ("/admin/topics/orders/damaged?partition=0&from=-1", 400, "from"),
        ("/admin/topics/orders/damaged?partition=2", 404, "no partition 2"),
    ],
)
async def test_what_cannot_be_looked_at(
    edge: Edge, client: httpx.AsyncClient, path: str, status: int, part: str
) -> None:
    await filled(edge)
    answer = await client.get(path)
    assert (answer.status_code, part in answer.text) == (status, True), answer.text
