"""What the cluster is told of an agent when it registers."""

from __future__ import annotations

from collections.abc import Sequence

from agent.config import Config, advertised
from agent.version import VERSION
from coordination.commands import Listener as ListenerMessage
from coordination.commands import RegisterAgent
from coordination.state.data import FEATURE_LEVEL_MAX, FEATURE_LEVEL_MIN


def registration(
    config: Config, kafka_ports: Sequence[int], http_port: int, peer_address: str
) -> RegisterAgent:
    """`kafka_ports`: where its listeners are bound, in their order; `peer_address`: empty without one."""
    listeners = [
        ListenerMessage(
            name=each.name,
            host=advertised(each.host, each.advertised_host),
            port=each.advertised_port or port,
        )
        for each, port in zip(config.listeners, kafka_ports, strict=True)
    ]
    http = config.http
    return RegisterAgent(
        name=config.agent_name,
        node_id=config.agent.node_id,
        listeners=listeners,
        zone=config.agent.zone,
        http_address=f"{advertised(http.host, http.advertised_host)}:{http.advertised_port or http_port}",
        version=VERSION,
        feature_min=FEATURE_LEVEL_MIN,
        feature_max=FEATURE_LEVEL_MAX,
        roles=config.roles,
        peer_address=peer_address,
        joining=True,
    )
