"""The section that says what an agent tells of itself in figures and traces."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr

from agent.config.base import Section


class TracesConfig(Section):
    """Traces of requests and of tables' commits, for a collector of OpenTelemetry's (docs/operations.md)."""

    endpoint: Annotated[str, Field(max_length=2_048, pattern=r"^(https?://[^\s]+)?$")] = ""
    """Where they are sent, by OTLP over HTTP, such as `http://collector:4318/v1/traces`. Empty: no traces."""

    share: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Of all requests and commits, this share is kept, chosen when they begin."""

    slow_ms: Annotated[int, Field(ge=0, le=3_600_000)] = 1_000
    """What took so long is kept besides, milliseconds; time that a poll waits for records does not count. 0:
    none is kept for that, and what is not of the share costs nothing."""

    per_s_max: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Traces kept in a second; further ones are lost, and counted (`floe_traces_lost_total`)."""

    queue_traces_max: Annotated[int, Field(ge=1, le=100_000)] = 1_000
    """Traces that wait to be sent; further ones are lost likewise. Some 10 KB each."""

    interval_ms: Annotated[int, Field(ge=10, le=60_000)] = 1_000
    """How often they are sent, milliseconds."""

    timeout_ms: Annotated[int, Field(ge=100, le=60_000)] = 3_000
    """How long the collector may take, tries included, milliseconds; then a batch is lost."""

    headers: SecretStr = SecretStr("")
    """What the collector wants to be told, as `name=value` parted by commas; a login, for instance."""

    ca_file: Annotated[str, Field(max_length=4_096)] = ""
    """Certificates by which the collector's is checked, PEM. Empty: those that Python's requests trusts."""


class TelemetryConfig(Section):
    """Figures by topic and group (docs/metrics.md)."""

    topics_max: Annotated[int, Field(ge=0, le=10_000)] = 100
    """Topics whose bytes and records are shown, those of most bytes at this agent. 0: none."""

    groups_max: Annotated[int, Field(ge=0, le=10_000)] = 200
    """Consumer groups, by topic, whose lag is shown, those that are latest. 0: none, and nobody looks."""
