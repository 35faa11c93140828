"""The log as a tree of entries, with the state after each: every branch is applied once, by the real apply."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from coordination.commands import ENTRY_FORMAT, Command, Entry
from coordination.log import LogEntry
from coordination.snapshot import canonical_digest, decode, encode
from coordination.state import Applied, State
from coordination.state.digest import START

NOW_MS = 1_700_000_000_000


class Node:
    """One entry in one order of events. `state` must not be changed."""

    __slots__ = ("applied", "canon", "depth", "entry", "parent", "state")

    def __init__(
        self, parent: int, depth: int, entry: LogEntry | None, state: State, applied: Applied | None
    ) -> None:
        self.parent = parent
        self.depth = depth
        self.entry = entry
        self.state = state
        self.applied = applied
        self.canon = _canon(state)


class History:
    """All entries of all branches. Nodes are numbers; 0 is the empty log."""

    def __init__(self, state: type[State] = State) -> None:
        self._nodes = [Node(-1, 0, None, state(), None)]
        self._children: dict[tuple[int, int, bytes], int] = {}

    def __getitem__(self, node: int) -> Node:
        return self._nodes[node]

    def __len__(self) -> int:
        return len(self._nodes)

    def extend(self, node: int, revision: int, payload: bytes) -> int:
        """The node after `node` with this entry. Raises StateError as apply does."""
        key = (node, revision, payload)
        known = self._children.get(key)
        if known is None:
            parent = self._nodes[node]
            said = Entry.FromString(payload)
            entry = LogEntry(revision, said.incarnation, said.sequence, payload)
            state = _copy(parent.state)
            applied = state.apply(entry)
            known = self._children[key] = len(self._nodes)
            self._nodes.append(Node(node, parent.depth + 1, entry, state, applied))
        return known

    def following(self, node: int, head: int) -> int:
        """The node after `node` on the way to `head`."""
        while self._nodes[head].parent != node:
            head = self._nodes[head].parent
        return head

    def between(self, node: int, head: int) -> bytes:
        """A hash of the entries after `node` up to `head`."""
        digest = blake2b(digest_size=8)
        while head != node:
            entry = self._nodes[head].entry
            assert entry is not None, "the empty log is nobody's future"
            digest.update(b"%d " % entry.revision + entry.payload)
            head = self._nodes[head].parent
        return digest.digest()


def entry(incarnation: int, sequence: int, applied_revision: int, commands: Sequence[bytes]) -> bytes:
    """Serialized commands as an entry."""
    message = Entry(
        format=ENTRY_FORMAT,
        incarnation=incarnation,
        sequence=sequence,
        proposed_ms=NOW_MS,
        applied_revision=applied_revision,
        commands=[Command.FromString(each) for each in commands],
    )
    return message.SerializeToString()


def _copy(state: State) -> State:
    copied = decode(encode(state))
    if type(state) is not State:
        copied.__class__ = type(state)
    return copied


def _canon(state: State) -> str:
    """The state without the way it came about: equal for orders that make no difference."""
    kept, state.digest = state.digest, START
    try:
        return canonical_digest(state)
    finally:
        state.digest = kept
