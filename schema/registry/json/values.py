"""Whether a schema takes a value. What is not to be told here is None: nothing is concluded from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, TypeAlias

from schema.registry.json.nodes import Node
from schema.registry.json.patterns import matches
from schema.registry.json.text import frozen

Verdict: TypeAlias = bool | None
Check: TypeAlias = "Callable[[Look, Node, Any], Verdict]"
Checks: TypeAlias = tuple[tuple[Check, ...], bool]
"""What is to be looked at for a schema, and whether that leads into other schemas."""

LOOKS_MAX = 100_000
"""Schemas that are held against parts of one value; beyond, it is not to be told."""


def accepts(node: Node, value: Any, spend: Callable[[int], None] = lambda looks: None) -> Verdict:
    """Whether the schema takes the value, as read from JSON text. `spend` is told how often it was looked."""
    look = Look()
    try:
        return look.accepts(node, value)
    except (RecursionError, TooMuch):
        return None
    finally:
        spend(look.count)


def takes_by_itself(node: Node, value: Any) -> Verdict:
    """Whether the schema takes a value that has no parts, whatever those that it leads to say of it."""
    return _every(check(_ALONE, node, value) for check in (_plain, _number, _text))


class TooMuch(Exception):
    """More looks than may be."""


class Look:
    """Holds schemas against one value and its parts, each pair once: schemas may share others."""

    def __init__(self, looks_max: int = LOOKS_MAX, checks: dict[Node, Checks] | None = None) -> None:
        """`checks`: what is kept of schemas from one value to the next."""
        self.count = 0
        self._looks_max = looks_max
        self._checks = checks if checks is not None else {}
        self._known: dict[tuple[Node, int], Verdict] = {}

    def accepts(self, node: Node, value: Any) -> Verdict:
        """Whether the schema takes the value, which is held by somebody for as long as this is.

        Raises TooMuch.
        """
        checks = self._checks.get(node)
        if checks is None:
            checks = self._checks[node] = _checks_of(node)
        if not checks[1]:  # nothing inside: quicker looked at again than looked up
            self._spend()
            return _every(check(self, node, value) for check in checks[0])
        key = (node, id(value))
        if key not in self._known:
            self._spend()
            self._known[key] = _every(check(self, node, value) for check in checks[0])
        return self._known[key]

    def _spend(self) -> None:
        self.count += 1
        if self.count > self._looks_max:
            raise TooMuch


_ALONE = Look()

_ATOMS: dict[type, str] = {
    type(None): "null",
    bool: "boolean",
    str: "string",
    dict: "object",
    list: "array",
    int: "integer",
}


def atom(value: Any) -> str:
    """The type of a value; 1.0 is an integer, as from draft-06 on."""
    known = _ATOMS.get(type(value))
    if known is not None:
        return known
    return "integer" if Fraction(value).denominator == 1 else "fraction"


def _every(verdicts: Iterable[Verdict]) -> Verdict:
    found: Verdict = True
    for one in verdicts:
        if one is False:
            return False
        found = None if one is None else found
    return found


def _some(verdicts: Iterable[Verdict]) -> Verdict:
    return _not(_every(_not(one) for one in verdicts))


def _not(verdict: Verdict) -> Verdict:
    return None if verdict is None else not verdict


def _plain(_look: Look, node: Node, value: Any) -> Verdict:
    if node.never or atom(value) not in node.types:
        return False
    if node.known is not None and frozen(value) not in node.known:
        return False
    return None if node.opaque else True


def _number(_look: Look, node: Node, value: Any) -> Verdict:
    if atom(value) not in ("integer", "fraction"):
        return True
    return not (
        (node.maximum is not None and value > node.maximum)
        or (node.minimum is not None and value < node.minimum)
        or (node.exclusive_maximum is not None and value >= node.exclusive_maximum)
        or (node.exclusive_minimum is not None and value <= node.exclusive_minimum)
        or (node.multiple_of is not None and (Fraction(value) / Fraction(node.multiple_of)).denominator != 1)
    )


def _text(_look: Look, node: Node, value: Any) -> Verdict:
    if not isinstance(value, str):
        return True
    if len(value) < node.min_length or (node.max_length is not None and len(value) > node.max_length):
        return False
    return True if node.pattern is None else matches(node.pattern, value)


def _array(look: Look, node: Node, value: Any) -> Verdict:
    if not isinstance(value, list):
        return True
    if len(value) < node.min_items or (node.max_items is not None and len(value) > node.max_items):
        return False
    if node.unique and len({frozen(one) for one in value}) < len(value):
        return False
    items = [(one, item) for one, item in zip(node.prefix, value, strict=False)]
    if node.rest is not None:
        items += [(node.rest, item) for item in value[len(node.prefix) :]]
    return _every((*(look.accepts(one, item) for one, item in items), _contains(look, node, value)))


def _contains(look: Look, node: Node, value: list[Any]) -> Verdict:
    if node.contains is None:
        return True
    verdicts = [look.accepts(node.contains, item) for item in value]
    sure, perhaps = verdicts.count(True), verdicts.count(None)
    most = node.max_contains
    if sure + perhaps < node.min_contains or (most is not None and sure > most):
        return False
    return True if sure >= node.min_contains and (most is None or sure + perhaps <= most) else None


def _object(look: Look, node: Node, value: Any) -> Verdict:
    if not isinstance(value, dict):
        return True
    most = node.max_properties
    if len(value) < node.min_properties or (most is not None and len(value) > most):
        return False
    if not node.required <= value.keys():
        return False
    if any(name in value and not needed <= value.keys() for name, needed in node.dependent_required.items()):
        return False
    found: Verdict = True
    if node.names is not None:
        found = _every(look.accepts(node.names, name) for name in value)
    if found is not False and node.dependent:
        found = _every(
            (found, *(look.accepts(one, value) for name, one in node.dependent.items() if name in value))
        )
    for name, held in value.items():
        if found is False:
            break
        one = _property(look, node, name, held)
        found = found if one else one
    return found


def _property(look: Look, node: Node, name: str, held: Any) -> Verdict:
    if not node.patterns:
        schema = node.properties.get(name, node.additional)
        return True if schema is None else look.accepts(schema, held)
    known = [look.accepts(node.properties[name], held)] if name in node.properties else []
    perhaps = False
    for pattern, schema in node.patterns.items():
        matched = matches(pattern, name)
        if matched:
            known.append(look.accepts(schema, held))
        perhaps = perhaps or matched is None
    if perhaps:
        known.append(None)
    elif not known and node.additional is not None:
        known.append(look.accepts(node.additional, held))
    return _every(known)


def _combined(look: Look, node: Node, value: Any) -> Verdict:
    found = [look.accepts(one, value) for one in node.all_of]
    if node.any_of:
        found.append(_some(look.accepts(one, value) for one in node.any_of))
    if node.one_of:
        verdicts = [look.accepts(one, value) for one in node.one_of]
        sure, perhaps = verdicts.count(True), verdicts.count(None)
        found.append(sure == 1 if not perhaps or sure > 1 else None)
    if node.not_ is not None:
        found.append(_not(look.accepts(node.not_, value)))
    if node.if_ is not None:
        found.append(_conditional(look, node, node.if_, value))
    return _every(found)


def _conditional(look: Look, node: Node, condition: Node, value: Any) -> Verdict:
    met = look.accepts(condition, value)
    then = True if node.then is None else look.accepts(node.then, value)
    otherwise = True if node.else_ is None else look.accepts(node.else_, value)
    if met is None:
        return then if then == otherwise else None
    return then if met else otherwise


def _checks_of(node: Node) -> Checks:
    """Those checks that the schema's keywords need, and whether one of them looks into other schemas."""
    numbers = (node.maximum, node.minimum, node.exclusive_maximum, node.exclusive_minimum, node.multiple_of)
    texts = node.max_length is not None or node.min_length or node.pattern is not None
    arrays = node.prefix or node.rest is not None or node.contains is not None or node.unique
    objects = node.properties or node.patterns or node.dependent or node.required or node.dependent_required
    others = node.additional is not None or node.names is not None
    sizes = node.max_properties is not None or node.min_properties
    combined = next(node.here(), None) is not None
    needed = (
        (_plain, True),
        (_number, any(each is not None for each in numbers)),
        (_text, texts),
        (_array, arrays or node.max_items is not None or node.min_items),
        (_object, objects or others or sizes),
        (_combined, combined),
    )
    return tuple(check for check, wanted in needed if wanted), next(node.children(), None) is not None
