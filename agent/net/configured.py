"""The connection layer's limits as configured."""

from __future__ import annotations

from agent.config import Config
from agent.net.connection import Limits


def server_limits(config: Config) -> Limits:
    """What of a connection is bounded, and by what."""
    limits = config.limits
    return Limits(
        frame_bytes_max=limits.request_bytes_max,
        process_bytes_max=limits.process_bytes_max,
        requests_in_flight_max=limits.requests_in_flight_max,
        response_bytes_max=limits.response_bytes_max,
        connections_max=limits.connections_max,
        idle_s_max=limits.connection_idle_ms_max / 1000,
        strangers_max=limits.stranger_connections_max,
        login_s_max=limits.login_ms_max / 1000,
        stranger_frame_bytes_max=config.sasl.receive_bytes_max,
    )
