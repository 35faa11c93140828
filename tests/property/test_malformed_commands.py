"""Whatever a command holds, apply answers it: no exception, and a state that can be saved and loaded."""

from __future__ import annotations

import pytest

from coordination.commands import KINDS, Command, Entry
from coordination.log import LogEntry
from coordination.snapshot import decode, encode
from coordination.state import Refused, State, UnknownCommand
from tests.property.malformed import Spoiler
from tests.unit.coordination.kit import A, Script
from tests.unit.coordination.reflect import plain

SEEDS = range(1, 13)
BEFORE, ENTRIES = 60, 50  # entries that mean something, then those with spoilt commands
CONFIGURED = 400  # entries that set configs


@pytest.mark.parametrize("seed", SEEDS)
def test_no_command_stops_an_agent_or_its_snapshots(seed: int) -> None:
    """After every entry a snapshot is written and loaded; an agent that goes on from it answers alike."""
    spoiler = Spoiler(seed, level=2)
    spoiler.write(BEFORE)
    other = decode(encode(spoiler.state))
    for _ in range(ENTRIES):
        applied = spoiler.spoilt()
        again = other.apply(spoiler.entries[-1])
        assert again.results == applied.results
        other = decode(encode(spoiler.state))
        assert plain(other) == plain(spoiler.state)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_configs_stop_an_agent(seed: int) -> None:
    """What one command may set, and another one, meet in a third: a topic that comes with its quarantine."""
    spoiler = Spoiler(seed, level=2)
    spoiler.write(0)
    for _ in range(CONFIGURED):
        spoiler.configuring()
    assert plain(decode(encode(spoiler.state))) == plain(spoiler.state)


def test_every_kind_is_spoilt_and_many_take_effect() -> None:
    taken: dict[str, int] = {}
    refused: dict[str, int] = {}
    for seed in (101, 102, 103):
        spoiler = Spoiler(seed, level=2)
        spoiler.write(BEFORE)
        for _ in range(400):
            applied = spoiler.spoilt()
            said = Entry.FromString(spoiler.entries[-1].payload).commands
            for command, result in zip(said, applied.results, strict=True):
                into = refused if isinstance(result, Refused) else taken
                kind = command.WhichOneof("kind") or "nothing"
                into[kind] = into.get(kind, 0) + 1
    rare = {"leave_metadata", "fence_incarnation"}  # they end what could be spoilt
    assert set(taken) | set(refused) | rare == {*KINDS, "nothing"}
    assert len(taken) > 35, sorted(set(KINDS) - set(taken))
    assert len(refused) > 35, sorted(set(KINDS) - set(refused))


def test_an_empty_command_is_refused_and_one_of_a_newer_version_stops_the_agent() -> None:
    """The one is malformed, the other means something to somebody."""
    script = Script()
    script.register(A)
    script.entry(A, [])
    empty, unknown = Command(), Command.FromString(b"\xfa\x7f\x00")  # field 2047, of no length
    for wrapped, stops in ((empty, False), (unknown, True)):
        state = State()
        for entry in script.entries[:-1]:
            state.apply(entry)
        last = script.entries[-1]
        payload = Entry.FromString(last.payload)
        payload.commands.append(wrapped)
        entry = LogEntry(last.revision, last.incarnation, last.sequence, payload.SerializeToString())
        if stops:
            with pytest.raises(UnknownCommand, match="run a version at least as new"):
                state.apply(entry)
        else:
            assert isinstance(state.apply(entry).results[0], Refused)
