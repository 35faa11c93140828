"""JSON in steps: what the standard library makes and understands, and no call that takes long."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from starlette.types import Message

from agent.http.catalog import _in_parts
from iceberg import json_steps, ledger, metadata
from iceberg.committer import CommitterOptions
from objectstore.turns import at_once, in_turns
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import Rig

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent."""
    async with rigs.running(tmp_path) as found:
        yield found


def wide(partitions: int = 10_000, snapshots: int = 50) -> dict[str, Any]:
    """Metadata as that of a topic with very many partitions."""
    ranges = [ledger.Range(number, 10**9, 10**9 + number) for number in range(partitions)]
    summary = ledger.summary(bytes(16), [each.end for each in ranges], ranges, "me")
    found = [{"snapshot-id": number, "summary": summary} for number in range(snapshots)]
    return {"format-version": 2, "snapshots": found}


@given(VALUES, st.integers(0, 4))
@settings(max_examples=300, deadline=None)
def test_what_is_made_in_steps_is_what_json_makes(value: Any, depth: int) -> None:
    made = b"".join(at_once(json_steps.encode(value, depth)))
    assert made == json.dumps(value, separators=(",", ":")).encode()


@given(
    VALUES, st.integers(0, 4), st.sampled_from([None, 1]), st.sampled_from(["utf-8", "utf-16", "utf-8-sig"])
)
@settings(max_examples=300, deadline=None)
def test_what_is_read_in_steps_is_what_json_reads(
    value: Any, depth: int, indent: int | None, encoding: str
) -> None:
    content = f" {json.dumps(value, indent=indent, ensure_ascii=False)}\n".encode(encoding, "surrogatepass")
    assert at_once(json_steps.decode(content, depth)) == json.loads(content)


@given(st.text('{}[],:"a1 -.e\\\n'), st.integers(0, 3))
@example('{"a":1,}', 2)
@example("[1,]", 2)
@example('{"a" 1}', 2)
@example("{1:1}", 2)
@example('{"a":1', 2)
@example("[1] 2", 2)
@example("", 2)
@settings(max_examples=500, deadline=None)
def test_what_is_no_json_is_refused_alike(text: str, depth: int) -> None:
    def read(call: Any) -> object:
        try:
            return call()
        except ValueError:
            return ValueError

    content = text.encode()
    assert read(lambda: at_once(json_steps.decode(content, depth))) == read(lambda: json.loads(content))


def test_wide_metadata_is_made_and_read_snapshot_by_snapshot() -> None:
    value = wide()
    making, parts = metadata.encode_steps(value), 1
    for _ in making:
        parts += 1
    assert parts >= 50
    content = metadata.encode(value)
    assert len(content) > 10 << 20
    reading, turns = metadata.decode_steps(content), 1
    for _ in reading:
        turns += 1
    assert turns >= 50
    assert metadata.decode(content) == value


async def test_no_commit_makes_or_reads_its_metadata_in_one_call(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call into C keeps the interpreter to its end, wherever it is made."""
    rig.options = CommitterOptions(rows_per_commit_max=1)
    await rig.create_topic(partitions=1)
    await rig.produce([b"%d" % number for number in range(20)])
    longest = 0
    encode, scan = json.JSONEncoder.encode, json.JSONDecoder.raw_decode

    def encoding(encoder: json.JSONEncoder, value: object) -> str:
        nonlocal longest
        text = encode(encoder, value)
        longest = max(longest, len(text))
        return text

    def scanning(decoder: json.JSONDecoder, s: str, idx: int = 0) -> tuple[Any, int]:
        nonlocal longest
        value, end = scan(decoder, s, idx)
        longest = max(longest, end - idx)
        return value, end

    monkeypatch.setattr(json.JSONEncoder, "encode", encoding)
    monkeypatch.setattr(json.JSONDecoder, "raw_decode", scanning)
    await rig.drain(rig.committer())
    head = await rig.head()
    assert len(head.metadata["snapshots"]) == 20
    assert 100 < longest < len(metadata.encode(head.metadata)) / 4


@pytest.mark.parametrize("snapshots", [1, 50])
async def test_the_catalogs_answer_is_made_and_sent_in_parts(snapshots: int) -> None:
    answer = {"metadata-location": "x", "metadata": wide(snapshots=snapshots), "config": {"é": "ü"}}
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("nothing is asked")

    response = await _in_parts(answer, 200)
    scope = {"type": "http", "asgi": {"spec_version": "2.4"}, "method": "GET", "headers": []}
    await response(scope, receive, send)
    bodies = [each["body"] for each in sent if each["type"] == "http.response.body"]
    assert json.loads(b"".join(bodies)) == answer
    headers = dict(sent[0]["headers"])
    assert headers[b"content-length"] == str(sum(map(len, bodies))).encode()
    assert headers[b"content-type"] == b"application/json"
    assert len(bodies) >= snapshots


async def test_others_have_their_turn_between_two_steps() -> None:
    seen: list[int] = []

    def work() -> Any:
        for number in range(3):
            seen.append(number)
            yield
        return 7

    async def other() -> None:
        for number in range(10, 13):
            seen.append(number)
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    assert await in_turns(work()) == 7
    await task
    assert seen == [0, 10, 1, 11, 2, 12]
