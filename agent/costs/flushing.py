"""How often an agent writes a chunk: the flush planner's rules, in the mean of a steady load.

Requests come at chance times from connections of which none is waited for. The planner's window rule, made
for few producers at full speed, writes later and fewer chunks (docs/decisions/0009-when-to-flush.md).
"""

from __future__ import annotations

import math

from agent.config.limits import ProduceConfig
from agent.kafka.produce.planner import LINGER_GROWTH, lingers_s


def interval_s(produce: ProduceConfig, write: float, request_bytes: float, flush_s: float) -> float:
    """Seconds between two chunks of one agent that gets `write` bytes a second in such requests.

    `flush_s`: from the beginning of a PUT until its entry is applied. Its answers open the windows of their
    connections, for which the next flush waits `quiet_ms`, or until anything comes at all. With n flushes
    under way the oldest byte waits as long as one takes, `linger_ms` at least, LINGER_GROWTH^(n-1) times.
    """
    arrivals = write / request_bytes
    linger, quiet = lingers_s(produce.linger_ms / 1000, flush_s, 1), produce.quiet_ms / 1000
    alone = flush_s + min(quiet, linger)
    found = alone + math.exp(-arrivals * alone) / arrivals
    for under_way in range(1, produce.puts_in_flight_max):
        waited = 1 / arrivals + max(linger, flush_s) * LINGER_GROWTH ** (under_way - 1)
        found = min(found, max(waited, flush_s / (under_way + 1)))
    full = max(produce.chunk_bytes_max / write, flush_s / produce.puts_in_flight_max)
    return max(min(found, full), 1 / produce.puts_per_s_max)
