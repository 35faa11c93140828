"""Kinds of differences between JSON Schemas, in Confluent's names, and how each is told."""

from __future__ import annotations

from typing import TypeAlias

from schema.registry.json.text import pointer
from schema.registry.parsed import Difference

Path: TypeAlias = tuple["Path | None", str] | None
"""The way from the root, last step first: way to it and step."""

STEPS_SHOWN_MAX = 64  # of a path; the middle of longer ones is left out

_ADDED = "The {new} schema has a keyword there that the {old} one has not"
_MORE = "The value in the {new} schema is more than in the {old}"
_LESS = "The value in the {new} schema is less than in the {old}"
WORDS = {
    "TYPE_CHANGED": "The {new} schema does not take the types or values there that the {old} one takes",
    "TYPE_NARROWED": "The {new} schema takes fewer types there than the {old}",
    "SCHEMA_ADDED": "The {new} schema has a schema there, and the {old} none",
    **{
        f"{name}_ADDED": _ADDED
        for name in (
            *("MAX_LENGTH", "MIN_LENGTH", "PATTERN", "MAXIMUM", "MINIMUM", "EXCLUSIVE_MAXIMUM"),
            *("EXCLUSIVE_MINIMUM", "MULTIPLE_OF", "MAX_PROPERTIES", "MIN_PROPERTIES", "DEPENDENCY_ARRAY"),
            *("DEPENDENCY_SCHEMA", "MAX_ITEMS", "MIN_ITEMS", "MAX_CONTAINS", "MIN_CONTAINS", "UNIQUE_ITEMS"),
        )
    },
    **{
        f"{name}_INCREASED": _MORE
        for name in (
            *("MIN_LENGTH", "MINIMUM", "EXCLUSIVE_MINIMUM", "MIN_PROPERTIES", "MIN_ITEMS"),
            "MIN_CONTAINS",
        )
    },
    **{
        f"{name}_DECREASED": _LESS
        for name in (
            *("MAX_LENGTH", "MAXIMUM", "EXCLUSIVE_MAXIMUM", "MAX_PROPERTIES", "MAX_ITEMS"),
            "MAX_CONTAINS",
        )
    },
    "PATTERN_CHANGED": "The pattern in the {new} schema is another one than in the {old}",
    "MULTIPLE_OF_EXPANDED": _MORE,
    "MULTIPLE_OF_CHANGED": "The value in the {new} schema does not divide the one in the {old}",
    "REQUIRED_ATTRIBUTE_ADDED": "The {new} schema requires a property that the {old} does not",
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": (
        "The {new} schema requires a property that the {old} one, which is not open, does not have"
    ),
    "DEPENDENCY_ARRAY_EXTENDED": "More properties come with one in the {new} schema than in the {old}",
    "DEPENDENCY_ARRAY_CHANGED": "Other properties come with one in the {new} schema than in the {old}",
    "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": (
        "The {new} schema says what a property is that the {old} one, which is open, leaves to the writer"
    ),
    "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "The {new} schema has a property that does not take what the {old} lets in for it"
    ),
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": (
        "The {new} schema is closed and is missing a property of the {old}"
    ),
    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "The {new} schema is missing a property of the {old}, and does not take it as one of its others"
    ),
    "ADDITIONAL_PROPERTIES_REMOVED": "The {new} schema takes no other properties, and the {old} does",
    "ADDITIONAL_PROPERTIES_NARROWED": "The {new} schema says what other properties are, the {old} does not",
    "ITEM_ADDED_TO_OPEN_CONTENT_MODEL": (
        "The {new} schema says what an item is that the {old} one, which is open, leaves to the writer"
    ),
    "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "The {new} schema has an item that does not take what the {old} lets in for it"
    ),
    "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL": "The {new} schema is closed and lacks an item of the {old}",
    "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "The {new} schema is missing an item of the {old}, and does not take it as one of its others"
    ),
    "ADDITIONAL_ITEMS_REMOVED": "The {new} schema takes no further items, and the {old} does",
    "ADDITIONAL_ITEMS_NARROWED": "The {new} schema says what further items are, and the {old} does not",
    "UNEVALUATED_PROPERTIES_NARROWED": "The {new} schema takes other properties there than the {old}",
    "UNEVALUATED_ITEMS_NARROWED": "The {new} schema takes other items there than the {old}",
    "ENUM_ARRAY_NARROWED": "The {new} schema lists fewer values than the {old}",
    "ENUM_ARRAY_CHANGED": "The {new} schema does not take values that the {old} one lists",
    "COMBINED_TYPE_CHANGED": "The {new} schema combines schemas in another way than the {old}",
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": (
        "What the {old} schema takes there goes with none of the schemas that the {new} one combines, or, of "
        "oneOf, perhaps with several"
    ),
    "PRODUCT_TYPE_EXTENDED": "The {new} schema combines more demands than the {old}",
    "SUM_TYPE_NARROWED": "The {new} schema has fewer alternatives than the {old}",
    "NOT_TYPE_EXTENDED": "The {new} schema excludes what the {old} may take",
    "REFERENCE_CHANGED": "A dynamic reference there leads elsewhere in the {new} schema than in the {old}",
    "NOT_COMPARED": "The {new} and the {old} schema have too many alternatives to be compared",
}
"""Kinds that readers cannot take. REFERENCE_CHANGED and NOT_COMPARED are Floe's own."""


def difference(kind: str, path: Path, *steps: str) -> Difference:
    """A difference at a place."""
    return Difference(kind, told(path, *steps), WORDS[kind])


def told(path: Path, *steps: str) -> str:
    """A place as `#/properties/a`."""
    way = list(reversed(steps))
    while path is not None:
        path, step = path
        way.append(step)
    way.reverse()
    if len(way) > STEPS_SHOWN_MAX:
        half = STEPS_SHOWN_MAX // 2
        way = [*way[:half], "…", *way[-half:]]
    return pointer(way)
