"""Which of the optional native modules this process uses: they change what things cost, and nothing else."""

from __future__ import annotations

from typing import Final

from agent.version import VERSION
from coordination.state import chunks
from objectstore import batch

MODULES: Final = {"objectstore._frames": batch.NATIVE, "coordination.state._appending": chunks.NATIVE}


def in_use() -> str:
    """Their names, or `none`."""
    return ", ".join(name for name, used in MODULES.items() if used) or "none"


def build_facts() -> dict[str, str]:
    """What `floe_build_info` and `/status` say."""
    return {"version": VERSION, "native": in_use()}
