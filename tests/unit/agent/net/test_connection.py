"""A connection without its socket: frames, order of answers, limits, and the budget that all share."""

from __future__ import annotations

import random

import pytest

from agent.net.connection import (
    GROWTH_BYTES,
    SCRATCH_BYTES,
    SCRATCH_BYTES_POOR,
    Budget,
    Connection,
    Limits,
)
from agent.net.wire.errors import WireError

MIB = 1024 * 1024


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def connection(limits: Limits | None = None, budget: Budget | None = None) -> Connection:
    limits = limits or Limits()
    scratch = memoryview(bytearray(SCRATCH_BYTES))
    return Connection(limits, budget or Budget(limits.process_bytes_max), scratch)


def receive(machine: Connection, data: bytes) -> list[memoryview]:
    """Feed it these bytes, as a driver that reads whether it is asked to wait or not."""
    frames: list[memoryview] = []
    view = memoryview(data)
    while view and not machine.failed:
        buffer = machine.get_buffer()
        count = min(len(view), len(buffer))
        buffer[:count] = view[:count]
        buffer.release()
        frames += machine.received(count)
        view = view[count:]
    return frames


@pytest.mark.parametrize("step", [1, 2, 3, 7, 100, 10**6])
def test_frames_come_out_whole_however_the_bytes_arrive(step: int) -> None:
    payloads = [bytes([n]) * size for n, size in enumerate((8, 9, 200, 8, 70_000, 8, 40))]
    stream = b"".join(map(framed, payloads))
    machine = connection()
    frames = [f for at in range(0, len(stream), step) for f in receive(machine, stream[at : at + step])]
    assert frames == payloads
    assert not machine.mid_frame


def test_a_large_frame_is_read_into_its_own_buffer() -> None:
    machine = connection()
    payload = random.Random(1).randbytes(3 * MIB + 5)
    stream = framed(payload)
    assert receive(machine, stream[:1000]) == []
    buffer = machine.get_buffer()
    assert len(buffer) == GROWTH_BYTES
    buffer.release()
    (frame,) = receive(machine, stream[1000:])
    assert frame == payload


def test_a_buffer_still_held_by_the_driver_does_not_stop_growth() -> None:
    machine = connection()
    stream = framed(bytes(range(256)) * 16 * 1024)
    receive(machine, stream[:1000])
    held, frames, at = [], [], 1000
    while at < len(stream):
        buffer = machine.get_buffer()
        held.append(buffer)  # as a transport may
        count = min(len(buffer), len(stream) - at)
        buffer[:count] = stream[at : at + count]
        at += count
        frames += machine.received(count)
    assert frames == [stream[4:]]


def test_announcing_allocates_nothing() -> None:
    machine, size = connection(), 90 * MIB
    receive(machine, size.to_bytes(4, "big") + b"x" * 10)
    assert len(machine.get_buffer()) <= GROWTH_BYTES


def test_answers_leave_in_the_order_of_requests() -> None:
    machine = connection()
    first, second, third = machine.open(), machine.open(), machine.open()
    machine.answer(third, [b"3"])
    machine.answer(second, [b"2", b"2"])
    assert machine.take() == []
    machine.answer(first, [b"1"])
    assert machine.take() == [b"1", b"2", b"2", b"3"]
    assert machine.in_flight == 0


def test_a_request_without_an_answer_vanishes_from_the_order() -> None:
    machine = connection()
    first, silent, third = machine.open(), machine.open(), machine.open()
    machine.answer(third, [b"3"])
    machine.answer(silent, None)
    machine.answer(first, [b"1"])
    assert machine.take() == [b"1", b"3"]


def test_nothing_is_answered_from_a_bad_request_on() -> None:
    machine = connection()
    first, bad, third = machine.open(), machine.open(), machine.open()
    machine.answer(third, [b"3"])
    machine.cut(bad, WireError("bad"))
    assert machine.in_flight == 1
    assert not machine.wants_read()
    machine.answer(first, [b"1"])
    assert machine.take() == [b"1"]
    machine.answer(bad, [b"2"])
    assert machine.take() == []


