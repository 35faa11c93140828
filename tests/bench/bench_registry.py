"""The schema registry of one agent on etcd and MinIO: lookups by id, and registering what is new.

Requests are raw HTTP over connections that stay open, so that the client costs little of the same two cores.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Iterable
from contextlib import ExitStack

from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from tests.bench.agents import on_services
from tests.bench.asking import Client, get
from tests.bench.figure import ROUNDS, Figure
from tests.bench.load import cpu_seconds

CONNECTIONS = 16
LOOKUPS = 300  # of each connection and round
REGISTERED = 100  # one after the other, in each round
MESSAGE = """syntax = "proto3";
package shop;
message Order{number} {{
  int64 id = 1;
  string user = 2;
  repeated Item items = 3;
  message Item {{ string sku = 1; double price = 2; }}
}}
"""


def registration(number: int) -> bytes:
    """A POST that registers a schema of its own under a subject of its own."""
    body = json.dumps({"schemaType": "PROTOBUF", "schema": MESSAGE.format(number=number)})
    head = f"POST /subjects/bench-{number}/versions HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n{body}".encode()


async def looked_up(port: int, schema_id: int) -> float:
    """Lookups per second, over all connections."""
    clients = [await Client.open(port) for _ in range(CONNECTIONS)]
    request = get(f"/schemas/ids/{schema_id}")

    async def one(client: Client) -> None:
        for _ in range(LOOKUPS):
            await client.ask(request)

    began = time.perf_counter()
    await asyncio.gather(*map(one, clients))
    seconds = time.perf_counter() - began
    for client in clients:
        client.close()
    return CONNECTIONS * LOOKUPS / seconds


async def registered(port: int, first: int) -> tuple[list[float], int]:
    """Seconds of each registration, and the last id."""
    client, seconds, answer = await Client.open(port), [], b""
    for number in range(first, first + REGISTERED):
        began = time.perf_counter()
        answer = await client.ask(registration(number))
        seconds.append(time.perf_counter() - began)
    client.close()
    return seconds, int(json.loads(answer)["id"])


async def run(agent: FloeAgent) -> tuple[list[float], list[float], list[float]]:
    """Lookups per second, CPU seconds of the agent for each, seconds of registrations."""
    rates, costs, seconds = [], [], []
    for number in range(ROUNDS):
        taken, schema_id = await registered(agent.http_port, number * REGISTERED)
        seconds += taken
        before = cpu_seconds(agent.pid)
        rates.append(await looked_up(agent.http_port, schema_id))
        costs.append((cpu_seconds(agent.pid) - before) / (CONNECTIONS * LOOKUPS))
    return rates, costs, seconds


def figures() -> Iterable[Figure]:
    """All of them."""
    with ExitStack() as services:
        etcd, minio = services.enter_context(Etcd()), services.enter_context(Minio())
        minio.make_bucket("bench")
        agent = services.enter_context(FloeAgent("floe", on_services(etcd, minio, "bench")))
        rates, costs, seconds = asyncio.run(run(agent))
    yield Figure(
        f"registry, {CONNECTIONS} clients: schema by id", statistics.median(rates), "lookups/s", goal=3000.0
    )
    yield Figure("registry: agent CPU of a lookup", statistics.median(costs) * 1e6, "µs")
    yield Figure(
        "registry: a new schema, p50",
        statistics.median(seconds) * 1e3,
        "ms",
        goal=15.0,
        better="less",
    )


if __name__ == "__main__":
    for one in figures():
        print(one.line(), flush=True)
