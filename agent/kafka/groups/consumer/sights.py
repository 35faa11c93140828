"""Which of the topics that a pattern matches a member is told of: those that it may describe.

Kafka asks for the principal of whoever has the pattern evaluated, and gives all members with it the same, for
up to ten minutes. Here each member has what its own principal may describe, by the ACLs as they are applied.

Who a member is, only its heartbeats tell: nobody is known of a group that was another agent's. Such a member
keeps to what its group has been given by this pattern, until it is heard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from agent.kafka.groups.consumer.patterns import Names

if TYPE_CHECKING:
    from coordination.state.consumer_types import ConsumerGroupData, ConsumerMember

Seen = dict[tuple[str, Hashable], Names]
"""What is seen of a pattern, by how it is seen."""
NAMES_PER_STEP: Final = 500
"""That are asked for before others have the event loop."""
UNHEARD: Final = "unheard"
"""How members see that were not heard by this agent."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who sends a member's heartbeats. `sees` tells whether it may describe a topic, by now."""

    principal: str
    host: str
    sees: Callable[[str], bool] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Sight:
    """For one plan. `views`: how each member with a pattern sees; None of all: as if there were no ACLs."""

    views: Mapping[str, Hashable] | None = None
    shown: Seen = field(default_factory=dict)
    changed: bool = False
    """Whether a member that was there sees other topics than in the plan before."""

    def view(self, member_id: str) -> Hashable:
        """What members have in common that see the same; None: all that is there."""
        return None if self.views is None else self.views.get(member_id, UNHEARD)

    def names(self, regex: str, view: Hashable) -> Names:
        """What is seen of a pattern; of what was not looked at what the group has been given."""
        found = self.shown.get((regex, view))
        return self.shown[regex, UNHEARD] if found is None else found


ALL: Final = Sight()


class Sights:
    """Of one group. `revision` tells that ACLs changed; None: nobody asks for any."""

    def __init__(self, revision: Callable[[], int] | None) -> None:
        self._revision = revision
        self._viewers: dict[str, Viewer] = {}
        self._looked: dict[tuple[str, Viewer], tuple[int, Names, Names]] = {}
        self._before: dict[str, Names] = {}
        self._patterned = False  # members had patterns at the last plan

    @property
    def stamp(self) -> int:
        """Differs whenever what members see may differ."""
        return self._revision() if self._revision is not None and self._patterned else 0

    def knows(self, member: ConsumerMember | None, viewer: Viewer | None) -> bool:
        """Whether plans stand for what this viewer sees of the member's pattern."""
        if viewer is None or member is None or not member.regex:
            return True
        return self._viewers.get(member.member_id) == viewer

    def heard(self, member_id: str, viewer: Viewer | None) -> None:
        """Who speaks for a member."""
        if viewer is not None and member_id:
            self._viewers[member_id] = viewer

    async def of(self, matched: Mapping[str, Names], wishes: Iterable[tuple[str, str]]) -> tuple[int, Seen]:
        """What is seen of each pattern, and the stamp that it stands for.

        `wishes`: members with their patterns, of the group and of requests. It waits now and then, so members
        and ACLs may be others when it is done.
        """
        if self._revision is None:
            return 0, {}
        wishes = list(wishes)
        self._patterned = bool(wishes)
        stamp = self.stamp
        pairs = dict.fromkeys((regex, self._viewers[each]) for each, regex in wishes if each in self._viewers)
        looked: dict[tuple[str, Viewer], tuple[int, Names, Names]] = {}
        for regex, viewer in pairs:
            names, revision = matched[regex], self._revision()
            known = self._looked.get((regex, viewer))
            if known is None or known[0] != revision or known[1] != names:
                known = (revision, names, await _visible(viewer, names))
            looked[regex, viewer] = known
        self._looked = looked
        return stamp, {key: visible for key, (_, _, visible) in looked.items()}

    def sight(
        self,
        data: ConsumerGroupData,
        matched: Mapping[str, Names],
        seen: Seen,
        name_of: Callable[[bytes], str | None],
    ) -> Sight:
        """For a plan on these members; `seen` is what `of` gave."""
        if self._revision is None:
            return ALL
        members = [each for each in data.members.values() if each.regex]
        given: Seen = {
            (regex, UNHEARD): _given(data, members, regex, names, name_of) for regex, names in matched.items()
        }
        sight = Sight(dict(self._viewers), {**seen, **given})
        changed = any(
            self._before.get(each.member_id, names) != names
            for each in members
            for names in (sight.names(each.regex, sight.view(each.member_id)),)
        )
        return replace(sight, changed=changed)

    def took(self, sight: Sight, members: Iterable[ConsumerMember]) -> None:
        """A plan has been taken: remember its members alone."""
        if self._revision is None:
            return
        members = [each for each in members if each.regex]
        viewers, self._viewers = self._viewers, {}
        self._before = {}
        for each in members:
            if each.member_id in viewers:
                self._viewers[each.member_id] = viewers[each.member_id]
            self._before[each.member_id] = sight.names(each.regex, sight.view(each.member_id))


async def _visible(viewer: Viewer, names: Names) -> Names:
    found: list[str] = []
    for at in range(0, len(names), NAMES_PER_STEP):
        if at:
            await asyncio.sleep(0)
        found += [name for name in names[at : at + NAMES_PER_STEP] if viewer.sees(name)]
    return tuple(found)


def _given(
    data: ConsumerGroupData,
    members: Iterable[ConsumerMember],
    regex: str,
    names: Names,
    name_of: Callable[[bytes], str | None],
) -> Names:
    """What the group's target has for members with this pattern."""
    ids = {
        topic_id
        for each in members
        if each.regex == regex
        for topic_id, row in data.targets.get(each.member_id, {}).items()
        if row
    }
    given = {name_of(topic_id) for topic_id in ids}
    return tuple(name for name in names if name in given)
