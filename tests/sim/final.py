"""The end of a run: what fresh clients read when all is whole again, and what must be true of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from agent.app import App
from tests.checker.findings import Finding
from tests.sim.clients import SHORT, Recorder, Surroundings, name, polled
from tests.sim.relay import COPIES, COPIES_PARTITIONS, GROUP, relayed

FINAL_S_MAX = 200.0
ENDED_S_MAX = 60.0
"""Within which the last transactions of dead clients must have timed out."""


async def all_ended(app: App) -> list[Finding]:
    """No transaction is left hanging."""
    try:
        async with asyncio.timeout(ENDED_S_MAX):
            while any(each.ongoing for each in app.replica.state.transactions.values()):  # noqa: ASYNC110 - polls a state
                await asyncio.sleep(0.2)
    except TimeoutError:
        left = [name for name, each in app.replica.state.transactions.items() if each.ongoing]
        return [
            Finding("hanging-transaction", "", f"{left} ongoing {ENDED_S_MAX:.0f} s after their clients", ())
        ]
    return []


async def read_all(around: Surroundings) -> list[Finding]:
    """Everything of the judged topic from the start, in a fresh client; goes into the history."""
    try:
        async with asyncio.timeout(FINAL_S_MAX):
            while not await _read(around, around.keys, around.recorder):  # noqa: ASYNC110 - tries again until it is done
                await asyncio.sleep(0.5)
    except TimeoutError:
        return [Finding("stuck", around.keys[0].topic, f"final reads did not end in {FINAL_S_MAX:.0f} s", ())]
    return []


async def copies_differ(around: Surroundings, app: App) -> list[Finding]:
    """What the relay wrote against what it read and where its group stands."""
    offsets: dict[int, set[int]] = {}
    for op in around.recorder.operations[-1:]:
        offsets = _offsets(around.recorder, op.process)
    group = app.replica.state.groups.get(GROUP)
    positions: dict[int, int] = {}
    for partition in app.replica.state.topics[around.keys[0].topic].partitions:
        position = group.offsets.get(partition.handle) if group is not None else None
        positions[partition.index] = position.offset if position is not None else 0
    recorder = Recorder(around.loop, lambda text: None)
    keys = [TopicPartition(COPIES, n) for n in range(COPIES_PARTITIONS)]
    async with asyncio.timeout(FINAL_S_MAX):
        while not await _read(around, keys, recorder):
            recorder.operations.clear()
    copies = [
        str(value)
        for op in recorder.operations
        for poll in op.polls
        for records in poll.records.values()
        for _, value in records
    ]
    return list(relayed(offsets, positions, copies))


def _offsets(recorder: Recorder, process: int) -> dict[int, set[int]]:
    """What one process polled: offsets by partition."""
    offsets: dict[int, set[int]] = {}
    for op in recorder.operations:
        for poll in op.polls if op.process == process else ():
            for key, records in poll.records.items():
                offsets.setdefault(int(key.rpartition("-")[2]), set()).update(at for at, _ in records)
    return offsets


async def _read(around: Surroundings, keys: Sequence[TopicPartition], recorder: Recorder) -> bool:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=around.bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        max_partition_fetch_bytes=around.fetch_bytes,
        **SHORT,
    )
    process = recorder.process()
    try:
        await consumer.start()
        consumer.assign(keys)
        recorder.note(process, "assign", "ok", recorder.now_ns(), keys=[name(key) for key in keys])
        ends: Mapping[TopicPartition, int] = await consumer.end_offsets(keys)
        await consumer.seek_to_beginning(*keys)
        while True:
            await polled(consumer, recorder, process)
            positions = [await consumer.position(key) for key in keys]
            if all(at >= ends[key] for key, at in zip(keys, positions, strict=True)):
                return True
    except (KafkaError, OSError, TimeoutError):
        return False
    finally:
        await consumer.stop()
