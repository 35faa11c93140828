"""How a topic's quarantine is called, and which configs ask for one (quarantine.py makes it)."""

from __future__ import annotations

from collections.abc import Iterable

from coordination.topic_configs import QUARANTINE

RULES_CONFIGS = ("floe.value.rules", "floe.key.rules")
SUFFIX = ".quarantine"


def name_of(topic: str) -> str:
    """What a topic's quarantine is called."""
    return topic + SUFFIX


def topic_of(name: str) -> str:
    """Whose quarantine is called so; the name itself where it is none's."""
    return name.removesuffix(SUFFIX)


def asked_for(values: Iterable[tuple[str, str]]) -> bool:
    """Whether configs, by name and value, send records that break rules to a quarantine."""
    return any(name in RULES_CONFIGS and value == QUARANTINE for name, value in values)
