"""What the generated codecs share: variable-length integers, tagged fields, limits and their errors.

Varints and tagged fields: KIP-482. The length of a compact string, byte string or array is sent plus one;
zero means null.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, pack, unpack_from
from struct import error as StructError
from typing import TypeAlias

from agent.net.wire.errors import UnsupportedVersion, WireError

REQUEST_ELEMENTS_MAX = 262_144
"""Array elements in one request, over all its arrays. The size of a frame bounds the objects made of it
only up to a factor of a hundred (an empty string is one byte on the wire), so their number has a bound."""

RESPONSE_ELEMENTS_MAX = 4_194_304
"""The same for a response, which only tools and tests decode."""

PLAIN_BYTES_MAX = 16 * 1024 * 1024
"""Size of a message that carries no records, bytes. It is copied once before it is decoded."""

VARINT_BYTES_MAX = 5

TEXT_BYTES_MAX = 32_767
"""UTF-8 bytes of a string. Plain ones cannot say more, and of compact ones Kafka takes no more."""

NIL_UUID = bytes(16)

Buffer: TypeAlias = bytes | bytearray | memoryview

Records: TypeAlias = Buffer | Sequence[Buffer]
"""Record batches on their way out: one buffer, or several that follow each other; none is copied."""

# Lists of node ids and partition numbers are mostly short: formats ready made for those.
_INT32S = [Struct(f">{count}i") for count in range(17)]

DECODE_ERRORS = (IndexError, ValueError, StructError)
"""What straight-line decoding raises on a broken message."""


def plain(buf: Buffer) -> bytes:
    """A message without records as bytes, which decode faster than a memoryview. Raises ValueError."""
    if len(buf) > PLAIN_BYTES_MAX:
        raise ValueError(f"{len(buf)} bytes, more than the {PLAIN_BYTES_MAX} of a message without records")
    return bytes(buf)


def uvarint(buf: Buffer, pos: int, first: int) -> tuple[int, int]:
    """The unsigned varint whose first byte, 128 or more, stood before `pos`; and the position after it."""
    value = first & 127
    for shift in range(7, 7 * VARINT_BYTES_MAX, 7):
        byte = buf[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, pos
    raise ValueError(f"a variable-length integer takes more than {VARINT_BYTES_MAX} bytes")


def text_length(path: str, buf: Buffer, pos: int, first: int) -> tuple[int, int]:
    """`uvarint` of a compact string's length plus one. Raises ValueError where that is too long."""
    length, pos = uvarint(buf, pos, first)
    if length - 1 > TEXT_BYTES_MAX:
        raise ValueError(f"{path}: a string of {length - 1} bytes, more than {TEXT_BYTES_MAX}")
    return length, pos


def varint(value: int) -> bytes:
    """An unsigned integer in as many bytes as it needs."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_tag(buf: Buffer, pos: int, size: int) -> tuple[int, int, int]:
    """Number of the tagged field at `pos`, where its value ends, and where it begins."""
    tag = buf[pos]
    pos += 1
    if tag > 127:
        tag, pos = uvarint(buf, pos, tag)
    length = buf[pos]
    pos += 1
    if length > 127:
        length, pos = uvarint(buf, pos, length)
    if pos + length > size:
        raise ValueError(f"tagged field {tag}: {length} bytes announced, {size - pos} left")
    return tag, pos + length, pos


def skip_tags(buf: Buffer, pos: int, count: int, size: int) -> int:
    """Step over tagged fields that this agent does not know; `count` is the first byte of their number."""
    if count > 127:
        count, pos = uvarint(buf, pos, count)
    for _ in range(count):
        _, pos, _ = read_tag(buf, pos, size)
    return pos


def int32s(values: Sequence[int]) -> bytes:
    """The elements of an array of int32."""
    count = len(values)
    return _INT32S[count].pack(*values) if count < 17 else pack(f">{count}i", *values)


def read_int32s(buf: Buffer, pos: int, count: int) -> list[int]:
    """`count` elements of an array of int32 at `pos`."""
    return list(_INT32S[count].unpack_from(buf, pos) if count < 17 else unpack_from(f">{count}i", buf, pos))


def put_tag(out: bytearray, tag: int, value: Buffer) -> None:
    """Append one tagged field."""
    out += varint(tag)
    out += varint(len(value))
    out += value


def records_size(records: Records) -> int:
    """Bytes of all buffers together."""
    if isinstance(records, bytes | bytearray | memoryview):
        return len(records)
    return sum(map(len, records))


def put_records(parts: list[Buffer], records: Records) -> None:
    """Append the buffers themselves."""
    if isinstance(records, bytes | bytearray | memoryview):
        parts.append(records)
    else:
        parts.extend(records)


def bad_length(path: str, end: int, pos: int, size: int) -> ValueError:
    """The error for a string or byte string from `pos` to `end` in a message of `size` bytes."""
    if end < pos:
        return ValueError(f"{path}: null or a negative length where a value is needed")
    return ValueError(f"{path}: {end - pos} bytes announced, {size - pos} left")


def bad_count(path: str, count: int, least: int, pos: int, size: int) -> ValueError:
    """The error for an array of `count` elements of at least `least` bytes each, at `pos`."""
    if count < 0:
        return ValueError(f"{path}: null or a negative length where an array is needed")
    if count * least > size - pos:
        return ValueError(f"{path}: {count} elements of {least} or more bytes announced, {size - pos} left")
    return ValueError(f"{path}: {count} elements, more than one message may hold")


def bad_tag(path: str, tag: int) -> ValueError:
    """The error for a known tagged field whose value is not as long as announced."""
    return ValueError(f"{path}: the value of tagged field {tag} does not end where it says")


def broken(name: str, version: int, error: Exception) -> WireError:
    """The WireError that names the message and says what is wrong with it."""
    reason = str(error) if type(error) is ValueError else f"ends too early ({error})"
    if isinstance(error, UnicodeDecodeError):
        reason = f"a string is not UTF-8 ({error})"
    return WireError(f"{name} v{version}: {reason}")


def unsupported(name: str, version: int, low: int, high: int) -> UnsupportedVersion:
    """The error for a version outside the range."""
    return UnsupportedVersion(f"{name} v{version}: only {low} to {high} are supported")
