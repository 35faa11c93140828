"""ACLs as sections of a snapshot, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coordination.proto import snapshot_pb2 as pb
from coordination.state.acl_types import Acl, AclTable

PER_SECTION = 1024


def acl_sections(revision: int, noted: Sequence[Acl]) -> Iterator[pb.Section]:
    """None where there never was an ACL."""
    starts = range(0, len(noted), PER_SECTION) if noted else range(1 if revision else 0)
    for start in starts:
        rows = [
            pb.Acls.Acl(
                resource_type=acl.resource_type,
                pattern_type=acl.pattern_type,
                name=acl.name,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission=acl.permission,
            )
            for acl in noted[start : start + PER_SECTION]
        ]
        yield pb.Section(acls=pb.Acls(revision=revision, acls=rows))


def thaw_acls(table: AclTable, told: pb.Acls) -> None:
    """Add what one section has."""
    table.revision = told.revision
    for one in told.acls:
        table.add(
            Acl(
                one.resource_type,
                one.pattern_type,
                one.name,
                one.principal,
                one.host,
                one.operation,
                one.permission,
            )
        )
