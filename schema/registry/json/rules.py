"""What a reader of JSON cannot take from a writer, each with the path of what breaks it.

The question is the specification's: does the reader's schema take every value that the writer's takes? What
cannot be shown is a difference. A pair is a reader's schema and all schemas of the writer that a value at
that place meets. Pairs wait in a queue, each is looked at once; alternatives are tried on the way, in a queue
of their own. A pair that is still being looked at may be relied on: between two looks at the same one lies a
property or an item, and values end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from schema.registry.json.facts import NUMBERS, Facts, Nodes, closed
from schema.registry.json.inside import arrays, objects
from schema.registry.json.keywords import plain, type_kind
from schema.registry.json.kinds import Path, difference
from schema.registry.json.nodes import Node
from schema.registry.json.same import merged
from schema.registry.json.text import Forms
from schema.registry.json.values import Verdict, accepts, atom
from schema.registry.parsed import Difference

STEPS_MAX = 100_000
"""Looks at pairs in one comparison; of n alternatives with m others they are n times m."""
TOLD_MAX = 1_000
"""Differences found in one comparison, after which it ends."""
LOOKS_PER_STEP = 10
"""Looks at one schema by itself, at a pattern or a listed value, that count as one of those."""
TRIALS_MAX = 50
"""Alternatives of alternatives that are tried, levels."""
SPLITS_MAX = 4
"""Choices of a writer that are told apart at one place, at once."""
EMPTY_MAX = 3
"""Levels that are looked into to see that no value can be."""
NOTS_MAX = 20
"""Schemas of what a value is not, as other ways of a writer's `oneOf`, that are each looked into."""
_SPECIAL = 1 << 40  # in order behind all that somebody wrote


class _TooMuch(Exception):
    """The comparison takes more than STEPS_MAX."""


class _Pair(NamedTuple):
    reader: Node
    writer: Nodes
    path: Path
    wrap: Difference | None
    branches: int
    """Alternatives of the writer, of which this is one; 0: it is no alternative."""


def compared(reader: Node, writer: Node) -> list[Difference]:
    """What the reader cannot take of what the writer writes, TOLD_MAX at most; empty: it takes all of it.

    CPU work.
    """
    reads, writes = merged(reader, writer)
    try:
        return list(dict.fromkeys(islice(Comparison().run(reads, writes), TOLD_MAX)))
    except (_TooMuch, RecursionError):
        return [difference("NOT_COMPARED", None)]


