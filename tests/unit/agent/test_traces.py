"""A request can be followed from its frame to its answer, and who listens to that hurts nobody."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from starlette.types import Message, Receive, Scope, Send
from structlog.testing import capture_logs

from agent.app import App
from agent.background.tables import committers_of, latest_of, parts_of
from agent.background.traced_tables import TracedSteps
from agent.config import Config, ConfigError
from agent.config.telemetry import TracesConfig
from agent.http.traced import TracedGuard
from agent.kafka.dispatch import Dispatcher
from agent.telemetry.exporting import Exporting, headers_of
from agent.telemetry.metrics import Metrics
from agent.telemetry.tracing import LINKS_MAX, STEPS_MAX, Link, Traces, current, parsed, step
from agent.telemetry.trail import NOBODY, Actor
from coordination.clock import ManualClock, SystemClock
from objectstore.batch import NewRecord, build
from objectstore.compression import Compression
from objectstore.merged import MergedRanges
from tests.bench.load import Wire
from tests.unit.agent import test_app
from tests.unit.agent.collector import Collector, collecting
from tests.unit.agent.rig import batch
from tests.unit.agent.test_app import World, until
from tests.unit.agent.test_app import world as world
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.latest import UPSERT

ALL = {"share": 1.0, "interval_ms": 10}
LATEST_WAY = ("read-records", "fold-rows", "store-file", "store-metadata", "commit-table")
WAY = ("read-records", "write-file", "store-file", "store-metadata", "commit-table")
PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with collecting() as found:
        yield found


async def serving(world: World, url: str, **traces: Any) -> tuple[App, Wire]:
    app = await world.start("a", traces={"endpoint": url, **ALL, **traces})
    await test_app.topic(app)
    return app, await test_app.connect(app)


def attributes(span: Span) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def traced(headers: list[tuple[str, bytes | None]], compression: Compression = Compression.NONE) -> bytes:
    return build([NewRecord(1_700_000_000_000, None, b"x", tuple(headers))], compression=compression)


async def test_a_produce_is_followed_to_its_answer(world: World, collector: Collector) -> None:
    _, wire = await serving(world, collector.url, headers="authorization=Bearer abc, X-Tenant=floe")
    raw = batch(b"a", b"b")
    assert (await test_app.produce(wire, raw)).error_code == 0
    await until(lambda: bool(collector.roots("Produce")))
    [root] = collector.roots("Produce")
    parts = collector.parts(root)
    assert {"admit", "buffer", "put", "order", "append", "answer"} <= parts.keys() <= {
        "admit", "buffer", "put", "order", "append", "apply", "answer",
    }  # fmt: skip
    inner = sorted(parts.values(), key=lambda span: (span.start_time_unix_nano, span.end_time_unix_nano))
    assert [span.name for span in inner if span.name != "apply"] == [
        "admit", "buffer", "put", "order", "append", "answer",
    ]  # fmt: skip
    for span in inner:
        assert span.trace_id == root.trace_id
        assert root.start_time_unix_nano <= span.start_time_unix_nano
        assert span.end_time_unix_nano <= root.end_time_unix_nano
    about = attributes(root)
    assert root.kind == Span.SPAN_KIND_SERVER
    assert (about["floe.record_bytes"], about["messaging.batch.message_count"]) == (len(raw), 2)
    assert [each.string_value for each in about["messaging.destination.name"].values] == ["t"]
    assert about["floe.kept"] == "sampled"
    assert about["floe.request"].partition("-")[2].isdigit()
    assert attributes(parts["put"])["floe.chunk"].startswith("chunks/")
    assert collector.resources[0]["service.name"] == "floe"
    assert collector.resources[0]["service.instance.id"] == "a"
    assert collector.headers[0]["authorization"] == "Bearer abc"
    assert collector.headers[0]["x-tenant"] == "floe"
    await wire.close()


async def test_a_fetch_tells_its_waiting_from_its_reading(world: World, collector: Collector) -> None:
    app, wire = await serving(world, collector.url)
    poll = asyncio.create_task(wire.call("Fetch", test_app.poll(0, 30_000), 12))
    await until(lambda: test_app.services_of(app).fetch.waiters.count == 1)
    other = await test_app.connect(app)
    await test_app.produce(other, batch(b"a"))
    await poll
    await until(lambda: bool(collector.roots("Fetch")))
    [root] = collector.roots("Fetch")
    assert collector.parts(root).keys() == {"wait for records", "read"}
    await wire.close()
    await other.close()


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
async def test_the_span_that_a_record_names_is_linked(
    world: World, collector: Collector, compression: Compression
) -> None:
    _, wire = await serving(world, collector.url)
    await test_app.produce(wire, traced([("a", None), ("traceparent", PARENT)], compression))
    await until(lambda: bool(collector.roots("Produce")))
    [root] = collector.roots("Produce")
    [link] = root.links
    assert link.trace_id.hex().encode() == PARENT.split(b"-")[1]
    assert link.span_id.hex().encode() == PARENT.split(b"-")[2]
    await wire.close()


@pytest.mark.parametrize(
    ("text", "known"),
    [
        (PARENT, True),
        (PARENT[:-1] + b"0", True),
        (b"cc" + PARENT[2:] + b"-what-comes-later", True),
        (PARENT + b"-more", False),
        (b"ff" + PARENT[2:], False),
        (PARENT.upper(), False),
        (b"00-" + b"0" * 32 + PARENT[35:], False),
        (PARENT[:36] + b"0" * 16 + b"-01", False),
        (b"", False),
    ],
)
def test_a_traceparent_is_what_the_standard_says(text: bytes, known: bool) -> None:
    link = parsed(text)
    assert (link is not None) == known
    assert link is None or link.sampled == (text[-2:] != b"00")


async def test_a_request_that_fails_says_so(world: World, collector: Collector) -> None:
    app, wire = await serving(world, collector.url)
    connection = await asyncio.open_connection("127.0.0.1", app.kafka_port)
    connection[1].write(bytes.fromhex("0000000c 0000 0009 00000007 0001 78 00 ff".replace(" ", "")))
    await connection[0].read()
    connection[1].close()
    await until(lambda: any(root.status.code for root in collector.roots("Produce")))
    assert collector.roots("Produce")[0].status.code == Status.STATUS_CODE_ERROR
    await wire.close()


async def test_a_collector_that_is_away_or_refuses_hurts_nobody(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with capture_logs() as lines:
        app, wire = await serving(world, f"http://127.0.0.1:{port}/v1/traces", timeout_ms=100)
        for _ in range(20):
            assert (await test_app.produce(wire, batch(b"a"))).error_code == 0
        lost = app.metrics.traces_lost.labels("exporter")._value
        await until(lambda: lost.get() > 0)
        await wire.close()
        await app.stop()
    told = [line for line in lines if line["event"] == "traces are not taken, and are lost"]
    assert len(told) == 1


async def test_a_collector_that_does_not_answer_holds_nobody_up(world: World, collector: Collector) -> None:
    collector.open.clear()
    app, wire = await serving(world, collector.url, queue_traces_max=5)
    assert (await test_app.produce(wire, batch(b"a"))).error_code == 0
    await until(lambda: collector.requests > 0)
    for _ in range(20):
        assert (await test_app.produce(wire, batch(b"a"))).error_code == 0
    assert len(app.traces.queue) == 5
    assert app.metrics.traces_lost.labels("queue")._value.get() > 0
    collector.open.set()
    await until(lambda: not app.traces.queue)
    await until(lambda: len(collector.roots("Produce")) >= 5)
    await wire.close()


async def test_what_is_left_is_sent_when_the_agent_ends(world: World, collector: Collector) -> None:
    app, wire = await serving(world, collector.url, interval_ms=60_000)
    await test_app.produce(wire, batch(b"a"))
    await wire.close()
    assert not collector.spans
    await app.stop()
    assert len(collector.roots("Produce")) == 1


async def test_without_an_endpoint_nothing_is_noted(world: World) -> None:
    app = await world.start("a")
    assert isinstance(app._dispatcher, Dispatcher)
    assert app._exporting is None
    assert app.traces.begin("Produce") is None


class Judging:
    """Traces and the time."""

    def __init__(self, **config: Any) -> None:
        self.now, self.metrics = 100.0, Metrics()
        settings = TracesConfig(endpoint="http://x", **config)
        self.traces = Traces(settings, ManualClock(), self.metrics, lambda: self.now)

    def one(self, seconds: float, waits_s: float = 0.0, **more: Any) -> None:
        trace = self.traces.begin("Fetch")
        assert trace is not None
        token = current.set(trace)
        with step("wait", lambda: self.now, waits=True):
            self.now += waits_s
        current.reset(token)
        self.now += seconds
        self.traces.end(trace, **more)

    def lost(self, why: str) -> float:
        return self.metrics.traces_lost.labels(why)._value.get()


def test_what_is_slow_is_kept_though_it_was_not_chosen() -> None:
    judging = Judging(share=0.0, slow_ms=1_000)
    judging.one(0.5)
    judging.one(0.2, waits_s=500)
    judging.one(7, may_be_slow=False)
    assert not judging.traces.queue
    judging.one(1.0, waits_s=5)
    [kept] = judging.traces.queue
    assert kept.trace.attributes["floe.kept"] == "slow"


def test_where_nothing_is_kept_for_its_length_only_the_share_is_noted() -> None:
    judging = Judging(share=0.25, slow_ms=0)
    begun = [judging.traces.begin("Fetch") for _ in range(400)]
    assert 50 <= sum(each is not None for each in begun) <= 150


def test_so_many_are_kept_in_a_second_and_wait_in_the_queue() -> None:
    judging = Judging(share=1.0, per_s_max=3, queue_traces_max=4)
    for _ in range(5):
        judging.one(0)
    assert (len(judging.traces.queue), judging.lost("rate")) == (3, 2)
    for _ in range(3):
        judging.one(1)
    assert (len(judging.traces.queue), judging.lost("queue")) == (4, 2)


def test_steps_and_links_of_a_trace_are_bounded() -> None:
    judging = Judging(share=1.0)
    trace = judging.traces.begin("Fetch")
    assert trace is not None
    for number in range(STEPS_MAX + 3):
        trace.step("s", number, number + 1)
    trace.links = lambda: [Link(1, 1, True)] * 1_000
    judging.traces.end(trace)
    trace.step("too late", 0, 1)
    [kept] = judging.traces.queue
    assert (len(trace.steps), trace.left_out, len(kept.links)) == (STEPS_MAX, 3, LINKS_MAX)
    assert not trace.links(), "no records are held"


def test_headers_are_pairs_and_are_not_quoted_when_they_are_none() -> None:
    assert headers_of(TracesConfig(headers="a=b=c,, D = e ")) == {"a": "b=c", "d": "e"}
    with pytest.raises(ConfigError, match=r"traces\.headers") as refused:
        headers_of(TracesConfig(headers="hunter2"))
    assert "hunter2" not in str(refused.value)


async def test_without_opentelemetry_the_setting_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigError, match=r"floe-streaming\[traces\]"):
        world.make("a", traces={"endpoint": "http://127.0.0.1:1/v1/traces"})


def tracing(config: Config) -> tuple[Traces, Exporting]:
    """Begun."""
    clock = SystemClock()
    traces = Traces(config.traces, clock, Metrics(), asyncio.get_running_loop().time)
    exporting = Exporting(config.traces, traces, clock, {"service.name": "floe"})
    exporting.start()
    return traces, exporting


async def test_a_commit_of_a_table_tells_its_steps(tmp_path: Path, collector: Collector) -> None:
    async with rigs.running(tmp_path) as rig:
        settings = test_app.config(
            "a",
            store={"url": rig.warehouse.root},
            tables={"interval_ms": 50},
            traces={"endpoint": collector.url, **ALL},
        )
        clock, metrics = SystemClock(), Metrics()
        traces, exporting = tracing(settings)
        parts = parts_of(settings, rig.replica, rig.reader, MergedRanges(rig.store), rig.store, clock)
        service = committers_of(settings, parts, metrics, traces)
        await rig.create_topic()
        await rig.produce([b"a"])
        await service.start()
        await until(lambda: bool(collector.roots("commit table")))
        await service.stop()
        await exporting.stop()
    root = collector.roots("commit table")[0]
    steps = [event.name for event in root.events]
    assert [each for each in steps if each in WAY] == list(WAY)
    assert [each.string_value for each in attributes(root)["messaging.destination.name"].values] == ["t"]
    assert not root.status.code
    times = [event.time_unix_nano for event in root.events]
    assert times == sorted(times)
    assert root.start_time_unix_nano <= times[0] <= times[-1] <= root.end_time_unix_nano


async def test_a_commit_of_a_latest_table_tells_its_steps(tmp_path: Path, collector: Collector) -> None:
    async with rigs.running(tmp_path) as rig:
        await rig.create_topic(partitions=1, **UPSERT)
        await rig.produce([b"1"], keys=[b"a"])
        await rig.drain(rig.committer())
        config = test_app.config(
            "a",
            store={"url": rig.warehouse.root},
            tables={"interval_ms": 50},
            traces={"endpoint": collector.url, **ALL},
        )
        traces, exporting = tracing(config)
        service = latest_of(config, rig.parts, Metrics(), traces)
        await service.start()
        await until(lambda: bool(collector.roots("commit latest table")))
        await service.stop()
        await exporting.stop()
    root = collector.roots("commit latest table")[0]
    steps = [event.name for event in root.events]
    assert [each for each in steps if each in LATEST_WAY] == list(LATEST_WAY)
    assert [each.string_value for each in attributes(root)["messaging.destination.name"].values] == ["t"]
    assert not root.status.code


async def test_a_request_by_http_tells_its_route_and_its_client(world: World, collector: Collector) -> None:
    app, wire = await serving(world, collector.url)
    await wire.close()
    url = f"http://127.0.0.1:{app.http_port}"
    async with httpx.AsyncClient(base_url=url, headers={"traceparent": PARENT.decode()}) as client:
        for path in ("/metrics", "/readyz", "/livez", "/admin/topics/secret/schema?token=secret", "/secret"):
            await client.get(path)
        await client.request("secret", "/status.json")
        answer = await client.get("/status.json")
    await until(lambda: bool(collector.roots("GET /status.json")))
    [root] = collector.roots("GET /status.json")
    about = attributes(root)
    assert (about["http.route"], about["http.response.status_code"]) == ("/status.json", 200)
    assert (about["floe.request"], about["network.peer.address"]) == (
        answer.headers["x-request-id"],
        "127.0.0.1",
    )
    assert root.kind == Span.SPAN_KIND_SERVER
    assert {link.trace_id.hex().encode() for link in root.links} == {PARENT.split(b"-")[1]}
    assert collector.parts(root).keys() == {"answer"}
    names = [span.name for span in collector.spans if span.kind == Span.SPAN_KIND_SERVER]
    ours = [name for name in names if "/" in name or "none" in name]
    assert ours == ["GET /admin/topics/{name}/schema", "GET none", "HTTP /status.json", "GET /status.json"]
    assert "secret" not in str(collector.spans)


async def test_a_request_by_http_that_fails_says_so() -> None:
    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        raise OSError("disk")

    async def nobody(scope: Scope) -> Actor:
        return NOBODY

    async def nothing() -> dict[str, Any]:
        return {"type": "http.request"}

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    judging = Judging(share=1.0)
    guard = TracedGuard(failing, judging.metrics, 10, nobody, judging.traces)
    scope = {"type": "http", "method": "GET", "path": "/x", "scheme": "http", "headers": []}
    await guard(scope, nothing, send)
    [kept] = judging.traces.queue
    assert (sent[0]["status"], kept.trace.error, kept.trace.name) == (500, "500", "GET none")


async def test_a_commit_that_fails_says_why_and_a_turn_without_one_nothing() -> None:
    judging = Judging(share=1.0)
    steps = TracedSteps("t", judging.traces)
    with steps.turn():
        await steps.before("plan")
    assert not judging.traces.queue

    async def failing() -> None:
        with steps.turn():
            await steps.before("plan")
            raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        await failing()
    [kept] = judging.traces.queue
    assert (kept.trace.error, [each.name for each in kept.trace.steps]) == ("OSError", ["plan"])
    await steps.before("plan")
    assert len(kept.trace.steps) == 1
