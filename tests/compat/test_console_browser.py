"""The console in Chromium without a window: every page, some on a phone too, and with etcd away."""

from __future__ import annotations

import asyncio
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from agent.http.console import shell
from agent.http.console.shell import PAGES
from deploy.services import Etcd
from deploy.services.floe import FloeAgent
from deploy.setup.chromium import chromium_command

pytestmark = pytest.mark.services

HOSTILE = b"</pre><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
HEAD = b"<!doctype html><meta charset=utf-8><script src=console.js defer></script><title>t</title>"
BUSY = (503, '<p class="bad">32 looks at records go on</p><p>try again</p>')
SCRIPT = Path(shell.__file__).with_name("console.js")
BROWSER_S_MAX = 120
WIDE, PHONE = "1100,800", "360,640"
MORE = (
    "/console/topics/orders",
    "/console/topics/orders/records?start=oldest",
    "/console/topics/orders/life?partition=0&offset=1",
    "/console/group?id=readers",
    "/console/table?name=floe.orders&rows=1",
)


@pytest.fixture
def agent(own_etcd: Etcd, tmp_path: Path) -> Iterator[FloeAgent]:
    """One on etcd, with a topic, a hostile record and a group."""
    settings = {
        "log": {"url": f"etcd://{own_etcd.endpoint}/floe"},
        "store": {"url": f"file://{tmp_path}/store"},
        "tables": {"interval_ms": 100},
        "console": {"search_ms_max": 60_000},
    }
    with FloeAgent("one", settings, tmp_path) as started:
        asyncio.run(_fill(started.bootstrap))
        while "Row of the file" not in httpx.get(started.http + MORE[2], timeout=60).text:
            time.sleep(0.2)  # until the table has it
        yield started


async def _fill(bootstrap: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    for _ in range(3):
        await producer.send_and_wait("orders", HOSTILE, key=HOSTILE, headers=[("h", HOSTILE)])
    await producer.stop()
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id="readers", enable_auto_commit=False)
    await consumer.start()
    consumer.assign([TopicPartition("orders", 0)])
    await consumer.commit({TopicPartition("orders", 0): 1})
    await consumer.stop()


def opened(address: str, window: str = WIDE, milliseconds: int = 100, *, refused: bool = False) -> str:
    """The page as it is after so long, by the browser's own clock.

    What its console says fails the test; with `refused` it may say that something was answered with 503.
    """
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [
                *chromium_command(),
                *("--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"),
                f"--user-data-dir={profile}",
                f"--window-size={window}",
                f"--virtual-time-budget={milliseconds}",
                address,
            ],
            capture_output=True,
            text=True,
            check=True,
            timeout=BROWSER_S_MAX,
        )
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    said = [line for line in said if not (refused and "the server responded with a status of 503" in line)]
    assert not said, f"{address}: {said}"
    return done.stdout


def test_every_page_is_shown_and_nothing_in_a_record_runs(agent: FloeAgent) -> None:
    for path in [each for _, each in PAGES] + list(MORE):
        shown = opened(agent.http + path)
        assert "<main" in shown, path
        assert "<title>taken" not in shown, path
        assert 'id="live"' in shown, path
        assert "Not shown" not in shown, path
    records = opened(agent.http + MORE[1], PHONE)
    assert records.count("&lt;script&gt;document") == 9, "key, value and header of three records, as text"


def test_a_page_asks_again_by_itself(agent: FloeAgent) -> None:
    shown = opened(f"{agent.http}/console", milliseconds=17_000)
    assert "Pause updates" in shown
    assert "/console/group?id=readers" in shown
    told = httpx.get(f"{agent.http}/metrics").text
    (asked,) = re.findall(r'floe_http_requests_total\{route="/console",status="200"\} (\d+)', told)
    assert int(asked) >= 3, "once, and each five seconds of the browser's clock"


@contextmanager
def answering(*answers: tuple[int, str]) -> Iterator[str]:
    """The address of a page whose live part is answered so, one ask after the other; the last for ever."""
    left = list(answers)

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, status, content = "text/javascript", 200, SCRIPT.read_bytes()
            if self.path == "/":
                status, shown = left.pop(0) if len(left) > 1 else left[0]
                refreshes = " data-refreshes" if status == 200 else ""
                kind, content = "text/html", HEAD + f'<section id="live"{refreshes}>{shown}'.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """To nobody."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_a_refusal_that_passes_is_told_and_does_not_end_the_asking() -> None:
    with answering((200, "<p>first</p>"), BUSY) as address:
        shown = opened(address, milliseconds=7_000, refused=True)
    assert "<p>first</p>" in shown
    assert "32 looks at records go on; what is shown is old." in shown
    with answering((200, "<p>first</p>"), BUSY, (200, "<p>second</p>")) as address:
        shown = opened(address, milliseconds=12_000, refused=True)
    assert "<p>second</p>" in shown
    assert "what is shown is old" not in shown


def test_pages_are_shown_while_etcd_is_away(agent: FloeAgent, own_etcd: Etcd) -> None:
    own_etcd.kill()
    while httpx.get(f"{agent.http}/readyz", timeout=30).status_code == 200:
        time.sleep(0.2)
    for path in [each for _, each in PAGES] + list(MORE):
        shown = opened(agent.http + path)
        assert "This agent is not well" in shown, path
        reads = "/records" in path or "rows=1" in path
        assert ("&lt;script&gt;document" in shown) == reads, "records are read all the same"
