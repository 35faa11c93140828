"""Schemas of the registry by what frames name, for whoever shows records: told before, or asked for."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from schema import framing
from schema.descriptors import MessageType, load, message_at
from schema.followed import AVRO
from schema.framing import SchemaName
from schema.registry.avro import schema as avro
from schema.registry.avro import shown as avro_shown
from schema.registry.avro.datum import Datum
from schema.registry.avro.types import Type
from schema.registry.json.judging import parsed

UNKNOWN_MAX = 100
"""Schemas that the registry was asked for and does not have: beyond, it is asked no more."""

Ask = Callable[[str], Mapping[str, Any] | None]
"""An id or guid → what GET /admin/schemas/… tells; None: there is no such schema."""


class Other:
    """A schema of AVRO or JSON, as the admin API tells it; read when it is first needed."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self._told = told
        self._avro: tuple[Type, Datum] | None = None

    def shown(self, payload: bytes) -> object:
        """The record as a JSON value. Raises ValueError where it is none of the schema's."""
        if self._told["schema_type"] != AVRO:
            parsed(payload)  # a name twice, NaN and the like
            return json.loads(payload)
        if self._avro is None:
            imports = {name: base64.b64decode(each) for name, each in self._told["imports"].items()}
            top = avro.load(base64.b64decode(self._told["form"]), imports)
            self._avro = top, Datum(top)
        top, datum = self._avro
        return avro_shown.plain(datum, top, datum.read(payload))


class Registered:
    """What is known of the registry."""

    def __init__(self, told: Iterable[Mapping[str, Any]] = (), ask: Ask | None = None) -> None:
        self._files: dict[SchemaName, bytes] = {}
        self._others: dict[SchemaName, Other] = {}
        self._kinds: dict[tuple[SchemaName, tuple[int, ...]], MessageType] = {}
        self._unknown: set[SchemaName] = set()
        self._ask = ask
        for each in told:
            self._take(int(each["schema_id"]), each)
            if "guid" in each:
                self._take(bytes.fromhex(str(each["guid"]).replace("-", "")), each)

    def other(self, name: SchemaName) -> Other | None:
        """The schema where it is of AVRO or JSON. Raises what `ask` does."""
        self._learn(name)
        return self._others.get(name)

    def kind(self, record: bytes) -> tuple[MessageType, int] | None:
        """The message that a framed record names, and where it begins; None: of no known schema.

        Raises FramingError, DescriptorError, and what `ask` does.
        """
        name, _ = framing.schema_named(record)
        self._learn(name)
        files = self._files.get(name)
        if not files:
            return None
        frame = framing.named(record)
        place = frame.schema, frame.indexes
        found = self._kinds.get(place)
        if found is None:
            found = self._kinds[place] = load(files, message_at(files, frame.indexes))
        return found, frame.start

    def _learn(self, name: SchemaName) -> None:
        known = name in self._files or name in self._others or name in self._unknown
        if known or self._ask is None or name == 0 or len(self._unknown) >= UNKNOWN_MAX:
            return
        told = self._ask(framing.shown(name)) if not isinstance(name, int) or name > 0 else None
        if told is None:
            self._unknown.add(name)
        else:
            self._take(name, told)

    def _take(self, name: SchemaName, told: Mapping[str, Any]) -> None:
        if "form" in told:
            self._others[name] = Other(told)
        else:
            self._files[name] = base64.b64decode(told["descriptor_set"])
