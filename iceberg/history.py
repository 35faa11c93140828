"""What a table remembers of its past, and where: pure, on metadata as plain dicts.

Streams stand at snapshots and go on along the parents of the current one, so every snapshot of the promised
time must be there, and so must the chain (docs/decisions/0012). All of them in each metadata file would be
megabytes per commit. So a metadata file names the newest and the *base*; those between stand in *segments*:
files that are written once, merged FAN to one, and named by the property `floe.history`. The catalog puts
them back where engines look for them (`composed`). A segment whose time is over is folded into the base,
which is the table's first snapshot and keeps its id: its list of files only grows at its end, so a stream
that stands in it goes on exactly, and a new one, which begins there, reads every row. Of a snapshot that a
tag or branch names the metadata file keeps a copy when it moves, which stays when its segment is folded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from coordination.topic_configs import effective_int
from iceberg import json_steps, ledger
from iceberg.json_steps import Raw
from iceberg.metadata import Metadata, whole_number
from objectstore.turns import Turns

PROPERTY = "floe.history"
AGE_CONFIG = "floe.table.history.ms"
AGE_PROPERTY = "history.expire.max-snapshot-age-ms"
LEAST_PROPERTY = "history.expire.min-snapshots-to-keep"
MADE = "floe.base-made-ms"
"""Of the base's summary: since when it is the base, Unix ms."""
REPLACED = "floe.replaces"
"""Of the base's summary: snapshots of operation `replace` folded since; it has the files of before them."""
FORMER = "floe.former-base"
"""Of the base's summary: the manifest list of the base before, whose files stay for the grace period."""
REF_AGE_PROPERTY = "history.expire.max-ref-age-ms"

FAN = 8
"""Segments of one level that become one of the next."""
LEVEL_MAX = 2
FOLD_MIN = 128
"""Snapshots whose time is over before they are folded: a fold reads all manifests that they left."""
FOLD_MAX = 8_192
"""Snapshots folded by one commit, where that is more than one segment."""


class Segment(NamedTuple):
    """A file of `size` snapshots, `name` below the table's location. `newest_ms`: the last one's stamp."""

    name: str
    level: int
    size: int
    newest_ms: int


@dataclass(frozen=True, slots=True)
class History:
    """The base's snapshot id, 0 before anything was moved, and the segments behind it, oldest first."""

    base: int = 0
    segments: tuple[Segment, ...] = ()
    through: int = 0
    """Sequence number of the last snapshot that was moved: what the metadata names of before are copies."""

    @property
    def count(self) -> int:
        """Snapshots in segments."""
        return sum(each.size for each in self.segments)


@dataclass(frozen=True, slots=True)
class Policy:
    """For how long snapshots stay: `age_ms`, but the newest `least` anyhow, and `most` (a bound) at most."""

    age_ms: int
    least: int
    most: int
    grace_ms: int = 0
    """For how long the files stay that left the table: what removed them is not folded before."""


class Texts(NamedTuple):
    """A segment's content: its snapshots and their entries of the snapshot log as JSON, joined by commas."""

    snapshots: str
    log: str


def of(metadata: Mapping[str, Any]) -> History:
    """The table's history. Raises ValueError when its property is damaged."""
    text = metadata["properties"].get(PROPERTY)
    if text is None:
        return History()
    try:
        found = json.loads(text)
        segments = tuple(Segment(str(name), int(a), int(b), int(c)) for name, a, b, c in found["segments"])
        return History(int(found["base"]), segments, int(found.get("through", 0)))
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"property {PROPERTY} is {text[:200]!r}: not a history ({error})") from error


def with_history(metadata: Metadata, history: History) -> Metadata:
    """The metadata with this history in its properties."""
    segments = [list(each) for each in history.segments]
    value = {"base": str(history.base), "segments": segments, "through": history.through}
    text = json.dumps(value, separators=(",", ":"))
    return {**metadata, "properties": {**metadata["properties"], PROPERTY: text}}


