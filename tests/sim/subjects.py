"""What the registry and the topic that follows a subject must be, worked out from the log's commands alone.

Every registration, deletion, setting and binding is played once more here, by rules of a few lines, when the
first agent applies it. What apply made of it must be that: one schema has one id and, while it is live, one
version of a subject; versions are dense and in order; what a subject takes goes with what it has at that
place of the log. Each state of it is kept with its revision, so whoever was answered something can be told
which states there were between question and answer (registrar.py), and of each record of the topic what its
subject had where it stands (follower.py).
"""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet

from coordination.state import State, binding
from coordination.state.data import StateData
from coordination.state.state import HANDLERS
from coordination.state.subject_types import Compatibility, Mode
from coordination.state.types import At, ChunkCommitted, Done
from schema.registry import protobuf
from tests.checker.findings import Finding
from tests.sim.astray import Astray
from tests.sim.bindings import Shown
from tests.sim.bound_messages import Field, Message, Written
from tests.sim.node import AgentNode

FOLLOWED = "followed"
OWN, OTHER = f"{FOLLOWED}-value", "other"
SUBJECTS = (OWN, OTHER)
"""The first is the one that the topic's config means."""
F = FieldDescriptorProto
_Played = Callable[["Subjects", State, Any, Any, At], None]


@dataclass(frozen=True)
class Text:
    """A schema. Those of one family go together whichever is older, those of two never."""

    family: str
    message: Message

    @property
    def given(self) -> str:
        """As clients give it."""
        files = FileDescriptorSet.FromString(self.message.descriptor_set)
        return base64.b64encode(files.file[0].SerializeToString()).decode()


_NAME, _PRICE = Field(2, "name", F.TYPE_STRING), Field(3, "price", F.TYPE_DOUBLE)
_NUMBERED, _NAMED = Field(1, "user", F.TYPE_SINT32), Field(1, "user", F.TYPE_STRING)
TEXTS = (
    Text("numbered", Message("r.Order", (_NUMBERED,))),
    Text("numbered", Message("r.Order", (_NUMBERED, _NAME))),
    Text("numbered", Message("r.Order", (_NUMBERED, _NAME, _PRICE))),
    Text("numbered", Message("r.Order", (_NUMBERED, _PRICE, Field(4, "paid", F.TYPE_BOOL, optional=True)))),
    Text("named", Message("r.Order", (_NAMED,))),
    Text("named", Message("r.Order", (_NAMED, Field(2, "amount", F.TYPE_INT64)))),
)


@cache
def by_form() -> Mapping[bytes, Text]:
    """The texts by what commands hold of them."""
    return {protobuf.parse(each.given, {}).canonical: each for each in TEXTS}


class Version(NamedTuple):
    """Of a subject."""

    number: int
    schema_id: int
    text: Text
    deleted: bool


class Settings(NamedTuple):
    """Of a subject."""

    level: int = Compatibility.BACKWARD
    mode: int = Mode.READWRITE


@dataclass(frozen=True, slots=True)
class View:
    """The registry from a revision on."""

    revision: int = 0
    subjects: Mapping[str, tuple[Version, ...]] = field(default_factory=dict)
    settings: Mapping[str, Settings] = field(default_factory=dict)
    bound: tuple[str, int] | None = None
    """The subject that the topic follows, and the version that it stays at (0: all). None: nothing."""

    def versions(self, subject: str) -> tuple[Version, ...]:
        """All, deleted ones too."""
        return self.subjects.get(subject, ())

    def live(self, subject: str) -> list[Version]:
        """Those that are not deleted."""
        return [each for each in self.versions(subject) if not each.deleted]

    def of(self, subject: str) -> Settings:
        """What applies to it."""
        return self.settings.get(subject, Settings())

    def users(self, schema_id: int) -> list[tuple[str, Version]]:
        """Versions that are this schema, deleted ones too."""
        every = ((name, each) for name, versions in self.subjects.items() for each in versions)
        return [one for one in every if one[1].schema_id == schema_id]

    def fits(self, subject: str, text: Text) -> bool:
        """Whether the level in force lets the subject have it."""
        level, live = self.of(subject).level, self.live(subject)
        if level == Compatibility.NONE:
            return True
        every = level in (Compatibility.BACKWARD_TRANSITIVE, Compatibility.FULL_TRANSITIVE)
        return all(each.text.family == text.family for each in (live if every else live[-1:]))

    def accepts(self, record: Written) -> bool:
        """Whether the topic may have the record."""
        if self.bound is None or record.value is None:
            return True
        subject, number = self.bound
        known = {each.schema_id for each in self.live(subject) if number in (0, each.number)}
        return record.frame in known

    def following(self, subject: str, number: int) -> View:
        """With the topic bound to a subject, or to none (an empty one)."""
        return replace(self, bound=(subject, number) if subject else None)

    def put(self, subject: str, versions: Iterable[Version]) -> View:
        """With these versions of a subject; what was set for it goes with the last that is not deleted."""
        held = tuple(sorted(versions))
        settings = dict(self.settings)
        if all(each.deleted for each in held):
            settings.pop(subject, None)
        return replace(self, subjects={**self.subjects, subject: held}, settings=settings)


