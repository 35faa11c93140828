"""No config can be set that nothing reads: what has no effect is read-only, or says so."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from coordination.broker_configs import BROKER_CONFIGS
from coordination.group_configs import BOUNDS, GROUP_CONFIGS
from coordination.topic_configs import TOPIC_CONFIGS, compacts, deletes

ROOT = Path(__file__).parents[3]
PACKAGES = ("agent", "iceberg", "schema", "coordination", "objectstore")
TABLES = {ROOT / "coordination" / f"{of}_configs.py" for of in ("broker", "topic", "group")}
NO_EFFECT = "No effect in Floe: "


@cache
def texts() -> frozenset[str]:
    """Every string that stands in the code for itself, but for the tables."""
    found: set[str] = set()
    for package in PACKAGES:
        for file in set((ROOT / package).rglob("*.py")) - TABLES:
            nodes = ast.walk(ast.parse(file.read_text()))
            found |= {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return frozenset(found)


def is_read(name: str) -> bool:
    """Whether code asks for the config by its name; cleanup.policy is asked for by functions of its table."""
    return name in texts() or (name == "cleanup.policy" and deletes({}, {}) and not compacts({}, {}))


READ_THROUGH: dict[str, str] = {  # a broker config that is read as part of another one → that one
    **{config.broker_name: name for name, config in GROUP_CONFIGS.items() if config.broker_name},
    **{bound: name for name, bounds in BOUNDS.items() for bound in bounds},
    **{coarser: name for name, config in TOPIC_CONFIGS.items() for coarser, _ in config.coarser},
    **{config.broker_name: name for name, config in TOPIC_CONFIGS.items() if config.broker_name},
}


@pytest.mark.parametrize("name", [each.name for each in BROKER_CONFIGS.values() if not each.read_only])
def test_what_can_be_set_for_the_cluster_is_read(name: str) -> None:
    topic = TOPIC_CONFIGS.get(READ_THROUGH.get(name, ""))
    if topic is not None and not topic.in_effect:
        return  # the default of a topic config that topics show, and nothing else: see below
    assert is_read(name) or is_read(READ_THROUGH.get(name, name)), (
        f"{name}: nothing reads it: make it read-only"
    )


@pytest.mark.parametrize("name", [*TOPIC_CONFIGS, *GROUP_CONFIGS])
def test_what_can_be_set_of_a_topic_or_group_is_read_or_says_that_it_is_not(name: str) -> None:
    config = TOPIC_CONFIGS.get(name) or GROUP_CONFIGS[name]
    assert config.in_effect == is_read(name), f"{name}: in_effect says otherwise than the code"
    if not config.in_effect and name != "compression.type":
        assert config.doc.startswith(NO_EFFECT), f"{name}: its documentation must say that it has no effect"


@pytest.mark.parametrize("name", [each.name for each in BROKER_CONFIGS.values() if each.read_only])
def test_what_is_read_only_says_why(name: str) -> None:
    config = BROKER_CONFIGS[name]
    assert not config.in_effect, f"{name}: who acts on it cannot be read-only"
    assert config.doc
