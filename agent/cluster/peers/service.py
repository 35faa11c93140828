"""An agent's side of reads inside its zone: server, client, owners, warm-up, put together."""

from __future__ import annotations

from collections.abc import Mapping

from agent.cluster.peers.client import PeerClient
from agent.cluster.peers.near import Near, Patience
from agent.cluster.peers.owners import Owners
from agent.cluster.peers.server import Figures, PeerServer
from agent.cluster.peers.tls import tls_of
from agent.cluster.peers.warm import Warmer
from agent.cluster.peers.whole import WholeChunks
from agent.cluster.peers.wire import secret_of
from agent.config import Config
from agent.telemetry.metrics import Metrics
from coordination.clock import Clock
from coordination.replica import Replica
from objectstore.reader import ChunkReader
from objectstore.store import ObjectStore


class Peers:
    """Made once the cluster's secret is known. Without `start` this agent asks but does not answer."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        replica: Replica,
        reader: ChunkReader,
        store: ObjectStore,
        cluster_id: bytes,
        metrics: Metrics,
        figures: Figures | None = None,
    ) -> None:
        """`figures`: what this agent says of itself to others that ask."""
        peers = config.peers
        self._config = peers
        secret = secret_of(cluster_id, config.cluster.name, peers.secret.get_secret_value())
        self._tls = tls_of(config, metrics)
        self.whole = WholeChunks(store, peers.chunk_cache_bytes_max, config.fetch.cold_reads_in_flight_max)
        owners = Owners(
            lambda: replica.state, lambda: replica.incarnation, config.agent.zone, peers.recent_chunks_max
        )
        patience = Patience(peers.hedge_ms / 1000, peers.timeout_ms / 1000)
        self.client = client = PeerClient(secret, clock, self._tls)
        self.near = Near(reader, owners, client, self.whole, patience, replica.barrier)
        self.server = PeerServer(
            self.near.serve,
            secret,
            clock,
            peers.answers_bytes_max,
            tls=self._tls,
            connections_max=peers.connections_max,
            handshakes_max=peers.handshake_connections_max,
            figures=figures,
        )
        replica.add_listener(owners.applied)
        replica.add_reload_listener(owners.reloaded)
        reader.near = self.near

    async def start(self) -> int:
        """Listen for peers; gives the bound port. Raises OSError when it is taken."""
        if self._tls is not None:
            self._tls.start()
        return await self.server.start(self._config.host, self._config.port)

    async def stop(self) -> None:
        """Answer no more, ask no more. Idempotent."""
        if self._tls is not None:
            await self._tls.stop()
        await self.server.stop()
        await self.near.close()

    def counts(self) -> Mapping[str, int]:
        """What was done since the start, by name."""
        near, whole, server = self.near.stats, self.whole.stats, self.server.stats
        return {
            "peer_asked": near.asked,
            "peer_hits": near.hits,
            "peer_hit_bytes": near.hit_bytes,
            "peer_failed": near.failed,
            "peer_hedged": near.hedged,
            "peer_corrupt": near.corrupt,
            "whole_gets": whole.gets,
            "whole_get_bytes": whole.get_bytes,
            "whole_hits": whole.hits,
            "peer_served": server.served,
            "peer_served_bytes": server.served_bytes,
            "peer_refused": server.refused,
        }


def warmer_of(config: Config, replica: Replica, reader: ChunkReader) -> Warmer:
    """What reads tails ahead for this agent."""
    warmer = Warmer(lambda: replica.state, lambda: replica.node_id, reader, config.peers.warm_bytes_max)
    replica.add_listener(warmer.applied)
    return warmer
