"""`make explore`: the whole scope, and every negative control."""

from __future__ import annotations

import sys
import time

from tests.explore.moves import Scope
from tests.explore.search import explore
from tests.explore.world import Budget

if __name__ == "__main__":
    began = time.monotonic()

    def tell(states: int, depth: int) -> None:
        print(f"{states:,} states, depth {depth}, {time.monotonic() - began:.0f} s", flush=True)

    values = [int(v) for v in sys.argv[1].split(",")] if len(sys.argv) > 1 else []
    broken = sys.argv[2] if len(sys.argv) > 2 else ""
    outcome = explore(Scope(broken=broken), Budget(*values), int(sys.argv[3]) if len(sys.argv) > 3 else 1 << 62, tell)
    print(outcome.states, outcome.depth, outcome.complete, f"{time.monotonic() - began:.1f} s", outcome.found)
    print("\n".join(outcome.story))
