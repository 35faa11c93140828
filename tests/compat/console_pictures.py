"""The pictures of the console in the docs, drawn anew: an agent under a little load, and Chromium.

python -m tests.compat.console_pictures
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from itertools import count
from pathlib import Path

import httpx
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from deploy.services.floe import FloeAgent
from deploy.setup.chromium import chromium_command
from tests.bench.load import create_topic

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    "console.png": ("/console", "1100,1290"),
    "console-records.png": ("/console/topics/orders/records?start=newest", "1100,760"),
    "console-group.png": ("/console/group?id=billing", "1100,820"),
    "console-table.png": ("/console/table?name=floe.orders&rows=1", "1100,1250"),
}
"""By file: path and window."""
LOADED_S, PER_S, PARTITIONS, BROWSER_S_MAX = 90.0, 40, 3, 120
CITIES = ("Oslo", "Lima", "Pune", "Graz", "Suva")


async def load(bootstrap: str, over: threading.Event) -> None:
    """Orders, and a group that reads half of them, until `over`."""
    await create_topic(bootstrap, "orders", PARTITIONS)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    reader = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id="billing", enable_auto_commit=False)
    for client in (producer, reader):
        await client.start()
    places = [TopicPartition("orders", each) for each in range(PARTITIONS)]
    reader.assign(places)
    for number in count():
        if over.is_set():
            break
        order = {"order": number, "city": CITIES[number % 5], "cents": 99 + 7 * number % 4_000}
        await producer.send(
            "orders",
            json.dumps(order).encode(),
            key=f"customer-{number % 97}".encode(),
            headers=[("source", b"shop")],
        )
        if number % PER_S == 0:
            await reader.commit(dict.fromkeys(places, number // (2 * PARTITIONS)))
        await asyncio.sleep(1 / PER_S)
    for client in (producer, reader):
        await client.stop()


def drawn(address: str, window: str, file: Path) -> None:
    """The page as a picture."""
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                *chromium_command(),
                *("--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=300"),
                f"--user-data-dir={profile}",
                f"--window-size={window}",
                f"--screenshot={file}",
                address,
            ],
            check=True,
            capture_output=True,
            timeout=BROWSER_S_MAX,
        )


def main() -> int:
    """Draw all of them."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "log": {"url": f"sqlite://{folder}/log.sqlite"},
            "store": {"url": f"file://{folder}/store"},
            "tables": {"interval_ms": 3_000},
            "console": {"search_ms_max": 60_000},
        }
        over = threading.Event()
        with FloeAgent("one", settings, Path(folder)) as agent:
            loading = threading.Thread(target=asyncio.run, args=[load(agent.bootstrap, over)])
            loading.start()
            until = time.monotonic() + LOADED_S
            while time.monotonic() < until:
                httpx.get(f"{agent.http}/console", timeout=60)  # rates are those between two looks
                time.sleep(5)
            for name, (path, window) in PAGES.items():
                drawn(agent.http + path, window, DOCS / name)
                print(f"docs/{name}: {(DOCS / name).stat().st_size // 1024} KiB", flush=True)
            over.set()
            loading.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
