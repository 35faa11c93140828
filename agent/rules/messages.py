"""What the agent and its workers say to each other."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from schema.rules.problem import Problem
from schema.rules.ruled import OwnRule, Run

Source = tuple[bytes, str]
"""A message type: descriptor set and full name."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Whether the worker is there. `bytes_max`: the memory it may have from now on."""

    bytes_max: int


@dataclass(frozen=True, slots=True)
class Check:
    """Evaluate the rules of records `first` to `end` of the batch that follows.

    `kinds`: by the numbers in the runs, the numbers under which this agent's workers know message types;
    `sources`: what those are, as far as the worker asked. `stop`: the batch is refused when a record is bad:
    no more than `bad_max` of them are looked for. `violations_max`: how many of each are told one by one.
    """

    kinds: Sequence[int]
    runs: Mapping[str, Sequence[Run]]
    first: int
    end: int
    bad_max: int
    stop: bool
    sources: Mapping[int, Source] = field(default_factory=dict)
    violations_max: int = 0
    roles: Collection[str] = ()
    """Keys or values of which messages the rules are evaluated; the runs of others say how to read them."""
    own: Sequence[OwnRule] = ()
    """The topic's own rules."""


@dataclass(frozen=True, slots=True)
class OwnTrial:
    """Try a topic's own rules over keys and values of these types, None: bytes.

    `known`: whether that is what they are; else only what is wrong whatever they are is told.
    """

    rules: Sequence[OwnRule]
    key: Source | None = None
    value: Source | None = None
    known: bool = True


@dataclass(frozen=True, slots=True)
class Trial:
    """Try the rules of messages, by their full names."""

    descriptor_set: bytes
    messages: Sequence[str]


@dataclass(frozen=True)  # without slots, which pickle fills one by one in Python: there are many of these
class Bad:
    """A record that breaks rules. `index` counts from 0 within the batch; `role`: key, value or record."""

    index: int
    role: str
    reason: str
    violations: Sequence[tuple[str, str, str]] = ()
    """The first ones, as far as they were asked for: the field's path, the rule's id, and the text."""


@dataclass(slots=True)
class Findings:
    """What came of a Check. `broken`: how often which rule was, by role and rule id."""

    records: int = 0
    bad: list[Bad] = field(default_factory=list)
    bad_records: int = 0
    broken: dict[tuple[str, str], int] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)
    """Message types that the worker does not know: nothing was evaluated."""
    unusable: str = ""
    """Why the rules cannot be used; empty: they can."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of a Trial or an OwnTrial."""

    problems: Sequence[Problem] = ()
    unusable: str = ""