class Comparison:
    """One comparison of two schemas whose equal parts are one node (same.py)."""

    def __init__(self) -> None:
        self._steps = 0
        self._forms = Forms()  # of values that the schemas list
        self._facts: dict[Nodes, Facts] = {}
        self._closed: dict[Nodes, Nodes] = {}
        self._made: dict[tuple[str, Any], Node] = {}
        self._relied: list[set[tuple[Node, Nodes]]] = [set()]
        self._failed: set[tuple[Node, Nodes]] = set()
        self._empty: dict[tuple[Nodes, int], bool] = {}
        self._queues: list[deque[_Pair]] = []
        self._splits: set[Node] = set()
        self._nots: set[Node] = set()

    def run(self, reader: Node, writer: Node) -> Iterator[Difference]:
        """All that is found. Raises _TooMuch."""
        self._queues = [deque()]
        self.wait(reader, frozenset((writer,)), None)
        yield from self._drained()

    def wait(
        self, reader: Node, writer: Nodes, path: Path, wrap: Difference | None = None, branches: int = 0
    ) -> None:
        """Compare a pair later. `wrap` is told too where it does not go."""
        writer = self._whole(writer)
        key = (reader, writer)
        if reader not in writer and not any(key in relied for relied in self._relied):
            self._relied[-1].add(key)
            self._queues[-1].append(_Pair(reader, writer, path, wrap, branches))

    def proves(self, reader: Node, writer: Nodes) -> bool:
        """Whether the reader takes all that the writer's schemas take, as far as that is to be told."""
        writer = self._whole(writer)
        key = (reader, writer)
        if reader in writer or any(key in relied for relied in self._relied):
            return True
        if key in self._failed or len(self._relied) > TRIALS_MAX:
            return False
        self._relied.append(set())
        self._queues.append(deque())
        self.wait(reader, writer, None)
        proven = next(self._drained(), None) is None
        self._queues.pop()
        relied = self._relied.pop()
        if proven:
            self._relied[-1] |= relied
        else:
            self._failed.add(key)
        return proven

    def empty(self, nodes: Nodes, depth: int = 0) -> bool:
        """Whether no value is taken by all of these, as far as that is to be told."""
        nodes = self._whole(nodes)
        key = (nodes, depth)
        if key in self._empty:
            return self._empty[key]
        self._step()
        self._empty[key] = False  # while it is looked at: nothing is concluded from it
        found = self._is_empty(self._known(nodes), depth)
        if found and len(self._relied) > 1:
            del self._empty[key]  # it may rely on what this trial relies on
        else:
            self._empty[key] = found
        return found

    def texts(self) -> Node:
        """The schema of text."""
        return self._special("type", frozenset({"string"}))

    def spend(self, looks: int) -> None:
        """Schemas were, or will be, looked at so often by themselves. Raises _TooMuch."""
        self._step(looks // LOOKS_PER_STEP)

    def takes(self, node: Node, value: Any) -> Verdict:
        """Whether a schema takes a value that is listed in one. Raises _TooMuch."""
        return accepts(node, value, self.spend, self._forms)

    def _step(self, count: int = 1) -> None:
        self._steps += count
        if self._steps > STEPS_MAX:
            raise _TooMuch

    def _whole(self, nodes: Nodes) -> Nodes:
        if nodes not in self._closed:
            found = self._closed[nodes] = closed(nodes, lambda node: self._special("not", node))
            self.spend(len(found))
        return self._closed[nodes]

    def _known(self, nodes: Nodes) -> Facts:
        if nodes not in self._facts:
            self._facts[nodes] = Facts(nodes, self.takes)
        return self._facts[nodes]

    def _special(self, kind: str, value: Any) -> Node:
        """A schema that nobody wrote: of a type, of all that another does not take, that requires a name.

        One of kind `split` demands nothing: the choice of that schema is made.
        """
        if (kind, value) not in self._made:
            node = self._made[kind, value] = Node(order=_SPECIAL + len(self._made))
            if kind == "not":
                node.not_ = value
                self._nots.add(node)
            elif kind == "type":
                node.types = value
            elif kind == "required":
                node.required = frozenset((value,))
            else:
                self._splits.add(node)
        return self._made[kind, value]

    def _drained(self) -> Iterator[Difference]:
        queue = self._queues[-1]
        while queue:
            pair, found = queue.popleft(), False
            for one in self._looked_at(pair):
                found = True
                yield one
            if found and pair.wrap is not None:
                yield pair.wrap

    def _looked_at(self, pair: _Pair) -> Iterator[Difference]:
        self._step()
        facts = self._known(pair.writer)
        if _nothing(facts):
            return
        if facts.values is not None:
            yield from self._listed(pair, facts, facts.values)
        elif (choice := self._choice(facts)) is not None:
            branches = self._branches(choice)
            for branch in branches:
                self.wait(pair.reader, pair.writer | branch, pair.path, pair.wrap, len(branches))
        else:
            yield from self._demands(pair, facts)

    def _listed(self, pair: _Pair, facts: Facts, values: list[Any]) -> Iterator[Difference]:
        """The values of an enumeration, one by one."""
        self._step(len(values))
        reader, path = pair.reader, pair.path
        verdicts = [self.takes(reader, value) for value in values]
        if False not in verdicts:
            yield from self._demands(pair, facts) if None in verdicts else ()
            return
        refused = values[verdicts.index(False)]
        inside = [one for one in reader.all_of if self.takes(one, refused) is False]
        for one in inside:
            self.wait(one, pair.writer, path, pair.wrap, pair.branches)
        if atom(refused) not in reader.types:
            yield difference(type_kind(reader, frozenset({atom(refused)})), path)
        elif reader.known is not None:
            fewer = reader.known < frozenset(map(self._forms.of, values))
            yield difference("ENUM_ARRAY_NARROWED" if fewer else "ENUM_ARRAY_CHANGED", path, "enum")
        elif reader.any_of or reader.one_of:
            yield difference(_sum_kind(pair, facts, len(reader.any_of or reader.one_of)), path)
        elif not inside:
            yield difference("ENUM_ARRAY_CHANGED", path, "enum")

    def _demands(self, pair: _Pair, facts: Facts) -> Iterator[Difference]:
        """Each demand of the reader."""
        reader, path = pair.reader, pair.path
        yield from plain(reader, facts, path)
        types = facts.types & reader.types
        if "object" in types:
            yield from objects(reader, facts, path, self)
            yield from self._dependent(reader, facts, path)
        if "array" in types:
            yield from arrays(reader, facts, path, self)
        yield from self._combined(pair, facts)
        for said in reader.opaque:
            kind = "UNEVALUATED_ITEMS_NARROWED" if said == "unevaluatedItems" else "REFERENCE_CHANGED"
            kind = "UNEVALUATED_PROPERTIES_NARROWED" if said == "unevaluatedProperties" else kind
            yield difference(kind, path, said.partition(" ")[0])

    def _dependent(self, reader: Node, facts: Facts, path: Path) -> Iterator[Difference]:
        """Schemas that an object meets where it has a property."""
        for name, demanded in reader.dependent.items():
            if any(one.never for one in facts.property(name)):
                continue
            place: Path = ((path, "dependencies"), name)
            added = all(name not in node.dependent for node in facts.nodes)
            wrap = difference("DEPENDENCY_SCHEMA_ADDED", place) if added else None
            self.wait(demanded, facts.nodes | {self._special("required", name)}, place, wrap)
        yield from ()

    def _combined(self, pair: _Pair, facts: Facts) -> Iterator[Difference]:
        """Schemas of the reader that say something of the same value."""
        reader, path, writer = pair.reader, pair.path, pair.writer
        several = len(reader.all_of) > 1
        extended = several and len(reader.all_of) > max((len(node.all_of) for node in facts.nodes), default=0)
        for index, one in enumerate(reader.all_of):
            place: Path = ((path, "allOf"), str(index)) if several else path
            wrap = difference("PRODUCT_TYPE_EXTENDED", path, "allOf") if extended else pair.wrap
            self.wait(one, writer, place, wrap, pair.branches)
        if reader.any_of and not self._covered(reader.any_of, writer, self._takes_one):
            yield difference(_sum_kind(pair, facts, len(reader.any_of)), path, "anyOf")
        if reader.one_of and not self._covered(reader.one_of, writer, self._takes_just_one):
            yield difference(_sum_kind(pair, facts, len(reader.one_of)), path, "oneOf")
        if reader.not_ is not None and not self.empty(writer | {reader.not_}):
            yield difference("NOT_TYPE_EXTENDED", path, "not")
        if reader.if_ is not None:
            met, unmet = writer | {reader.if_}, writer | {self._special("not", reader.if_)}
            if reader.then is not None and not self.empty(met):
                self.wait(reader.then, met, (path, "then"))
            if reader.else_ is not None and not self.empty(unmet):
                self.wait(reader.else_, unmet, (path, "else"))

    def _covered(
        self, ways: tuple[Node, ...], writer: Nodes, how: Callable[[tuple[Node, ...], Nodes], bool]
    ) -> bool:
        """Whether the alternatives take all that the writer does: one of them, or one for each type."""
        writer = self._whole(writer)
        facts = self._known(writer)
        if _nothing(facts) or how(ways, writer):
            return True
        groups = [facts.types & NUMBERS, *(frozenset({one}) for one in sorted(facts.types - NUMBERS))]
        groups = [group for group in groups if group]
        return len(groups) > 1 and all(
            self._covered(ways, writer | {self._special("type", group)}, how) for group in groups
        )

    def _takes_one(self, ways: tuple[Node, ...], writer: Nodes) -> bool:
        return any(self.proves(way, writer) for way in self._likely_first(ways, writer))

    def _takes_just_one(self, ways: tuple[Node, ...], writer: Nodes) -> bool:
        """One takes it, and what it takes is taken by none of the others."""
        taker = next((way for way in self._likely_first(ways, writer) if self.proves(way, writer)), None)
        if taker is None:
            return False
        others = [*ways]
        others.remove(taker)
        said = frozenset(node for node in writer if node not in self._nots)  # cheap, and often enough
        return all(
            self._made.get(("not", other)) in writer
            or self.empty(said | {other})
            or self.empty(writer | {other})
            for other in others
        )

    def _likely_first(self, ways: tuple[Node, ...], writer: Nodes) -> list[Node]:
        """The alternatives, first those that have properties in common with the writer: tags, as a rule."""
        said = {pair for node in writer for pair in node.properties.items()}
        self.spend(len(said) + sum(len(way.properties) for way in ways))
        return sorted(ways, key=lambda way: (way not in writer, -len(said & way.properties.items())))

    def _choice(self, facts: Facts) -> Node | None:
        """A schema of the writer with alternatives that are not told apart yet."""
        if len(facts.nodes & self._splits) >= SPLITS_MAX:
            return None
        for node in facts.ordered:
            if (node.any_of or node.one_of) and self._made.get(("split", node)) not in facts.nodes:
                return node
        return None

    def _branches(self, node: Node) -> list[Nodes]:
        """What is known of a value beside, for each alternative that it may be of."""
        split = self._special("split", node)
        if node.any_of:
            return [frozenset((split, one)) for one in node.any_of]
        return [
            frozenset(
                (
                    split,
                    one,
                    *(self._special("not", other) for at, other in enumerate(node.one_of) if at != index),
                )
            )
            for index, one in enumerate(node.one_of)
        ]

    def _is_empty(self, facts: Facts, depth: int) -> bool:
        if _nothing(facts):
            return True
        if depth >= EMPTY_MAX:
            return False
        types = facts.types
        self.spend(len(facts.required) * facts.speaking_count)
        if "object" in types and any(self._no_property(facts, name, depth) for name in facts.required):
            types -= {"object"}
        if "array" in types and self._no_item(facts, depth):
            types -= {"array"}
        denied = [node for node in facts.ordered if node.not_ is not None]
        if not types or (len(denied) <= NOTS_MAX and any(self._within_not(facts, node) for node in denied)):
            return True
        choice = self._choice(facts)
        return choice is not None and all(
            self.empty(facts.nodes | branch, depth + 1) for branch in self._branches(choice)
        )

    def _no_property(self, facts: Facts, name: str, depth: int) -> bool:
        """Whether a required property cannot be."""
        unnamed = any(self.takes(node.names, name) is False for node in facts.nodes if node.names is not None)
        return unnamed or self.empty(facts.property(name), depth + 1)

    def _no_item(self, facts: Facts, depth: int) -> bool:
        """Whether one of the first items cannot be, though there must be so many."""
        places = range(
            int(min(facts.min_items, 1 + max((len(node.prefix) for node in facts.nodes), default=0)))
        )
        self.spend(len(places) * len(facts.nodes))
        return any(self.empty(facts.item(index), depth + 1) for index in places)

    def _within_not(self, facts: Facts, node: Node) -> bool:
        """Whether all that is left is what a schema says is not to be."""
        if self._made.get(("split", node)) in facts.nodes:
            return False
        return node.not_ is not None and self.proves(node.not_, facts.nodes | {self._special("split", node)})


def _nothing(facts: Facts) -> bool:
    """Whether it is plain that no value is taken."""
    return (
        facts.never
        or not facts.types
        or facts.values == []
        or any(node.not_ in facts.nodes for node in facts.nodes if node.not_ is not None)
    )


def _sum_kind(pair: _Pair, facts: Facts, ways: int) -> str:
    """As Confluent's registry: by how both are combined."""
    if pair.branches:
        return "SUM_TYPE_NARROWED" if pair.branches > ways else "COMBINED_TYPE_SUBSCHEMAS_CHANGED"
    return "COMBINED_TYPE_CHANGED" if any(len(node.all_of) > 1 for node in facts.nodes) else "TYPE_CHANGED"
