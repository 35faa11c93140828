"""Rules of deleted topics broken: what they hold goes once, however many entries it takes."""

from __future__ import annotations

from typing import Any

from coordination.state import leaving
from coordination.state.data import StateData
from coordination.state.levels import LEAVING
from coordination.state.types import Partition
from tests.sim.controls import LOST, Control, patched


def _lets_go_twice() -> tuple[tuple[Any, str, Any], ...]:
    """Chunks that other topics' records are in lose their references too."""
    real = leaving._let_go

    def let_go(state: StateData, partition: Partition, rows: int, now_ms: int) -> None:
        serials = list(partition.slices.serials())[:rows]
        real(state, partition, rows, now_ms)
        state.chunks.release([one for one in serials if one in state.chunks.by_serial], now_ms)

    return ((leaving, "_let_go", let_go),)


DELETION = (
    Control(
        "leaving-lets-go-twice",
        "9: nothing goes that may be referenced",
        LOST,
        lambda: patched(*_lets_go_twice()),
        lambda plan: plan.mortal and plan.level >= LEAVING,
    ),
)