def policy_of(
    properties: Mapping[str, str], topic: Mapping[str, str], cluster: Mapping[str, str], most: int
) -> Policy:
    """The policy of a table: what was set on the table, else the topic's or the cluster's.

    What is no number there counts as not set: anybody may set properties.
    """
    age_ms = whole_number(properties.get(AGE_PROPERTY))
    least = whole_number(properties.get(LEAST_PROPERTY))
    return Policy(
        effective_int(AGE_CONFIG, topic, cluster) if age_ms is None else age_ms,
        1 if least is None else least,
        most,
    )


def without_old_refs(metadata: Metadata, now_ms: int) -> Metadata:
    """The metadata without tags and branches that are older than their `max-ref-age-ms`, or the table's,
    and without copies that no ref names any more.

    A ref is as old as its snapshot (Iceberg's RemoveSnapshots); `main` has no age.
    """
    general = whole_number(metadata["properties"].get(REF_AGE_PROPERTY))
    stamps = {each["snapshot-id"]: each["timestamp-ms"] for each in metadata["snapshots"]}
    refs = {}
    for name, ref in metadata["refs"].items():
        own = ref.get("max-ref-age-ms", general)
        stamp = stamps.get(ref["snapshot-id"])
        if name == "main" or own is None or stamp is None or now_ms - stamp <= own:
            refs[name] = ref
    base, floor = of(metadata).base, _floor(metadata)
    stay = {base, *(ref["snapshot-id"] for ref in refs.values())}
    snapshots = [
        each
        for each in metadata["snapshots"]
        if each["snapshot-id"] in stay or each["sequence-number"] > floor
    ]
    return {**metadata, "refs": refs, "snapshots": snapshots}


def without_old_schemas(metadata: Metadata) -> Metadata:
    """The metadata without schemas that no kept snapshot has: else each change of a message would be in every
    metadata file for ever. Schemas' numbers ascend, so what is behind the base has its schema or a later one.
    """
    number = of(metadata).base
    floor = next(
        (each.get("schema-id", 0) for each in metadata["snapshots"] if each["snapshot-id"] == number), 0
    )
    named = {metadata["current-schema-id"], *(each.get("schema-id") for each in metadata["snapshots"])}
    schemas = metadata["schemas"]
    kept = [each for each in schemas if each["schema-id"] >= floor or each["schema-id"] in named]
    return metadata if len(kept) == len(schemas) else {**metadata, "schemas": kept}


def with_copy(metadata: Metadata, snapshot: Mapping[str, Any]) -> Metadata:
    """The metadata with a copy of a snapshot that stands in a segment, for a ref to name it."""
    history = of(metadata)
    through = max(history.through, oldest_inline(metadata)["sequence-number"] - 1)
    snapshots = [*metadata["snapshots"], dict(snapshot)]
    return with_history({**metadata, "snapshots": snapshots}, replace(history, through=through))


def checked(metadata: Metadata) -> Metadata:
    """The metadata, without a history that does not belong to it: the base is not there."""
    base = of(metadata).base
    if not base or any(each["snapshot-id"] == base for each in metadata["snapshots"]):
        return metadata
    return with_history(metadata, History())


def begun(metadata: Metadata) -> Metadata:
    """The metadata with its first snapshot as the base, when that one is there and followed by another.

    One that a tag names is none: a base takes in more and more.
    """
    first = _chain(metadata)[0]
    number = first["snapshot-id"]
    stays = number == metadata["current-snapshot-id"] or number in _tagged(metadata)
    if stays or of(metadata).base or first.get("parent-snapshot-id") is not None:
        return metadata
    summary = ledger.told_elsewhere(first["summary"], ranges_max=0)
    plain = {**first, "summary": {**summary, MADE: str(first["timestamp-ms"])}}
    return with_history(_replaced(metadata, number, plain), History(number))


def beheaded(metadata: Metadata) -> bool:
    """Whether the table has no base, and its first snapshots are gone: once they were kept by number."""
    return not of(metadata).base and oldest_inline(metadata).get("parent-snapshot-id") is not None


def oldest_inline(metadata: Metadata) -> dict[str, Any]:
    """The first snapshot behind the base that the metadata itself names, of the current one's ancestors.

    Where there is no base those that tags name do not count: they may be what is left of earlier ones.
    """
    base = of(metadata).base
    others = {base} if base else _tagged(metadata)
    chain = [each for each in _chain(metadata) if each["snapshot-id"] not in others]
    return chain[0] if chain else _chain(metadata)[-1]


