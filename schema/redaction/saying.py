"""What a JSON schema says of an object's properties, how it marks them, and what stands in their place.

Of each value all schemas count that may be held against it: a tuple of nodes. What follows from such a tuple
is kept ready, whatever the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from schema.redaction.marks import Action, Marks, Unreadable, instead, stands_in, strictest
from schema.redaction.metadata_tags import TOP, may_name_below, named
from schema.registry.json.nodes import Node
from schema.registry.json.patterns import matches
from schema.registry.json.values import accepts

KEPT_MAX = 1_024
"""Combinations of schemas of which what follows is kept ready; beyond, all is forgotten."""

PATH_CHARS_MAX = 4_096
"""Characters of the names of properties within one another, where metadata's tags are looked for."""

NOTHING: Any = object()
"""What stands in the place of what goes."""

_EMPTY: dict[type, Any] = {str: "", bool: False, int: 0, list: [], dict: {}}
_ANYTHING = Node().local()

Nodes = tuple[Node, ...]


class Property(NamedTuple):
    """What is said of a property.

    `nodes`: None: no schema names it. `action`: how it is marked, as far as that is known without its value;
    `alone`: that is all that can be known. `path`: its full name where metadata may mark something inside,
    else empty.
    """

    nodes: Nodes | None
    action: Action | None
    alone: bool
    path: str


class Object(NamedTuple):
    """What schemas say of an object, if anything, and of the properties that they name."""

    says: bool
    names: dict[str, Property]


class Sayings:
    """Of one schema and all that it leads to. Thread-safe: what is kept is the same for all."""

    def __init__(self, marked: Mapping[Node, Action], marks: Marks, key: bytes) -> None:
        self.top = TOP if may_name_below(marks, TOP) else ""
        self.key = key
        self._marked, self._marks = marked, marks
        self._alone: dict[Node, bool] = {}
        self._fillers: dict[Nodes, tuple[Any, ...]] = {}  # of one; (): nothing fits
        self._saying: dict[Node, bool] = {}
        self._objects: dict[tuple[Nodes, str], Object] = {}
        self._texts: dict[Nodes, bool] = {}

    def object(self, nodes: Nodes, path: str) -> Object:
        """Of objects with this full name."""
        known = self._objects.get((nodes, path))
        if known is None:
            if len(self._objects) >= KEPT_MAX:
                self._objects.clear()
            says = any(each.properties or each.patterns or self.says(each.additional) for each in nodes)
            names = dict.fromkeys(name for each in nodes for name in each.properties)
            made = {name: self.property(nodes, name, path, says=says) for name in names}
            known = self._objects[nodes, path] = Object(says, made)
        return known

    def property(self, nodes: Nodes, name: str, path: str, *, says: bool) -> Property:
        """Of a property of an object. `says`: of which something is said. Raises Unreadable."""
        found = self.of_property(nodes, name)
        if found is None and says:
            return Property(None, None, True, "")
        full_name = f"{path}.{name}" if path else ""
        if len(full_name) > PATH_CHARS_MAX:
            raise Unreadable(f"names of properties within one another have over {PATH_CHARS_MAX} characters")
        told = tuple(found or ())
        action = self.action(told) or (named(self._marks, full_name) if path else None)
        below = full_name if path and may_name_below(self._marks, full_name) else ""
        return Property(told, action, all(map(self.is_alone, told)), below)

    def of_property(self, nodes: Sequence[Node], name: str) -> list[Node] | None:
        """What is said of a property; None: nothing, and no schema names it."""
        found: list[Node] = []
        known = False
        for node in nodes:
            here = [node.properties[name]] if name in node.properties else []
            here += (one for each, one in node.patterns.items() if matches(each, name) is not False)
            if not here and node.additional is not None and self.says(node.additional):
                here.append(node.additional)
            found += here
            known = known or name in node.required
        return found if found or known else None

    def is_alone(self, node: Node) -> bool:
        """Whether it leads to no other schema of the same value."""
        known = self._alone.get(node)
        if known is None:
            known = self._alone[node] = next(node.here(), None) is None
        return known

    def says(self, node: Node | None) -> bool:
        """Whether a schema says what the values are; `true` and `{}` do not."""
        if node is None or node.never:
            return False
        known = self._saying.get(node)
        if known is None:
            known = self._saying[node] = node.local() != _ANYTHING or bool(node.notes)
        return known

    def action(self, nodes: Iterable[Node]) -> Action | None:
        """How these schemas mark a value."""
        return strictest(self._marked[each] for each in nodes if each in self._marked)

    def instead(self, nodes: Nodes, action: Action, value: Any, *, needed: bool) -> Any:
        """What stands in a value's place; NOTHING: nothing."""
        if value is None:
            return None
        if stands_in(action, self.key):
            put = self._standing_in(action, value)
            if put is not None and ((type(put) is str and self.any_text(nodes)) or _take(nodes, put)):
                return put
        if not needed:
            return NOTHING
        put = self._filler(nodes)
        return self._hollow(nodes, value) if put is NOTHING else put

    def any_text(self, nodes: Nodes) -> bool:
        """Whether these schemas take all texts: what costs least to know."""
        known = self._texts.get(nodes)
        if known is None:
            if len(self._texts) >= KEPT_MAX:
                self._texts.clear()
            known = self._texts[nodes] = all(map(_takes_texts, nodes))
        return known

    def _standing_in(self, action: Action, value: Any) -> Any:
        """None: nothing does."""
        if isinstance(value, str):
            return instead(action, self.key, value)
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return [instead(action, self.key, each) for each in value]
        return None

    def _filler(self, nodes: Nodes) -> Any:
        """What stands for any removed value of which these schemas say something."""
        known = self._fillers.get(nodes)
        if known is None:
            if len(self._fillers) >= KEPT_MAX:
                self._fillers.clear()
            fitting = ((each,) for each in _fillers(nodes) if _take(nodes, each))
            known = self._fillers[nodes] = next(fitting, ())
        return known[0] if known else NOTHING

    def _hollow(self, nodes: Sequence[Node], value: Any) -> Any:
        """An empty value of the same type; an object has those properties that it has to have."""
        if not isinstance(value, dict):
            return _EMPTY.get(type(value), 0)
        made = {}
        for name, held in value.items():
            if any(name in each.required for each in nodes):
                inside = tuple(self.of_property(nodes, name) or ())
                put = self._filler(inside)
                made[name] = self._hollow(inside, held) if put is NOTHING else put
        return made


def _takes_texts(node: Node) -> bool:
    bounded = node.pattern is not None or node.max_length is not None or node.min_length > 0
    listed = node.never or node.known is not None or "string" not in node.types or bool(node.opaque)
    return not bounded and not listed and next(node.here(), None) is None


def _take(nodes: Iterable[Node], value: Any) -> bool:
    return all(accepts(each, value) is True for each in nodes)


def _fillers(nodes: Sequence[Node]) -> Iterator[Any]:
    yield None
    yield from (each.notes["default"] for each in nodes if "default" in each.notes)
    yield from ("", 0, False, [], {})
    yield from (each.values[0] for each in nodes if each.values)
