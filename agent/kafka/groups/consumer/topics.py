"""Which topics a group wants, and whether they changed since its target was computed."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping
from itertools import chain
from typing import Protocol

from coordination.state.consumer_types import ConsumerMember

HASH_BYTES = 8
NAMES_PER_PARTITION = 10  # that a plan looks up in the time that it takes to assign a partition


class Topics(Protocol):
    """The topics of the cluster as group planners see them."""

    def find(self, name: str) -> tuple[bytes, int] | None:
        """A topic's id and number of partitions; None when there is none of that name."""
        ...

    def name_of(self, topic_id: bytes) -> str | None:
        """A topic's name; None when it is gone."""
        ...

    def matching(self, regex: str, view: Hashable = None) -> tuple[str, ...]:
        """The names that a regular expression matches whole, as far as they are seen, sorted.

        It was resolved before. `view`: of the member whose it is; None: all are seen.
        """
        ...

    def view(self, member_id: str) -> Hashable:
        """What members have in common that see the same topics (sights.py)."""
        ...


_Wish = tuple[tuple[str, ...], str, Hashable]  # names, pattern and how it is seen


class Subscriptions:
    """Names and patterns of members as topics that exist. Remembers while one plan is made."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._ids: dict[_Wish, tuple[bytes, ...]] = {}
        self.sizes: dict[bytes, int] = {}

    def of(self, member: ConsumerMember) -> tuple[bytes, ...]:
        """The ids of the topics that a member wants, sorted."""
        key = self._wish(member)
        known = self._ids.get(key)
        if known is None:
            matched = self._topics.matching(member.regex, key[2]) if member.regex else ()
            names = {*member.topics, *matched}
            known = self._ids[key] = tuple(sorted(self._existing(names)))
        return known

    def wants(self, member: ConsumerMember, topic_id: bytes) -> bool:
        """Whether a member is subscribed to a topic that exists."""
        name = self._topics.name_of(topic_id)
        if name is None:
            return False
        return name in member.topics or (bool(member.regex) and topic_id in self.of(member))

    def metadata_hash(self, members: Iterable[ConsumerMember]) -> bytes:
        """Changes when a topic that the group wants comes, goes or grows (KIP-1101). Empty without any."""
        wanted: set[bytes] = set()
        for member in {self._wish(each): each for each in members}.values():
            wanted.update(self.of(member))
        if not wanted:
            return b""
        digest = hashlib.blake2b(digest_size=HASH_BYTES)
        for topic_id in sorted(wanted):
            digest.update(topic_id)
            digest.update(self.sizes[topic_id].to_bytes(4, "big"))
        return digest.digest()

    def _wish(self, member: ConsumerMember) -> _Wish:
        view = self._topics.view(member.member_id) if member.regex else None
        return member.topics, member.regex, view

    def _existing(self, names: Iterable[str]) -> Iterable[bytes]:
        for name in names:
            found = self._topics.find(name)
            if found is not None:
                self.sizes[found[0]] = found[1]
                yield found[0]


def wanted_partitions(topics: Topics, wishes: Iterable[tuple[Iterable[str], str | None]], most: int) -> int:
    """How many partitions are wanted by (names, pattern), or `most`: a measure of a plan's work.

    Counting ends when that is reached: it must not cost what it is to save.
    """
    seen: set[str] = set()
    count = looked = 0
    for names, regex in wishes:
        for name in chain(names, topics.matching(regex) if regex else ()):
            looked += 1
            if name not in seen:
                seen.add(name)
                found = topics.find(name)
                count += 1 if found is None else found[1]
            if count >= most or looked >= NAMES_PER_PARTITION * most:
                return most
    return count


def same_topics(ours: Mapping[bytes, Iterable[int]], theirs: Mapping[bytes, Iterable[int]]) -> bool:
    """Whether two assignments name the same partitions, whatever else they say."""
    return ours.keys() == theirs.keys() and all(set(ours[key]) == set(theirs[key]) for key in ours)
