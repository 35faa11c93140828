"""What an agent takes that has nothing to do: processor time and memory, of its process and those it started.

As the chart installs it: over etcd and MinIO, tables on, one of one and each of three; none has a topic. What
makes tables comes with the first topic that wants one, so an agent with one such is a row of its own. Memory
is what the processes have for themselves and their share of what they have together (PSS). Processor time is
counted from a while after the start, so that neither the start nor its first collection is in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from tests.bench.agents import on_services
from tests.bench.figure import Figure

SETTLE_S, WATCHED_S = 15.0, 60.0
SHARE_GOAL, MEMORY_GOAL_MIB = 1.0, 130.0
USER = 11
"""Of /proc/PID/stat behind the name: user, system, and both of children that ended (proc_pid_stat(5))."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """The process and all that it and they started."""
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return [
        pid,
        *(each for text in threads for child in text.read_text().split() for each in family(int(child))),
    ]


def cpu_s(pid: int) -> float:
    """Processor seconds so far of the process and all that it and they started, those that ended too."""
    taken = 0
    for each in family(pid):
        with suppress(FileNotFoundError):  # it ended just now: its time is its parent's
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(") ")[2].split()
            taken += sum(map(int, fields[USER : USER + 4]))
    return taken / TICKS_PER_S


def memory_mib(pid: int) -> float:
    """Its proportional set size."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def idle(agents: list[FloeAgent]) -> tuple[float, float]:
    """Percent of a core and MiB of the agent that takes most."""
    time.sleep(SETTLE_S)
    before, begun = [cpu_s(agent.pid) for agent in agents], time.monotonic()
    time.sleep(WATCHED_S)
    taken = [cpu_s(agent.pid) - then for agent, then in zip(agents, before, strict=True)]
    share = 100 * max(taken) / (time.monotonic() - begun)
    return share, max(sum(map(memory_mib, family(agent.pid))) for agent in agents)


def figures() -> Iterable[Figure]:
    """One agent alone, then three; one alone that has made a table."""
    for count in (1, 3):
        of = "agent alone" if count == 1 else f"one of {count} agents"
        share, memory = _measured(count)
        yield Figure(f"idle, {of}: processor", share, "% of a core", goal=SHARE_GOAL, better="less")
        yield Figure(f"idle, {of}: memory", memory, "MiB", goal=MEMORY_GOAL_MIB, better="less")
    share, memory = _measured(1, tabled=True)
    yield Figure("idle, agent that made a table: processor", share, "% of a core")
    yield Figure("idle, agent that made a table: memory, helper process included", memory, "MiB")


def _measured(count: int, *, tabled: bool = False) -> tuple[float, float]:
    """See `idle`. `tabled`: there is a topic with a record that becomes a row."""
    with ExitStack() as stack:
        etcd, minio = stack.enter_context(Etcd()), stack.enter_context(Minio())
        settings = on_services(etcd, minio, minio.make_bucket("idle-bench"), tables={"enabled": True})
        agents = [stack.enter_context(FloeAgent(f"agent-{number}", settings)) for number in range(count)]
        if tabled:
            for words in (("topic", "create", "kept"), ("produce", "kept", "-v", "one")):
                asked = [sys.executable, "-m", "agent", *words, "--bootstrap", agents[0].bootstrap]
                subprocess.run(asked, check=True, env={**os.environ, "FLOE_HTTP": agents[0].http})
        return idle(agents)
