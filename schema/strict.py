"""The strict parse of one message, and how a bad record is told."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from schema import diagnosis
from schema.descriptors import MessageType
from schema.rules.sure.kinds import Obeys

BAD_RECORDS_MAX = 128
"""Bad records named per batch; the search ends there."""

REASON_CHARS_MAX = 400
"""Characters of one reason."""


@dataclass(frozen=True, order=True, slots=True)
class BadRecord:
    """A record that was refused. `index` counts from 0 within the batch."""

    index: int
    reason: str

    @property
    def role(self) -> str:
        """Whether its key or its value is bad; reasons begin with it."""
        return self.reason.partition(":")[0]


DOUBT = ""
"""Instead of a reason: the bytes are the message, and it may break its rules."""


def problem(payload: bytes, kind: MessageType, allow_unknown: bool, obeys: Obeys | None = None) -> str | None:
    """Why the bytes are not the message, by the strict parse (README.md); None when they are.

    DOUBT: they are, and `obeys` does not say that it surely obeys its rules.
    """
    try:
        message = kind.message_class.FromString(payload)
    except DecodeError:
        return diagnosis.why_unparsable(payload, kind.descriptor)
    if kind.has_required and not kind.message_class.IsInitialized(message):
        return diagnosis.why_incomplete(message)
    if not allow_unknown and _has_unknown(message, kind):
        return diagnosis.why_unknown(payload, kind.descriptor)
    if obeys is None:
        return None
    try:
        return None if obeys(message) else DOUBT
    except ValueError:  # a text of proto2 that is no UTF-8
        return DOUBT


def _has_unknown(message: Message, kind: MessageType) -> bool:
    """Whether bytes were parsed that belong to no field of the message or of one inside it."""
    if not kind.has_submessages:
        return len(UnknownFieldSet(message)) > 0
    of = kind.message_class  # a field of a method's name hides it from the message
    size = of.ByteSize(message)
    of.DiscardUnknownFields(message)
    return of.ByteSize(message) != size


def told(role: str, record: bytes | None, reason: str, message: str) -> str:
    """The reason for people; sending JSON is the mistake that newcomers make first."""
    if record is None or not diagnosis.looks_like_json(record):
        return f"{role}: {reason}"[:REASON_CHARS_MAX]
    what = message if message.startswith("a ") else f"the protobuf message {message}"
    return f"{role}: the bytes look like JSON; the topic takes {what}, serialized: {reason}"[
        :REASON_CHARS_MAX
    ]
