"""Takes properties and items out of JSON records that their schema marks as not for everybody.

A schema marks the values that it takes by keywords: a tag of Confluent's (`"confluent:tags": ["PII"]`) that
the topic names, or Floe's own, `"x-floe-redact": "hash"`, which also says what stands in its place. Its
metadata may have such a tag for a property, too, where no keyword marks it. All schemas count that say
something of a value: by `$ref` (beside it, too), `allOf`, and those of the alternatives that take it. Where a
schema names properties, others go, as nobody can tell what they are; so do items behind those that it names.
An object or array of which nothing is said stays as it is, but for what metadata marks in it.

Text is hashed or masked as the mark says, and so is each item of an array of text; all else is removed.
What is removed is not there; where it has to be there stands the first that its schema takes: null, its
default, an empty value, the first of a list of values. Where it takes none of these, an empty value stands
there anyway.

There are two ways with one result. The straight one (straight.py) is taken first: it is quick, and knows when
it does not know. Then the record is held against all schemas, as it was when it was produced.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from schema.redaction.marks import Action, Marks, Unreadable, said
from schema.redaction.saying import NOTHING, Nodes, Sayings
from schema.redaction.straight import Straight, Unsure
from schema.registry.json import schema as json_schema
from schema.registry.json.judging import Judge, parsed
from schema.registry.json.nodes import Node, reachable
from schema.registry.json.text import written
from schema.registry.json.values import Look, TooMuch

OWN = "x-floe-redact"
"""The keyword of Floe's own: remove, hash or mask."""

_WRITER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class JsonRedactor:
    """Redacts records of one schema. Thread-safe: what is kept is the same for all."""

    slow = True

    def __init__(self, root: Node, sayings: Sayings) -> None:
        self._root, self._sayings = root, sayings
        self._judge = Judge(root)
        self.straight = Straight(root, sayings)

    def redacted(self, payload: bytes) -> bytes:
        """The record without what is marked, and without properties that the schema does not name.

        Raises Unreadable.
        """
        try:
            value = parsed(payload)
        except ValueError:  # its reason may quote what is not for everybody
            raise Unreadable("it is no JSON that its schema takes") from None
        try:
            return text(self.straight.redacted(value))
        except Unsure:
            return text(self.weighed(value, len(payload)))

    def weighed(self, value: Any, size: int) -> Any:
        """The value of so many bytes without what is marked, by all schemas; it is changed.

        Raises Unreadable.
        """
        try:
            look = self._judge.look_at(value, size)
        except ValueError:
            raise Unreadable("it is no JSON that its schema takes") from None
        gone: list[Any] = []  # as long as `look` is asked, no other value may have the identity of these
        try:
            return self._whole(look, value, gone)
        except (TooMuch, RecursionError):
            raise Unreadable("too much to look at: its schema has too many alternatives") from None

    def _whole(self, look: Look, value: Any, gone: list[Any]) -> Any:
        applied = self._applied(look, (self._root,), value)
        action = self._sayings.action(applied)
        if action is None:
            self._inside(look, applied, value, gone, self._sayings.top)
            return value
        gone.append(value)
        return self._sayings.instead(applied, action, value, needed=True)

    def _inside(self, look: Look, nodes: Nodes, value: Any, gone: list[Any], path: str) -> None:
        """Change what is in a value of which these schemas say something."""
        if type(value) is dict:
            self._object(look, nodes, value, gone, path)
        elif type(value) is list:
            self._array(look, nodes, value, gone, path)

    def _object(self, look: Look, nodes: Nodes, value: dict[str, Any], gone: list[Any], path: str) -> None:
        known = self._sayings.object(nodes, path)
        if not known.says and not path:
            return
        names = [*value]
        for name in names:
            told = known.names.get(name) or self._sayings.property(nodes, name, path, says=known.says)
            found, action, held = told.nodes, told.action, value[name]
            if found is None:
                if name not in _Needed(nodes, names):
                    gone.append(value.pop(name))
                continue
            if not told.alone:
                found = self._applied(look, found, held)
                action = self._sayings.action(found) or action
            if action is None:
                self._inside(look, found, held, gone, told.path)
                continue
            gone.append(held)
            put = self._sayings.instead(found, action, held, needed=name in _Needed(nodes, names))
            if put is NOTHING:
                del value[name]
            else:
                value[name] = put

    def _array(self, look: Look, nodes: Nodes, value: list[Any], gone: list[Any], path: str) -> None:
        says = any(each.prefix or each.rest is not None or each.contains is not None for each in nodes)
        if not says and not path:
            return
        made = []
        for at, held in enumerate(value):
            found = [one for each in nodes if (one := _of_item(each, at)) is not None]
            if not found and any(each.prefix for each in nodes):
                continue
            perhaps = [each.contains for each in nodes if each.contains is not None]
            applied = self._applied(look, [*found, *perhaps], held, sure=not perhaps)
            action = self._sayings.action(applied)
            if action is None:
                self._inside(look, applied, held, gone, path)
                made.append(held)
                continue
            listed = any(at < len(each.prefix) for each in nodes)
            put = self._sayings.instead(applied, action, held, needed=listed)
            if put is not NOTHING:
                made.append(put)
        gone += value
        value[:] = made

    def _applied(self, look: Look, nodes: Sequence[Node], value: Any, *, sure: bool = True) -> Nodes:
        """All schemas that say something of a value. `sure`: it is known that the first ones take it."""
        if sure and all(map(self._sayings.is_alone, nodes)):
            return tuple(nodes)
        found: dict[Node, None] = {}
        waiting = [*nodes] if sure else [each for each in nodes if look.accepts(each, value) is not False]
        while waiting:
            node = waiting.pop()
            if node not in found:
                found[node] = None
                if not self._sayings.is_alone(node):
                    waiting += _also(look, node, value)
        return tuple(found)


def text(value: Any) -> bytes:
    """What is left, as it is sent: without white space, its numbers in the form they have."""
    try:
        return _WRITER.encode(value).encode()
    except TypeError:  # numbers with a fraction keep their form
        return written(value).encode()


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
    return JsonRedactor(root, Sayings(marked, marks, key)) if marked or marks.paths else None


def marked_nodes(root: Node, marks: Marks) -> dict[Node, Action]:
    """The schemas below one whose values are marked; an object's, where names of properties are."""
    found: dict[Node, Action] = {}
    for node in reachable(root):
        for one in (node, node.names):
            action = said(marks, one.notes, OWN) if one is not None and one.notes else None
            if action is not None:
                found.setdefault(node, action if one is node else Action.REMOVE)
    return found


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
