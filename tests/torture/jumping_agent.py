"""An agent whose clock jumps an hour ahead at SIGUSR1 and back at SIGUSR2. Run as `floe serve` is."""

from __future__ import annotations

import os
import signal
import sys

from coordination.clock import SystemClock
from tests.torture.late_ends import Agent

JUMP_MS = 3_600_000


class JumpingAgent(Agent):
    """`jump` and `land` move its clock."""

    def command(self) -> list[str]:
        """This file in place of `floe`."""
        jumping = [sys.executable, "-m", "tests.torture.jumping_agent"]
        return [*jumping, "serve", "--config", str(self.config_file)]

    def jump(self) -> None:
        """An hour ahead."""
        os.kill(self.pid, signal.SIGUSR1)

    def land(self) -> None:
        """Right again."""
        os.kill(self.pid, signal.SIGUSR2)


def main() -> None:
    """Put the moved clock in place, then be an agent."""
    right, ahead = SystemClock.now_ms, [0]

    def move(number: int, _: object) -> None:
        ahead[0] = JUMP_MS if number == signal.SIGUSR1 else 0

    for each in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(each, move)
    SystemClock.now_ms = lambda self: right(self) + ahead[0]  # type: ignore[method-assign]  # the clock that every part holds
    from agent.cli import main as floe

    floe()


if __name__ == "__main__":
    main()
