"""Which drafts of JSON Schema there are, and whether a schema is one by its metaschema."""

from __future__ import annotations

import enum
import json
from typing import Any

from jsonschema import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
)
from jsonschema.exceptions import ValidationError, best_match

from schema.registry.json_text import SHOWN_MAX, pointer, shown, written
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
_VALIDATORS: dict[Draft, Any] = {
    Draft.D4: Draft4Validator,
    Draft.D6: Draft6Validator,
    Draft.D7: Draft7Validator,
    Draft.D2019: Draft201909Validator,
    Draft.D2020: Draft202012Validator,
}
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
