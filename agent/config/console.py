"""The section about the console: whether there is one, and how much a look may take and remember."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agent.config.base import KIB, MIB, Section


class ConsoleConfig(Section):
    """The pages under `/console` (docs/console.md)."""

    enabled: bool = True
    """Whether this agent serves them."""

    changes: bool = False
    """Whether the pages offer changes, too: by Kafka's rules, asked for twice, in the name of whoever asks.
    While `http.authentication` is `none` that is everybody who reaches the port."""

    preview_entries_max: Annotated[int, Field(ge=1, le=10_000)] = 64
    """Previews of changes that one agent remembers until they are confirmed; the oldest goes first."""

    preview_ms_max: Annotated[int, Field(ge=1_000, le=86_400_000)] = 600_000
    """How long a preview may be confirmed, milliseconds."""

    confirm_ms_max: Annotated[int, Field(ge=100, le=60_000)] = 10_000
    """How long a page waits for a confirmed change before it says that the outcome is not known yet, ms."""

    searches_in_flight_max: Annotated[int, Field(ge=1, le=64)] = 2
    """Looks at records that one agent does side by side; further ones are answered 503."""

    search_records_max: Annotated[int, Field(ge=100, le=1_000_000)] = 10_000
    """Records that one look takes in, shown or not; it can be gone on with where it stopped."""

    search_bytes_max: Annotated[int, Field(ge=64 * KIB, le=1024 * MIB)] = 16 * MIB
    """Bytes of batches that one look reads, about; the last batch is read whole."""

    search_ms_max: Annotated[int, Field(ge=100, le=60_000)] = 5_000
    """How long one look goes on, milliseconds."""

    export_records_max: Annotated[int, Field(ge=100, le=100_000_000)] = 100_000
    """Records that one export looks at, written or not."""

    export_bytes_max: Annotated[int, Field(ge=64 * KIB, le=64 * 1024 * MIB)] = 256 * MIB
    """Bytes of batches that one export reads, about, and bytes that it writes, about."""

    export_ms_max: Annotated[int, Field(ge=100, le=3_600_000)] = 60_000
    """How long one export goes on, milliseconds."""

    table_metadata_bytes_max: Annotated[int, Field(ge=64 * KIB, le=1024 * MIB)] = 32 * MIB
    """Largest metadata of a table, bytes, whose snapshots and files are shown."""

    table_manifests_max: Annotated[int, Field(ge=1, le=10_000)] = 32
    """Manifests of a table that one look for files reads, the newest first."""

    table_file_bytes_max: Annotated[int, Field(ge=64 * KIB, le=1024 * MIB)] = 32 * MIB
    """Bytes of a data file that one look for rows reads."""

    table_rows_max: Annotated[int, Field(ge=1, le=1_000)] = 20
    """Rows of a table that are shown."""

    commits_remembered_max: Annotated[int, Field(ge=0, le=100_000_000)] = 65_536
    """Entries of the log with chunks of which an agent remembers revision and time: 24 bytes each."""

    lag_series_max: Annotated[int, Field(ge=0, le=1_000_000)] = 1_000
    """Groups with their topics, each pair one, whose lag an agent remembers; the furthest behind stay. 0:
    none."""

    lag_samples_max: Annotated[int, Field(ge=2, le=10_000)] = 360
    """Samples of one such lag that are remembered: 8 bytes each."""

    lag_every_ms: Annotated[int, Field(ge=1_000, le=3_600_000)] = 10_000
    """Least time between two samples, milliseconds: looks at all groups are 10 s apart."""

    changes_remembered_max: Annotated[int, Field(ge=0, le=1_000_000)] = 1_000
    """Changes, logins and refusals through an agent that its console shows, the newest."""

    agents_asked_max: Annotated[int, Field(ge=1, le=10_000)] = 64
    """Other agents that one look at the cluster asks, eight at a time."""

    agent_ms_max: Annotated[int, Field(ge=100, le=60_000)] = 2_000
    """How long one of them is waited for, milliseconds."""
