"""Whether a schema takes a value. What is not to be told here is None: nothing is concluded from it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

from schema.registry.json.nodes import Node
from schema.registry.json.patterns import matches
from schema.registry.json.text import Forms

Verdict: TypeAlias = bool | None
Check: TypeAlias = "Callable[[Look, Node, Any], Verdict]"
Checks: TypeAlias = tuple[tuple[Check, ...], bool]
"""What is to be looked at for a schema, and whether that leads into other schemas."""

LOOKS_MAX = 100_000
"""Schemas that are held against parts of one value; beyond, it is not to be told."""

CHARS_PER_LOOK = 256
"""Characters of a text that a pattern is looked for in, which count as one more look."""
PATTERNS_PER_LOOK = 4
"""Patterns that the name of a property is held against, which do."""
DIGITS_PER_LOOK = 16
"""Digits of two numbers, one of which may be a multiple of the other, which do."""
PARTS_PER_LOOK = 16
"""Parts of two values that are equal, and names that have to be there, which do."""


def accepts(
    node: Node,
    value: Any,
    spend: Callable[[int], None] = lambda looks: None,
    forms: Forms | None = None,
) -> Verdict:
    """Whether the schema takes the value, as read from JSON text. `spend` is told how often it was looked.

    `forms`: what is kept of values that are held from one call to the next.
    """
    look = Look(forms=forms)
    try:
        return look.accepts(node, value)
    except (RecursionError, TooMuch):
        return None
    finally:
        spend(look.count)


def takes_by_itself(node: Node, value: Any) -> Verdict:
    """Whether the schema takes a value that has no parts, whatever those that it leads to say of it."""
    return _every(check(_ALONE, node, value) for check in (_plain, _listed, _number, _text))


class TooMuch(Exception):
    """More looks than may be."""


class Look:
    """Holds schemas against one value and its parts, each pair once: schemas may share others.

    A look costs about the same, whatever the value: what takes longer is counted as several.
    """

    def __init__(
        self,
        looks_max: int = LOOKS_MAX,
        checks: dict[Node, Checks] | None = None,
        forms: Forms | None = None,
    ) -> None:
        """`checks`: what is kept of schemas from one value to the next; `forms`: of values."""
        self.count = 0
        self.forms = forms if forms is not None else Forms()
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
            self.spend(1)
            return _every(check(self, node, value) for check in checks[0])
        key = (node, id(value))
        if key not in self._known:
            self.spend(1)
            self._known[key] = _every(check(self, node, value) for check in checks[0])
        return self._known[key]

    def matches(self, pattern: str, text: str) -> Verdict:
        """Whether a pattern is found in a text. Raises TooMuch."""
        self.spend(len(text) // CHARS_PER_LOOK)
        return matches(pattern, text)

    def spend(self, looks: int) -> None:
        """Count so many looks. Raises TooMuch."""
        self.count += looks
        if self.count > self._looks_max:
            raise TooMuch


_ALONE = Look(sys.maxsize)
"""Of many values: it has nothing to keep of those without parts."""

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
    whole = value == value.to_integral_value() if type(value) is Decimal else Fraction(value).denominator == 1
    return "integer" if whole else "fraction"


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
    return None if node.opaque else True


def _listed(look: Look, node: Node, value: Any) -> Verdict:
    if node.known is None:
        return True
    parts = isinstance(value, dict | list)
    if parts and ("object" if isinstance(value, dict) else "array") not in node.kinds:
        return False
    if look.forms.of(value) not in node.known:
        return False
    if parts:
        look.spend(_parts(value) // PARTS_PER_LOOK)
    return True


def _parts(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_parts, inside))


def _number(look: Look, node: Node, value: Any) -> Verdict:
    if atom(value) not in ("integer", "fraction"):
        return True
    if node.multiple_of is not None:
        look.spend((_digits(value) + _digits(node.multiple_of)) // DIGITS_PER_LOOK)
    return not (
        (node.maximum is not None and value > node.maximum)
        or (node.minimum is not None and value < node.minimum)
        or (node.exclusive_maximum is not None and value >= node.exclusive_maximum)
        or (node.exclusive_minimum is not None and value <= node.exclusive_minimum)
        or (node.multiple_of is not None and (Fraction(value) / Fraction(node.multiple_of)).denominator != 1)
    )


def _digits(value: Any) -> int:
    """Those of a number that is written without an exponent, or more."""
    if isinstance(value, Decimal):
        return len(str(value)) + abs(value.adjusted())
    return int(value).bit_length() // 3


def _text(look: Look, node: Node, value: Any) -> Verdict:
    if not isinstance(value, str):
        return True
    if len(value) < node.min_length or (node.max_length is not None and len(value) > node.max_length):
        return False
    return True if node.pattern is None else look.matches(node.pattern, value)


def _array(look: Look, node: Node, value: Any) -> Verdict:
    if not isinstance(value, list):
        return True
    if len(value) < node.min_items or (node.max_items is not None and len(value) > node.max_items):
        return False
    if node.unique and not look.forms.different(value):
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
    look.spend(min(len(node.required), len(value)) // PARTS_PER_LOOK)
    if not node.required <= value.keys():
        return False
    needed = node.dependent_required
    if needed and not all(needed[name] <= value.keys() for name in both(needed, value)):
        return False
    found: Verdict = True
    if node.names is not None:
        found = _every(look.accepts(node.names, name) for name in value)
    if found is not False and node.dependent:
        found = _every(
            (found, *(look.accepts(node.dependent[name], value) for name in both(node.dependent, value)))
        )
    spoken_of = value if node.patterns or node.additional is not None else both(node.properties, value)
    for name in spoken_of:
        if found is False:
            break
        one = _property(look, node, name, value[name])
        found = found if one else one
    return found


def both(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Names that are in both, whichever has many."""
    less, more = (one, other) if len(one) < len(other) else (other, one)
    return [name for name in less if name in more]


def _property(look: Look, node: Node, name: str, held: Any) -> Verdict:
    if not node.patterns:
        schema = node.properties.get(name, node.additional)
        return True if schema is None else look.accepts(schema, held)
    known = [look.accepts(node.properties[name], held)] if name in node.properties else []
    perhaps = False
    look.spend(len(node.patterns) // PATTERNS_PER_LOOK)
    for pattern, schema in node.patterns.items():
        matched = look.matches(pattern, name)
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
        (_listed, node.known is not None),
        (_number, any(each is not None for each in numbers)),
        (_text, texts),
        (_array, arrays or node.max_items is not None or node.min_items),
        (_object, objects or others or sizes),
        (_combined, combined),
    )
    return tuple(check for check, wanted in needed if wanted), next(node.children(), None) is not None
