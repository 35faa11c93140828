"""Who did what: logins, refusals, changes and, by choice, accesses, each one event.

Events go to the agent's log and, where there is one, to the audit log's topic (agent/kafka/trail). A change
is told where its commands are decided, whichever API asked for it. Names that come from clients are cut, and
nothing is told that is a secret or a record's content.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple

from google.protobuf.message import Message

from agent.config.audit_log import AuditLogConfig
from agent.telemetry.changes import Change, changes_of, named
from agent.telemetry.metrics import Metrics
from coordination.clock import Clock
from coordination.kafka_codes import Code
from coordination.state.state import State
from coordination.state.types import Refused, Result

KINDS = LOGIN, REFUSED, CHANGE, ACCESS = "LOGIN", "REFUSED", "CHANGE", "ACCESS"
TEXT_CHARS_MAX = 1_000
"""Characters of a name or a detail."""


class Actor(NamedTuple):
    """Who did it. `door`: by which listener, or HTTP."""

    principal: str
    host: str
    client_id: str
    door: str


ID_BYTES = 6
"""By which the events of a process differ from those of all others."""

NOBODY = Actor("", "", "", "")
"""The cluster itself."""

http_actor: ContextVar[Actor] = ContextVar("http_actor", default=NOBODY)
"""Who asks, while an HTTP request is served."""


class Event(NamedTuple):
    """One row of the audit log (schema/proto/audit.proto)."""

    id: str
    time_ms: int
    kind: str
    actor: Actor
    change: Change
    outcome: str
    times: int


class _Seen(NamedTuple):
    """What came: one event, or those of a command, which are made when there is time."""

    time_ms: int
    kind: str
    actor: Actor
    what: Change | Message | Sequence[Change]
    outcome: str
    times: int
    value: object
    """Of a command's result."""


@dataclass(slots=True)
class _Alike:
    """Events of one kind since the last that was told. `told_s`: monotonic seconds."""

    told_s: float
    untold: int = 0


Told = Sequence[Message | Sequence[Change]]
"""By command, what it changes; the command itself where its names are in it."""


class Trail:
    """What one agent saw. Made inside the event loop."""

    def __init__(
        self, config: AuditLogConfig, clock: Clock, agent: str, metrics: Metrics, remembered: int = 0
    ) -> None:
        """`remembered`: events that stay in `recent`."""
        self.recent: deque[Event] = deque(maxlen=remembered)
        self._config, self._clock, self._metrics = config, clock, metrics
        self._agent, self._prefix = agent, ""
        self._told = 0
        self._alike: OrderedDict[tuple[str, Actor, Change, str], _Alike] = OrderedDict()
        self._seen: deque[_Seen] = deque()
        self.arrived = asyncio.Event()
        """Set while there is something to take."""
        self.active = config.lines or bool(config.topic)
        self.tells_access = self.active and config.access

    def login(self, actor: Actor, mechanism: str, outcome: Code) -> None:
        """Somebody logged in, or tried to."""
        if self.active:
            self._note(LOGIN, actor, Change(mechanism, "", ""), outcome.name)

    def logged_in(self, actor: Actor, mechanism: str) -> None:
        """Somebody showed who he is with a request, as HTTP does: told once in a while, with how often."""
        if self.active:
            self._note_once(LOGIN, actor, Change(mechanism, "", ""), Code.NONE.name)

    def refused(self, actor: Actor, change: Change, outcome: Code) -> None:
        """Somebody may not do what he asked for. Told once in a while, with how often."""
        if self.active:
            self._note_once(REFUSED, actor, change, outcome.name)

    def accessed(self, actor: Actor, operation: str, topics: Iterable[str]) -> None:
        """A request read or wrote records of these topics: told once in a while, with how often."""
        if self.tells_access:
            for topic in dict.fromkeys(topics):
                self._note_once(ACCESS, actor, Change(operation, "Topic", topic), Code.NONE.name)

    def described(self, messages: Sequence[Message], state: State) -> Told:
        """What commands are about to change, with the names that may be gone once they are decided."""
        return [named(message, state) for message in messages] if self.active else ()

    def decided(self, actor: Actor, told: Told, results: Sequence[Result]) -> None:
        """The commands that `described` told of were decided."""
        for what, result in zip(told, results, strict=False):
            if isinstance(result, Refused):
                self._change(actor, what, result.code, None)
            else:
                self._change(actor, what, Code.NONE, getattr(result, "value", None))

    def _change(self, actor: Actor, what: Message | Sequence[Change], outcome: Code, value: object) -> None:
        if what:
            self._note(CHANGE, actor, what, outcome.name, value=value)

    def take(self, most: int) -> list[Event]:
        """The events of the oldest things that came, `most` of these."""
        self._prefix = self._prefix or f"{self._agent}-{self._clock.random_bytes(ID_BYTES).hex()}-"
        events: list[Event] = []
        for _ in range(min(most, len(self._seen))):
            seen = self._seen.popleft()
            what = changes_of(seen.what, seen.value) if isinstance(seen.what, Message) else seen.what
            for change in [what] if isinstance(what, Change) else what:
                self._told += 1
                name = f"{self._prefix}{self._told}"
                actor, whole = (
                    Actor(*map(_cut, seen.actor)),
                    _whole(change),
                )
                outcome = change.outcome or seen.outcome
                events.append(Event(name, seen.time_ms, seen.kind, actor, whole, outcome, seen.times))
                self.recent.append(events[-1]._replace(change=whole._replace(added=(), removed=())))
                self._metrics.audit_events.labels(seen.kind).inc()
        if not self._seen:
            self.arrived.clear()
        return events

    def _note_once(self, kind: str, actor: Actor, change: Change, outcome: str) -> None:
        if len(actor.client_id) > TEXT_CHARS_MAX or len(change.resource) > TEXT_CHARS_MAX:
            actor, change = Actor(*map(_cut, actor)), _whole(change)  # else so much is kept of each kind
        key, now_s = (kind, actor, change, outcome), self._clock.monotonic()
        alike = self._alike.get(key)
        if alike is None:
            self._alike[key] = _Alike(now_s)
            if len(self._alike) > self._config.alike_kinds_max:
                self._alike.popitem(last=False)
            self._note(kind, actor, change, outcome)
            return
        alike.untold += 1
        self._alike.move_to_end(key)
        if now_s - alike.told_s >= self._config.again_ms / 1000:
            times, alike.untold, alike.told_s = alike.untold, 0, now_s
            self._note(kind, actor, change, outcome, times)

    def _note(
        self,
        kind: str,
        actor: Actor,
        what: Change | Message | Sequence[Change],
        outcome: str,
        times: int = 1,
        value: object = None,
    ) -> None:
        self._seen.append(_Seen(self._clock.now_ms(), kind, actor, what, outcome, times, value))
        if len(self._seen) > self._config.queue_events_max:
            self._seen.popleft()
            self._metrics.audit_lost.inc()
        self.arrived.set()


def _whole(change: Change) -> Change:
    """With its texts cut. Names in ACLs are as long as ACLs may be."""
    operation, resource_type, resource, detail = map(_cut, change[:4])
    return change._replace(operation=operation, resource_type=resource_type, resource=resource, detail=detail)


def _cut(text: str) -> str:
    return text[:TEXT_CHARS_MAX]