def test_a_connection_at_its_limits_is_not_read() -> None:
    machine = connection(Limits(requests_in_flight_max=2, response_bytes_max=10))
    first = machine.open()
    assert machine.wants_read()
    second = machine.open()
    assert not machine.wants_read()
    machine.answer(first, [bytes(11)])
    assert not machine.wants_read()  # now its answers are too many
    machine.take()
    assert machine.wants_read()
    assert not machine.wants_read(unsent=11)
    machine.answer(second, None)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", "TLS was spoken"),
        (b"GET / HTTP/1.1\r\n", "HTTP was spoken"),
        (b"PRI * HTTP/2.0", "HTTP was spoken"),
        (b"hello there", "not Kafka"),
        (b"\xff\xff\xff\xff", "-1 bytes is not Kafka"),
        (b"\0\0\0\x07", "its header alone takes 8"),
        ((100 * MIB + 1).to_bytes(4, "big"), "request_bytes_max"),
    ],
)
def test_what_is_not_kafka_is_named(data: bytes, reason: str) -> None:
    machine = connection()
    assert receive(machine, data) == []
    assert reason in str(machine.failed)
    assert receive(machine, framed(bytes(8))) == []
    assert not machine.wants_read()


def test_frames_before_a_bad_one_are_still_delivered() -> None:
    machine = connection()
    assert receive(machine, framed(b"12345678") + b"GET / HTTP/1.1\r\n") == [b"12345678"]
    assert "HTTP" not in str(machine.failed)  # only a connection's first bytes tell what is spoken
    assert "beyond request_bytes_max" in str(machine.failed)


def test_half_read_frames_cannot_block_each_other() -> None:
    """Four frames of 4 MiB under a budget of 5 MiB, all half read: one after the other gets through."""
    budget, size = Budget(5 * MIB), 4 * MIB
    machines = [connection(budget=budget) for _ in range(4)]
    streams = [framed(bytes([n]) * size) for n in range(4)]
    at, done = [0] * 4, [False] * 4
    for _ in range(10_000):
        for n, machine in enumerate(machines):
            if machine.wants_read() and not done[n]:
                frames = receive(machine, streams[n][at[n] : at[n] + 4096])
                at[n] += 4096
                assert budget.used <= 5 * MIB + size + 4 * SCRATCH_BYTES
                for frame in frames:
                    assert frame == streams[n][4:]
                    machine.release(frame)
                    done[n] = True
    assert done == [True] * 4
    assert budget.used == 0


def test_a_connection_that_goes_away_gives_everything_back() -> None:
    budget = Budget(3 * MIB)
    gone, stays = connection(budget=budget), connection(budget=budget)
    head = (50 * MIB).to_bytes(4, "big")
    receive(gone, head + bytes(4 * MIB))  # overdraws
    assert budget.used > 3 * MIB
    receive(stays, head + bytes(1000))
    assert stays.waiting
    gone.close()
    gone.close()
    assert not stays.waiting
    stays.close()
    assert budget.used == 0


def test_small_requests_wait_while_the_budget_is_overdrawn() -> None:
    budget = Budget(2 * MIB)
    large, small = connection(budget=budget), connection(budget=budget)
    stream = framed(bytes(4 * MIB))
    (frame,) = receive(large, stream)
    assert len(small.get_buffer()) == SCRATCH_BYTES_POOR
    (request,) = receive(small, framed(b"12345678"))
    assert small.waiting
    large.release(frame)
    assert not small.waiting
    small.release(request)
    assert budget.used == 0


def spend(budget: Budget) -> Connection:
    """A connection whose frame takes more than there is."""
    large = connection(budget=budget)
    receive(large, (50 * MIB).to_bytes(4, "big") + bytes(budget.bytes_max + MIB))
    assert budget.spent
    return large


