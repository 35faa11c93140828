"""The new topic: made bare and marked, so that nothing of it goes while it is written; at last as the source.

The mark is a config (`floe.restoring`). It goes with the change that gives the topic the source's configs,
and only once both were found equal: a topic that has it is not whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final

from agent.cli import requests
from agent.cli.failures import refused
from agent.cli.restoring.cutting import Cut
from agent.cli.restoring.source import Source
from agent.cli.session import Refusal, Session
from coordination.config_types import INT_MAX, LONG_MAX
from coordination.kafka_codes import Code

MARK: Final = "floe.restoring"
NAME: Final = "floe.table.name"
OFFSETS_MAX: Final = 2_000
"""Characters of offsets that a mark has; of a topic with more partitions it has a digest only."""
WHILE: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": str(LONG_MAX),
    "message.timestamp.before.max.ms": str(LONG_MAX),
    "max.message.bytes": str(INT_MAX),
    "floe.table.enabled": "false",
}
"""Configs while it is written: each record is taken as it was, however large, and stays."""


def mark_of(source: Source, at: str, cuts: Sequence[Cut]) -> str:
    """Of which topic, up to where, and all partitions' bounds: whoever goes on must mean the same."""
    bounds = ",".join(map(_bounds, cuts))
    told = ",".join(f"{part.partition}:{cut.end}" for part, cut in zip(source.parts, cuts, strict=True))
    kept = told if len(told) <= OFFSETS_MAX else ""
    return " ".join((*_meant(source, at), blake2b(bounds.encode(), digest_size=8).hexdigest(), kept))


def _bounds(cut: Cut) -> str:
    """Where the log began counts, too: rows of a table do not tell which transaction was open at the cut."""
    between = f"{cut.log_start}-" if cut.log_start > cut.start else ""
    return f"{cut.start}-{between}{cut.end}"


def _meant(source: Source, at: str) -> list[str]:
    return [source.topic_id, at.replace(" ", "T")]


async def begun(kafka: Session, source: Source, name: str, at: str) -> str:
    """The offsets to which a run of before restored the same up to the same point; empty: not known.

    The end of a topic that is written to is another one by now.
    """
    found = (await requests.topics(kafka, [name]))[0]
    if found.error_code:
        return ""
    told = {each.name: each.value or "" for each in await requests.configs(kafka, name)}
    words = told.get(MARK, "").split(" ")
    return words[-1] if words[:-2] == _meant(source, at) else ""


async def made(kafka: Session, source: Source, name: str, mark: str) -> list[int]:
    """Where the new topic's partitions end: made now, or by a run of before. Raises Failure."""
    found = (await requests.topics(kafka, [name]))[0]
    if found.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
        await requests.create(kafka, name, len(source.parts), {**WHILE, MARK: mark})
        return [0] * len(source.parts)
    told = {each.name: each.value for each in await requests.configs(kafka, name)}
    if not told.get(MARK):
        raise refused(f"topic {name!r} exists, and was not begun by this command: choose another name")
    if told[MARK] != mark or len(found.partitions) != len(source.parts):
        raise refused(
            f"topic {name!r} was begun from another topic, up to another point, or records left the source "
            f"since: delete it (floe topic delete {name}) and restore anew, or under another name"
        )
    bounds = await requests.bounds(kafka, found)
    if any(each.start for each in bounds):
        raise refused(f"records of {name!r} were deleted: delete the topic and restore it anew")
    return [each.end for each in bounds]


async def finish(kafka: Session, source: Source, name: str, without: Sequence[str]) -> list[str]:
    """Take the mark away and give the topic the source's configs, all at once; those that it does not get.

    Raises Failure: it stays marked then.
    """
    left = sorted({*without, NAME} & set(source.configs))
    wanted = {key: value for key, value in source.configs.items() if key not in {*left, MARK}}
    try:
        await requests.alter(kafka, name, wanted, [each for each in (*WHILE, MARK) if each not in wanted])
    except Refusal as refusal:
        raise refused(f"{refusal}; the same command with --without CONFIG leaves a config out") from None
    return left
