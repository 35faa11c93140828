"""Takes properties and items out of JSON records that their schema marks as not for everybody.

A schema marks the values that it takes by keywords: a tag of Confluent's (`"confluent:tags": ["PII"]`) that
the topic names, or Floe's own, `"x-floe-redact": "hash"`, which also says what stands in its place. All
schemas count that say something of a value: by `$ref` (beside it, too), `allOf`, and those of the
alternatives that take it. Where a schema names properties, others go, as nobody can tell what they are; so
do items behind those that it names. An object or array of which nothing is said stays as it is.

Text is hashed or masked as the mark says, and so is each item of an array of text; all else is removed.
What is removed is not there; where it has to be there stands the first that its schema takes: null, its
default, an empty value, the first of a list of values. Where it takes none of these, an empty value stands
there anyway.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from schema.redaction.marks import Action, Marks, Unreadable, instead, said, stands_in, strictest
from schema.registry.json import schema as json_schema
from schema.registry.json.judging import Judge
from schema.registry.json.nodes import Node, reachable
from schema.registry.json.patterns import matches
from schema.registry.json.text import written
from schema.registry.json.values import Look, TooMuch, accepts

OWN = "x-floe-redact"
"""The keyword of Floe's own: remove, hash or mask."""

KEPT_MAX = 1_024
"""Combinations of schemas of which what follows is kept ready; beyond, all is forgotten."""

_EMPTY: dict[type, Any] = {str: "", bool: False, int: 0, list: [], dict: {}}
_NOTHING = object()


_Property = tuple[tuple[Node, ...] | None, Action | None, bool]
"""What is said of a property, and how it is marked, if that is all (True); None: no schema names it."""


class _Object(NamedTuple):
    """What schemas say of an object, if anything, and of the properties that they name."""

    says: bool
    names: dict[str, _Property]


class JsonRedactor:
    """Redacts records of one schema. Thread-safe: what is kept is the same for all."""

    slow = True

    def __init__(self, root: Node, marked: Mapping[Node, Action], key: bytes) -> None:
        self._root, self._marked, self._key = root, marked, key
        self._judge = Judge(root)
        self._alone: dict[Node, bool] = {}
        self._fillers: dict[tuple[Node, ...], tuple[Any, ...]] = {}  # of one; (): nothing fits
        self._saying: dict[Node, bool] = {}
        self._objects: dict[tuple[Node, ...], _Object] = {}
        self._texts: dict[tuple[Node, ...], bool] = {}

    def redacted(self, payload: bytes) -> bytes:
        """The record without what is marked, and without properties that the schema does not name.

        Raises Unreadable.
        """
        try:
            value, look = self._judge.looked_at(payload)
        except ValueError:  # its reason may quote what is not for everybody
            raise Unreadable("it is no JSON that its schema takes") from None
        gone: list[Any] = []  # as long as `look` is asked, no other value may have the identity of these
        try:
            value = self._whole(look, value, gone)
        except (TooMuch, RecursionError):
            raise Unreadable("too much to look at: its schema has too many alternatives") from None
        try:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        except TypeError:  # numbers with a fraction keep their form
            return written(value).encode()

    def _whole(self, look: Look, value: Any, gone: list[Any]) -> Any:
        applied = self._applied(look, (self._root,), value)
        action = self._action(applied)
        if action is None:
            self._inside(look, applied, value, gone)
            return value
        gone.append(value)
        return self._instead(applied, action, value, needed=True)

    def _inside(self, look: Look, nodes: tuple[Node, ...], value: Any, gone: list[Any]) -> None:
        """Change what is in a value of which these schemas say something."""
        if type(value) is dict:
            self._object(look, nodes, value, gone)
        elif type(value) is list:
            self._array(look, nodes, value, gone)

    def _object(self, look: Look, nodes: tuple[Node, ...], value: dict[str, Any], gone: list[Any]) -> None:
        known = self._objects.get(nodes)
        if known is None:
            known = self._object_of(nodes)
        if not known.says:
            return
        names = [*value]
        for name in names:
            told = known.names.get(name)
            found, action, alone = told if told is not None else self._property(nodes, name)
            held = value[name]
            if found is None:
                if name not in _Needed(nodes, names):
                    gone.append(value.pop(name))
                continue
            if not alone:
                found = self._applied(look, found, held)
                action = self._action(found)
            if action is None:
                self._inside(look, found, held, gone)
                continue
            gone.append(held)
            put = self._instead(found, action, held, needed=name in _Needed(nodes, names))
            if put is _NOTHING:
                del value[name]
            else:
                value[name] = put

    def _object_of(self, nodes: tuple[Node, ...]) -> _Object:
        """What is said of objects by these schemas, kept ready."""
        if len(self._objects) >= KEPT_MAX:
            self._objects.clear()
        says = any(each.properties or each.patterns or self._says(each.additional) for each in nodes)
        names = dict.fromkeys(name for each in nodes for name in each.properties)
        made = self._objects[nodes] = _Object(says, {name: self._property(nodes, name) for name in names})
        return made

    def _property(self, nodes: Sequence[Node], name: str) -> _Property:
        found = self._of_property(nodes, name)
        if found is None:
            return None, None, True
        return tuple(found), self._action(found), all(map(self._is_alone, found))

    def _array(self, look: Look, nodes: tuple[Node, ...], value: list[Any], gone: list[Any]) -> None:
        if not any(each.prefix or each.rest is not None or each.contains is not None for each in nodes):
            return
        made = []
        for at, held in enumerate(value):
            found = [one for each in nodes if (one := _of_item(each, at)) is not None]
            if not found and any(each.prefix for each in nodes):
                continue
            perhaps = [each.contains for each in nodes if each.contains is not None]
            applied = self._applied(look, [*found, *perhaps], held, sure=not perhaps)
            action = self._action(applied)
            if action is None:
                self._inside(look, applied, held, gone)
                made.append(held)
                continue
            listed = any(at < len(each.prefix) for each in nodes)
            put = self._instead(applied, action, held, needed=listed)
            if put is not _NOTHING:
                made.append(put)
        gone += value
        value[:] = made

    def _of_property(self, nodes: Sequence[Node], name: str) -> list[Node] | None:
        """What is said of a property; None: nothing, and no schema names it."""
        found: list[Node] = []
        named = False
        for node in nodes:
            here = [node.properties[name]] if name in node.properties else []
            here += (one for each, one in node.patterns.items() if matches(each, name) is not False)
            if not here and node.additional is not None and self._says(node.additional):
                here.append(node.additional)
            found += here
            named = named or name in node.required
        return found if found or named else None

    def _applied(
        self, look: Look, nodes: Sequence[Node], value: Any, *, sure: bool = True
    ) -> tuple[Node, ...]:
        """All schemas that say something of a value. `sure`: it is known that the first ones take it."""
        if sure and all(map(self._is_alone, nodes)):
            return tuple(nodes)
        found: dict[Node, None] = {}
        waiting = [*nodes] if sure else [each for each in nodes if look.accepts(each, value) is not False]
        while waiting:
            node = waiting.pop()
            if node not in found:
                found[node] = None
                if not self._is_alone(node):
                    waiting += _also(look, node, value)
        return tuple(found)

    def _is_alone(self, node: Node) -> bool:
        """Whether it leads to no other schema of the same value."""
        known = self._alone.get(node)
        if known is None:
            known = self._alone[node] = next(node.here(), None) is None
        return known

    def _says(self, node: Node | None) -> bool:
        """Whether a schema says what the values are; `true` and `{}` do not."""
        if node is None or node.never:
            return False
        known = self._saying.get(node)
        if known is None:
            known = self._saying[node] = node.local() != _ANYTHING or bool(node.notes)
        return known

    def _action(self, nodes: Sequence[Node]) -> Action | None:
        return strictest(self._marked[each] for each in nodes if each in self._marked)

    def _instead(self, nodes: tuple[Node, ...], action: Action, value: Any, *, needed: bool) -> Any:
        """What stands in a value's place; _NOTHING: nothing."""
        if value is None:
            return None
        if stands_in(action, self._key):
            put = self._standing_in(action, value)
            if put is not None and ((type(put) is str and self._any_text(nodes)) or _take(nodes, put)):
                return put
        if not needed:
            return _NOTHING
        put = self._filler(nodes)
        return self._hollow(nodes, value) if put is _NOTHING else put

    def _any_text(self, nodes: tuple[Node, ...]) -> bool:
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
            return instead(action, self._key, value)
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return [instead(action, self._key, each) for each in value]
        return None

    def _filler(self, nodes: tuple[Node, ...]) -> Any:
        """What stands for any removed value of which these schemas say something."""
        known = self._fillers.get(nodes)
        if known is None:
            if len(self._fillers) >= KEPT_MAX:
                self._fillers.clear()
            fitting = ((each,) for each in _fillers(nodes) if _take(nodes, each))
            known = self._fillers[nodes] = next(fitting, ())
        return known[0] if known else _NOTHING

    def _hollow(self, nodes: Sequence[Node], value: Any) -> Any:
        """An empty value of the same type; an object has those properties that it has to have."""
        if not isinstance(value, dict):
            return _EMPTY.get(type(value), 0)
        made = {}
        for name, held in value.items():
            if any(name in each.required for each in nodes):
                inside = tuple(self._of_property(nodes, name) or ())
                put = self._filler(inside)
                made[name] = self._hollow(inside, held) if put is _NOTHING else put
        return made


