"""`floe quarantine replay` that kills itself with SIGKILL at a step: `… STEP TIMES [late] topic …`.

Dies when the step was reached so many times. `late`: the position is committed by a transaction of its own
behind the records', which is the mistake that a test has to see.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from aiokafka import AIOKafkaProducer

from agent.cli import main as floe
from tests.sim.controls_of_quarantine import positions_afterwards
from tests.sim.patching import patched

STEPS = ("started", "begin", "send", "positions", "positioned", "commit", "committed")
_AROUND = {
    "start": ("", "started"),
    "begin_transaction": ("begin", ""),
    "send": ("send", ""),
    "send_offsets_to_transaction": ("positions", "positioned"),
    "commit_transaction": ("commit", "committed"),
}
"""Methods of aiokafka's producer: the step before each, and the one behind it."""


def _stepped(method: Callable[..., Any], before: str, after: str, reach: Callable[[str], None]) -> Any:
    async def stepped(self: Any, *given: Any, **named: Any) -> Any:
        reach(before)
        result = await method(self, *given, **named)
        reach(after)
        return result

    return stepped


def main() -> None:
    """Be the command, up to the step."""
    step, left, words = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    late = words[:1] == ["late"]

    def reach(each: str) -> None:
        nonlocal left
        left -= each == step
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    for name, (before, after) in _AROUND.items():
        setattr(AIOKafkaProducer, name, _stepped(getattr(AIOKafkaProducer, name), before, after, reach))
    sys.argv = ["floe", "quarantine", "replay", *words[late:]]
    with patched(positions_afterwards()) if late else nullcontext():
        floe()


if __name__ == "__main__":
    main()
