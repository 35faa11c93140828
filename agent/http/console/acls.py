"""Users and ACLs, for whoever may describe the cluster."""

from __future__ import annotations

from itertools import islice
from typing import Final

from starlette.requests import Request

from agent.http.console.listing import LOOKED_AT_PER_TURN, asked, form, listed, ways
from agent.http.console.markup import Content, Html, many, table, tag
from agent.http.console.offers import fields_of, offered, to_change
from agent.http.console.shell import Page
from agent.http.parts import Parts
from coordination.state.acl_types import Acl, Operation, PatternType, Permission, ResourceType, spoken
from objectstore.turns import Turns, in_turns

HERE: Final = "/console/acls"
USERS: Final = 100
"""Shown; further ones are counted."""
_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


class Acls:
    """Makes the page."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def several(self, request: Request) -> Page:
        """ACLs by principal, in pages; the search looks at all that is said of one."""
        parts, look = self._parts, asked(request)
        by_words = await in_turns(_by_words(list(parts.replica.state.acls.acls)))
        found = await listed(by_words, look, lambda _: True)
        rows = [
            (*_row(one), to_change(parts, "acl-delete", "take away", **fields_of(one)))
            for one in map(by_words.__getitem__, found.names)
        ]
        heads = ("Principal", "Host", "Permission", "Operation", "On", "Name", "Pattern", "")
        mode = parts.config.authorizer.mode
        live = many(
            (
                tag("p", f"Authorizer: {mode}. HTTP asks who it is: {parts.config.http.authentication}."),
                ways(HERE, look, found),
                table(heads, rows, "no such ACL"),
                *self._users(),
            )
        )
        search = form(HERE, look, "user, group or topic in an ACL")
        return Page("ACLs", HERE, live, many((search, offered(parts, "", "acl-create"))))

    def _users(self) -> tuple[Html, ...]:
        users = self._parts.replica.state.scram.credentials
        rows = [(user, _MECHANISMS.get(kind, str(kind))) for user, kind in islice(users, USERS)]
        more = tag("p", f"and {len(users) - USERS:,} more") if len(users) > USERS else Html()
        return tag("h2", "Users who log in by SCRAM"), table(("User", "Mechanism"), rows), more


def _by_words(acls: list[Acl]) -> Turns[dict[str, Acl]]:
    found: dict[str, Acl] = {}
    for number, acl in enumerate(acls):
        if number % LOOKED_AT_PER_TURN == 0:
            yield
        found[_words(acl)] = acl
    return found


def _words(acl: Acl) -> str:
    """What an ACL is found and ordered by: all of it, the principal first."""
    return "\0".join((acl.principal, *map(str, _row(acl)[1:])))


def _row(acl: Acl) -> tuple[Content, ...]:
    return (
        acl.principal,
        acl.host,
        spoken(Permission(acl.permission).name),
        spoken(Operation(acl.operation).name),
        spoken(ResourceType(acl.resource_type).name),
        acl.name,
        spoken(PatternType(acl.pattern_type).name),
    )
