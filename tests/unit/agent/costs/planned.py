"""Configurations for planners that are asked what the model says they do."""

from __future__ import annotations

from agent.config import Config
from agent.config.limits import ProduceConfig


def config_of(produce: ProduceConfig) -> Config:
    """A configuration with this section."""
    tree = {"log": {"url": "memory:"}, "store": {"url": "memory:"}, "tables": {"enabled": False}}
    return Config.model_validate({**tree, "produce": produce.model_dump()})