class Subjects:
    """The truth, while it `watches`; `written` and `shown_at` as columns.py asks for them."""

    topic = FOLLOWED

    def __init__(self, wrong: Callable[[str, str], None], astray: Astray) -> None:
        self._wrong, self._astray = wrong, astray
        self._views: list[View] = [View()]
        self._texts: dict[int, Text] = {}
        self.told: dict[int, Text] = {}
        """Ids that clients were told, whatever has become of them."""
        self._gone: set[int] = set()
        """Ids that were forgotten for good."""
        self._places: dict[int, View] = {}
        """By offset of the topic: the registry where the record was appended."""
        self._first: tuple[int, StateData | None] = 0, None
        self.written: list[Written] = []
        """Each record, whether it was taken or not; its key is its place here."""
        self.counts: Counter[str] = Counter()

    @property
    def now(self) -> View:
        """As far as anybody has applied the log."""
        return self._views[-1]

    def between(self, since: int, until: int) -> list[View]:
        """Those in force from one revision to another, oldest first."""
        first = bisect_right(self._views, since, key=lambda view: view.revision) - 1
        return [view for view in self._views[first:] if view.revision <= until]

    @contextmanager
    def watches(self) -> Iterator[None]:
        """Everything of it that is applied meanwhile."""
        before = {kind: HANDLERS[kind] for kind in _PLAYED}
        for kind, played in _PLAYED.items():
            HANDLERS[kind] = self._hooked(before[kind], played)
        set_binding = binding.put

        def bound(state: StateData, topic: Any, role: int, schema_id: int | None, at: At) -> None:
            if topic.name == FOLLOWED and self._is_first(state, at):
                one = state.schemas[schema_id] if schema_id else None
                self._enter(self.now.following(*(one.subject, one.subject_version) if one else ("", 0)), at)
            set_binding(state, topic, role, schema_id, at)

        binding.put = bound
        try:
            yield
        finally:
            HANDLERS.update(before)
            binding.put = set_binding

    def _hooked(self, handler: Any, played: _Played) -> Any:
        def handled(state: State, message: Any, at: At) -> Any:
            result = handler(state, message, at)
            if self._is_first(state, at):
                played(self, state, message, result, at)
            return result

        return handled

    def _is_first(self, state: StateData, at: At) -> bool:
        """Whether nobody has applied this entry before: of others there is nothing to learn."""
        if state in self._astray:
            return False
        if at.revision > self._first[0]:
            self._first = at.revision, state
        return self._first[0] == at.revision and self._first[1] is state

    def _enter(self, view: View, at: At) -> None:
        self._views.append(replace(view, revision=at.revision))

    def _registered(self, _state: State, message: Any, result: Any, at: At) -> None:
        if not isinstance(result, Done):
            return
        placed: Any = result.value
        schema_id, number = placed
        view, subject, text = self.now, message.subject, by_form()[message.canonical]
        new = Version(number, schema_id, text, False)
        if new in view.versions(subject):
            self.counts["registry found again"] += 1
            return
        for anomaly, detail in self._against(view, message, new):
            self._wrong(anomaly, f"{subject}: {new}: {detail}; {view.versions(subject)}")
        self._texts[schema_id] = text
        self._gone.discard(schema_id)
        others = (each for each in view.versions(subject) if each.number != number)
        self._enter(view.put(subject, (*others, new)), at)
        self.counts["registry versions"] += 1

    def _against(self, view: View, message: Any, new: Version) -> Iterator[tuple[str, str]]:
        """What speaks against a version that was made."""
        subject, given = message.subject, message.schema_id
        numbers = [each.number for each in view.versions(subject)]
        if new.number != (message.version or max(numbers, default=0) + 1):
            yield "version-gap", f"the subject has {numbers}"
        held = {each.schema_id: each.text for versions in view.subjects.values() for each in versions}
        if held.get(new.schema_id, new.text) != new.text:
            yield "id-doubled", f"the id is of {held[new.schema_id]}"
        if given:
            if view.of(subject).mode != Mode.IMPORT:
                yield "mode-ignored", "an id is given"
            return
        same = [one for one, text in held.items() if text == new.text]
        if same and new.schema_id not in same:
            yield "schema-doubled", f"it has the ids {same}"
        if any(each.text == new.text for each in view.live(subject)):
            yield "schema-doubled", "the subject has it"
        if view.of(subject).mode != Mode.READWRITE:
            yield "mode-ignored", f"the mode is {view.of(subject).mode}"
        if not view.fits(subject, new.text):
            yield "incompatible-version", f"the level is {view.of(subject).level}"

    def _deleted(self, _state: State, message: Any, result: Any, at: At) -> None:
        if not isinstance(result, Done):
            return
        named: Any = result.value
        view = self.now
        if message.permanent:
            versions = [each for each in view.versions(message.subject) if each.number not in named]
        else:
            versions = [each._replace(deleted=each.deleted or each.number in named)
                        for each in view.versions(message.subject)]  # fmt: skip
        self._enter(after := view.put(message.subject, versions), at)
        self._gone |= {one for one in self._texts if not after.users(one)}
        self.counts["registry forgotten" if message.permanent else "registry hidden"] += len(named)

    def _set(self, _state: State, message: Any, result: Any, at: At) -> None:
        if not isinstance(result, Done):
            return
        before = self.now.of(message.scope)
        after = Settings(message.compatibility or before.level, message.mode or before.mode)
        self._enter(replace(self.now, settings={**self.now.settings, message.scope: after}), at)
        self.counts["registry settings"] += 1

    def _appended(self, state: State, message: Any, result: Any, _at: At) -> None:
        """Where in the log records of the topic stand."""
        topic = state.topics.get(FOLLOWED)
        if topic is None or not isinstance(result, ChunkCommitted):
            return
        handle = topic.partitions[0].handle
        rows = zip(message.partition, message.offsets, result.errors, result.base_offsets, strict=True)
        for partition, count, error, base in rows:
            if partition == handle and not error:
                self._places |= dict.fromkeys(range(base, base + count), self.now)

    def accepts(self, offset: int, record: Written) -> bool:
        """Whether the topic may have the record there."""
        return self._places[offset].accepts(record)

    def shown_at(self, offset: int, record: Written) -> Iterator[Shown]:
        """What the table may show of a record that stands there; nothing where it may not stand there."""
        view = self._places[offset]
        if not view.accepts(record):
            return
        if view.bound is None:
            yield Shown("bound to nothing")
        elif record.frame is None or record.payload is None:
            yield Shown("of a tombstone")
        else:
            message = self._texts[record.frame].message
            fields = message.shown(record.payload)
            assert fields is not None, "it was drawn for its message"
            yield Shown("by its own id", message, fields)
            if record.frame in self._gone:  # perhaps before its row was written
                yield Shown("with an error")

    def judged(self, agent: AgentNode) -> Iterator[Finding]:
        """What an agent, healed and up to date, has otherwise."""
        assert agent.app is not None, "healed before it is judged"
        table = agent.app.replica.state.subjects
        found = {
            name: tuple(
                Version(each.version, each.schema_id, by_form()[table.schemas[each.schema_id].canonical],
                        each.deleted)
                for each in subject.versions.values()
            )
            for name, subject in table.subjects.items()
        }  # fmt: skip
        expected = {name: versions for name, versions in self.now.subjects.items() if versions}
        if found != expected:
            yield Finding("registry-differs", agent.name, f"{found}, not {expected}", ())


_PLAYED: Mapping[str, _Played] = {
    "register_schema": Subjects._registered,
    "delete_schema_versions": Subjects._deleted,
    "put_subject_settings": Subjects._set,
    "commit_chunk": Subjects._appended,
}