def cut(metadata: Metadata, most: int) -> Metadata:
    """The metadata with its newest `most` snapshots, and those that a ref names."""
    named = {ref["snapshot-id"] for ref in metadata["refs"].values()}
    gone = {each["snapshot-id"] for each in _chain(metadata)[:-most]} - named
    return _without(metadata, gone, gone) if gone else metadata


def movable(metadata: Metadata, inline_max: int) -> list[dict[str, Any]]:
    """The oldest snapshots behind the base, when the metadata names more than it may; else none.

    Half of what it may name stays, so that it is not for every commit.
    """
    base, current = of(metadata).base, metadata["current-snapshot-id"]
    found = [each for each in _chain(metadata) if each["snapshot-id"] not in (base, current)]
    return found[: len(found) - inline_max // 2] if len(found) >= inline_max else []


def regrown(base: Mapping[str, Any], gone: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What the summary of a base says further on that takes in what snapshots `gone` added."""
    told: Mapping[str, str] = base["summary"]
    replaced = int(told.get(REPLACED, 0)) + sum(each["summary"]["operation"] == "replace" for each in gone)
    kept = {name: told[name] for name in (MADE, FORMER) if name in told}
    return {**kept, **({REPLACED: str(replaced)} if replaced else {})}


def outlived(base: Mapping[str, Any], gone: Sequence[Mapping[str, Any]], policy: Policy, now_ms: int) -> bool:
    """Whether a new base is made now, of what the table had behind snapshots `gone`, which are folded.

    Where rows left the table there is no other way. Where compaction wrote them into other files the base
    goes on with those that the snapshots added, so that streams inside it do too, until it is as old as
    history is long: then it is replaced, and the older files can go.
    """
    if any(each["summary"]["operation"] not in ("append", "replace") for each in gone):
        return True
    since_ms = int(base["summary"].get(MADE, 0))
    return REPLACED in regrown(base, gone) and now_ms - since_ms >= policy.age_ms


def entries(metadata: Metadata, snapshots: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The entries of the log that go with snapshots that are moved."""
    base, last = of(metadata).base, snapshots[-1]["sequence-number"]
    going = {each["snapshot-id"] for each in metadata["snapshots"] if each["sequence-number"] <= last}
    return [each for each in metadata["snapshot-log"] if each["snapshot-id"] in going - {base}]


def moved(metadata: Metadata, snapshots: Sequence[Mapping[str, Any]], name: str) -> Metadata:
    """The metadata without these snapshots, which stand in the new segment `name`.

    Copies of those that tags name stay.
    """
    gone = {each["snapshot-id"] for each in snapshots} - _tagged(metadata)
    logged = {each["snapshot-id"] for each in entries(metadata, snapshots)}
    history = of(metadata)
    segment = Segment(name, 0, len(snapshots), snapshots[-1]["timestamp-ms"])
    kept = _without(metadata, gone, logged)
    through = snapshots[-1]["sequence-number"]
    return with_history(kept, replace(history, segments=(*history.segments, segment), through=through))


def mergeable(history: History) -> tuple[Segment, ...]:
    """The newest segments that are to become one; none when there are fewer than FAN of their level."""
    last = history.segments[-FAN:]
    alike = len(last) == FAN and len({each.level for each in last}) == 1
    return last if alike and last[0].level < LEVEL_MAX else ()


def merged(metadata: Metadata, segments: Sequence[Segment], name: str) -> Metadata:
    """The metadata with the newest segments in one."""
    history = of(metadata)
    one = Segment(name, segments[0].level + 1, sum(each.size for each in segments), segments[-1].newest_ms)
    return with_history(metadata, replace(history, segments=(*history.segments[: -len(segments)], one)))


def due(metadata: Metadata, policy: Policy, now_ms: int) -> tuple[Segment, ...]:
    """The oldest segments that are to be folded into the base: their time is over, or there are too many."""
    history = of(metadata)
    left, folded, cutoff = history.count + len(metadata["snapshots"]), 0, now_ms - policy.age_ms
    for number, each in enumerate(history.segments):
        over = each.newest_ms < cutoff and left - each.size >= policy.least
        if (folded and folded + each.size > FOLD_MAX) or not (over or left > policy.most):
            return history.segments[:number] if folded >= FOLD_MIN else ()
        left, folded = left - each.size, folded + each.size
    return history.segments if folded >= FOLD_MIN else ()


def folded(metadata: Metadata, base: Mapping[str, Any], segments: Sequence[Segment]) -> Metadata:
    """The metadata with `base` for its base, into which these segments, the oldest, were folded."""
    rest, last = of(metadata).segments[len(segments) :], base["sequence-number"]
    old, through = of(metadata).base, of(metadata).through
    named = [each for each in metadata["snapshots"] if each["snapshot-id"] != old]
    before = {old, *(each["snapshot-id"] for each in named if each["sequence-number"] <= last)}
    kept = {
        **metadata,
        "snapshots": [dict(base), *named],
        "snapshot-log": [
            _entry(base),
            *[each for each in metadata["snapshot-log"] if each["snapshot-id"] not in before],
        ],
    }
    if not rest:
        first = next(each for each in _chain(kept) if each["sequence-number"] > last)
        kept = _replaced(kept, first["snapshot-id"], _child(first, base))
    return with_history(kept, History(base["snapshot-id"], rest, max(through, last)))


def encode(snapshots: Sequence[Mapping[str, Any]], log: Sequence[Mapping[str, Any]]) -> Texts:
    """Snapshots and their entries of the log as a segment has them."""
    made = json_steps.PLAIN.encode
    return Texts(",".join(map(made, snapshots)), ",".join(map(made, log)))


def join(texts: Sequence[Texts]) -> Texts:
    """The content of several segments as one."""
    return Texts(",".join(each.snapshots for each in texts), ",".join(each.log for each in texts))


def to_bytes(texts: Texts) -> bytes:
    """A segment's file."""
    return f"{texts.snapshots}\n{texts.log}\n".encode("ascii")


def from_bytes(content: bytes) -> Texts:
    """Inverse of to_bytes. Raises ValueError."""
    lines = content.decode("ascii").split("\n")
    if len(lines) != 3 or lines[2]:
        raise ValueError(f"{len(lines)} lines: not a segment of a table's history")
    return Texts(lines[0], lines[1])


def decode_steps(texts: Texts) -> Turns[list[dict[str, Any]]]:
    """A segment's snapshots. Raises ValueError."""
    found: list[dict[str, Any]] = yield from json_steps.decode(f"[{texts.snapshots}]".encode(), 1)
    return found


def first_of(texts: Texts) -> dict[str, Any]:
    """A segment's first snapshot. Raises ValueError."""
    found: dict[str, Any] = json.JSONDecoder().raw_decode(texts.snapshots)[0]
    return found


def composed(metadata: Metadata, texts: Sequence[Texts]) -> Metadata:
    """The metadata as engines shall see it: with the snapshots of its segments, whose content is `texts`.

    Raises ValueError when they do not belong together.
    """
    history = of(metadata)
    properties = {name: value for name, value in metadata["properties"].items() if name != PROPERTY}
    served = {**metadata, "properties": properties}
    if not texts:
        return served
    inline, log = metadata["snapshots"], metadata["snapshot-log"]
    base = next((each for each in inline if each["snapshot-id"] == history.base), None)
    if base is None:
        raise ValueError(f"the first snapshot {history.base} is not among those of {metadata['location']}")
    first, end = json.JSONDecoder().raw_decode(texts[0].snapshots)
    opened = json_steps.PLAIN.encode(_child(first, base)) + texts[0].snapshots[end:]
    return {
        **served,
        "snapshots": [
            base,
            Raw(opened),
            *[Raw(each.snapshots) for each in texts[1:]],
            *[each for each in inline if each is not base and not _moved(history, base, each)],
        ],
        "snapshot-log": [
            _entry(base),
            *[Raw(each.log) for each in texts],
            *[each for each in log if each["snapshot-id"] != history.base],
        ],
    }


def behind_gap(metadata: Metadata, texts: Sequence[Texts]) -> Metadata:
    """What engines see while a segment cannot be read. `texts`: of the segments behind it that can be.

    Queries are right, and streams that stand behind the gap go on. One that comes to the gap would miss in
    silence what was added there: so between the base and the first snapshot behind the gap there is the lost
    one before that, as an overwrite, with which streams end. Its files are not known: to look at it fails.
    Spark's Trigger.AvailableNow goes over all that a stream has ever read (Iceberg 1.12,
    SparkMicroBatchStream.prepareForTriggerAvailableNow), so with it those behind the gap wait, too.
    """
    history = of(metadata)
    first = first_of(texts[0]) if texts else oldest_inline(metadata)
    number = first["parent-snapshot-id"]
    lost = {
        "snapshot-id": number,
        "parent-snapshot-id": history.base,
        "sequence-number": max(first["sequence-number"] - 1, 0),
        "timestamp-ms": first["timestamp-ms"],
        "manifest-list": f"{metadata['location']}/metadata/lost-{number}.avro",
        "summary": {"operation": "overwrite"},
    }
    base = [each for each in metadata["snapshots"] if each["snapshot-id"] == history.base]
    named = {history.base, number}
    inline = [
        each
        for each in metadata["snapshots"]
        if each["snapshot-id"] not in named
        and not first["sequence-number"] <= each["sequence-number"] <= history.through
    ]
    return {
        **metadata,
        "properties": {name: value for name, value in metadata["properties"].items() if name != PROPERTY},
        "snapshots": [*base, lost, *[Raw(each.snapshots) for each in texts], *inline],
        "snapshot-log": [
            *[_entry(each) for each in base],
            *[Raw(each.log) for each in texts],
            *[each for each in metadata["snapshot-log"] if each["snapshot-id"] != history.base],
        ],
    }


def of_refs(metadata: Metadata) -> Metadata:
    """The metadata for who asked for snapshots of refs only."""
    named = {ref["snapshot-id"] for ref in (metadata.get("refs") or {}).values()}
    snapshots = [each for each in metadata.get("snapshots") or () if each["snapshot-id"] in named]
    return {**metadata, "snapshots": snapshots}


def _without(metadata: Metadata, gone: Set[int], logged: Set[int]) -> Metadata:
    """The metadata without these snapshots, and those entries of its log."""
    return {
        **metadata,
        "snapshots": [each for each in metadata["snapshots"] if each["snapshot-id"] not in gone],
        "snapshot-log": [each for each in metadata["snapshot-log"] if each["snapshot-id"] not in logged],
    }


def _chain(metadata: Metadata) -> list[dict[str, Any]]:
    """The snapshots that the metadata itself names, oldest first, without copies."""
    base, floor = of(metadata).base, _floor(metadata)
    found: list[dict[str, Any]] = [
        each
        for each in metadata["snapshots"]
        if each["snapshot-id"] == base or each["sequence-number"] > floor
    ]
    return sorted(found, key=lambda each: each["sequence-number"])


def _floor(metadata: Metadata) -> int:
    """Up to which sequence number snapshots stand in segments or were folded."""
    history = of(metadata)
    return history.through if history.base else 0


def _moved(history: History, base: Mapping[str, Any], snapshot: Mapping[str, Any]) -> bool:
    """Whether a snapshot that metadata names is a copy of one that stands in a segment."""
    own: int = snapshot["sequence-number"]
    folded: int = base["sequence-number"]
    return folded < own <= history.through


def _tagged(metadata: Metadata) -> set[int]:
    """What tags and branches name."""
    return {ref["snapshot-id"] for name, ref in metadata["refs"].items() if name != "main"}


def _child(snapshot: Mapping[str, Any], parent: Mapping[str, Any]) -> dict[str, Any]:
    return {**snapshot, "parent-snapshot-id": parent["snapshot-id"]}


def _entry(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    """A snapshot's entry of the snapshot log."""
    return {name: snapshot[name] for name in ("timestamp-ms", "snapshot-id")}


def _replaced(metadata: Metadata, number: int, snapshot: Mapping[str, Any]) -> Metadata:
    found = [dict(snapshot) if each["snapshot-id"] == number else each for each in metadata["snapshots"]]
    return {**metadata, "snapshots": found}
