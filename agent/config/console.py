"""The section about the console: whether there is one, and how much a search through records may take."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agent.config.base import KIB, MIB, Section


class ConsoleConfig(Section):
    """The pages under `/console` (docs/console.md)."""

    enabled: bool = True
    """Whether this agent serves them."""

    searches_in_flight_max: Annotated[int, Field(ge=1, le=64)] = 2
    """Looks at records that one agent does side by side; further ones are answered 503."""

    search_records_max: Annotated[int, Field(ge=100, le=1_000_000)] = 10_000
    """Records that one look takes in, shown or not; it can be gone on with where it stopped."""

    search_bytes_max: Annotated[int, Field(ge=64 * KIB, le=1024 * MIB)] = 16 * MIB
    """Bytes of batches that one look reads, about; the last batch is read whole."""

    search_ms_max: Annotated[int, Field(ge=100, le=60_000)] = 5_000
    """How long one look goes on, milliseconds."""