@pytest.mark.parametrize("read", [4_096, 4_097, 17_000, 20_003])
def test_a_driver_that_reads_on_while_it_should_wait_gets_no_room_beyond_the_frame(read: int) -> None:
    """Else the next request would be read into it, and it would never be whole."""
    budget = Budget(2 * MIB)
    large, machine = spend(budget), connection(budget=budget)
    stream = framed(bytes(20_000)) + framed(b"12345678") * 2
    assert receive(machine, stream[:read]) == []
    assert machine.waiting
    large.close()
    assert not machine.waiting
    frames = receive(machine, stream[read:])
    assert list(map(len, frames)) == [20_000, 8, 8]
    for frame in frames:
        machine.release(frame)
    assert budget.used == 0


def test_a_frame_that_is_whole_while_it_waits_for_room_waits_no_more() -> None:
    """Nor does it become the one that overdraws: it would be for ever, as nothing of it is to come."""
    budget = Budget(2 * MIB)
    large, machine, third = spend(budget), connection(budget=budget), connection(budget=budget)
    (frame,) = receive(machine, framed(bytes(20_000)))
    receive(third, (4 * MIB).to_bytes(4, "big") + bytes(5_000))
    assert third.waiting
    large.close()
    machine.release(frame)
    assert not machine.waiting
    assert not third.waiting
    receive(third, bytes(3 * MIB))
    assert not third.waiting, "it may overdraw"
    third.close()
    assert budget.used == 0


@pytest.mark.parametrize("seed", range(20))
def test_any_interleaving_with_a_driver_that_reads_on_delivers_everything(seed: int) -> None:
    rng = random.Random(seed)
    budget, count = Budget(100_000), rng.randrange(2, 12)
    machines = [connection(budget=budget) for _ in range(count)]
    sizes = [[rng.choice((8, 500, 5000, 20_000, 80_000)) for _ in range(4)] for _ in machines]
    streams = [b"".join(framed(bytes(size)) for size in part) for part in sizes]
    seen: list[list[int]] = [[] for _ in machines]
    held = []
    while any(streams) or held:
        if held and rng.random() < 0.3:
            machine, frame = held.pop(rng.randrange(len(held)))
            machine.release(frame)
        n = rng.randrange(count)
        wanted = machines[n].wants_read()
        step = rng.choice((3, 1000, 20_000)) if wanted else rng.choice((0, 0, 0, 10, 3000))
        for frame in receive(machines[n], streams[n][:step]):
            seen[n].append(len(frame))
            held.append((machines[n], frame))
        streams[n] = streams[n][step:]
    assert seen == sizes
    assert budget.used == 0


@pytest.mark.parametrize("seed", range(20))
def test_any_interleaving_delivers_everything_within_the_bound(seed: int) -> None:
    rng = random.Random(seed)
    budget, largest, count = Budget(3 * MIB), 3 * MIB, rng.randrange(2, 12)
    machines = [connection(budget=budget) for _ in range(count)]
    sizes = [[rng.choice((8, 500, 5000, MIB, 2 * MIB, largest)) for _ in range(4)] for _ in machines]
    streams = [memoryview(b"".join(framed(bytes(size)) for size in part)) for part in sizes]
    seen: list[list[int]] = [[] for _ in machines]
    held = []
    while any(streams) or held:
        ready = [n for n in range(count) if machines[n].wants_read() and streams[n]]
        if held and (not ready or rng.random() < 0.3):
            machine, frame = held.pop(rng.randrange(len(held)))
            machine.release(frame)
            continue
        assert ready, "all wait for each other"
        n = rng.choice(ready)
        # One read at a time, as a socket does it.
        buffer = machines[n].get_buffer()
        step = min(len(buffer), len(streams[n]), rng.choice((3, 1000, MIB)))
        buffer[:step] = streams[n][:step]
        buffer.release()
        streams[n] = streams[n][step:]
        for frame in machines[n].received(step):
            seen[n].append(len(frame))
            held.append((machines[n], frame))
        assert budget.used <= budget.bytes_max + largest + count * SCRATCH_BYTES_POOR
    assert seen == sizes
    assert budget.used == 0
