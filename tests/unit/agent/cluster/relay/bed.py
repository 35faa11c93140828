"""Agents of zones as far as the log goes: real replicas, sockets and relays over one memory log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agent.cluster.peers.client import PeerClient
from agent.cluster.peers.server import PeerServer
from agent.cluster.relay.log import RelayedLog
from agent.cluster.relay.service import Relaying, relayed
from agent.config import Config
from coordination.clock import SystemClock
from coordination.commands import CreateTopic, RegisterAgent
from coordination.memory_log import MemoryLog
from coordination.memory_server import MemoryServer
from coordination.replica import Replica, ReplicaOptions
from coordination.state import Done
from coordination.state.data import FEATURE_LEVEL_MAX
from objectstore.adapters.memory import MemoryStore

SECRET = b"s" * 32
OPTIONS = ReplicaOptions(heartbeat_s=0.2, tick_s=0.05, retry_s=0.05, gap_s=5.0, barrier_s=20.0)
CALM = {"behind_ms_max": 20_000, "silence_ms_max": 20_000, "check_interval_ms": 50}


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that must happen; pytest's timeout is the bound."""
    while not condition():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.01)


class Agent:
    """One of them."""

    def __init__(self, bed: Bed, name: str, zone: str, secret: bytes, given: dict[str, object]) -> None:
        relay = {"enabled": True, "agents_min": 2, **CALM, **given}
        config = Config.model_validate(
            {
                "log": {"url": "memory:"},
                "store": {"url": "memory:"},
                "agent": {"zone": zone},
                "tables": {"enabled": False},
                "peers": {"secret": "s" * 32},
                "relay": relay,
            }
        )
        clock = SystemClock()
        self.memory_log = MemoryLog(bed.server, clock, timeout_s=0.05, silent_s=0.5)
        log = relayed(config, self.memory_log)
        assert log is not None
        self.log: RelayedLog = log
        self.replica = Replica(log, bed.store, clock, OPTIONS)
        self.name, self.zone, self.config = name, zone, config
        self.client = PeerClient(secret, clock)
        self.server = PeerServer(_no_slices, secret, clock, 1 << 20)
        self.relaying: Relaying

    async def start(self) -> None:
        """Like an agent does: identity, port of peers, replica."""
        await self.log.identity()
        self.relaying = Relaying(self.config, self.log, self.replica, self.server, self.client)
        port = await self.server.start("127.0.0.1", 0)
        await self.replica.start(
            RegisterAgent(
                name=self.name,
                node_id=-1,
                feature_max=FEATURE_LEVEL_MAX,
                zone=self.zone,
                peer_address=f"127.0.0.1:{port}",
            )
        )

    async def stop(self) -> None:
        await self.server.stop()
        await self.replica.stop()
        await self.log.close()
        self.client.close()

    @property
    def by_relay(self) -> bool:
        return self.log.stream is not None

    @property
    def reasons(self) -> dict[str, int]:
        return {reason: count for reason, count in self.log.left.items() if reason != "refused"}


async def _no_slices(slices: object, recent: bool) -> list[bytes]:
    raise AssertionError(f"nobody asks for {slices}, {recent}")


class Bed:
    """One log, one bucket."""

    def __init__(self) -> None:
        self.server = MemoryServer("bed")
        self.store = MemoryStore()
        self.agents: list[Agent] = []
        self._topics = 0

    async def add(self, zone: str = "z", *, secret: bytes = SECRET, **given: object) -> Agent:
        """Another agent, started. `given`: settings of `relay`."""
        agent = Agent(self, f"agent-{len(self.agents)}", zone, secret, given)
        self.agents.append(agent)
        await agent.start()
        return agent

    async def zone_of(self, count: int, **given: object) -> list[Agent]:
        """Agents of one zone of which all but the first follow that one."""
        agents = [await self.add(**given) for _ in range(count)]
        await until(lambda: all(each.by_relay for each in agents[1:]))
        return agents

    async def write(self, agent: Agent) -> str:
        """Make a topic through an agent; its name."""
        self._topics += 1
        name = f"t{self._topics}"
        made = await agent.replica.propose(
            CreateTopic(name=name, topic_id=name.encode().ljust(16, b".")[:16], partitions=1)
        )
        assert isinstance(made, Done)
        return name

    async def agree(self) -> None:
        """Every agent sees what was written through every other one, and all have one hash."""
        for writer in self.agents:
            name = await self.write(writer)
            for reader in self.agents:
                await reader.replica.barrier()
                assert name in reader.replica.state.topics, f"{reader.name} does not see {name}"
        at = min(each.replica.state.revision for each in self.agents)
        assert len({each.replica.state.hash_at(at) for each in self.agents}) == 1

    async def stop(self) -> None:
        for agent in self.agents:
            await agent.stop()
