"""Delegation tokens as sections of a snapshot, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coordination.proto import snapshot_pb2 as pb
from coordination.state.delegation_types import DelegationToken

PER_SECTION = 1024


def delegation_sections(noted: Sequence[tuple[str, DelegationToken]]) -> Iterator[pb.Section]:
    """None where there are no tokens."""
    for start in range(0, len(noted), PER_SECTION):
        rows = [
            pb.DelegationTokens.Token(
                token_id=token_id,
                owner=token.owner,
                requester=token.requester,
                renewers=token.renewers,
                issued_ms=token.issued_ms,
                expires_ms=token.expires_ms,
                ends_ms=token.ends_ms,
            )
            for token_id, token in noted[start : start + PER_SECTION]
        ]
        yield pb.Section(delegation_tokens=pb.DelegationTokens(tokens=rows))


def thaw_delegation(tokens: dict[str, DelegationToken], told: pb.DelegationTokens) -> None:
    """Add what one section has."""
    for one in told.tokens:
        tokens[one.token_id] = DelegationToken(
            one.owner, one.requester, tuple(one.renewers), one.issued_ms, one.expires_ms, one.ends_ms
        )
