"""Certificates and authorities renewed on disk under load: nobody is cut, newcomers see the newest."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path

from agent.net.renewal import Renewal
from tests.equipment.certificates import Authority, Pair
from tests.unit.agent.net.server.harness import Client
from tests.unit.agent.net.server.test_tls_server import ask, connect, put, serving, tls_of

CLIENTS, RENEWALS, PIPELINED, SIZE = 8, 12, 5, 40_000


async def stream(client: Client, ends: asyncio.Event) -> int:
    """Requests and their answers, until it is over; how many."""
    count = 0
    while not ends.is_set():
        for number in range(PIPELINED):
            client.send(count + number, size=SIZE)
        for number in range(PIPELINED):
            frame = await client.frame()
            assert (int.from_bytes(frame[:4], "big"), len(frame)) == (count + number, SIZE + 4)
        count += PIPELINED
    return count


async def test_nobody_is_cut_and_newcomers_see_the_newest(tmp_path: Path) -> None:
    old, new = Authority(tmp_path / "old", "old"), Authority(tmp_path / "new", "new")
    live, ca = Pair(tmp_path / "live.crt", tmp_path / "live.key"), tmp_path / "ca.crt"
    servers = {each: each.pair("server") for each in (old, new)}
    users = {each: each.pair("user") for each in (old, new)}
    both = old.cert.read_text() + new.cert.read_text()
    put(servers[old], live)
    shutil.copy(old.cert, ca)
    told: list[str] = []
    tls = tls_of(live, ca_file=str(ca), client_auth="required")
    renewal, ends = Renewal([tls], 1000, lambda thing: told.append(thing.problem)), asyncio.Event()
    async with serving(tls) as (server, port):
        clients = [await connect(port, old.client(users[old])) for _ in range(CLIENTS)]
        streams = [asyncio.ensure_future(stream(client, ends)) for client in clients]
        for shows in islice(cycle((new, old)), RENEWALS):
            ca.write_text(both)  # first whoever trusts, then what is shown, as authorities are changed
            await renewal.look()
            put(servers[shows], live)
            await renewal.look()
            newcomer = await connect(port, shows.client(users[shows]))
            assert await ask(newcomer) == b""
            issuer = newcomer.writer.get_extra_info("peercert")["issuer"]
            assert issuer[0][0][1] == ("new" if shows is new else "old")
            await newcomer.close()
            ca.write_text(shows.cert.read_text())  # the others' users may not come any more, but stay
            await renewal.look()
        assert server.connections >= CLIENTS
        ends.set()
        counts = await asyncio.gather(*streams)
        assert min(counts) > 0
        assert set(told) == {""}, "each time was taken"
        for client in clients:
            with suppress(ConnectionError):
                await client.close()
