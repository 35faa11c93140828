"""What scrubbing found, and where it stands: one small object of the bucket, so that another goes on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from coordination.places import Place
from objectstore.naming import SCRUB
from objectstore.store import NotFound, ObjectStore

ROUND_KEY = f"{SCRUB}round.json"
FORMAT = 1
DAMAGES_MAX = 200  # beyond repair, that are named; the others are counted
PLACES_MAX = 20  # of one damage
TEXT_MAX = 300  # characters of a reason
PARTS = ("own", "chunks", "merged", "strays", "snapshots", "log", "tables")


@dataclass(frozen=True, slots=True)
class Damage:
    """An object that is not what it should be, and cannot be mended. `table`: whose file it is, if one's."""

    key: str
    kind: str
    reason: str
    places: tuple[Place, ...] = ()
    table: str = ""
    round: int = 0
    since_ms: int = 0


@dataclass(slots=True)
class Counts:
    """Of one round. `harmless`: damaged where nothing refers to it. `unread`: the store gave an error."""

    objects: int = 0
    bytes: int = 0
    found: int = 0
    repaired: int = 0
    repairable: int = 0
    harmless: int = 0
    unread: int = 0
    strays: int = 0


@dataclass(slots=True)
class Round:
    """Where a round stands: in which of PARTS, after what. Times are Unix ms; 0: not yet."""

    number: int = 0
    began_ms: int = 0
    ended_ms: int = 0
    part: str = PARTS[0]
    after: str = ""
    counts: Counts = field(default_factory=Counts)
    beyond: dict[str, Damage] = field(default_factory=dict)
    more: int = 0

    def next_part(self) -> bool:
        """Go on to the next part; False after the last."""
        at = PARTS.index(self.part) + 1
        self.after = ""
        if at == len(PARTS):
            return False
        self.part = PARTS[at]
        return True

    def begun_anew(self, now_ms: int) -> Round:
        """The round after this one. What cannot be mended is known until it is looked at again."""
        return Round(self.number + 1, now_ms, beyond=dict(self.beyond))

    def finish(self, now_ms: int) -> None:
        """All was looked at: damage of earlier rounds that was not met again is no more."""
        self.ended_ms = now_ms
        self.beyond = {key: each for key, each in self.beyond.items() if each.round == self.number}

    def note(self, damage: Damage) -> bool:
        """Remember what cannot be mended; whether it was not known."""
        known = self.beyond.get(damage.key)
        if known is None and len(self.beyond) >= DAMAGES_MAX:
            self.more += 1
            return False
        self.beyond[damage.key] = damage
        return known is None


def encode(found: Round) -> bytes:
    """As the bucket has it."""
    return json.dumps({"format": FORMAT, **asdict(found)}).encode()


def decode(content: bytes) -> Round:
    """Inverse of encode. Raises ValueError."""
    try:
        told: dict[str, Any] = json.loads(content)
        if told.pop("format") != FORMAT or told["part"] not in PARTS:
            raise ValueError("not a round of this version")
        told["counts"] = Counts(**told["counts"])
        told["beyond"] = {key: _damage(each) for key, each in told["beyond"].items()}
        return Round(**told)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{ROUND_KEY}: {error!r}") from error


def _damage(told: dict[str, Any]) -> Damage:
    return Damage(**{**told, "places": tuple(Place(**each) for each in told["places"])})


async def stored(store: ObjectStore) -> Round | None:
    """The round that the bucket knows; None when there is none, or it cannot be read. Raises StoreError."""
    try:
        return decode(await store.get(ROUND_KEY))
    except (NotFound, ValueError):
        return None
