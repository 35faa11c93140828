"""Confluent's Schema Registry API over the replicated state. See README.md."""

from __future__ import annotations

from agent.http.registry.routes import registry_routes

__all__ = ["registry_routes"]
