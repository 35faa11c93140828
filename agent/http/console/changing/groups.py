"""Groups: deleted, by DeleteGroups. Their positions are changed by resets.py."""

from __future__ import annotations

from agent.http.answers import Problem
from agent.http.asking import require
from agent.http.console.changing.asked import DELETE_GROUPS, asker
from agent.http.console.changing.plans import BadFields, Errors, Field, Form, Given, Plan, controls, hidden
from agent.http.console.groups import HERE
from agent.http.console.markup import many
from agent.http.console.words import number
from agent.http.needs import DESCRIBE_GROUP
from agent.http.parts import Parts
from agent.net.wire.generated import delete_groups as dg
from coordination.config_types import NAME_SHOWN_MAX
from coordination.state.group_types import Group


def group_named(parts: Parts, given: Given) -> Group:
    """The group of a form. Raises Problem 403, 404."""
    name = given.get("group", "")
    require(parts, DESCRIBE_GROUP, name)
    group = parts.replica.state.groups.get(name)
    if group is None:
        raise Problem(404, f"group {name[:NAME_SHOWN_MAX]!r} does not exist", "see the list of groups")
    return group


class GroupDelete:
    """All of its positions go."""

    name, here = "group-delete", HERE

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def form(self, given: Given, errors: Errors) -> Form:
        """Its name is to be written."""
        group = group_named(self._parts, given)
        field = Field("typed", "Write the group's name", "Its positions go: its members begin anew.")
        fields = many((hidden({"group": group.group_id}), controls([field], given, errors)))
        return Form(f"Delete group {group.group_id}", HERE, fields)

    async def plan(self, given: Given) -> Plan:
        """All of it."""
        parts, group = self._parts, group_named(self._parts, given)
        name = group.group_id
        if given.get("typed", "").strip() != name:
            raise BadFields({"typed": f"this is not {name!r}"})

        def look() -> object:
            known = parts.replica.state.groups.get(name)
            return (
                None if known is None else (known.kind, known.committed_revision, len(known.offsets.handles))
            )

        return Plan(
            f"Delete group {name}",
            given,
            [("Group", name, "gone"), ("Positions", number(len(group.offsets.handles)), 0)],
            look,
            look(),
            asker(parts, self.name, DELETE_GROUPS, lambda: dg.DeleteGroupsRequest([name]), name),
            ("Groups", HERE),
        )
