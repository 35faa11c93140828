"""Credentials of SCRAM as sections of a snapshot, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coordination.proto import snapshot_pb2 as pb
from coordination.state.scram_types import ScramCredential, ScramTable

PER_SECTION = 1024
Noted = tuple[tuple[str, int], ScramCredential]


def scram_sections(secret: bytes, noted: Sequence[Noted]) -> Iterator[pb.Section]:
    """None where there never was a credential."""
    starts = range(0, len(noted), PER_SECTION) if noted else range(1 if secret else 0)
    for start in starts:
        rows = [
            pb.Scram.Credential(
                user=user,
                mechanism=mechanism,
                iterations=one.iterations,
                salt=one.salt,
                stored_key=one.stored_key,
                server_key=one.server_key,
            )
            for (user, mechanism), one in noted[start : start + PER_SECTION]
        ]
        yield pb.Section(scram=pb.Scram(secret=secret, credentials=rows))


def thaw_scram(table: ScramTable, told: pb.Scram) -> None:
    """Add what one section has."""
    table.secret = told.secret
    for one in told.credentials:
        table.credentials[one.user, one.mechanism] = ScramCredential(
            one.iterations, one.salt, one.stored_key, one.server_key
        )
