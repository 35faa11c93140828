"""Records as people read them: decoded by what their topic is bound to, or by the schema that they name.

Runs in threads: a record's content decides how much work it is.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError as Cancelled
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agent.http.asking import allows
from agent.http.bindings import as_json, bound_ever, registered_as_json
from agent.http.needs import READ_SUBJECT
from agent.http.registry.shown import identity_of
from agent.telemetry.trail import Actor, http_actor
from coordination.state.following import imported
from objectstore.batch import Record
from schema.shown import Shown, text_of

if TYPE_CHECKING:
    from agent.http.parts import Parts
    from coordination.state.subject_types import RegisteredSchema
    from coordination.state.types import Topic

DECODED_BYTES_MAX: Final = 256 * 1024
"""Keys and values up to this are decoded; of longer ones the beginning is shown, as text."""
LOOKED_UP_S_MAX: Final = 2.0
"""For one schema."""
HEADERS: Final = 100
"""Of a record that are shown."""


class Text(NamedTuple):
    """A record's parts as text. `size`: bytes of the value, None for null."""

    key: str | None
    value: str | None
    headers: str
    size: int | None


class Decoder:
    """Of one topic, for one look. Made where the state is read; used in threads."""

    def __init__(self, parts: Parts, topic: Topic) -> None:
        self._parts, self._actor = parts, http_actor.get()
        self._loop = asyncio.get_running_loop()
        state = parts.replica.state
        ever, _ = bound_ever(state, topic, 0, descriptors=True)
        self._own = frozenset(one.subject for one in ever if one.subject)
        self._bound = [state.schemas[each] for each in topic.binding if each]
        self._shown: Shown | None = None

    def text(self, record: Record) -> Text:
        """All of a record."""
        shown = self._shown
        if shown is None:
            told = [as_json(each) for each in self._bound]
            shown = self._shown = Shown.from_schemas(told, ask=self._ask)
        headers = list(record.headers)[:HEADERS]
        named = "\n".join(f"{name}: {_plain(text_of(value))}" for name, value in headers)
        key = _part(shown, "key", record.key, record)
        value = _part(shown, "value", record.value, record)
        return Text(key, value, named, None if record.value is None else len(record.value))

    def _ask(self, name: str) -> Mapping[str, Any] | None:
        """A schema by id or guid, read where the state is; None: there is none, or not for whoever asks."""
        looked_up = asyncio.run_coroutine_threadsafe(self._look_up(name), self._loop)
        try:
            return looked_up.result(LOOKED_UP_S_MAX)
        except (TimeoutError, Cancelled):
            looked_up.cancel()
            return None

    async def _look_up(self, name: str) -> Mapping[str, Any] | None:
        table = self._parts.replica.state.subjects
        found = table.named(int(name) if name.isdigit() else identity_of(name) or b"")
        if found is None or not self._may(found, self._actor):
            return None
        imports = imported(table, found)
        return await asyncio.to_thread(registered_as_json, found, imports)

    def _may(self, schema: RegisteredSchema, actor: Actor) -> bool:
        """Schemas of the topic's own subjects are told with it; others to whom they may be described to."""
        http_actor.set(actor)
        users = self._parts.replica.state.subjects.users.get(schema.schema_id, ())
        asked = (READ_SUBJECT.on(subject) for subject, _ in users)
        return any(subject in self._own for subject, _ in users) or any(
            allows(self._parts, *each) for each in asked
        )


def _part(shown: Shown, role: str, data: bytes | None, record: Record) -> str | None:
    if data is None:
        return None
    if len(data) > DECODED_BYTES_MAX:
        begun = _plain(text_of(data[:DECODED_BYTES_MAX]))
        return f"(the first {DECODED_BYTES_MAX} of {len(data)} bytes) {begun}"
    try:
        return _plain(shown.show(role, data, record.headers))
    except RecursionError:
        return _plain({"undecodable": "too deep", "bytes": text_of(data)})


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


Decode = Callable[[Record], Text]
