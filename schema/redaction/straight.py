"""Redacts JSON records whose schemas say all that there is to say by the types of values: most of them.

For each type that a value may have it is known once and for all which schemas apply: its own, those that
stand in `allOf`, and of alternatives the only one that takes the type, as of a schema or null. What has to be
looked at for each value (several alternatives of one type, `if`, `not`, patterns of names, tuples and the
like) is not known here, and neither is why a record is none: Unsure. Whoever asks then takes the long way
(json.py), which has the same result.

What is made is new: the value stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from schema.redaction.marks import Action, instead, stands_in
from schema.redaction.saying import NOTHING, Nodes, Sayings
from schema.registry.json.nodes import Node
from schema.registry.json.values import accepts, takes_by_itself

APPLIED_MAX = 16
"""Schemas of one value; where more apply, all are looked at."""

LEARNT_MAX = 8_192
"""Places and types of values of which it is known what becomes of them (1 KiB each, or so); beyond, all is
learnt anew.
"""

_ATOMS: dict[type, tuple[str, ...]] = {
    type(None): ("null",),
    bool: ("boolean",),
    str: ("string",),
    int: ("integer",),
    Decimal: ("integer", "fraction"),
    dict: ("object",),
    list: ("array",),
}


class Unsure(Exception):
    """The record may be none of the schema's, or it takes more to know what is left of it."""


_Step = Callable[[Any], Any]
"""From a value to what stands in its place, maybe NOTHING."""


class _Where(NamedTuple):
    """A value's place: the schemas that are held against it, whether something has to stand there, its full
    name where metadata has tags, and how these mark it.
    """

    nodes: Nodes
    needed: bool = False
    path: str = ""
    named: Action | None = None


class Straight:
    """Of one schema. Thread-safe: what is learnt is the same for all."""

    def __init__(self, root: Node, sayings: Sayings) -> None:
        self.sayings = sayings
        self._top = _Where((root,), needed=True, path=sayings.top)
        self._places: dict[_Where, _Place] = {}
        self._learnt = 0
        self._root = self.place(self._top)

    def redacted(self, value: Any) -> Any:
        """What is left of a record. Raises Unsure."""
        if self._learnt > LEARNT_MAX:
            self._learnt, self._places = 0, {}
            self._root = self.place(self._top)
        step = self._root[type(value)]
        return value if step is None else step(value)

    def place(self, where: _Where) -> _Place:
        """What is known of a place, or will be."""
        known = self._places.get(where)
        if known is None:
            known = self._places[where] = _Place(partial(self._step, where))
        return known

    def _step(self, where: _Where, kind: type) -> _Step | None:
        """What becomes of values of a type; None: they stay."""
        self._learnt += 1
        found = {_applied(where.nodes, self.sayings, atom) for atom in _ATOMS[kind]}
        applied = found.pop()
        if found or applied is None:
            return _unsure
        action = self.sayings.action(applied) or where.named
        if action is not None:
            return self._marked(where, applied, action, kind)
        if kind is dict:
            return self._object(applied, where.path)
        if kind is list:
            return self._array(applied, where.path)
        checked = _bounded(applied)
        return partial(_kept, checked) if checked else None

    def _marked(self, where: _Where, applied: Nodes, action: Action, kind: type) -> _Step | None:
        """Of what is not for everybody. It has to be what the schemas take all the same."""
        sayings, bounded = self.sayings, _bounded(applied)
        if kind is type(None) and not bounded:
            return None
        stands = stands_in(action, sayings.key)
        if kind is str and stands and not bounded and sayings.any_text(applied):
            return partial(instead, action, sayings.key)
        put = partial(sayings.instead, applied, action, needed=where.needed)
        if kind is dict or kind is list:
            return partial(_taken, where.nodes, put)
        if bounded:
            return lambda value: put(_kept(bounded, value))
        return put if where.needed or (kind is str and stands) else _gone

    def _object(self, applied: Nodes, path: str) -> _Step:
        if any(_is_special_object(each) for each in applied):
            return _unsure
        required = frozenset(name for each in applied for name in each.required)
        least = max(each.min_properties for each in applied) if applied else 0
        most = min((each.max_properties for each in applied if each.max_properties is not None), default=None)
        says = any(each.properties or self.sayings.says(each.additional) for each in applied)
        if path and not says:
            return _unsure
        shut = any(each.additional is not None and each.additional.never for each in applied)
        names = _Names(self, applied, path, required, says=says, shut=shut)

        def made(value: dict[str, Any]) -> dict[str, Any]:
            if not required <= value.keys() or len(value) < least or (most is not None and len(value) > most):
                raise Unsure
            found = {}
            for name, held in value.items():
                step = names[name][type(held)]
                if step is not None:
                    held = step(held)
                    if held is NOTHING:
                        continue
                found[name] = held
            return found

        return made

    def _array(self, applied: Nodes, path: str) -> _Step | None:
        if any(each.prefix or each.contains is not None or each.unique for each in applied):
            return _unsure
        least = max(each.min_items for each in applied) if applied else 0
        most = min((each.max_items for each in applied if each.max_items is not None), default=None)
        rest = tuple(each.rest for each in applied if each.rest is not None)
        if not rest and not path and not least and most is None:
            return None
        items = self.place(_Where(rest, path=path))

        def made(value: list[Any]) -> list[Any]:
            if len(value) < least or (most is not None and len(value) > most):
                raise Unsure
            found = []
            for held in value:
                step = items[type(held)]
                if step is not None:
                    held = step(held)
                    if held is NOTHING:
                        continue
                found.append(held)
            return found

        return made


