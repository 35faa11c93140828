"""What readers of JSON cannot take from writers: each rule with what passes and what does not."""

# ruff: noqa: E501, E741 - a table of schemas, a rule in each row

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft7Validator

from schema.registry.compatibility import Earlier, problems
from schema.registry.compatibility import Loaded as OfType
from schema.registry.json import rules as json_rules
from schema.registry.json import same as json_same
from schema.registry.json.kinds import WORDS
from schema.registry.json.schema import Loaded, differences, load, parse

NEW = "https://json-schema.org/draft/2020-12/schema"
OLD = "http://json-schema.org/draft-04/schema#"


@cache
def file(text: str) -> Loaded:
    return load(parse(text, {}).canonical, {})


def loaded(schema: Any) -> Loaded:
    return file(json.dumps(schema))


def new(schema: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": NEW, **schema}


def o(properties: dict[str, Any] | None = None, *required: str, **more: Any) -> dict[str, Any]:
    """An object; open unless more says something else."""
    made: dict[str, Any] = {"type": "object"} | ({} if properties is None else {"properties": properties})
    return made | ({"required": [*required]} if required else {}) | more


def closed(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return o(properties, *required, additionalProperties=False, **more)


def a(*prefix: Any, **more: Any) -> dict[str, Any]:
    """An array with items at their places, of draft-07."""
    return {"type": "array"} | ({"items": [*prefix]} if prefix else {}) | more


S, N, I, Z, B = ({"type": kind} for kind in ("string", "number", "integer", "null", "boolean"))
ANY: dict[str, Any] = {}
CAT, DOG = o({"kind": {"const": "cat"}, "lives": I}, "kind"), o({"kind": {"const": "dog"}, "name": S}, "kind")
TREE = {
    "type": "object",
    "properties": {"value": S, "left": {"$ref": "#"}, "right": {"$ref": "#"}},
    "additionalProperties": False,
}
LIST = {"type": "object", "properties": {"v": S, "next": {"oneOf": [Z, {"$ref": "#"}]}}}
FIRM = {"definitions": {"person": closed({"name": S})}, **closed({"boss": {"$ref": "#/definitions/person"}})}


def inner(schema: Any, **changes: Any) -> Any:
    """LIST, TREE and their like with other properties."""
    return {**schema, "properties": {**schema["properties"], **changes}}


# rule, writer, reader, and kinds of the differences with their paths; empty: the reader takes all of it
RULES: list[tuple[str, Any, Any, str]] = [
    # types
    ("the same", S, S, ""),
    ("another type", S, N, "TYPE_CHANGED #"),
    ("title, description, default, examples", S, {**S, "title": "t", "description": "d", "default": "x", "examples": [1]}, ""),
    ("formats say nothing", S, {**S, "format": "date"}, ""),
    ("integer to number", I, N, ""),
    ("number to integer", N, I, "TYPE_NARROWED #"),
    ("whole multiples are integers", {**N, "multipleOf": 2}, I, ""),
    ("more types", S, {"type": ["string", "null"]}, ""),
    ("fewer types", {"type": ["string", "null"]}, S, "TYPE_CHANGED #"),
    ("fewer of many types", {"type": ["string", "null", "boolean"]}, {"type": ["string", "null"]}, "SUM_TYPE_NARROWED #"),
    ("anything to a type", ANY, S, "TYPE_CHANGED #"),
    ("a type to anything", S, ANY, ""),
    ("anything is true", True, ANY, ""),
    ("nothing is read by all", False, S, ""),
    ("nothing reads nothing", S, False, "TYPE_CHANGED #"),
    ("what cannot be is read by all", {**N, "minimum": 3, "maximum": 2}, S, ""),
    ("no integer between", {**I, "exclusiveMinimum": 1, "exclusiveMaximum": 2}, S, ""),
    # text
    ("maxLength added", S, {**S, "maxLength": 3}, "MAX_LENGTH_ADDED #/maxLength"),
    ("maxLength removed", {**S, "maxLength": 3}, S, ""),
    ("maxLength increased", {**S, "maxLength": 3}, {**S, "maxLength": 4}, ""),
    ("maxLength decreased", {**S, "maxLength": 3}, {**S, "maxLength": 2}, "MAX_LENGTH_DECREASED #/maxLength"),
    ("minLength added", S, {**S, "minLength": 1}, "MIN_LENGTH_ADDED #/minLength"),
    ("minLength removed", {**S, "minLength": 1}, S, ""),
    ("minLength 0 is none", S, {**S, "minLength": 0}, ""),
    ("minLength increased", {**S, "minLength": 1}, {**S, "minLength": 2}, "MIN_LENGTH_INCREASED #/minLength"),
    ("minLength decreased", {**S, "minLength": 2}, {**S, "minLength": 1}, ""),
    ("pattern added", S, {**S, "pattern": "^a"}, "PATTERN_ADDED #/pattern"),
    ("pattern removed", {**S, "pattern": "^a"}, S, ""),
    ("pattern changed", {**S, "pattern": "^a"}, {**S, "pattern": "^b"}, "PATTERN_CHANGED #/pattern"),
    ("pattern kept", {**S, "pattern": "^(?=a)"}, {"pattern": "^(?=a)"}, ""),
    ("says nothing of other types", N, {"maxLength": 3, "pattern": "x", "required": ["a"]}, ""),
    # numbers
    ("maximum added", N, {**N, "maximum": 3}, "MAXIMUM_ADDED #/maximum"),
    ("maximum removed", {**N, "maximum": 3}, N, ""),
    ("maximum increased", {**N, "maximum": 3}, {**N, "maximum": 3.5}, ""),
    ("maximum decreased", {**N, "maximum": 3}, {**N, "maximum": 2.5}, "MAXIMUM_DECREASED #/maximum"),
    ("maximum in another form", {**N, "maximum": 3}, {**N, "maximum": 3.0}, ""),
    ("minimum added", N, {**N, "minimum": 3}, "MINIMUM_ADDED #/minimum"),
    ("minimum removed", {**N, "minimum": 3}, N, ""),
    ("minimum increased", {**N, "minimum": 3}, {**N, "minimum": 4}, "MINIMUM_INCREASED #/minimum"),
    ("minimum decreased", {**N, "minimum": 3}, {**N, "minimum": 2}, ""),
    ("exclusiveMaximum added", N, {**N, "exclusiveMaximum": 3}, "EXCLUSIVE_MAXIMUM_ADDED #/exclusiveMaximum"),
    ("exclusiveMaximum removed", {**N, "exclusiveMaximum": 3}, N, ""),
    ("exclusiveMaximum increased", {**N, "exclusiveMaximum": 3}, {**N, "exclusiveMaximum": 4}, ""),
    ("exclusiveMaximum decreased", {**N, "exclusiveMaximum": 3}, {**N, "exclusiveMaximum": 2}, "EXCLUSIVE_MAXIMUM_DECREASED #/exclusiveMaximum"),
    ("exclusiveMinimum added", N, {**N, "exclusiveMinimum": 3}, "EXCLUSIVE_MINIMUM_ADDED #/exclusiveMinimum"),
    ("exclusiveMinimum removed", {**N, "exclusiveMinimum": 3}, N, ""),
    ("exclusiveMinimum increased", {**N, "exclusiveMinimum": 3}, {**N, "exclusiveMinimum": 4}, "EXCLUSIVE_MINIMUM_INCREASED #/exclusiveMinimum"),
    ("exclusiveMinimum decreased", {**N, "exclusiveMinimum": 3}, {**N, "exclusiveMinimum": 2}, ""),
    ("exclusive becomes inclusive", {**N, "exclusiveMaximum": 3}, {**N, "maximum": 3}, ""),
    ("inclusive becomes exclusive", {**N, "maximum": 3}, {**N, "exclusiveMaximum": 3}, "EXCLUSIVE_MAXIMUM_ADDED #/exclusiveMaximum"),
    ("integers below the next", {**I, "maximum": 2}, {**I, "exclusiveMaximum": 3}, ""),
    ("integers above the last", {**I, "exclusiveMinimum": 2}, {**I, "minimum": 3}, ""),
    ("draft-04's exclusiveMaximum", {"$schema": OLD, **N, "maximum": 3, "exclusiveMaximum": True}, {**N, "exclusiveMaximum": 3}, ""),
    ("draft-04's, the other way", {**N, "maximum": 3}, {"$schema": OLD, **N, "maximum": 3, "exclusiveMaximum": True}, "EXCLUSIVE_MAXIMUM_ADDED #/exclusiveMaximum"),
    ("multipleOf added", N, {**N, "multipleOf": 2}, "MULTIPLE_OF_ADDED #/multipleOf"),
    ("multipleOf removed", {**N, "multipleOf": 2}, N, ""),
    ("multipleOf reduced", {**N, "multipleOf": 6}, {**N, "multipleOf": 3}, ""),
    ("multipleOf reduced to a fraction", {**N, "multipleOf": 0.3}, {**N, "multipleOf": 0.1}, ""),
    ("multipleOf expanded", {**N, "multipleOf": 3}, {**N, "multipleOf": 6}, "MULTIPLE_OF_EXPANDED #/multipleOf"),
    ("multipleOf changed", {**N, "multipleOf": 3}, {**N, "multipleOf": 2}, "MULTIPLE_OF_CHANGED #/multipleOf"),
    ("multipleOf 1 of integers", I, {"multipleOf": 1}, ""),
    ("large numbers are exact", {**I, "maximum": 2**63}, {**I, "maximum": 2**63 - 1}, "MAXIMUM_DECREASED #/maximum"),
    # listed values
    ("enum extended", {"enum": ["a", "b"]}, {"enum": ["c", "b", "a"]}, ""),
    ("enum narrowed", {"enum": ["a", "b"]}, {"enum": ["a"]}, "ENUM_ARRAY_NARROWED #/enum"),
    ("enum changed", {"enum": ["a", "b"]}, {"enum": ["a", "c"]}, "ENUM_ARRAY_CHANGED #/enum"),
    ("enum of numbers in another form", {"enum": [1, 2.50]}, {"enum": [1.0, 2.5]}, ""),
    ("1 is not true", {"enum": [1]}, {"enum": [True]}, "ENUM_ARRAY_CHANGED #/enum"),
    ("enum to its type", {"enum": ["a", "b"]}, S, ""),
    ("enum to another type", {"enum": ["a", 1]}, S, "TYPE_CHANGED #"),
    ("type to an enum", S, {"enum": ["a"]}, "TYPE_CHANGED #/enum"),
    ("enum, all within a bound", {"enum": ["a", "bc"]}, {**S, "maxLength": 2, "pattern": "^[a-c]"}, ""),
    ("enum, one beyond a bound", {"enum": ["a", "bc"]}, {**S, "maxLength": 1}, "ENUM_ARRAY_CHANGED #/enum"),
    ("enum of one is a const", {"enum": ["a"]}, {"const": "a"}, ""),
    ("const changed", {"const": {"a": [1]}}, {"const": {"a": [2]}}, "ENUM_ARRAY_CHANGED #/enum"),
    ("const to enum", {"const": 1}, {"enum": [1, 2]}, ""),
    ("booleans are two values", B, {"enum": [True, False]}, ""),
    ("values of a sum", {"enum": ["a", 1]}, {"oneOf": [S, N]}, ""),
    # objects
    ("property added, optional, to an open one", o({"x": S}), o({"x": S, "y": S}), "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/y"),
    ("property of anything added to an open one", o({"x": S}), o({"x": S, "y": ANY}), ""),
    ("property added to a closed one", closed({"x": S}), closed({"x": S, "y": S}), ""),
    ("closed one becomes open", closed({"x": S}), o({"x": S}), ""),
    ("open one becomes closed", o({"x": S}), closed({"x": S}), "ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties"),
    ("property removed from an open one", o({"x": S, "y": S}), o({"x": S}), ""),
    ("property removed from a closed one", closed({"x": S, "y": S}), closed({"x": S}), "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/y"),
    ("property that is never there removed", closed({"x": S, "y": False}), closed({"x": S}), ""),
    ("property becomes another type", closed({"x": S}), closed({"x": N}), "TYPE_CHANGED #/properties/x"),
    ("property deep inside", closed({"x": closed({"y": N})}), closed({"x": closed({"y": I})}), "TYPE_NARROWED #/properties/x/properties/y"),
    ("required property added to a closed one", closed({"x": S}), closed({"x": S, "y": S}, "y"), "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/y"),
    ("with a default, which nobody writes", closed({"x": S}), closed({"x": S, "y": {**S, "default": "d"}}, "y"), "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/y"),
    ("became required", closed({"x": S}), closed({"x": S}, "x"), "REQUIRED_ATTRIBUTE_ADDED #/required/x"),
    ("became required, with a default", closed({"x": {**S, "default": ""}}), closed({"x": {**S, "default": ""}}, "x"), "REQUIRED_ATTRIBUTE_ADDED #/required/x"),
    ("required, but nowhere described", o(), o(None, "x"), "REQUIRED_ATTRIBUTE_ADDED #/required/x"),
    ("no longer required", closed({"x": S}, "x"), closed({"x": S}), ""),
    ("added, covered by others", o({}, additionalProperties=S), o({"y": S}, additionalProperties=S), ""),
    ("added, not covered by others", o({}, additionalProperties=S), o({"y": N}, additionalProperties=S),
     "TYPE_CHANGED #/properties/y | PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/y"),
    ("removed, covered by others", o({"y": S}, additionalProperties=S), o({}, additionalProperties=S), ""),
    ("removed, not covered by others", o({"y": N}, additionalProperties=S), o({}, additionalProperties=S),
     "TYPE_CHANGED #/properties/y | PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/y"),
    ("covered by a pattern", closed({}, patternProperties={"^y": S}), closed({"y": S}, patternProperties={"^y": S}), ""),
    ("not covered by a pattern", closed({}, patternProperties={"^y": S}), closed({"y": N}, patternProperties={"^y": S}),
     "TYPE_CHANGED #/properties/y | PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/y"),
    ("others narrowed", o(), o(additionalProperties=S), "ADDITIONAL_PROPERTIES_NARROWED #/additionalProperties"),
    ("others extended", o(additionalProperties=S), o(), ""),
    ("others changed", o(additionalProperties=I), o(additionalProperties=N), ""),
    ("others changed, the other way", o(additionalProperties=N), o(additionalProperties=I), "TYPE_NARROWED #/additionalProperties"),
    ("others removed", o(additionalProperties=S), o(additionalProperties=False), "ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties"),
    ("others added", o(additionalProperties=False), o(additionalProperties=S), ""),
    ("pattern of names added to an open one", o(), o(patternProperties={"^y": S}), "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/patternProperties/^y"),
    ("pattern of names added to a closed one", closed({"x": S}), closed({"x": S}, patternProperties={"^y": S}), ""),
    ("pattern of names that a property has", closed({"x": S}), closed({"x": S}, patternProperties={"^x": N}),
     "TYPE_CHANGED #/properties/x"),
    ("pattern of names removed", o(patternProperties={"^y": S}), o(), ""),
    ("pattern of names changed", o(patternProperties={"^y": N}), o(patternProperties={"^y": I}),
     "TYPE_NARROWED #/patternProperties/^y | PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/patternProperties/^y"),
    ("a pattern and the others, together", o(patternProperties={"^y": I}, additionalProperties=N), o(additionalProperties=N), ""),
    ("a pattern and the others, one of them not", o(patternProperties={"^y": S}, additionalProperties=N), o(additionalProperties=N), "TYPE_CHANGED #/additionalProperties"),
    ("a pattern is not closed", closed({}, patternProperties={"^y": S}), closed({}), "ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties"),
    ("names bounded", o(), o(propertyNames={"maxLength": 3}), "MAX_LENGTH_ADDED #/propertyNames/maxLength"),
    ("names bounded wider", o(propertyNames={"maxLength": 3}), o(propertyNames={"maxLength": 4}), ""),
    ("names of a closed one", closed({"x": S}), o(propertyNames={"maxLength": 3}), ""),
    ("minProperties added", o(), o(minProperties=1), "MIN_PROPERTIES_ADDED #/minProperties"),
    ("minProperties as many as are required", o(None, "x"), o(minProperties=1), ""),
    ("minProperties removed", o(minProperties=1), o(), ""),
    ("minProperties increased", o(minProperties=1), o(minProperties=2), "MIN_PROPERTIES_INCREASED #/minProperties"),
    ("minProperties decreased", o(minProperties=2), o(minProperties=1), ""),
    ("maxProperties added", o(), o(maxProperties=1), "MAX_PROPERTIES_ADDED #/maxProperties"),
    ("maxProperties of a closed one", closed({"x": S}), o(maxProperties=1), ""),
    ("maxProperties removed", o(maxProperties=1), o(), ""),
    ("maxProperties increased", o(maxProperties=1), o(maxProperties=2), ""),
    ("maxProperties decreased", o(maxProperties=2), o(maxProperties=1), "MAX_PROPERTIES_DECREASED #/maxProperties"),
    ("dependency added", o(), o(dependencies={"x": ["y"]}), "DEPENDENCY_ARRAY_ADDED #/dependencies/x"),
    ("dependency removed", o(dependencies={"x": ["y"]}), o(), ""),
    ("dependency extended", o(dependencies={"x": ["y"]}), o(dependencies={"x": ["y", "z"]}), "DEPENDENCY_ARRAY_EXTENDED #/dependencies/x"),
    ("dependency narrowed", o(dependencies={"x": ["y", "z"]}), o(dependencies={"x": ["y"]}), ""),
    ("dependency changed", o(dependencies={"x": ["y"]}), o(dependencies={"x": ["z"]}), "DEPENDENCY_ARRAY_CHANGED #/dependencies/x"),
    ("dependency on what is required", o(None, "y"), o(None, "y", dependencies={"x": ["y"]}), ""),
    ("dependency in 2020-12's words", o(dependencies={"x": ["y"]}), new(o(dependentRequired={"x": ["y"]})), ""),
    ("schema dependency added", o(), o(dependencies={"x": o(None, "y")}),
     "REQUIRED_ATTRIBUTE_ADDED #/dependencies/x/required/y | DEPENDENCY_SCHEMA_ADDED #/dependencies/x"),
    ("schema dependency removed", o(dependencies={"x": o(None, "y")}), o(), ""),
    ("schema dependency widened", new(o(dependentSchemas={"x": o({"y": I})})), new(o(dependentSchemas={"x": o({"y": N})})), ""),
    ("schema dependency narrowed", new(o(dependentSchemas={"x": o({"y": N})})), new(o(dependentSchemas={"x": o({"y": I})})),
     "TYPE_NARROWED #/dependencies/x/properties/y"),
    ("dependency of what is never there", closed({"a": S}), closed({"a": S}, dependencies={"x": o(None, "y")}), ""),
    # arrays
    ("items narrowed", a(items=N), a(items=I), "TYPE_NARROWED #/items"),
    ("items widened", a(items=I), a(items=N), ""),
    ("items described", a(), a(items=S), "SCHEMA_ADDED #/items"),
    ("items no longer described", a(items=S), a(), ""),
    ("no items are of any kind", a(items=False), a(items=S), ""),
    ("minItems added", a(), a(minItems=1), "MIN_ITEMS_ADDED #/minItems"),
    ("minItems removed", a(minItems=1), a(), ""),
    ("minItems increased", a(minItems=1), a(minItems=2), "MIN_ITEMS_INCREASED #/minItems"),
    ("minItems decreased", a(minItems=2), a(minItems=1), ""),
    ("maxItems added", a(), a(maxItems=1), "MAX_ITEMS_ADDED #/maxItems"),
    ("maxItems removed", a(maxItems=1), a(), ""),
    ("maxItems increased", a(maxItems=1), a(maxItems=2), ""),
    ("maxItems decreased", a(maxItems=2), a(maxItems=1), "MAX_ITEMS_DECREASED #/maxItems"),
    ("maxItems of a closed one", a(S, S, additionalItems=False), a(maxItems=2), ""),
    ("uniqueItems added", a(), a(uniqueItems=True), "UNIQUE_ITEMS_ADDED #/uniqueItems"),
    ("uniqueItems of one", a(maxItems=1), a(uniqueItems=True), ""),
    ("uniqueItems removed", a(uniqueItems=True), a(), ""),
    ("place added to an open one", a(S), a(S, N), "ITEM_ADDED_TO_OPEN_CONTENT_MODEL #/items/1"),
    ("place of anything added to an open one", a(S), a(S, ANY), ""),
    ("place added to a closed one", a(S, additionalItems=False), a(S, N, additionalItems=False), ""),
    ("place removed from an open one", a(S, N), a(S), ""),
    ("place removed from a closed one", a(S, N, additionalItems=False), a(S, additionalItems=False), "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL #/items/1"),
    ("place that is never there removed", a(S, False, additionalItems=False), a(S, additionalItems=False), ""),
    ("place added, covered", a(S, additionalItems=I), a(S, N, additionalItems=I), ""),
    ("place added, not covered", a(S, additionalItems=N), a(S, I, additionalItems=N),
     "TYPE_NARROWED #/items/1 | ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1"),
    ("place removed, covered", a(S, I, additionalItems=N), a(S, additionalItems=N), ""),
    ("place removed, not covered", a(S, N, additionalItems=I), a(S, additionalItems=I),
     "TYPE_NARROWED #/items/1 | ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1"),
    ("place changed", a(S), a(N), "TYPE_CHANGED #/items/0"),
    ("further items removed", a(S), a(S, additionalItems=False), "ADDITIONAL_ITEMS_REMOVED #/additionalItems"),
    ("further items added", a(S, additionalItems=False), a(S), ""),
    ("further items narrowed", a(S), a(S, additionalItems=S), "ADDITIONAL_ITEMS_NARROWED #/additionalItems"),
    ("further items extended", a(S, additionalItems=S), a(S), ""),
    ("places in 2020-12's words", a(S, I, additionalItems=False), new(a(prefixItems=[S, N], items=False)), ""),
    ("places in 2020-12's words, narrowed", a(S, N, additionalItems=False), new(a(prefixItems=[S, I], items=False)), "TYPE_NARROWED #/items/1"),
    ("contains added", a(), a(contains=S), "MIN_CONTAINS_ADDED #/contains"),
    ("contains removed", a(contains=S), a(), ""),
    ("contains widened", a(contains=I), a(contains=N), ""),
    ("contains narrowed", a(contains=N), a(contains=I), "TYPE_CHANGED #/contains"),
    ("contains, of items that all are", a(items=S, minItems=1), a(contains=S), ""),
    ("minContains increased", new(a(contains=S, minContains=1)), new(a(contains=S, minContains=2)), "MIN_CONTAINS_INCREASED #/minContains"),
    ("minContains decreased", new(a(contains=S, minContains=2)), new(a(contains=S, minContains=1)), ""),
    ("minContains 0 is none", new(a()), new(a(contains=S, minContains=0)), ""),
    ("maxContains added", new(a(contains=S)), new(a(contains=S, maxContains=2)), "MAX_CONTAINS_ADDED #/maxContains"),
    ("maxContains removed", new(a(contains=S, maxContains=2)), new(a(contains=S)), ""),
    ("maxContains increased", new(a(contains=S, maxContains=2)), new(a(contains=S, maxContains=3)), ""),
    ("maxContains decreased", new(a(contains=S, maxContains=2)), new(a(contains=S, maxContains=1)), "MAX_CONTAINS_DECREASED #/maxContains"),
    ("unknown in a draft: says nothing", a(), a(minContains=3, prefixItems=[S], unevaluatedItems=False), ""),
    # combined
    ("oneOf extended", {"oneOf": [S, N]}, {"oneOf": [S, N, Z]}, ""),
    ("oneOf narrowed", {"oneOf": [S, N, B]}, {"oneOf": [S, N]}, "SUM_TYPE_NARROWED #"),
    ("oneOf narrowed by an object", {"oneOf": [S, N, o()]}, {"oneOf": [S, N]}, "SUM_TYPE_NARROWED #/oneOf"),
    ("oneOf in another order", {"oneOf": [S, N]}, {"oneOf": [N, S]}, ""),
    ("oneOf changed", {"oneOf": [S, N]}, {"oneOf": [S, a()]}, "COMBINED_TYPE_SUBSCHEMAS_CHANGED #/oneOf"),
    ("oneOf extended by what overlaps", {"oneOf": [S, N]}, {"oneOf": [S, N, {**S, "maxLength": 1}]}, "COMBINED_TYPE_SUBSCHEMAS_CHANGED #/oneOf"),
    ("oneOf whose ways overlap in both", {"oneOf": [I, N]}, {"oneOf": [N, I]}, ""),
    ("anyOf extended by what overlaps", {"anyOf": [S, N]}, {"anyOf": [S, N, {**S, "maxLength": 1}]}, ""),
    ("anyOf narrowed", {"anyOf": [S, N, a()]}, {"anyOf": [S, N]}, "SUM_TYPE_NARROWED #/anyOf"),
    ("a way of anyOf widened", {"anyOf": [S, I]}, {"anyOf": [S, N]}, ""),
    ("a way of anyOf narrowed", {"anyOf": [S, N]}, {"anyOf": [S, I]}, "COMBINED_TYPE_SUBSCHEMAS_CHANGED #/anyOf"),
    ("one into anyOf", S, {"anyOf": [S, N]}, ""),
    ("one into oneOf", S, {"oneOf": [S, N]}, ""),
    ("another into anyOf", o(), {"anyOf": [S, N]}, "TYPE_CHANGED #/anyOf"),
    ("anyOf of one", S, {"anyOf": [S]}, ""),
    ("out of anyOf of one", {"anyOf": [S]}, S, ""),
    ("out of anyOf", {"anyOf": [S, N]}, S, "TYPE_CHANGED #"),
    ("types into oneOf", {"type": ["string", "null"]}, {"oneOf": [Z, S]}, ""),
    ("oneOf into types", {"oneOf": [Z, S]}, {"type": ["string", "null"]}, ""),
    ("oneOf into anyOf", {"oneOf": [S, N]}, {"anyOf": [S, N]}, ""),
    ("anyOf into oneOf, apart", {"anyOf": [S, N]}, {"oneOf": [S, N]}, ""),
    ("anyOf into oneOf, overlapping", {"anyOf": [I, N]}, {"oneOf": [I, N]}, "COMBINED_TYPE_SUBSCHEMAS_CHANGED #/oneOf"),
    ("apart by a const", {"anyOf": [CAT, DOG]}, {"oneOf": [CAT, DOG]}, ""),
    ("tagged: one more", {"oneOf": [CAT, DOG]}, {"oneOf": [DOG, o({"kind": {"const": "bird"}}, "kind"), CAT]}, ""),
    ("tagged: one less", {"oneOf": [CAT, DOG]}, {"oneOf": [DOG]}, "SUM_TYPE_NARROWED #/oneOf"),
    ("allOf into anyOf", {"allOf": [{"maxLength": 3}, S]}, {"anyOf": [S, N]}, ""),
    ("allOf into an anyOf of others", {"allOf": [{"maxLength": 3}, o()]}, {"anyOf": [S, N]}, "COMBINED_TYPE_CHANGED #/anyOf"),
    ("allOf extended", {"allOf": [S]}, {"allOf": [S, {"maxLength": 3}]}, "MAX_LENGTH_ADDED #/allOf/1/maxLength | PRODUCT_TYPE_EXTENDED #/allOf"),
    ("allOf extended by nothing new", {"allOf": [{**S, "maxLength": 2}]}, {"allOf": [S, {"maxLength": 3}]}, ""),
    ("allOf narrowed", {"allOf": [S, {"maxLength": 3}]}, {"allOf": [S]}, ""),
    ("allOf of demands that make one", {"allOf": [{**I, "minimum": 1}, {"maximum": 3}]}, {**I, "minimum": 0, "maximum": 4}, ""),
    ("allOf that is closed twice", {"allOf": [o({"x": S}), o({"y": S})]}, o({"x": S, "y": S}), ""),
    ("not extended", {"not": {**S, "minLength": 2}}, {"not": S}, "NOT_TYPE_EXTENDED #/not"),
    ("not narrowed", {"not": S}, {"not": {**S, "minLength": 2}}, ""),
    ("not what it cannot be", N, {"not": S}, ""),
    ("not: added", ANY, {"not": S}, "NOT_TYPE_EXTENDED #/not"),
    ("then widened", {"if": o(None, "x"), "then": o(None, "y", "z")}, {"if": o(None, "x"), "then": o(None, "y")}, ""),
    ("then narrowed", {"if": o(None, "x"), "then": o(None, "y")}, {"if": o(None, "x"), "then": o(None, "y", "z")}, "REQUIRED_ATTRIBUTE_ADDED #/then/required/z"),
    ("else narrowed", {"if": o(None, "x"), "else": N}, {"if": o(None, "x"), "else": I}, "TYPE_NARROWED #/else"),
    ("if added", o(), o(None, **{"if": o(None, "x"), "then": o(None, "y")}), "REQUIRED_ATTRIBUTE_ADDED #/then/required/y"),
    ("if removed", o(None, **{"if": o(None, "x"), "then": o(None, "y")}), o(), ""),
    ("if that is never met", N, {"if": S, "then": False}, ""),
    ("unevaluated: as additional", closed({"x": S}), new(o({"x": S}, unevaluatedProperties=False)), ""),
    ("unevaluated added", new(o({"x": S})), new(o({"x": S}, unevaluatedProperties=False)), "ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties"),
    ("unevaluated, the same beside others", new({"allOf": [o({"x": S})], "unevaluatedProperties": False}), new({"title": "t", "allOf": [o({"x": S})], "unevaluatedProperties": False}), ""),
    ("unevaluated, beside others", new({"allOf": [o({"x": S})]}), new({"allOf": [o({"x": S})], "unevaluatedProperties": False}),
     "UNEVALUATED_PROPERTIES_NARROWED #/unevaluatedProperties"),
    ("unevaluated items, beside others", new({"allOf": [a(minItems=1)]}), new({"allOf": [a()], "unevaluatedItems": False}),
     "UNEVALUATED_ITEMS_NARROWED #/unevaluatedItems"),
    # references
    ("reference for what it leads to", S, {"definitions": {"t": S}, "allOf": [{"$ref": "#/definitions/t"}]}, ""),
    ("through a reference", FIRM, {**FIRM, "definitions": {"person": closed({"name": N})}}, "TYPE_CHANGED #/properties/boss/properties/name"),
    ("recursion, the same", TREE, {"title": "t", **TREE}, ""),
    ("recursion, wider", TREE, inner(TREE, value={"type": ["string", "null"]}), ""),
    ("recursion, narrower", TREE, inner(TREE, value={**S, "maxLength": 3}), "MAX_LENGTH_ADDED #/properties/value/maxLength"),
    ("recursion through a sum, wider", LIST, inner(LIST, v=ANY), ""),
    ("recursion through a sum, narrower", inner(LIST, v=ANY), LIST, "TYPE_CHANGED #/properties/v"),
    ("recursion unrolled", TREE, inner(TREE, left=inner(TREE, value=ANY)), ""),
    ("recursion cut", TREE, inner(TREE, left=closed({})),
     "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/left/properties/value | "
     "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/left/properties/left | "
     "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/left/properties/right"),
    ("anchors", new({"$ref": "#t", "$defs": {"t": {"$anchor": "t", **S}}}), S, ""),
    ("dynamic anchor, one", new({"$ref": "#t", "$defs": {"t": {"$dynamicAnchor": "t", **S}}}), new({"$dynamicRef": "#t", "$defs": {"t": {"$dynamicAnchor": "t", **S}}}), ""),
    ("dynamic anchors, several", new(S), new({"$dynamicRef": "#t", "$defs": {"t": {"$dynamicAnchor": "t", **S}, "u": {"$id": "u", "$dynamicAnchor": "t", **N}}}),
     "REFERENCE_CHANGED #/$dynamicRef"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "writer", "reader", "expected"), RULES, ids=[row[0] for row in RULES])
def test_rule(rule: str, writer: Any, reader: Any, expected: str) -> None:
    found = [f"{one.kind} {one.path}" for one in differences(loaded(reader), loaded(writer))]
    assert " | ".join(sorted(found)) == " | ".join(sorted(expected.split(" | ") if expected else [])), rule


def test_every_kind_of_difference_has_an_example() -> None:
    told = {each.split(" ")[0] for row in RULES for each in row[3].split(" | ") if each}
    assert told | {"NOT_COMPARED"} == WORDS.keys()


def chain(count: int, last: Any) -> dict[str, Any]:
    """Definitions in a row, each of which has a property of the next."""
    steps = {f"d{n}": o({"n": {"$ref": f"#/definitions/d{n + 1}"}}) for n in range(count)}
    return {"$ref": "#/definitions/d0", "definitions": {**steps, f"d{count}": last}}


def tagged(count: int, value: Any) -> dict[str, Any]:
    """Alternatives that a constant tells apart."""
    return {"oneOf": [o({"kind": {"const": f"k{n}"}, "v": value}, "kind") for n in range(count)]}


def test_long_chains_and_wide_schemas_are_no_matter() -> None:
    """What somebody sends to make a comparison stop."""
    wider = {"type": ["string", "null"]}
    assert differences(loaded(chain(400, wider)), loaded(chain(400, S))) == []
    (found,) = differences(loaded(chain(400, S)), loaded(chain(400, wider)))
    assert found.kind == "TYPE_CHANGED"
    assert len(found.path) < 1_000
    names = [f"p{n}" for n in range(1_000)]
    assert differences(loaded(o(dict.fromkeys(names, wider))), loaded(o(dict.fromkeys(names, S)))) == []
    assert len(differences(loaded(o(dict.fromkeys(names, S))), loaded(o()))) == len(names)
    values = [f"v{n}" for n in range(5_000)]
    assert differences(loaded({"enum": values}), loaded({"enum": values[1:]})) == []


def test_alternatives_in_number() -> None:
    wider = {"type": ["string", "null"]}
    assert differences(loaded(tagged(30, wider)), loaded(tagged(30, S))) == []
    assert differences(loaded(tagged(31, S)), loaded(tagged(30, S))) == []
    assert differences(loaded(tagged(30, S)), loaded(tagged(30, wider))) != []


def test_what_takes_too_long_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """In words, and as a difference: nobody learns that it would go."""
    monkeypatch.setattr(json_rules, "STEPS_MAX", 500)
    (found,) = differences(loaded(tagged(40, ANY)), loaded(tagged(40, S)))
    assert (found.kind, found.path) == ("NOT_COMPARED", "#")


def test_alternatives_of_alternatives_beyond_the_limit_are_not_taken_for_compatible() -> None:
    def optional(count: int, last: Any) -> dict[str, Any]:
        steps = {f"d{n}": o({"n": {"oneOf": [Z, {"$ref": f"#/definitions/d{n + 1}"}]}}) for n in range(count)}
        return {"$ref": "#/definitions/d0", "definitions": {**steps, f"d{count}": last}}

    few, many = json_rules.TRIALS_MAX - 5, json_rules.TRIALS_MAX + 5
    assert differences(loaded(optional(few, o())), loaded(optional(few, o({"x": S})))) == []
    assert differences(loaded(optional(many, o())), loaded(optional(many, o({"x": S})))) != []
    assert differences(loaded(optional(many, o())), loaded({"title": "t", **optional(many, o())})) == []


def test_what_a_trial_took_to_be_empty_is_looked_at_again_when_the_trial_failed() -> None:
    """That nothing is in `m` and `y` rests on the trial "all of `w` is in `n`", which fails at its last property.

    `late` puts that property, and the question whose answer must not be kept, behind the trial.
    """

    def late(schema: Any) -> dict[str, Any]:
        return o({"x": o({"x": o({"x": schema})})})

    ref = {name: {"$ref": f"#/definitions/{name}"} for name in "nxmqwy"}
    definitions = {
        "n": o({"a": ref["x"], "b": late(I)}),
        "w": o({"a": ref["y"], "b": late(S)}),
        "x": {"not": ref["m"]},
        "m": o({"c": ref["q"]}, "c"),
        "q": {"not": ref["n"]},
        "y": o({"c": ref["w"]}, "c"),
    }
    tries = {"if": ref["q"], "then": o()}
    reader = {**o({"first": tries, "later": late(ref["x"])}), "definitions": definitions}
    writer = {**o({"first": ref["w"], "later": late(ref["y"])}), "definitions": definitions}
    witness = {"later": {"x": {"x": {"x": {"c": {"b": {"x": {"x": {"x": "text"}}}}}}}}}
    valid = [Draft7Validator(schema).is_valid(witness) for schema in (writer, reader)]
    assert valid == [True, False]
    assert [one.kind for one in differences(loaded(reader), loaded(writer))] == ["NOT_TYPE_EXTENDED"]


def test_schemas_that_are_told_apart_too_often_are_compared_as_different_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Verdicts stay right; some are stricter."""
    monkeypatch.setattr(json_same, "MOVES_MAX", 0)
    wider, narrower = (
        inner(TREE, value=value) for value in ({"type": ["string", "null"]}, {**S, "maxLength": 1})
    )
    assert differences(loaded(wider), loaded(TREE)) == []
    assert [one.kind for one in differences(loaded(narrower), loaded(TREE))] == ["MAX_LENGTH_ADDED"]


def test_numbers_beyond_floats_are_compared() -> None:
    """1e400 is a number of JSON, and more than 1e399."""
    large, larger = (file(f'{{"type": "number", "maximum": 1e{n}}}') for n in (399, 400))
    assert differences(larger, large) == []
    assert [one.kind for one in differences(large, larger)] == ["MAXIMUM_DECREASED"]


def test_how_a_problem_is_told() -> None:
    """As Confluent's registry does: tools look for errorType and path."""
    old, changed = json.dumps(o({"x": S})), json.dumps(o({"x": N}))
    told = problems(OfType("JSON", file(changed)), [Earlier(3, old, OfType("JSON", file(old)))], "BACKWARD")
    assert told == [
        '{errorType:"TYPE_CHANGED", description:"The new schema does not take the types or values there that the '
        "old one takes (path '#/properties/x')\"}",
        "{oldSchemaVersion: 3}",
        f"{{oldSchema: '{old}'}}",
        "{compatibility: 'BACKWARD'}",
    ]
    told = problems(OfType("JSON", file(old)), [Earlier(1, "", OfType("JSON", loaded(ANY)))], "FORWARD")
    assert told == []
    told = problems(OfType("JSON", loaded(ANY)), [Earlier(1, "", OfType("JSON", file(old)))], "FORWARD")
    assert "The old schema does not take the types or values there that the new one takes" in told[0]
