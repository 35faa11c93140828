"""Quotas of clients as sections of a snapshot, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coordination.proto import snapshot_pb2 as pb
from coordination.state.quota_types import QuotaEntity, QuotaTable

PER_SECTION = 1024
Noted = tuple[QuotaEntity, dict[str, float]]


def quota_sections(changes: int, noted: Sequence[Noted]) -> Iterator[pb.Section]:
    """None where there never was a quota."""
    starts = range(0, len(noted), PER_SECTION) if noted else range(1 if changes else 0)
    for start in starts:
        rows = [
            pb.Quotas.Entity(
                user=entity.user,
                client_id=entity.client_id,
                ip=entity.ip,
                keys=values.keys(),
                values=values.values(),
            )
            for entity, values in noted[start : start + PER_SECTION]
        ]
        yield pb.Section(quotas=pb.Quotas(changes=changes, entities=rows))


def thaw_quotas(table: QuotaTable, told: pb.Quotas) -> None:
    """Add what one section has."""
    table.changes = told.changes
    for one in told.entities:
        entity = QuotaEntity(
            one.user if one.HasField("user") else None,
            one.client_id if one.HasField("client_id") else None,
            one.ip if one.HasField("ip") else None,
        )
        table.entities[entity] = dict(zip(one.keys, one.values, strict=True))