class _Place(dict[type, _Step | None]):
    """By type of values, learnt when one comes."""

    def __init__(self, learn: Callable[[type], _Step | None]) -> None:
        self._learn = learn

    def __missing__(self, kind: type) -> _Step | None:
        step = self[kind] = self._learn(kind)
        return step


_OPEN = _Place(lambda kind: None)
_SHUT = _Place(lambda kind: _unsure)
_GONE = _Place(lambda kind: _gone)


class _Names(dict[str, _Place]):
    """The places of an object's properties, those that schemas name; learnt when one comes."""

    def __init__(
        self, of: Straight, nodes: Nodes, path: str, required: frozenset[str], *, says: bool, shut: bool
    ) -> None:
        self._of, self._nodes, self._path, self._required = of, nodes, path, required
        self._says = says
        self._named = {name for each in nodes for name in each.properties} | required
        self._other = self._others(shut)

    def __missing__(self, name: str) -> _Place:
        if name not in self._named:
            return self._other
        place = self[name] = self._place(name)
        return place

    def _place(self, name: str) -> _Place:
        unnamed = (each.additional for each in self._nodes if name not in each.properties)
        if any(each is not None and each.never for each in unnamed):
            return _SHUT
        told = self._of.sayings.property(self._nodes, name, self._path, says=self._says)
        assert told.nodes is not None, "it is named"
        action = self._of.sayings.action(told.nodes)
        named = told.action if action is None else None
        return self._of.place(_Where(told.nodes, name in self._required, told.path, named))

    def _others(self, shut: bool) -> _Place:
        """Of properties that no schema names."""
        if shut:
            return _SHUT
        if not self._says:
            return _OPEN
        says = self._of.sayings.says
        told = tuple(one for each in self._nodes if (one := each.additional) is not None and says(one))
        if not told:
            return _GONE
        return _SHUT if self._path else self._of.place(_Where(told))


def _applied(nodes: Nodes, sayings: Sayings, atom: str) -> Nodes | None:
    """All schemas that say something of a value of this type, if these do; None: that is not sure.

    In the order of the long way, as it may matter which default is found first.
    """
    found: dict[Node, None] = {}
    waiting = [*nodes]
    alone = all(map(sayings.is_alone, nodes))
    while waiting:
        node = waiting.pop(0 if alone else -1)
        if node in found:
            continue
        found[node] = None
        further = _further(node, atom)
        if further is None or len(found) > APPLIED_MAX:
            return None
        waiting += further
    return tuple(found) if not alone else nodes


def _further(node: Node, atom: str) -> list[Node] | None:
    """Schemas that say something of the same value, if the schema takes it; None: that is not sure."""
    if node.never or atom not in node.types or node.opaque:
        return None
    if node.not_ is not None or node.if_ is not None or (atom == "object" and node.dependent):
        return None
    if node.known is not None and atom in ("object", "array"):
        return None
    found = [*node.all_of]
    for several in (node.any_of, node.one_of):
        fitting = [each for each in several if atom in each.types and not each.never]
        if several and len(fitting) != 1:
            return None
        found += fitting
    return found


def _is_special_object(node: Node) -> bool:
    return bool(node.patterns or node.dependent_required or node.dependent) or node.names is not None


def _bounded(nodes: Iterable[Node]) -> Nodes:
    """Those that do not take each value of the types that they take."""
    return tuple(
        each
        for each in nodes
        if each.known is not None
        or (each.maximum, each.minimum, each.exclusive_maximum) != (None, None, None)
        or (each.exclusive_minimum, each.multiple_of, each.max_length, each.pattern) != (None,) * 4
        or each.min_length
    )


def _unsure(value: Any) -> Any:
    raise Unsure


def _gone(value: Any) -> Any:
    return NOTHING


def _kept(nodes: Nodes, value: Any) -> Any:
    for each in nodes:
        if takes_by_itself(each, value) is not True:
            raise Unsure
    return value


def _taken(nodes: Nodes, put: _Step, value: Any) -> Any:
    """What stands in the place of an object or an array, if the schemas take it."""
    for each in nodes:
        if accepts(each, value) is not True:
            raise Unsure
    return put(value)
