"""Feeds broken messages to every decoder: `python -m tests.fuzz_wire --seconds N [--seed S]`.

A decoder may succeed or raise WireError; anything else is a bug, and so is memory beyond `memory_bound`.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import tracemalloc
from collections import Counter
from dataclasses import dataclass
from typing import Any

from agent.net.wire import generate
from agent.net.wire.api import APIS as REGISTRY
from agent.net.wire.errors import WireError
from agent.net.wire.frame import encode_request_header, parse_request_header
from agent.net.wire.generator.definition import Api, Field, load
from agent.net.wire.primitives import REQUEST_ELEMENTS_MAX, RESPONSE_ELEMENTS_MAX

APIS = load(generate.MESSAGES)
LENGTHS = [
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff",
    b"\xff\xfe",
    b"\x80\x01",
    b"\x00",
    b"\x01\x00",
]
"""Lengths to hurt with: minus one, the largest, the smallest, compact ones too long for their integer."""

ELEMENT_BYTES_MAX = 512
"""Memory of one decoded array element besides its strings and byte strings."""


@dataclass
class Case:
    """One broken message."""

    api: Api
    kind: str
    version: int
    data: bytes

    def __str__(self) -> str:
        return (
            f"{self.api.name} {self.kind} v{self.version}: {self.data[:200].hex()} ({len(self.data)} bytes)"
        )


def memory_bound(kind: str, size: int) -> int:
    """Most memory that decoding a message of `size` bytes may take, bytes.

    An element takes at least one byte on the wire, so small messages are bounded by their size, large ones
    by the number of elements allowed; 64 KiB are for exceptions and caches.
    """
    elements = REQUEST_ELEMENTS_MAX if kind == "request" else RESPONSE_ELEMENTS_MAX
    return 65_536 + 4 * size + ELEMENT_BYTES_MAX * min(size, elements)


def random_message(rng: random.Random, api: Api, kind: str, version: int) -> Any:
    """A valid message, with a bit of everything in it."""
    module = REGISTRY[api.key].codec()
    message = api.request if kind == "request" else api.response
    name = api.name + kind.capitalize()
    return getattr(module, name)(**_values(rng, module, message.fields, version))


def _values(rng: random.Random, module: Any, fields: list[Field], version: int) -> dict[str, Any]:
    return {f.name: _value(rng, module, f, version) for f in fields if version in f.versions}


def _value(rng: random.Random, module: Any, field: Field, version: int) -> Any:
    if version in field.nullable and rng.random() < 0.2:
        return None
    if field.array:
        return [_one(rng, module, field, version) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    return _one(rng, module, field, version)


def _one(rng: random.Random, module: Any, field: Field, version: int) -> Any:
    match field.base:
        case "bool":
            return rng.random() < 0.5
        case "float64":
            return rng.random()
        case "string":
            return rng.choice(("", "t", "flights", "ü" * 70))
        case "bytes" | "records":
            return rng.randbytes(rng.choice((0, 1, 20, 200)))
        case "uuid":
            return rng.randbytes(16)
        case "uint16":
            return rng.choice((0, 1, 65535))
        case "int8" | "int16" | "int32" | "int64":
            return rng.choice((-1, 0, 1, 100))
    return getattr(module, field.base)(**_values(rng, module, field.fields, version))


def broken(rng: random.Random, data: bytes) -> bytes:
    """The message cut, flipped, spliced or replaced."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(7):
            case 0:
                del out[at:]
            case 1 if out:
                out[at % len(out)] = rng.randrange(256)
            case 2:
                length = rng.choice(LENGTHS)
                out[at : at + len(length)] = length
            case 3:
                out[at:at] = rng.choice(LENGTHS)
            case 4:
                del out[at : at + rng.randrange(1, 9)]
            case 5:
                out[at:at] = out[at : at + 40] * rng.randrange(1, 20)
            case 6:
                out[at:] = rng.randbytes(rng.randrange(64))
    return bytes(out)


def cases(rng: random.Random, rounds: int) -> Any:
    """Broken messages of every API, kind and version, `rounds` of each."""
    for api in APIS:
        for version in range(api.versions.low, api.versions.high + 1):
            for kind in ("request", "response"):
                codec = REGISTRY[api.key].codec()
                for _ in range(rounds):
                    message = random_message(rng, api, kind, version)
                    data = b"".join(getattr(codec, f"encode_{kind}")(message, version))
                    yield Case(api, kind, version, broken(rng, data))


def feed(case: Case) -> str:
    """Decode; gives `ok` or `refused`. Anything that is not WireError comes out as it is."""
    decode = getattr(REGISTRY[case.api.key].codec(), f"decode_{case.kind}")
    try:
        decode(case.data, case.version)
    except WireError as error:
        if not str(error).startswith(case.api.name):
            raise AssertionError("the error does not name the message") from error
        return "refused"
    return "ok"


def feed_header(rng: random.Random, case: Case) -> str:
    """The same for a whole request whose header is broken."""
    api = REGISTRY[case.api.key]
    frame = encode_request_header(api, case.version, rng.randrange(1000), "client") + case.data[:64]
    try:
        parse_request_header(memoryview(broken(rng, frame)))
    except WireError:
        return "header refused"
    return "header ok"


def measured(case: Case) -> tuple[str, int]:
    """Decode; gives what came of it and the most memory that it took, bytes. Needs tracemalloc running."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    outcome = feed(case)
    return outcome, tracemalloc.get_traced_memory()[1] - before


def main() -> int:
    """Run until the time is over; gives the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="default: from the clock; printed")
    options = parser.parse_args()
    seed = time.time_ns() if options.seed is None else options.seed
    print(f"seed {seed}")
    rng, end, counts = random.Random(seed), time.monotonic() + options.seconds, Counter[str]()
    tracemalloc.start()
    while time.monotonic() < end:
        for case in cases(rng, 1):
            try:
                outcome, peak = measured(case)
                counts[outcome] += 1
                counts[feed_header(rng, case)] += 1
            except Exception as error:
                print(f"{type(error).__name__}: {error}\n{case}")
                return 1
            if peak > memory_bound(case.kind, len(case.data)):
                print(f"{peak} bytes of memory\n{case}")
                return 1
    print(" ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
