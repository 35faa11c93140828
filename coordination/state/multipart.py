"""Changes larger than one entry (rule 12, KIP-868): begin, parts, end; invisible until the end.

Parts gather per author and id. End takes them (State.dispatch applies all commands at one point of the
log); Abort or the author's fencing drops them.
"""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.message import DecodeError

from coordination.commands import Abort, Begin, Command, Commands, End, Part
from coordination.kafka_codes import Code
from coordination.state.data import StateData
from coordination.state.types import At, Done, Refused, Result

CHANGES_PER_AUTHOR_MAX = 4
CHANGE_BYTES_MAX = 64 * 1024 * 1024  # of all parts of one change
OUTER = ("begin", "part", "end", "abort", "register_agent")  # kinds that cannot stand inside a change


def begin(state: StateData, message: Begin, at: At) -> Result:
    """Open a change. Done's value: None."""
    author = at.author.incarnation
    key = (author, message.id)
    if key in state.pending:
        return Refused(Code.INVALID_REQUEST, f"change {message.id} is open already: take another id")
    if sum(incarnation == author for incarnation, _ in state.pending) >= CHANGES_PER_AUTHOR_MAX:
        return Refused(Code.POLICY_VIOLATION, f"{CHANGES_PER_AUTHOR_MAX} changes are open: end one first")
    state.pending[key] = []
    return Done()


def part(state: StateData, message: Part, at: At) -> Result:
    """Add the next part. Done's value: None. A wrong part ends the change."""
    key = (at.author.incarnation, message.id)
    parts = state.pending.get(key)
    if parts is None:
        return _not_open(message.id)
    if message.index != len(parts):
        del state.pending[key]
        return Refused(
            Code.INVALID_REQUEST,
            f"change {message.id}: part {message.index} where {len(parts)} was due; the change is dropped",
        )
    if sum(map(len, parts)) + len(message.content) > CHANGE_BYTES_MAX:
        del state.pending[key]
        return Refused(
            Code.POLICY_VIOLATION, f"change {message.id} exceeds {CHANGE_BYTES_MAX} bytes; it is dropped"
        )
    parts.append(message.content)
    return Done()


def take(state: StateData, message: End, at: At) -> Sequence[Command] | Refused:
    """The commands of a change that is complete; it is open no more."""
    parts = state.pending.pop((at.author.incarnation, message.id), None)
    if parts is None:
        return _not_open(message.id)
    if message.parts != len(parts):
        return Refused(
            Code.INVALID_REQUEST,
            f"change {message.id}: {message.parts} parts announced, {len(parts)} came; the change is dropped",
        )
    try:
        return Commands.FromString(b"".join(parts)).commands
    except DecodeError as error:
        return Refused(Code.INVALID_REQUEST, f"change {message.id} holds no commands: {error}; it is dropped")


def abort(state: StateData, message: Abort, at: At) -> Result:
    """Drop the change. Done's value: None."""
    if state.pending.pop((at.author.incarnation, message.id), None) is None:
        return _not_open(message.id)
    return Done()


def drop_all_of(state: StateData, incarnation: int) -> None:
    """Drop every open change of a fenced author."""
    for key in [key for key in state.pending if key[0] == incarnation]:
        del state.pending[key]


def _not_open(change_id: int) -> Refused:
    return Refused(Code.INVALID_REQUEST, f"change {change_id} is not open")
