"""A rolling restart of three agents under load: how long clients wait.

One figure per client and restart: the longest time without an acknowledgement or a record while an agent
leaves and comes back. Clients: librdkafka's idempotent producers and members of a classic and a KIP-848
group, Java's producer and consumer, 100 records a second from each producer.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.bench.figure import Figure
from tests.equipment.zoned import Zoned
from tests.torture.rolling import rolling_restart
from tests.torture.run import create_topic

ROUNDS_OF_RESTARTS = 5  # 105 pauses, so that the 99th percentile is not just the longest


def figures() -> Iterable[Figure]:
    """The pause, and what an application noticed besides it."""
    with Zoned(("", "", "")) as cluster, tempfile.TemporaryDirectory() as folder:
        create_topic(cluster.bootstrap, "rolling", 6)
        outcome = rolling_restart(cluster, "rolling", Path(folder), rounds=ROUNDS_OF_RESTARTS)
    title = "rolling restart, 3 agents, 7 clients"
    yield Figure(f"{title}: pause of a client, median", outcome.percentile(0.5), "s", better="less")
    yield Figure(f"{title}: pause of a client, p99", outcome.percentile(0.99), "s", goal=1.0, better="less")
    name = f"{title}: errors, losses and doubles of {outcome.acknowledged:,} records"
    yield Figure(name, len(outcome.findings), "", goal=0, better="less")
