"""Following inside a zone, put together: as configured, for one agent."""

from __future__ import annotations

from collections.abc import Mapping

from agent.cluster.peers.client import PeerClient
from agent.cluster.peers.server import PeerServer
from agent.cluster.relay.choice import Choice, choose
from agent.cluster.relay.log import RelayedLog, RelayOptions, Zone
from agent.cluster.relay.serving import RelayServer
from agent.cluster.relay.stream import REASONS
from agent.config import Config
from coordination.log import Log, Witness
from coordination.replica import Replica


def relayed(config: Config, log: Log) -> RelayedLog | None:
    """The log, followed by a relay where there is one. None where that is not configured or possible."""
    relay = config.relay
    if not relay.enabled or not config.peers.enabled or not isinstance(log, Witness):
        return None
    options = RelayOptions(
        behind_s=relay.behind_ms_max / 1000,
        silent_s=relay.silence_ms_max / 1000,
        check_s=relay.check_interval_ms / 1000,
        buffer_bytes_max=relay.buffer_bytes_max,
    )
    return RelayedLog(log, options)


class Relaying:
    """Both sides of one agent: it may be followed from now on, and may follow."""

    def __init__(
        self, config: Config, log: RelayedLog, replica: Replica, server: PeerServer, client: PeerClient
    ) -> None:
        self.log = log
        self.server = RelayServer(log.ring, log.name, log.ask_progress, config.relay.followers_max)
        server.relay = self.server.serve
        zone, agents_min = config.agent.zone, config.relay.agents_min

        def chosen() -> Choice | None:
            return choose(replica.state, replica.incarnation, zone, agents_min)

        log.join(Zone(chosen, lambda: replica.state, client.open))

    def counts(self) -> Mapping[str, int]:
        """What was done since the start, and what is now, by name."""
        log = self.log
        return {
            "relay_followed": int(log.stream is not None),
            "relay_entries": log.by_relay,
            "relay_followers": self.server.followers,
            "relay_sent_bytes": self.server.sent_bytes,
            "relay_kept_bytes": log.ring.size,
            **{f"relay_left_{reason}": log.left[reason] for reason in REASONS},
        }
