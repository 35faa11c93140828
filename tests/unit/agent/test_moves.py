"""How often partitions move when agents come and go, entry by entry of the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from google.protobuf.message import Message

from agent.cluster.hints import LeaderHints
from coordination.commands import EnterMetadata, FenceIncarnation, LeaveMetadata, RegisterAgent
from tests.unit.coordination.kit import Script

HANDLES = range(600)
ZONES = ("a", "b")


class Watched:
    """A cluster whose leaders are looked at after every entry."""

    def __init__(self) -> None:
        self.script = Script()
        self.hints = LeaderHints(lambda: self.script.state.brokers)
        self.leaders = self._now()

    def moves(self, author: int, *messages: Message) -> Counter[tuple[str, int]]:
        """Apply one entry for each message; how often each partition of each zone changed its leader."""
        moved: Counter[tuple[str, int]] = Counter()
        for message in messages:
            self.script.one(author, message)
            now = self._now()
            moved.update(key for key, leader in now.items() if leader != self.leaders[key])
            self.leaders = now
        return moved

    def join(self, author: int, name: str, zone: str) -> Counter[tuple[str, int]]:
        """What an agent writes from its start until clients are sent to it."""
        agent = RegisterAgent(name=name, node_id=-1, feature_max=1, zone=zone, joining=True)
        return self.moves(author, agent, EnterMetadata())

    def led_by(self, name: str) -> set[tuple[str, int]]:
        """The partitions, by zone, that the agent of that name leads now."""
        nodes = {each.node_id for each in self.script.state.brokers.values() if each.name == name}
        return {key for key, leader in self.leaders.items() if leader in nodes}

    def _now(self) -> dict[tuple[str, int], int]:
        return {(zone, handle): self.hints.leader(handle, zone) for zone in ZONES for handle in HANDLES}


def cluster(names: Sequence[str] = ("a-0", "a-1", "b-0", "b-1")) -> Watched:
    watched = Watched()
    for author, name in enumerate(names, 1):
        watched.join(author, name, name[0])
    return watched


def zones(moved: Iterable[tuple[str, int]]) -> set[str]:
    return {zone for zone, _ in moved}


def test_an_agent_that_joins_takes_its_share_once_and_nothing_else_moves() -> None:
    watched = cluster()
    moved = watched.join(9, "a-2", "a")
    assert set(moved.values()) == {1}
    assert set(moved) == watched.led_by("a-2")
    assert zones(moved) == {"a"}
    assert len(HANDLES) / 4 < len(moved) < len(HANDLES) / 2, "about a third of its zone"


def test_an_agent_that_leaves_in_good_order_gives_its_share_up_once() -> None:
    watched = cluster()
    share = watched.led_by("b-1")
    moved = watched.moves(4, LeaveMetadata(), FenceIncarnation(incarnation=4))
    assert moved == Counter(share), "at LeaveMetadata, and not again when its incarnation ends"
    assert zones(moved) == {"b"}


def test_a_restart_moves_its_own_partitions_out_and_back() -> None:
    """The agent comes back under its name as a new incarnation with its node id."""
    watched = cluster()
    before, share = dict(watched.leaders), watched.led_by("a-1")
    moved = watched.moves(2, LeaveMetadata(), FenceIncarnation(incarnation=2))
    moved += watched.join(12, "a-1", "a")
    assert moved == Counter(dict.fromkeys(share, 2))
    assert watched.leaders == before


def test_a_rolling_restart_moves_each_partition_of_a_zone_twice_for_each_agent_that_led_it() -> None:
    watched = cluster()
    total: Counter[tuple[str, int]] = Counter()
    before = dict(watched.leaders)
    for author, name in enumerate(("a-0", "a-1", "b-0", "b-1"), 1):
        total += watched.moves(author, LeaveMetadata(), FenceIncarnation(incarnation=author))
        total += watched.join(20 + author, name, name[0])
    assert watched.leaders == before
    assert set(total.values()) == {2}, "every partition left its leader once and came back once"
    assert len(total) == len(ZONES) * len(HANDLES)


def test_an_agent_that_crashed_gives_its_share_up_when_it_is_fenced() -> None:
    watched = cluster()
    share = watched.led_by("a-0")
    assert watched.moves(2, FenceIncarnation(incarnation=1)) == Counter(share)
