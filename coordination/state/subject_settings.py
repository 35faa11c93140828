"""What applies to a subject of the registry, to a context or to all: compatibility, normalization, mode."""

from __future__ import annotations

from coordination.commands import PutSubjectSettings
from coordination.kafka_codes import Code
from coordination.state.data import StateData
from coordination.state.subject_types import GLOBAL, Mode, Settings, context_of, in_force
from coordination.state.subjects import NAME_LENGTH_MAX, READ_ONLY
from coordination.state.types import At, Done, Refused, Result

SETTINGS_MAX = 100_000


def put_subject_settings(state: StateData, message: PutSubjectSettings, at: At) -> Result:
    """Set what is given, behind what is to be cleared.

    Refused: POLICY_VIOLATION for IMPORT where there are subjects, for the config of what can only be read,
    and for too many.
    """
    if max(map(len, (message.scope, message.alias, message.compatibility_group))) > NAME_LENGTH_MAX:
        what = f"a subject, an alias and a group have at most {NAME_LENGTH_MAX} characters"
        return Refused(Code.INVALID_REQUEST, what)
    table = state.subjects
    before = table.settings.get(message.scope, Settings())
    after = _after(before, message)
    if after.config != before.config and in_force(table, message.scope).mode in READ_ONLY:
        return Refused(Code.POLICY_VIOLATION, f"Subject {message.scope} is in read-only mode")
    importing = message.mode == Mode.IMPORT and before.mode != Mode.IMPORT and not message.force
    if importing and _occupied(state, message.scope):
        return Refused(Code.POLICY_VIOLATION, "Cannot import since found existing subjects")
    if message.scope not in table.settings and len(table.settings) >= SETTINGS_MAX:
        return Refused(Code.POLICY_VIOLATION, f"{SETTINGS_MAX} subjects have settings, the most that can")
    if after != before:
        table.settings_revision = at.revision
        table.settings[message.scope] = after
        if after == Settings():
            del table.settings[message.scope]
    named = after.alias or after.compatibility_group
    return Done(tuple(after) if named else tuple(after[:3]))  # hashed: without them as before there were any


def _after(before: Settings, message: PutSubjectSettings) -> Settings:
    """What is set once what is to be cleared is, and what is given is put upon it."""
    kept = Settings(mode=before.mode) if message.clear_config else before
    return Settings(
        message.compatibility or kept.compatibility,
        message.normalize or kept.normalize,
        message.mode or (0 if message.clear_mode else kept.mode),
        message.alias if message.HasField("alias") else kept.alias,
        message.compatibility_group if message.HasField("compatibility_group") else kept.compatibility_group,
    )


def _occupied(state: StateData, scope: str) -> bool:
    """Whether the scope has subjects: itself, those of its context, or any of the default context."""
    table = state.subjects
    if scope == GLOBAL or scope == context_of(scope):
        return scope in table.contexts
    return scope in table.subjects
