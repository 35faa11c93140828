"""The section that says whether ACLs are asked, and who is above them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from agent.config.base import Section
from agent.config.redaction import names


class AuthorizerConfig(Section):
    """Who may do what, by ACLs (docs/security.md). Give all agents of a cluster the same."""

    mode: Literal["off", "shadow", "enforce"] = "off"
    """`off`: everybody may do everything, there are no ACLs. `shadow`: the same, but ACLs can be set, and
    what they would not allow is counted (`floe acl review`). `enforce`: what no ACL allows is refused."""

    super_users: Annotated[str, Field(max_length=65_536)] = ""
    """Who may do everything, parted by semicolons: `User:admin;User:ops` (Kafka's super.users)."""

    allow_everyone_if_no_acl_found: bool = False
    """Whether everybody may do everything with a resource that no ACL is about (Kafka's
    allow.everyone.if.no.acl.found)."""

    cache_entries_max: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """Answers that are remembered until the ACLs change, a few hundred bytes each."""

    shadow_rows_max: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Kinds of requests (who, what, on which resource) that shadow mode counts."""


def principals(text: str) -> list[str]:
    """Each of super_users, with its type."""
    return names(text, ";")


def problems(config: AuthorizerConfig) -> Iterator[str]:
    """Super users without a type, who would be nobody."""
    for name in principals(config.super_users):
        if not name.startswith("User:") or name == "User:":
            yield f"authorizer.super_users has {name!r}, which is no principal; write User:name"
