"""The strict parse of one message, and how a bad record is told."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from schema import diagnosis
from schema.descriptors import MessageType

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


def problem(payload: bytes, kind: MessageType, allow_unknown: bool) -> str | None:
    """Why the bytes are not the message, by the strict parse (README.md); None when they are."""
    try:
        message = kind.message_class.FromString(payload)
    except DecodeError:
        return diagnosis.why_unparsable(payload, kind.descriptor)
    if kind.has_required and not message.IsInitialized():
        return diagnosis.why_incomplete(message)
    if not allow_unknown and _has_unknown(message, kind):
        return diagnosis.why_unknown(payload, kind.descriptor)
    return None


def _has_unknown(message: Message, kind: MessageType) -> bool:
    """Whether bytes were parsed that belong to no field of the message or of one inside it."""
    if not kind.has_submessages:
        return len(UnknownFieldSet(message)) > 0
    size = message.ByteSize()
    message.DiscardUnknownFields()
    return message.ByteSize() != size


def told(role: str, record: bytes | None, reason: str, message: str) -> str:
    """The reason for people; sending JSON is the mistake that newcomers make first."""
    if record is None or not diagnosis.looks_like_json(record):
        return f"{role}: {reason}"[:REASON_CHARS_MAX]
    what = message if message.startswith("a ") else f"the protobuf message {message}"
    return f"{role}: the bytes look like JSON; the topic takes {what}, serialized: {reason}"[
        :REASON_CHARS_MAX
    ]
