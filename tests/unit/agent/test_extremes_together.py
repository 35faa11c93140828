"""Absurd requests side by side on one connection, with tags that nobody knows, without an answer asked for,
broken in between, and to several agents of one cluster.

None fails inside of an agent: no answer but Kafka's codes, no connection closed but for a reason of the
protocol's, no agent dies or stops serving, the agents agree, and after each the state fits a snapshot.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent.app import App
from agent.kafka.handlers import HANDLERS
from agent.net.wire.api import APIS as REGISTRY
from agent.net.wire.frame import encode_request_header, frame_request
from agent.net.wire.generated import metadata as md
from agent.net.wire.generator.definition import Api
from coordination.kafka_codes import Code
from coordination.snapshot import canonical_digest, decode, encode
from objectstore.tasks import DEFECTS
from objectstore.varint import varint
from tests.bench.load import Wire, decoded
from tests.compat.test_extremes_embedded import CLOSES, TOPIC, absurd, codes
from tests.fuzz_wire import APIS, LENGTHS, broken
from tests.unit.agent.test_app import World, connect, topic

AGENTS = ("a", "b", "c")
SEED = 4
PIPELINED = 3
ANSWER_S_MAX = 60.0
TAG_MAX = (1 << 32) - 1
PRODUCE = 0


def tags(rng: random.Random) -> bytes:
    """Tagged fields that nobody knows, in the order that KIP-482 asks for."""
    fields = [(10_000, rng.randbytes(rng.choice((0, 1, 300)))), (TAG_MAX, b"\xff")]
    return varint(len(fields)) + b"".join(varint(tag) + varint(len(value)) + value for tag, value in fields)


def tagged(rng: random.Random, api: Api, version: int, number: int, request: Any) -> bytes:
    """The request's frame; where its version has room for them, with tags behind the header and the body."""
    known = REGISTRY[api.key]
    header = encode_request_header(known, version, number, rng.choice((None, "", "ü" * 100)))
    body = b"".join(known.codec().encode_request(request, version))
    if known.flexible(version):
        header = header[:-1] + tags(rng)
        if not any(each.tagged_in(version) for each in api.request.fields):
            assert body[-1] == 0, "an empty list of tags"
            body = body[:-1] + tags(rng)
    return frame_request(header, [body])


def wrong(rng: random.Random, frame: bytes) -> bytes:
    """A frame that is none: its length, its header or its body."""
    payload = broken(rng, frame[4:])
    if rng.random() < 0.3:
        return rng.choice([each for each in LENGTHS if len(each) == 4]) + payload
    return len(payload).to_bytes(4, "big") + payload


@dataclass(frozen=True)
class Call:
    """A request, and whether it is answered."""

    api: Api
    version: int
    request: Any

    @property
    def answered(self) -> bool:
        return getattr(self.request, "acks", None) != 0

    def __str__(self) -> str:
        return f"{self.api.name} v{self.version}: {str(self.request)[:600]}"


def calls(rng: random.Random) -> Iterator[list[Call]]:
    """For each API, in its highest version and in another one: three requests of it and one Produce."""
    produce = next(each for each in APIS if each.key == PRODUCE)
    for api in APIS:
        if api.key not in HANDLERS:
            continue
        low, high = HANDLERS[api.key].VERSIONS
        for version in (high, rng.randint(low, high)):
            some = [Call(api, version, absurd(rng, api, version)) for _ in range(PIPELINED)]
            last = HANDLERS[PRODUCE].VERSIONS[1]
            quiet = absurd(rng, produce, last)
            quiet.acks = 0
            yield [*some[:2], Call(produce, last, quiet), *some[2:]]


async def ask(wire: Wire, rng: random.Random, some: list[Call]) -> tuple[list[str], bool]:
    """Send them in one go. What is wrong with the answers, and whether the connection is still there."""
    frames = [tagged(rng, each.api, each.version, number, each.request) for number, each in enumerate(some)]
    found: list[str] = []
    try:
        await wire.send(b"".join(frames))
        for number, each in enumerate(some):
            if not each.answered:
                continue
            async with asyncio.timeout(ANSWER_S_MAX):
                payload = await wire.receive()
            if int.from_bytes(payload[:4], "big") != number:
                found.append(f"an answer out of turn to {each}")
            answer = decoded(each.api.name, each.version, payload)
            found += [
                f"{path} {code} to {each}"
                for path, code in codes(answer)
                if code == Code.UNKNOWN_SERVER_ERROR or code not in set(Code)
            ]
    except (asyncio.IncompleteReadError, ConnectionError):
        return found, False
    return found, True


