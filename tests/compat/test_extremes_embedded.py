"""Requests that are whole and absurd: every API and version, extremes in every number, names twice, nothing.

None may fail inside of an agent: no UNKNOWN_SERVER_ERROR, no connection closed but with a reason of the
protocol's, and afterwards the agent is ready, serves, and its state fits a snapshot.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.kafka.handlers import HANDLERS
from agent.net.wire.api import APIS as REGISTRY
from agent.net.wire.generator.definition import Api, Field
from coordination.kafka_codes import Code
from objectstore.batch import NewRecord, build
from tests.bench.load import Wire, create_topic
from tests.compat.conftest import Embedded, start, stop
from tests.fuzz_wire import APIS

ROUNDS = 3
SEED = 20
ANSWER_S_MAX = 60.0
TOPIC, GROUP = "extremes", "extreme-group"
STRINGS = ("", TOPIC, TOPIC, GROUP, "t", "ü" * 70, "a" * 250, "x" * 5_000, "\0", "retention.ms", "1", "-1")
WIDTHS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
# Waits that a test cannot wait for; how long something waits is asserted elsewhere.
SHORT = {"max_wait_ms": 0, "timeout_ms": 100, "rebalance_timeout_ms": 100, "session_timeout_ms": 100}
CLOSES = (
    "may have been sent before its producer",  # the fence of transactions v1
    "acks=0",  # as in Kafka, where a part was refused
)


def absurd(rng: random.Random, api: Api, version: int) -> Any:
    """A request that can be encoded, of extremes."""
    module = REGISTRY[api.key].codec()
    values = _values(rng, module, api.request.fields, version)
    return getattr(module, f"{api.name}Request")(**values)


def _values(rng: random.Random, module: Any, fields: list[Field], version: int) -> dict[str, Any]:
    return {each.name: _value(rng, module, each, version) for each in fields if version in each.versions}


def _value(rng: random.Random, module: Any, field: Field, version: int) -> Any:
    if version in field.nullable and rng.random() < 0.15:
        return None
    if not field.array:
        return SHORT[field.name] if field.name in SHORT else _one(rng, module, field, version)
    if rng.random() < 0.02 and field.base in WIDTHS:
        return [_one(rng, module, field, version) for _ in range(5_000)]
    rows = [_one(rng, module, field, version) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    return rows + rows if rng.random() < 0.3 else rows  # the same ones twice


def _one(rng: random.Random, module: Any, field: Field, version: int) -> Any:
    match field.base:
        case "bool":
            return rng.random() < 0.5
        case "float64":
            return rng.choice((0.0, -1.0, 1e308, float("nan"), float("inf")))
        case "string":
            return rng.choice(STRINGS)
        case "bytes" | "records":
            sound = build([NewRecord(rng.choice((0, 1 << 62)), b"k", b"v")])
            return memoryview(rng.choice((b"", b"\0", rng.randbytes(90), sound, sound + sound)))
        case "uuid":
            return rng.choice((bytes(16), b"\xff" * 16, rng.randbytes(16)))
        case "uint16":
            return rng.choice((0, 1, 65535))
        case base if base in WIDTHS:
            top = 1 << WIDTHS[base]
            return rng.choice((0, 0, 0, 1, 2, -1, -2, top - 1, top - 2, -top, top // 2))
    return getattr(module, field.base)(**_values(rng, module, field.fields, version))


def codes(answer: Any, path: str = "") -> Iterator[tuple[str, int]]:
    """Every error code of an answer, with where it stands."""
    if isinstance(answer, list):
        for each in answer:
            yield from codes(each, path)
    elif dataclasses.is_dataclass(answer):
        for field in dataclasses.fields(answer):
            value = getattr(answer, field.name)
            if field.name.endswith("error_code"):
                yield f"{path}.{field.name}", value
            elif isinstance(value, list) or dataclasses.is_dataclass(value):
                yield from codes(value, f"{path}.{field.name}")


class Adversary:
    """One client after another; `wrong` is what should not have been."""

    def __init__(self, agent: Embedded) -> None:
        self.agent = agent
        self.wire: Wire | None = None
        self.wrong: list[str] = []
        self.closed: list[str] = []

    async def end(self) -> None:
        """Hang up."""
        if self.wire is not None:
            await self.wire.close()
        self.wire = None

    async def ask(self, api: Api, version: int, request: Any) -> None:
        what = f"{api.name} v{version}: {str(request)[:600]}"
        self.wire = self.wire or await Wire.open(self.agent.bootstrap)
        try:
            if getattr(request, "acks", None) == 0:
                request.acks = 1
            async with asyncio.timeout(ANSWER_S_MAX):
                answer = await self.wire.call(api.name, request, version)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.closed.append(what)
            await self.end()
            return
        except TimeoutError:
            self.wrong.append(f"no answer to {what}")
            await self.end()
            return
        self.wrong += [
            f"{path} {number} to {what}"
            for path, number in codes(answer)
            if number == Code.UNKNOWN_SERVER_ERROR or number not in set(Code)
        ]


def snapshots(agent: Embedded) -> set[Path]:
    """Those that are in the store."""
    return {path for path in agent.data.rglob("*") if "snapshots" in path.parts and path.is_file()}


def ready(agent: Embedded) -> None:
    """Raises HTTPError when it says that it is not."""
    with urllib.request.urlopen(f"{agent.http}/readyz", timeout=60):
        pass


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Embedded]:
    one = start(tmp_path / "data", "snapshots.interval_s=1", "logging.lines_max=1000000")
    yield one
    assert stop(one) == 0


@pytest.mark.timeout(600)
async def test_absurd_requests_are_answered_and_harm_nothing(agent: Embedded, tmp_path: Path) -> None:
    await create_topic(agent.bootstrap, TOPIC, 2)
    adversary, rng = Adversary(agent), random.Random(SEED)
    for api in APIS:
        if api.key not in HANDLERS:
            continue
        low, high = HANDLERS[api.key].VERSIONS
        for version in range(low, high + 1):
            for _ in range(ROUNDS):
                await adversary.ask(api, version, absurd(rng, api, version))
    await adversary.end()
    log = (tmp_path / "agent.log").read_text()
    closed = [line for line in log.splitlines() if "connection closed for a request" in line]
    unexplained = [line for line in closed if not any(each in line for each in CLOSES)]
    assert (adversary.wrong, unexplained, "Traceback" in log) == ([], [], False), log[-3000:]
    assert agent.process.poll() is None
    before = snapshots(agent)
    await create_topic(agent.bootstrap, "after", 1)
    async with asyncio.timeout(ANSWER_S_MAX):
        while not snapshots(agent) - before:  # noqa: ASYNC110 - the agent's own, seen in its folder
            await asyncio.sleep(0.2)
    assert agent.status()["failing_jobs"] == []
    await asyncio.to_thread(ready, agent)
