"""What an idle connection costs an agent in memory: plain, and over TLS and logged in by SCRAM.

Resident memory of the agent's process before and after, divided; the kernel's buffers are not in it. An agent
of its own for each kind, as memory that one gave back would hide what the next takes. Each connection has
logged in and asked for Metadata once; those *that were busy* have also sent 256 kB (to a partition that is
not there, so that no cache keeps them) and read 1 MB.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from agent.config.model import embedded_values
from agent.net.wire.generated import metadata as m
from coordination.kafka_codes import Code
from deploy.services.floe import FloeAgent
from tests.bench.doors import Caller, Doors, Scram
from tests.bench.figure import Figure
from tests.bench.load import batch_of, codes_of, create_topic, fetch_frame, produce_all, produce_frame

IDLE, BUSY, WARM = 5_000, 1_000, 50
TOPIC, BATCH_RECORDS, READ_BYTES = "idle", 256, 1_000_000
SETTLE_S = 2.0
GOAL_KIB = 60.0
ASKED = m.MetadataRequest(topics=[], allow_auto_topic_creation=False)
PRODUCE = produce_frame(TOPIC, batch_of(BATCH_RECORDS), [0])
REFUSED = produce_frame(TOPIC, batch_of(BATCH_RECORDS), [1])
FETCH = fetch_frame(TOPIC, [0], READ_BYTES, READ_BYTES)


def resident_kib(pid: int) -> float:
    """What the process has in memory now (VmRSS)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def work(caller: Caller) -> None:
    """Send much that is refused, and read much."""
    caller.wire.sendall(REFUSED)
    assert codes_of(caller.receive()) == [Code.UNKNOWN_TOPIC_OR_PARTITION]
    caller.wire.sendall(FETCH)
    assert len(caller.receive()) > READ_BYTES // 2


def each_kib(protocol: str, count: int, then: Callable[[Caller], None] = lambda caller: None) -> float:
    """Memory of each of `count` connections, KiB."""
    with tempfile.TemporaryDirectory() as folder:
        doors, scram = Doors(Path(folder)), Scram()
        base = embedded_values(Path(folder) / "data", kafka_port=0, http_port=0)
        places = {section: base[section] for section in ("log", "store")}

        def come() -> Caller:
            caller = doors.call(protocol)
            if protocol.startswith("SASL"):
                scram.login(caller)
            caller.ask("Metadata", ASKED, 9)
            then(caller)
            return caller

        with FloeAgent("agent", doors.settings | places) as agent:
            plain = f"127.0.0.1:{doors.ports['PLAINTEXT']}"
            asyncio.run(create_topic(plain, TOPIC, 1))
            asyncio.run(produce_all(plain, PRODUCE, 8, 1))
            for caller in [come() for _ in range(WARM)]:
                caller.close()
            time.sleep(SETTLE_S)
            before = resident_kib(agent.pid)
            callers = [come() for _ in range(count)]
            time.sleep(SETTLE_S)
            after = resident_kib(agent.pid)
            for caller in callers:
                caller.close()
    return (after - before) / count


def figures() -> Iterable[Figure]:
    """Idle ones, then those that were busy."""
    for protocol, goal in (("PLAINTEXT", None), ("SASL_SSL", GOAL_KIB)):
        name = f"{IDLE:,} idle connections, {protocol}: agent memory"
        yield Figure(name, each_kib(protocol, IDLE), "KiB each", goal=goal, better="less")
    for protocol, goal in (("PLAINTEXT", None), ("SASL_SSL", GOAL_KIB)):
        name = f"{BUSY:,} idle connections that were busy, {protocol}: agent memory"
        yield Figure(name, each_kib(protocol, BUSY, work), "KiB each", goal=goal, better="less")
