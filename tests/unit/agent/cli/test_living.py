"""One agent's life in its process, from its start to a signal."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from pathlib import Path

from structlog.testing import capture_logs

from agent.app import App
from agent.cli.serving import _live
from agent.config import Config, Loaded


async def test_full_collections_do_not_walk_what_the_start_has_left(tmp_path: Path) -> None:
    """The event loop waits for them: a tenth of a second for an agent's modules alone."""
    frozen: list[int] = []

    def started(app: App) -> None:
        frozen.append(gc.get_freeze_count())
        os.kill(os.getpid(), signal.SIGTERM)

    gc.unfreeze()
    try:
        await _live(Loaded(Config.embedded(tmp_path, kafka_port=0, http_port=0), {}), started, None, False)
    finally:
        gc.unfreeze()
    assert frozen[0] > 50_000, "the modules at least"


async def test_sighup_ends_no_agent(tmp_path: Path) -> None:
    """It is to "read again" what an agent reads at its start only; by default it ends a process at once."""
    ended: list[int] = []

    def started(app: App) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGHUP, lambda number, _frame: ended.append(number))
    gc.unfreeze()
    try:
        with capture_logs() as lines:
            await _live(
                Loaded(Config.embedded(tmp_path, kafka_port=0, http_port=0), {}), started, None, False
            )
    finally:
        gc.unfreeze()
        asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, before)
    assert not ended
    assert [line["event"] for line in lines if "SIGHUP changes nothing" in line["event"]]
