"""The log as a tree of entries, with the state after each: each branch is applied once, by the real apply."""

from __future__ import annotations

import pickle
from collections.abc import Hashable, Sequence
from typing import Any, Protocol

from coordination.commands import ENTRY_FORMAT, Command, Entry
from coordination.log import LogEntry
from coordination.snapshot import decode, encode
from coordination.state import Applied, State

NOW_MS = 1_700_000_000_000
Content = tuple[int, int, tuple[Any, ...]]
"""An entry: its author, the author's count of its entries, and what it says, in terms of a Language."""


class Language(Protocol):
    """What a model's entries say. `encode` gives one item as a serialized command."""

    def encode(self, author: int, item: Any) -> bytes:
        """The command."""
        ...

    def essence(self, node: Node) -> Hashable:
        """Equal for states that no step can tell apart."""
        ...


class Node:
    """One entry in one order of events. `state` must not be changed. `essence`: a number for its meaning.
    `notes`: whatever the model remembers along the way."""

    __slots__ = ("_copy", "_snapshot", "applied", "content", "depth", "essence", "notes", "parent", "state")

    def __init__(
        self, parent: int, depth: int, content: Content | None, state: State, applied: Applied | None
    ) -> None:
        self.parent = parent
        self.depth = depth
        self.content = content
        self.state = state
        self.applied = applied
        self.essence = -1
        self.notes: Any = None
        self._copy: bytes | None = None
        self._snapshot: bytes | None = None

    def copy(self) -> bytes:
        """The state pickled: for whoever goes on from here. The fastest whole copy that there is."""
        if self._copy is None:
            self._copy = pickle.dumps(self.state, pickle.HIGHEST_PROTOCOL)
        return self._copy

    def snapshot(self) -> bytes:
        """The state as agents store it."""
        if self._snapshot is None:
            self._snapshot = encode(self.state)
        return self._snapshot


class Numbers:
    """A small number for each value, the same for equal ones."""

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}

    def __call__(self, value: Hashable) -> int:
        return self._known.setdefault(value, len(self._known))

    def __len__(self) -> int:
        return len(self._known)


class History:
    """All entries of all branches. Nodes are numbers; 0 is the empty log. An entry's revision is its depth:
    apply asks no more of revisions than that they rise."""

    def __init__(self, language: Language, numbers: Numbers, state: type[State] = State) -> None:
        self._language = language
        self._numbers = numbers
        self._children: dict[tuple[int, Content], int] = {}
        self._between: dict[tuple[int, int], tuple[Content, ...]] = {}
        self._nodes = [Node(-1, 0, None, state(), None)]
        self._nodes[0].essence = numbers(("state", language.essence(self._nodes[0])))

    def __getitem__(self, node: int) -> Node:
        return self._nodes[node]

    def __len__(self) -> int:
        return len(self._nodes)

    def extend(self, node: int, content: Content, now_ms: int = NOW_MS) -> int:
        """The node after `node` with this entry. Raises StateError as apply does."""
        known = self._children.get((node, content))
        if known is None:
            parent = self._nodes[node]
            author, sequence, items = content
            state: State = pickle.loads(parent.copy())
            depth = parent.depth + 1
            payload = entry(author, sequence, [self._language.encode(author, each) for each in items], now_ms)
            said = LogEntry(depth, author, sequence, payload)
            applied = state.apply(said)
            self._from_snapshot(parent, said, applied, state)
            made = Node(node, depth, content, state, applied)
            made.notes = parent.notes
            made.essence = self._numbers(("state", self._language.essence(made)))
            known = self._children[node, content] = len(self._nodes)
            self._nodes.append(made)
        return known

    def _from_snapshot(self, parent: Node, said: LogEntry, applied: Applied, state: State) -> None:
        """An agent that starts from a snapshot between the two entries answers as all others do."""
        if type(state) is not State:
            return
        started = decode(parent.snapshot())
        again = started.apply(said)
        assert again == applied, f"from a snapshot after entry {parent.depth}: {again}, not {applied}"
        assert started.hash == state.hash, f"from a snapshot after entry {parent.depth}: another hash"

    def following(self, node: int, head: int) -> int:
        """The node after `node` on the way to `head`."""
        while self._nodes[head].parent != node:
            head = self._nodes[head].parent
        return head

    def between(self, node: int, head: int) -> tuple[Content, ...]:
        """The entries after `node` up to `head`."""
        if node == head:
            return ()
        known = self._between.get((node, head))
        if known is None:
            last = self._nodes[head]
            assert last.content is not None, "the empty log is nobody's future"
            known = self._between[node, head] = (*self.between(node, last.parent), last.content)
        return known


def entry(incarnation: int, sequence: int, commands: Sequence[bytes], now_ms: int = NOW_MS) -> bytes:
    """Serialized commands as an entry."""
    message = Entry(
        format=ENTRY_FORMAT,
        incarnation=incarnation,
        sequence=sequence,
        proposed_ms=now_ms,
        commands=[Command.FromString(each) for each in commands],
    )
    return message.SerializeToString()
