"""The end of a run: what fresh clients read when all is whole again, and what must be true of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from agent.app import App
from tests.checker.findings import Finding
from tests.checker.operations import Operation
from tests.sim.clients import SHORT, Recorder, Surroundings, name, polled
from tests.sim.relay import COPIES, COPIES_PARTITIONS, relayed

FINAL_S_MAX = 200.0
CAUGHT_UP_S_MAX = 60.0
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
            while not await _read(around, around.keys.every, around.recorder):  # noqa: ASYNC110 - tries again until it is done
                await asyncio.sleep(0.5)
    except TimeoutError:
        topic = around.keys.every[0].topic
        return [Finding("stuck", topic, f"final reads did not end in {FINAL_S_MAX:.0f} s", ())]
    return []


def committed(recorder: Recorder) -> dict[str, set[int]]:
    """What the final reads found: offsets by key. To be asked when they have just ended."""
    process = recorder.operations[-1].process
    return _offsets(each for each in recorder.operations if each.process == process)


def positions(around: Surroundings, app: App, group: str) -> dict[str, int]:
    """Where a group stands, by key."""
    known = app.replica.state.groups.get(group)
    found: dict[str, int] = {}
    for key in around.keys.every:
        handle = app.replica.state.topics[key.topic].partitions[key.partition].handle
        position = known.offsets.get(handle) if known is not None else None
        found[name(key)] = position.offset if position is not None else 0
    return found


async def caught_up(
    around: Surroundings, app: App, group: str, read: Mapping[str, set[int]]
) -> list[Finding]:
    """Members of a group that nothing disturbs any more come to the end of every key, however slowly."""
    ends = {key: max(offsets) for key, offsets in read.items() if offsets}

    def behind() -> dict[str, int]:
        at = positions(around, app, group)
        return {key: at[key] for key, end in ends.items() if at[key] <= end}

    before: dict[str, int] | None = None
    while (now := behind()) != before:
        before = now
        try:
            async with asyncio.timeout(CAUGHT_UP_S_MAX):
                while behind():  # noqa: ASYNC110 - polls a state
                    await asyncio.sleep(0.2)
        except TimeoutError:
            continue
        return []
    return [
        Finding("stuck", key, f"group {group} stands at {at} of {ends[key]}, for {CAUGHT_UP_S_MAX:.0f} s", ())
        for key, at in now.items()
    ]


def passed_over(
    group: str, operations: Iterable[Operation], read: Mapping[str, set[int]], at: Mapping[str, int]
) -> list[Finding]:
    """Committed records below the group's positions that none of its members was ever given."""
    given = _offsets(operations)
    return [
        Finding("group-skip", key, f"{offset} is below the position {at[key]} of {group}, nobody read it", ())
        for key, offsets in read.items()
        for offset in sorted(offsets - given.get(key, set()))
        if offset < at[key]
    ]


async def copies_differ(
    around: Surroundings, topic: str, read: Mapping[str, set[int]], at: Mapping[str, int]
) -> list[Finding]:
    """What was copied to a topic against what there was to copy and where the copying group stands."""
    recorder = Recorder(around.loop, lambda text: None)
    keys = [TopicPartition(topic, n) for n in range(COPIES_PARTITIONS)]
    try:
        async with asyncio.timeout(FINAL_S_MAX):
            while not await _read(around, keys, recorder):
                recorder.operations.clear()
    except TimeoutError:
        return [Finding("unseen", topic, f"cannot be read to its end within {FINAL_S_MAX:.0f} s", ())]
    copies = [
        str(value)
        for op in recorder.operations
        for poll in op.polls
        for records in poll.records.values()
        for _, value in records
    ]
    return list(relayed(topic, read, at, copies, around.skipped if topic == COPIES else ()))


def _offsets(operations: Iterable[Operation]) -> dict[str, set[int]]:
    """What was polled: offsets by key."""
    offsets: dict[str, set[int]] = {}
    for op in operations:
        for poll in op.polls:
            for key, records in poll.records.items():
                offsets.setdefault(key, set()).update(at for at, _ in records)
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
