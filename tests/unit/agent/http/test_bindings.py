"""What GET /admin/topics/{name}/schema tells of the past: all schemas, and which judged the records."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest

from agent.http import bindings
from coordination.commands import BindSchema, CommitChunk, MoveLogStart, SetFeatureLevel
from coordination.state import ChunkCommitted, Done
from coordination.state.data import FEATURE_LEVEL_MAX
from tests.unit.agent.http.conftest import Edge

PATH = "/admin/topics/orders/schema"
NONE = {"key_schema_id": None, "value_schema_id": None}


async def bind(edge: Edge, content: bytes, role: int = 0) -> None:
    """Bind values (or keys) to a message of this descriptor set; without one to none."""
    message = BindSchema(topic="orders", role=role, descriptor_set=content, message="m", unbind=not content)
    assert isinstance(await edge.replica.propose(message), Done)


async def write(edge: Edge, handle: int, records: int) -> None:
    """A chunk of one batch, judged by the binding of now."""
    state = edge.replica.state
    (author,) = state.live.values()
    chunk = CommitChunk(
        number=author.next_chunk_number, size=1000, first_position=64, partition=[handle], length=[100],
        offsets=[records], max_timestamp_ms=[1], judged_revision=state.revision,
    )  # fmt: skip
    answer = await edge.replica.propose(chunk)
    assert isinstance(answer, ChunkCommitted)
    assert answer.errors == [0]


@pytest.fixture
async def changed(edge: Edge) -> None:
    """orders: 2 records of nothing, 3 by schema 1, 1 by 2 and keys of 3, then it is bound to nothing."""
    await edge.replica.propose(SetFeatureLevel(level=FEATURE_LEVEL_MAX))
    await edge.topic("orders", 3)
    await write(edge, 0, 2)
    await bind(edge, b"1")
    await write(edge, 0, 3)
    await bind(edge, b"22")
    await bind(edge, b"333", BindSchema.KEY)
    await write(edge, 0, 1)
    await write(edge, 2, 1)
    await bind(edge, b"")
    await bind(edge, b"", BindSchema.KEY)


async def get(client: httpx.AsyncClient, query: str = "") -> Any:
    answer = await client.get(PATH + query)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.usefixtures("changed")
async def test_all_schemas_of_a_topic_are_told_also_when_it_is_bound_to_none(
    client: httpx.AsyncClient,
) -> None:
    answer = await get(client)
    assert answer.keys() == {"topic", "schemas", "history"}, "nothing is left to ask for"
    assert answer["schemas"] == []
    first = {
        "schema_id": 1, "role": "value", "version": 1, "message": "m", "framing": "any", "tombstones": False,
    }  # fmt: skip
    assert answer["history"][0] == first, "descriptor sets only for who asks"
    assert [(s["schema_id"], s["role"], s["version"]) for s in answer["history"]] == [
        (1, "value", 1),
        (2, "value", 2),
        (3, "key", 1),
    ]
    told = (await get(client, "?descriptors=true&after=1"))["history"]
    assert [base64.b64decode(s["descriptor_set"]) for s in told] == [b"22", b"333"]


@pytest.mark.usefixtures("changed")
async def test_which_schema_judged_which_records(edge: Edge, client: httpx.AsyncClient) -> None:
    first, empty, last = (await get(client, "?spans=true"))["spans"]
    assert first == {
        "partition": 0,
        "end": 6,
        "spans": [
            {"first_offset": 0, **NONE},
            {"first_offset": 2, "key_schema_id": None, "value_schema_id": 1},
            {"first_offset": 5, "key_schema_id": 3, "value_schema_id": 2},
        ],
    }
    assert empty == {"partition": 1, "end": 0, "spans": []}
    assert last["spans"] == [{"first_offset": 0, "key_schema_id": 3, "value_schema_id": 2}]
    await edge.replica.propose(MoveLogStart(partition=[0], offset=[4]))
    (moved, *_) = (await get(client, "?spans=true"))["spans"]
    assert [span["first_offset"] for span in moved["spans"]] == [4, 5]


@pytest.mark.usefixtures("changed")
async def test_what_there_can_be_much_of_goes_over_several_answers(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bindings, "SCHEMAS_PER_ANSWER", 2)
    monkeypatch.setattr(bindings, "SPANS_PER_ANSWER", 5)
    answer = await get(client, "?spans=true")
    assert ([s["schema_id"] for s in answer["history"]], answer["next_after"]) == ([1, 2], 2)
    assert ([p["partition"] for p in answer["spans"]], answer["next_partition"]) == ([0, 1], 2)
    answer = await get(client, "?spans=true&after=2&from_partition=2")
    assert ([s["schema_id"] for s in answer["history"]], "next_after" in answer) == ([3], False)
    assert ([p["partition"] for p in answer["spans"]], "next_partition" in answer) == ([2], False)
    monkeypatch.setattr(bindings, "DESCRIPTOR_BYTES_PER_ANSWER", 2)
    pages, after = [], 0
    while after is not None:
        answer = await get(client, f"?descriptors=true&after={after}")
        pages.append([s["schema_id"] for s in answer["history"]])
        after = answer.get("next_after")
    assert pages == [[1], [2], [3]], "one goes along however large it is"


@pytest.mark.usefixtures("changed")
@pytest.mark.parametrize("query", ["spans=yes", "descriptors=1", "after=-1", "from_partition=x"])
async def test_what_cannot_be_meant_is_a_400_that_names_it(client: httpx.AsyncClient, query: str) -> None:
    answer = await client.get(f"{PATH}?{query}")
    assert answer.status_code == 400
    assert query.split("=")[0] in answer.json()["error"]["message"]
