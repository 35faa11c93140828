"""`floe serve` with several processes: what it starts, and what it becomes itself."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import uvloop

from agent.cli.failures import Failure, Status
from agent.config import Config, Loaded, load
from agent.processes.slot import Hopeless
from agent.processes.supervisor import Supervisor, folder_for
from agent.telemetry import logs
from coordination.clock import SystemClock

Command = Callable[[int, Path], Sequence[str]]
"""How the agent of a process is started, that answers at a path."""


def supervise(loaded: Loaded, file: Path | None, assign: Sequence[str]) -> None:
    """Run so many agents until a signal. Raises ConfigError, Failure."""
    config = loaded.config
    count = config.agent.processes
    logs.configure(config.logging, sys.stderr, agent=config.agent_name)
    if loaded.memory_problem:
        raise Failure(Status.CONFIG, f"each of {count} processes: {loaded.memory_problem}")
    given = [word for each in assign for word in ("--set", each)]
    if file is not None:
        given = ["--config", str(file), *given]

    def command(number: int, path: Path) -> list[str]:
        """A child's command line; how many there are is decided once, here."""
        own = ["--set", f"agent.processes={count}", "--process", str(number), "--watched-at", str(path)]
        return [sys.executable, "-m", "agent", "serve", *given, *own]

    with (
        folder_for(count) as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        try:
            runner.run(_live(config, command, lambda: load(file, assign).config, Path(folder)))
        except Hopeless as end:
            raise Failure(Status(end.status), str(end)) from None
        except OSError as error:
            raise Failure(Status.FAILED, f"{error.strerror or error}") from None


async def _live(config: Config, command: Command, read_again: Callable[[], Config], folder: Path) -> None:
    await Supervisor(config, command, read_again, folder, SystemClock()).run()