class _Needed:
    """Which properties of an object have to be there."""

    def __init__(self, nodes: Iterable[Node], names: Iterable[str]) -> None:
        self._nodes, self._names = [*nodes], frozenset(names)

    def __contains__(self, name: str) -> bool:
        return any(
            name in each.required
            or any(name in needed for one, needed in each.dependent_required.items() if one in self._names)
            for each in self._nodes
        )


def redactor(form: bytes, imports: Mapping[str, bytes], marks: Marks, key: bytes) -> JsonRedactor | None:
    """What redacts records of a canonical text; None where nothing in them is marked.

    `key` is that of hashes. CPU work. Raises InvalidSchema.
    """
    root = json_schema.load(form, imports).root
    marked = marked_nodes(root, marks)
    return JsonRedactor(root, marked, key) if marked else None


def marked_nodes(root: Node, marks: Marks) -> dict[Node, Action]:
    """The schemas below one whose values are marked; an object's, where names of properties are."""
    found: dict[Node, Action] = {}
    for node in reachable(root):
        for one in (node, node.names):
            action = said(marks, one.notes, OWN) if one is not None and one.notes else None
            if action is not None:
                found.setdefault(node, action if one is node else Action.REMOVE)
    return found


_ANYTHING = Node().local()


def _also(look: Look, node: Node, value: Any) -> Iterator[Node]:
    """Schemas that a schema holds against the same value, and which may take it."""
    yield from node.all_of
    for one in (*node.any_of, *node.one_of):
        if look.accepts(one, value) is not False:
            yield one
    if isinstance(value, dict):
        yield from (one for name, one in node.dependent.items() if name in value)
    if node.if_ is not None:
        met = look.accepts(node.if_, value)
        chosen = ((node.if_, False), (node.then, False), (node.else_, True))
        yield from (one for one, unless in chosen if one is not None and met is not unless)


def _of_item(node: Node, at: int) -> Node | None:
    return node.prefix[at] if at < len(node.prefix) else node.rest


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
