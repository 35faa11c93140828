"""Which drafts of JSON Schema there are, and whether a schema is one by its metaschema."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator
from typing import Any

from jsonschema import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
)
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend

from schema.registry.json.text import SHOWN_MAX, frozen, pointer, shown, written
from schema.registry.parsed import InvalidSchema


class Draft(enum.IntEnum):
    """A draft; later ones are greater."""

    D4, D6, D7, D2019, D2020 = 4, 6, 7, 2019, 2020


_ADDRESSES = {
    Draft.D4: "http://json-schema.org/draft-04/schema#",
    Draft.D6: "http://json-schema.org/draft-06/schema#",
    Draft.D7: "http://json-schema.org/draft-07/schema#",
    Draft.D2019: "https://json-schema.org/draft/2019-09/schema",
    Draft.D2020: "https://json-schema.org/draft/2020-12/schema",
}


def _unique_items(checker: Any, wanted: bool, value: Any, _schema: Any) -> Iterator[ValidationError]:
    """The library compares each item with each, where they have no order."""
    if wanted and checker.is_type(value, "array") and len({frozen(one) for one in value}) < len(value):
        yield ValidationError(f"{shown(value)} has non-unique elements")


def _any_of(checker: Any, ways: list[Any], value: Any, _schema: Any) -> Iterator[ValidationError]:
    """The library makes an error of each item of a list, before it says that the list is wrong."""
    wrong = []
    for index, way in enumerate(ways):
        first = next(checker.descend(value, way, schema_path=index), None)
        if first is None:
            return
        wrong.append(first)
    yield ValidationError(f"{shown(value)} is not valid under any of the given schemas", context=wrong)


_KEYWORDS = {"uniqueItems": _unique_items, "anyOf": _any_of}
_VALIDATORS: dict[Draft, Any] = {
    Draft.D4: extend(Draft4Validator, _KEYWORDS),
    Draft.D6: extend(Draft6Validator, _KEYWORDS),
    Draft.D7: extend(Draft7Validator, _KEYWORDS),
    Draft.D2019: extend(Draft201909Validator, _KEYWORDS),
    Draft.D2020: extend(Draft202012Validator, _KEYWORDS),
}
"""By a metaschema they look at a schema in linear time."""
_REMEDIES = {
    "type": "another type of value belongs there",
    "minimum": "give a larger number",
    "exclusiveMinimum": "give a larger number",
    "uniqueItems": "name each once",
    "minItems": "name one at least",
    "enum": "give one of these",
    "anyOf": "see what the keyword takes",
}


def draft_of(tree: Any) -> Draft:
    """The draft that a document's `$schema` names; without one draft-07, as with Confluent's registry.

    Raises InvalidSchema.
    """
    named = tree.get("$schema") if isinstance(tree, dict) else None
    if named is None:
        return Draft.D7
    for draft, address in _ADDRESSES.items():
        if isinstance(named, str) and _plain(named) == _plain(address):
            return draft
    known = ", ".join(_ADDRESSES.values())
    raise InvalidSchema(
        f"#/$schema: {shown(named)} is unknown: leave it out (draft-07) or give one of {known}"
    )


def check_valid(tree: Any, draft: Draft) -> None:
    """Raises InvalidSchema where the draft's metaschema does not take it."""
    if draft is Draft.D4 and isinstance(tree, bool):
        raise InvalidSchema(f'#: {shown(tree)} is no schema of draft-04: write {{}} or {{"not": {{}}}}')
    checker = _VALIDATORS[draft]
    plain = json.loads(written(tree))  # with floats, some of them infinite: the metaschemas know no Decimals
    try:
        first = next(checker(checker.META_SCHEMA).iter_errors(plain), None)
    except RecursionError:
        raise InvalidSchema("schemas stand too deep within one another: give inner ones names") from None
    if first is not None:
        raise InvalidSchema(_words(best_match([first]) or first))


def _words(error: ValidationError) -> str:
    """Where, what and what to do."""
    place = pointer(error.absolute_path)
    said = error.message if len(error.message) <= 2 * SHOWN_MAX else f"{error.message[: 2 * SHOWN_MAX]}…"
    kind = str(error.validator)
    if kind == "type" and not isinstance(error.validator_value, str):
        said = f"{said}, one of them"
    return f"{place}: {said}: {_REMEDIES.get(kind, f'see {kind!r} of the metaschema')}"


def _plain(address: str) -> str:
    return address.strip().removesuffix("#").removeprefix("http://").removeprefix("https://")
