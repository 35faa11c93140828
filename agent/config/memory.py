"""Caches and buffers that fit the memory there is: what the configuration leaves open is scaled to it.

The defaults need DEFAULTS_BYTES. With less, each setting below that nobody gave shrinks by one factor, down
to its floor. What cannot work is refused, what may not work when everything is full at once is warned of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.config.base import GIB, MIB
from agent.config.schema import Path
from agent.config.tree import Tree

# Measured at 10 MB/s with all caches at their floors (python -m tests.bench.memory_load; docs/operations.md):
# what is held beside the settings below.
AGENT_BYTES = 170 * MIB
WRITER_BYTES = 105 * MIB  # the helper process that writes tables
REWRITER_BYTES = 30 * MIB  # the one that merges and compacts
STATE_SHARE = 0.05  # of the limit, left for the replicated state and what the allocator does not give back
DEFAULTS_BYTES = 2 * GIB  # with so much the defaults stay as they are


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting, bytes. `weight`: how often it is held at once; `fills`: ordinary work fills it up."""

    path: Path
    floor: int
    weight: float = 1.0
    fills: bool = False


KNOBS = (
    Knob(("fetch", "cache_bytes_max"), 16 * MIB, fills=True),
    Knob(("fetch", "cold_cache_bytes_max"), 4 * MIB, fills=True),
    Knob(("fetch", "index_cache_bytes_max"), 2 * MIB, fills=True),
    Knob(("fetch", "response_bytes_max"), 4 * MIB, 0),
    Knob(("peers", "chunk_cache_bytes_max"), 4 * MIB, fills=True),
    Knob(("peers", "answers_bytes_max"), 4 * MIB),
    Knob(("peers", "warm_bytes_max"), 1 * MIB, 0),
    Knob(("produce", "buffer_bytes_max"), 12 * MIB),
    Knob(("produce", "chunk_bytes_max"), 4 * MIB, 0),
    Knob(("limits", "process_bytes_max"), 16 * MIB),
    Knob(("limits", "request_bytes_max"), 8 * MIB, 0),
    Knob(("limits", "response_bytes_max"), 8 * MIB, 0),
    Knob(("limits", "metadata_cache_bytes_max"), 4 * MIB, fills=True),
    Knob(("replica", "queue_bytes_max"), 4 * MIB),
    Knob(("tables", "bytes_per_commit_max"), 8 * MIB, 2),
    Knob(("tables", "compaction_bytes_max"), 8 * MIB, 0.25),
    Knob(("tables", "latest_bytes_max"), 8 * MIB, 0.125),
    Knob(("merging", "segment_bytes"), 4 * MIB, 2),
)
"""In the order in which a person would look at them."""

SCALED = "memory limit of"  # so begins the origin of what was scaled

WITHIN = (
    (("produce", "chunk_bytes_max"), ("produce", "buffer_bytes_max")),
    (("limits", "request_bytes_max"), ("limits", "process_bytes_max")),
    (("fetch", "response_bytes_max"), ("limits", "response_bytes_max")),
)
"""The first must not be above the second (rules.py): where one of them is given, the other one yields."""

REMEDY = "give the agent more (agent.memory_bytes_max, or the limit of its container)"


def scaled(limit: int, given: Mapping[Path, object]) -> dict[Path, int]:
    """Values for the settings that are not `given`, where `limit` bytes are less than the defaults need.

    The given ones count by their defaults here: what they really are, `problem` and `warning` look at.
    """
    if limit >= DEFAULTS_BYTES:
        return {}
    roles, tables = given.get(("agent", "roles"), "all"), given.get(("tables", "enabled"), True)
    fixed = _fixed(str(roles), str(tables).lower() != "false")
    free = max(0.0, limit * (1 - STATE_SHARE) - fixed)
    factor = free / (DEFAULTS_BYTES * (1 - STATE_SHARE) - fixed)
    found = {knob.path: max(knob.floor, int(default(knob.path) * factor) // MIB * MIB) for knob in KNOBS}
    for small, large in WITHIN:
        if small in given:
            found[large] = max(found[large], _number(given[small]) or 0)
        if large in given:
            found[small] = min(found[small], _number(given[large]) or found[small])
    return {path: value for path, value in found.items() if path not in given}


def _number(value: object) -> int | None:
    """A setting as it was written; None for what is none: it is refused when the whole is looked at."""
    text = str(value).strip()
    return int(text) if text.isdecimal() else None


def default(path: Path) -> int:
    """A setting's default, bytes."""
    section, name = path
    found = getattr(Tree.model_fields[section].default, name)
    assert isinstance(found, int)
    return found


def needed(config: Tree) -> int:
    """Bytes when all that is configured is full at once."""
    return _fixed_of(config) + int(sum(value * knob.weight for knob, value in _values(config)))


def certain(config: Tree) -> int:
    """Bytes that ordinary work comes to in time, whatever the clients do."""
    return _fixed_of(config) + sum(value for knob, value in _values(config) if knob.fills)


def problem(config: Tree, limit: int, origins: Mapping[Path, str]) -> str | None:
    """Why the agent cannot work within `limit` bytes; None when it can."""
    wanted = certain(config)
    if wanted <= limit:
        return None
    return f"memory: {_mib(limit)} are too few: {_mib(wanted)} are in use in time; {_remedy(config, origins)}"


def warning(config: Tree, limit: int, origins: Mapping[Path, str]) -> str | None:
    """Why the agent may be killed within `limit` bytes when all is full at once; None when it fits."""
    wanted = needed(config)
    if wanted <= limit:
        return None
    return (
        f"memory: {_mib(limit)} may be too few: up to {_mib(wanted)} are used when all is full at once; "
        f"{_remedy(config, origins)}"
    )


def _fixed_of(config: Tree) -> int:
    relay = config.relay.enabled * config.relay.buffer_bytes_max
    return _fixed(config.agent.roles, config.tables.enabled) + relay


def _fixed(roles: str, tables: bool) -> int:
    """What an agent of these roles holds whatever the settings are, bytes."""
    if roles != "all" and "background" not in roles:
        return AGENT_BYTES
    return AGENT_BYTES + REWRITER_BYTES + tables * WRITER_BYTES


def _remedy(config: Tree, origins: Mapping[Path, str]) -> str:
    """The largest setting that somebody gave and that can be smaller, and the other way out."""
    own = [
        (value * knob.weight, ".".join(knob.path), value)
        for knob, value in _values(config)
        if not origins.get(knob.path, SCALED).startswith(SCALED) and knob.weight and value > knob.floor
    ]
    if not own:
        return REMEDY
    _, name, value = max(own)
    return f"lower {name} ({value}, {origins[tuple(name.split('.'))]}), or {REMEDY}"


def _values(config: Tree) -> list[tuple[Knob, int]]:
    return [(knob, getattr(getattr(config, knob.path[0]), knob.path[1])) for knob in KNOBS]


def _mib(count: int) -> str:
    return f"{count / MIB:.0f} MiB"