def fits(app: App) -> None:
    """The state can be written, and be read again as it is."""
    state = app.replica.state
    assert canonical_digest(decode(encode(state))) == canonical_digest(state)


async def alive(app: App) -> None:
    """It answers a client that comes now."""
    wire = await connect(app)
    async with asyncio.timeout(ANSWER_S_MAX):
        answer = await wire.call("Metadata", md.MetadataRequest(topics=None), 12)
    assert sorted(each.node_id for each in answer.brokers) == sorted(app.replica.state.brokers)
    await wire.close()


def unexplained(logs: list[Any]) -> list[str]:
    """Connections that were closed for another reason than the protocol's."""
    reasons = [str(each["reason"]) for each in logs if each["event"] == "connection closed for a request"]
    return [each for each in reasons if not any(known in each for known in CLOSES)]


@pytest.fixture
async def apps() -> AsyncIterator[list[App]]:
    """Three agents and a topic."""
    world = World()
    found = [await world.start(name) for name in AGENTS]
    await topic(found[0], TOPIC)
    yield found
    for app in found:
        await app.stop()


async def agree(apps: list[App]) -> None:
    """All agents have the same state."""
    revision = max(app.replica.state.revision for app in apps)
    for app in apps:
        async with asyncio.timeout(ANSWER_S_MAX):
            while app.replica.state.revision < revision:  # noqa: ASYNC110  # of another agent
                await asyncio.sleep(0.01)
    states = [(app.replica.state.revision, canonical_digest(app.replica.state)) for app in apps]
    last = max(states)
    assert all(each == last for each in states if each[0] == last[0])


async def test_absurd_requests_side_by_side_harm_no_agent(apps: list[App]) -> None:
    rng, defects = random.Random(SEED), DEFECTS.counts.total()
    wires = [await connect(app) for app in apps]
    problems: list[str] = []
    with capture_logs() as logs:
        for number, some in enumerate(calls(rng)):
            at = number % len(apps)
            found, open_still = await ask(wires[at], rng, some)
            problems += found
            if not open_still:
                await wires[at].close()
                wires[at] = await connect(apps[at])
            fits(apps[at])
    for wire in wires:
        await wire.close()
    assert (problems, unexplained(logs), DEFECTS.counts.total() - defects) == ([], [], 0), DEFECTS.newest
    for app in apps:
        await alive(app)
        fits(app)
    await agree(apps)


async def test_a_wrong_frame_among_sound_ones_ends_its_connection_alone(apps: list[App]) -> None:
    """Those before it are answered, those behind it are not begun, other connections hear nothing of it."""
    rng, defects = random.Random(SEED), DEFECTS.counts.total()
    metadata = next(each for each in APIS if each.name == "Metadata")
    sound = Call(metadata, 12, md.MetadataRequest(topics=[]))
    others = [await connect(app) for app in apps]
    for number, some in enumerate(calls(rng)):
        at = number % len(apps)
        wire, (first, *_) = await connect(apps[at]), some
        frames = [tagged(rng, sound.api, 12, each, sound.request) for each in (1, 2)]
        spoilt = wrong(rng, tagged(rng, first.api, first.version, 3, first.request))
        await wire.send(b"".join((*frames, spoilt)))
        async with asyncio.timeout(ANSWER_S_MAX):
            answers = [await wire.receive(), await wire.receive()]
        assert [int.from_bytes(each[:4], "big") for each in answers] == [1, 2]
        await wire.close()
        assert await ask(others[at], rng, [sound]) == ([], True), "whoever sends nothing wrong goes on"
        fits(apps[at])
    for wire in others:
        await wire.close()
    assert DEFECTS.counts.total() == defects, DEFECTS.newest
    for app in apps:
        await alive(app)
    await agree(apps)
