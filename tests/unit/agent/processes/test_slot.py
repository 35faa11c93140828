"""A place for an agent: the one that ends is replaced, the hopeless one is not, one that is silent is ended.

The agents are real processes, of a few lines of Python, that answer at their socket as agents do.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent.processes.slot import Hopeless, Patience, Slot
from agent.telemetry.supervised import SupervisorMetrics
from coordination.clock import SystemClock
from objectstore import tasks

AGENT = """
import http.server, os, signal, socket, socketserver, sys
path, starts, behaves = sys.argv[1:]
with open(starts, "a") as log: log.write("x")
if behaves.startswith("exit"): sys.exit(int(behaves[4:]))
signal.signal(signal.SIGTERM, signal.SIG_IGN if behaves == "stubborn" else lambda *_: os._exit(0))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if behaves == "broken" else 200)
        self.end_headers()
    def log_message(self, *_): pass
    def address_string(self): return "unix"
class Server(socketserver.UnixStreamServer): pass
if behaves == "silent":
    signal.pause()
Server(path, Handler).serve_forever()
"""
PATIENCE = Patience(stop_s=0.0, silence_s=0.1, pause_s_max=0.05)


def slot_of(folder: Path, behaves: str, patience: Patience = PATIENCE) -> Slot:
    """A place for agents that behave so."""
    path = folder / "s"
    command = [sys.executable, "-S", "-c", AGENT, str(path), str(folder / "starts"), behaves]
    return Slot(1, "host.1", command, path, patience, SystemClock(), SupervisorMetrics())


@asynccontextmanager
async def running(slot: Slot) -> AsyncIterator[asyncio.Task[None]]:
    """Until the block is left."""
    task = tasks.owned(slot.run(), "slot")
    try:
        yield task
    finally:
        await slot.stop()
        await asyncio.gather(task, return_exceptions=True)


async def until(true: Callable[[], bool]) -> None:
    """Wait for it; the test's own bound is what ends a wait in vain."""
    while not true():  # noqa: ASYNC110 - what is waited for happens in another process
        await asyncio.sleep(0.02)


async def test_who_ends_is_replaced_and_counted(tmp_path: Path) -> None:
    slot = slot_of(tmp_path, "exit1")
    async with running(slot):
        await until(lambda: slot.replaced >= 2)
    assert slot.last == "ended, status 1"
    assert len((tmp_path / "starts").read_text()) >= 2


@pytest.mark.parametrize("status", [3, 5])
async def test_what_no_second_try_changes_ends_all(tmp_path: Path, status: int) -> None:
    slot = slot_of(tmp_path, f"exit{status}")
    async with running(slot) as task:
        with pytest.raises(Hopeless) as caught:
            await task
    assert caught.value.status == status
    assert (slot.replaced, (tmp_path / "starts").read_text()) == (0, "x")


async def test_who_has_served_once_is_replaced_whatever_ends_it(tmp_path: Path) -> None:
    slot = slot_of(tmp_path, "exit3")
    slot.served = True
    async with running(slot):
        await until(lambda: slot.replaced >= 1)


@pytest.mark.parametrize(("behaves", "why"), [("silent", "silent"), ("broken", "not alive")])
async def test_who_is_not_alive_is_replaced(tmp_path: Path, behaves: str, why: str) -> None:
    slot = slot_of(tmp_path, behaves)
    async with running(slot):
        await until(lambda: slot.replaced >= 1)
    assert slot.last.startswith(f"{why}, ")


async def test_a_planned_replacement_waits_until_the_next_is_ready(tmp_path: Path) -> None:
    slot = slot_of(tmp_path, "well", Patience(stop_s=20.0, silence_s=60.0, pause_s_max=1.0))
    async with running(slot):
        await until(lambda: slot.served)
        before = slot.pid
        await slot.renew()
        assert (await slot.ask("/readyz")).status == 200
        assert (slot.replaced, slot.last) == (1, "asked, status 0")
        assert slot.pid not in (None, before)
    assert slot.pid is None


async def test_who_does_not_leave_is_killed(tmp_path: Path) -> None:
    slot = slot_of(tmp_path, "stubborn", Patience(stop_s=0.01, silence_s=60.0, pause_s_max=1.0))
    async with running(slot):
        await until(lambda: slot.served)
    assert slot.pid is None
    assert slot.replaced == 0
