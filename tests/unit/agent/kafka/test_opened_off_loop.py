"""A compressed batch says nothing of its size: kilobytes that decode to 128 MB are not opened on the loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import cramjam
import pytest

from agent.kafka.fetch import timestamps
from agent.kafka.produce import keys, times
from agent.kafka.produce import records as produce_records
from agent.kafka.produce.admission import FULL, Rejected
from agent.kafka.produce.keys import require_keys
from coordination.commands import AlterTopicConfigs
from objectstore.batch import HEADER_BYTES, NewRecord, build, peek, seal
from objectstore.compression import Compression
from objectstore.opening import INLINE_DECODED_MAX
from schema.validator import BAD_RECORDS_MAX
from tests.unit.agent.kafka.test_handlers_produce_fetch import NOW, create, produce
from tests.unit.agent.kafka.turns import turns
from tests.unit.agent.rig import Agent


def bomb(count: int) -> memoryview:
    """So many zeros in one record, in a few hundred bytes."""
    plain = build([NewRecord(NOW, b"k", bytes(count))])
    packed = bytes(cramjam.zstd.compress(memoryview(plain)[HEADER_BYTES:], level=9))
    return memoryview(seal(peek(plain)._replace(attributes=Compression.ZSTD), packed))


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Where batches are opened with room for what is large: "loop" or "thread"."""
    seen: set[str] = set()

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                seen.add("thread")
            elif peek(given[0]).compression == Compression.NONE or given[1] > INLINE_DECODED_MAX:
                seen.add("loop")
            return function(*given)

        return noted

    for module, name in (
        (keys, "records"), (times, "records"), (timestamps, "records"),
        (produce_records, "look_through"), (produce_records, "look_at_plain"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, noting(getattr(module, name)))
    return seen


@pytest.mark.parametrize("compressed", [True, False])
async def test_what_decodes_to_any_size_is_not_opened_on_the_loop(
    agent: Agent, threads: set[str], compressed: bool
) -> None:
    raw = bomb(1 << 20) if compressed else memoryview(build([NewRecord(NOW, b"k", b"v")]))
    assert len(raw) < 1_000
    wanted = {"thread"} if compressed else {"loop"}
    await create(agent, "c", cleanup_policy="compact")
    assert (await produce(agent, bytes(raw), name="c")).error_code == 0
    assert threads == wanted, "keys"
    threads.clear()
    assert await timestamps.first_at_or_after(raw, NOW) == timestamps.Found(0, NOW)
    assert await timestamps.highest(raw) == timestamps.Found(0, NOW)
    assert threads == wanted, "timestamps"
    threads.clear()
    await create(agent, "t", floe_produce_check=FULL)
    assert (await produce(agent, bytes(raw))).error_code == 0
    assert threads == wanted, "records"
    threads.clear()
    late = AlterTopicConfigs.Change(name="message.timestamp.before.max.ms", value="1")
    await agent.services.replica.propose(AlterTopicConfigs(topic="t", changes=[late]))
    refused = await produce(agent, bytes(raw))
    assert [each.batch_index for each in refused.record_errors] == [0]
    assert threads == wanted, "times"


async def test_not_every_bad_record_is_named(agent: Agent) -> None:
    """As many errors as a batch has records made megabytes of an answer."""
    keyless = build([NewRecord(NOW, None, b"v")] * 20_000)
    await create(agent, "c", cleanup_policy="compact")
    refused = await produce(agent, keyless, name="c")
    assert [each.batch_index for each in refused.record_errors] == list(range(BAD_RECORDS_MAX))
    assert "20000 record errors" in refused.error_message
    await create(agent, "t", message_timestamp_before_max_ms="1")
    refused = await produce(agent, keyless)
    assert [each.batch_index for each in refused.record_errors] == list(range(BAD_RECORDS_MAX))


async def test_the_batches_of_a_request_are_not_opened_all_in_one_step() -> None:
    good, bad = (memoryview(build([NewRecord(NOW, key, b"v")])) for key in (b"k", None))
    async with turns() as counted:
        for index in range(100):
            await require_keys(good, "c", index)
        assert counted.count >= 100
        with pytest.raises(Rejected):
            await require_keys(bad, "c", 0)
        assert counted.count > 100
