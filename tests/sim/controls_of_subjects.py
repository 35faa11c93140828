"""Rules of the registry and of topics that follow subjects, broken (docs/schemas.md).

What apply decides, which an author may only guess: whether a schema is there, its version, whether it was
judged by all before it. What is read fresh: lookups, and the binding by which a record is refused. And of a
record: by which state it was judged, by which schema its row is decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agent.http.registry import subjects as read_subjects
from agent.http.registry import writes
from agent.kafka.handlers import k00_produce
from agent.kafka.produce import driver
from agent.kafka.produce.buffer import commit_command
from coordination.state import following, subjects
from coordination.state.data import FEATURE_LEVEL_MAX
from iceberg.layout import Messages
from tests.sim.controls import Control
from tests.sim.controls_of_bindings import JUDGED_FOR_EVER
from tests.sim.patching import patched
from tests.sim.plan import Plan

Change = tuple[Any, str, Any]
FAR_FIRST_S, FAR_EACH_S, FAR_S = 1, 2, 1.5


def _not_looked_for_by_apply() -> Change:
    """Apply does not look whether the subject has the schema by what came since."""
    return subjects, "registered", lambda *_, **__: None


def _not_looked_for_by_its_author() -> Change:
    """Nor does the author."""

    async def found(*_: Any, **__: Any) -> None:
        return None

    return writes.WriteRoutes, "_found", found


def _gaps() -> Change:
    """A version that is not the next one."""
    real = subjects._place

    def placed(state: Any, message: Any, schema_id: int) -> Any:
        found = real(state, message, schema_id)
        return found + 1 if isinstance(found, int) and not message.version and found > 1 else found

    return subjects, "_place", placed


def _new_id_each_time() -> Change:
    """A schema that another subject has gets an id of its own."""
    real = subjects._register

    def register(state: Any, message: Any, _schema_id: int, version: int, at: Any) -> Any:
        return real(state, message, message.schema_id, version, at)

    return subjects, "_register", register


def _judged_once() -> Change:
    """What changed since a schema was judged does not matter."""
    return subjects, "_stale", lambda *_: None


def _nobody_is_asked(where: Any) -> Change:
    """Answers are of what the agent happens to have applied."""

    async def barrier(_parts: Any) -> int:
        return 0

    return where, "barrier", barrier


def _refused_by_the_view() -> Change:
    """A record is refused by the binding that the agent knows of, whatever another one answered for since."""

    async def current(*_: Any) -> None:
        return

    return k00_produce, "require_current", current


def _judged_by_the_view() -> Change:
    """A record counts as judged by the agent's view, not by the revision where it is appended."""

    def unnamed(flush: Any) -> Any:
        command = commit_command(flush)
        command.commit_chunk.judged_revision = JUDGED_FOR_EVER
        return command

    return driver, "commit_command", unnamed


def _hidden_unnoticed() -> Change:
    """Versions are hidden without a word to the topics whose records name them."""
    return following, "deleted", lambda *_: None


def _decoded_by_newest() -> Change:
    """A row is decoded by the newest schema that rows named, not by the one that it names."""
    real = Messages.named

    def named(self: Messages, record: bytes) -> Any:
        part, start = real(self, record)
        newest = [one for _, one in sorted(self.registered.items(), key=lambda each: each[0][0])]
        return (newest[-1] if part.decoder is not None else part), start

    return Messages, "named", named


def _with_a_registrar(plan: Plan) -> Plan:
    return replace(plan, registrar=True)


def _with_a_far_agent(plan: Plan) -> Plan:
    """One after the other is far from log and store for a while, and nothing else is wrong."""
    times = range(FAR_FIRST_S, int(plan.seconds), FAR_EACH_S)
    far = ((float(at), FAR_S, "far-away", (number % plan.agents,)) for number, at in enumerate(times))
    return replace(plan, registrar=True, faults=tuple(far))


def _newest(plan: Plan) -> bool:
    return plan.level == FEATURE_LEVEL_MAX


def _control(
    name: str,
    rule: str,
    anomaly: str,
    *changes: Callable[[], Change],
    told: Callable[[Plan], Plan] = _with_a_registrar,
) -> Control:
    return Control(
        name, rule, frozenset({anomaly}), lambda: patched(*(each() for each in changes)), _newest, told
    )


SUBJECTS = (
    _control(
        "registered-twice",
        "registry: a subject has a schema once",
        "schema-doubled",
        _not_looked_for_by_apply,
        _not_looked_for_by_its_author,
    ),
    _control("ids-by-subject", "registry: a schema has one id", "schema-doubled", _new_id_each_time),
    _control("versions-with-gaps", "registry: versions are dense and in order", "version-gap", _gaps),
    _control(
        "judged-once",
        "registry: who registers is judged by all before it",
        "incompatible-version",
        _judged_once,
    ),
    _control(
        "looked-up-at-home",
        "5: what is acknowledged is found through any agent",
        "registry-stale",
        lambda: _nobody_is_asked(writes),
        lambda: _nobody_is_asked(read_subjects),
        told=_with_a_far_agent,
    ),
    _control(
        "refused-by-the-view",
        "5: nobody is refused by a binding that was over",
        "refused-wrongly",
        _refused_by_the_view,
        told=_with_a_far_agent,
    ),
    _control(
        "judged-by-the-view",
        "19: a record names a live version at its place",
        "frame-of-no-version",
        _judged_by_the_view,
    ),
    _control(
        "hidden-unnoticed",
        "19: to hide a version changes the binding",
        "frame-of-no-version",
        _hidden_unnoticed,
        told=_with_a_far_agent,
    ),
    _control(
        "decoded-by-newest",
        "tables: a framed row is decoded by the schema that it names",
        "columns-wrong",
        _decoded_by_newest,
    ),
)
