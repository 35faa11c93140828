"""The types of schemas that the registry takes, and what each gives it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from schema.registry import protobuf, rules
from schema.registry.avro import rules as avro_rules
from schema.registry.avro import schema as avro
from schema.registry.json import schema as json_schema
from schema.registry.parsed import Difference, Imports, Parsed


class Kind(Protocol):
    """A type of schemas. All of it is CPU work, or starts a process: call it in a thread."""

    def parse(self, text: str, imports: Imports, *, normalize: bool = False) -> Parsed:
        """Read a schema; its text is the one given, or the canonical one with `normalize`.

        Raises InvalidSchema, and OSError where a process cannot be had.
        """
        ...

    def load(self, form: bytes, imports: Imports) -> Any:
        """A canonical form, ready to be compared. Raises InvalidSchema."""
        ...

    def differences(self, reader: Any, writer: Any) -> Sequence[Difference]:
        """What the reader cannot take of what the writer writes; both as `load` gives them."""
        ...


class _Protobuf:
    parse = staticmethod(protobuf.parse)
    load = staticmethod(protobuf.load)
    differences = staticmethod(rules.differences)


class _Avro:
    parse = staticmethod(avro.parse)
    load = staticmethod(avro.load)
    differences = staticmethod(avro_rules.differences)


class _Json:
    parse = staticmethod(json_schema.parse)
    load = staticmethod(json_schema.load)
    differences = staticmethod(json_schema.differences)


KINDS: dict[str, Kind] = {"AVRO": _Avro(), "JSON": _Json(), "PROTOBUF": _Protobuf()}
"""By the name that clients give."""
