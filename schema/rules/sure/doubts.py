"""Which messages of a batch may break their rules: all but those that surely obey them."""

from __future__ import annotations

from google.protobuf.message import Message

from schema.descriptors import MessageType
from schema.rules.sure.kinds import Obeys, surely


class Doubts:
    """Of the keys or the values of one batch, in the order in which they are judged."""

    def __init__(self) -> None:
        self.places: list[int] = []
        """Places, among those that were judged last, of messages that may break their rules."""
        self._known: dict[int, tuple[MessageType, Obeys | None]] = {}

    @property
    def seen(self) -> bool:
        """Whether there were messages with rules."""
        return any(obeys is not None for _, obeys in self._known.values())

    def obeys(self, kind: MessageType) -> Obeys | None:
        """What judges messages of the type, of which there are some; None: they have no rules."""
        found = self._known.get(id(kind))
        if found is None:
            judge = (surely(kind) or _never) if kind.has_rules else None
            found = self._known[id(kind)] = kind, judge
        return found[1]

    def taken(self) -> list[int]:
        """The places, which are forgotten."""
        found, self.places = self.places, []
        return found


def _never(_: Message) -> bool:
    return False
