"""Whether other agents have the same state, by what they say in their entries (decision 0043). No I/O.

Each entry carries its author's rolling hash at the revision that the author had applied. Who applies the
entry knows its own hash there: equal, and all that led to it was equal; another one, and one of the two is
wrong. Which of them it is the copies of the log tell, that is etcd's members, each asked for the entries in
question; the agents themselves only where all copies that answer are the same.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from coordination.log import Copy, LogEntry
from coordination.state import Applied, State
from coordination.state.digest import print_of

ENTRIES_REMEMBERED = 8192  # whose prints are kept, to be compared with those of the log's copies
AUTHORS_MAX = 4096  # of whom it is known what they said; the state has no more live agents than that


class Verdict(Enum):
    """Of this agent's own state."""

    SOUND = "sound"
    WRONG = "wrong"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Difference:
    """Another agent's hash at a revision is not this one's. `since`: there they were equal last, 0: never."""

    author: int
    revision: int
    theirs: bytes
    mine: bytes
    since: int

    def __str__(self) -> str:
        return (
            f"at revision {self.revision} this agent's rolling hash is {self.mine.hex()}, and "
            f"{self.theirs.hex()} that of incarnation {self.author:016x}"
        )


class Comparison:
    """What others have said, beside one state, from the revision `begun` on.

    `own`: whether an incarnation is this process's.
    """

    def __init__(self, own: Callable[[int], bool], begun: int = 0) -> None:
        self.own = own
        self._begun = begun
        self.confirmed = 0
        """Another agent has the same state at this revision."""
        self.asked = 0
        """The revision of the newest entry whose author wants to hear what others have."""
        self._equal: dict[int, int] = {}  # by author: the newest revision at which it was equal
        self._differs: dict[int, Difference] = {}  # by author: as it said last
        self._distrusted: set[int] = set()  # authors of whom it is known that they are wrong
        self._mute: set[int] = set()  # authors of a version that does not tell
        self._prints: deque[tuple[int, bytes]] = deque(maxlen=ENTRIES_REMEMBERED)

    def note(self, entry: LogEntry) -> None:
        """This entry was applied."""
        self._prints.append((entry.revision, print_of(entry)))

    def heard(self, applied: Applied, state: State) -> Difference | None:
        """Compare what this entry's author said with the state after it; what is new about a difference."""
        said, author = applied.said, applied.incarnation
        if said is None or self.own(author):
            return None
        if said.asks:
            self.asked = applied.revision
        if not said.digest:
            self._mute.add(author)
            return None
        mine = state.digest_at(said.revision)
        if mine is None:  # too long ago
            return None
        self._make_room(author, state)
        self._mute.discard(author)
        if mine == said.digest:
            self._equal[author] = said.revision
            self._differs.pop(author, None)
            self._distrusted.discard(author)
            self.confirmed = max(self.confirmed, said.revision)
            return None
        since = self._equal.get(author, 0)
        self._differs[author] = found = Difference(author, said.revision, said.digest, mine, since)
        return None if author in self._distrusted else found

    def differing(self, state: State) -> list[Difference]:
        """Live agents whose last word was another hash, and of whom it is not known that they are wrong."""
        found = (each for author, each in self._differs.items() if state.is_live(author))
        return [each for each in found if each.author not in self._distrusted]

    def distrust(self, differences: Sequence[Difference]) -> None:
        """These agents are wrong: what they say is no news until they have the same state again."""
        self._distrusted.update(each.author for each in differences)

    def others(self, state: State) -> list[int]:
        """Live agents that can tell what they have."""
        live = (number for number in state.live if not self.own(number))
        return [number for number in live if number not in self._mute]

    def contradicts(self, after: int, entries: Sequence[LogEntry]) -> int | None:
        """The first revision above `after` where something else was applied than these, all up to their last.

        Also where they have nothing, or only they have something. None: nothing is known against them; what
        lies at or below `begins` is not looked at.
        """
        through, floor = entries[-1].revision, max(after, self.begins)
        known = self.prints(floor, through)
        said = {each.revision: print_of(each) for each in entries if each.revision > floor}
        differ = (each for each in known.keys() | said.keys() if known.get(each) != said.get(each))
        return min(differ, default=None)

    def prints(self, after: int, through: int) -> dict[int, bytes]:
        """Of the entries that were applied, by revision; `through` included."""
        return {revision: known for revision, known in self._prints if after < revision <= through}

    @property
    def begins(self) -> int:
        """Prints of all entries above this revision are kept."""
        return self._prints[0][0] if len(self._prints) == ENTRIES_REMEMBERED else self._begun

    def vote(self, state: State) -> Verdict:
        """What most live agents say, this one among them."""
        equal = sum(1 for each in self._equal if each not in self._differs and state.is_live(each)) + 1
        other = len([each for each in self._differs if state.is_live(each)])
        if 2 * equal > equal + other:
            return Verdict.SOUND
        return Verdict.WRONG if 2 * other > equal + other else Verdict.UNKNOWN

    def _make_room(self, author: int, state: State) -> None:
        if author in self._equal or author in self._differs or len(self._equal) < AUTHORS_MAX:
            return
        for known in (self._equal, self._differs):
            for gone in [each for each in known if not state.is_live(each)]:
                del known[gone]
        self._distrusted &= self._differs.keys()
        self._mute = {each for each in self._mute if state.is_live(each)}


@dataclass(frozen=True, slots=True)
class Findings:
    """What the log's copies say. `verdict` None: those that answer are all as this agent has it.

    `wrong`: the copies that most of them contradict. `differ`: whether any two of them do.
    """

    verdict: Verdict | None
    wrong: tuple[str, ...] = ()
    differ: bool = False


def by_copies(mine: Mapping[int, bytes], after: int, copies: Mapping[str, Copy | None]) -> Findings:
    """Compare this agent's entries above `after` with those of each copy; None is one that did not answer."""
    found = {name: copy for name, copy in copies.items() if copy is not None}
    if not found:
        return Findings(None)
    floor = max(after, *(copy.trimmed for copy in found.values()))
    held = {name: _above(copy.prints, floor) for name, copy in found.items()}
    ours = _above(mine, floor)
    sizes = Counter(held.values())
    most, size = sizes.most_common(1)[0]
    differ = len(sizes) > 1
    if not differ and ours == most:
        return Findings(None)
    if 2 * size <= len(copies):
        return Findings(Verdict.UNKNOWN, differ=differ)
    wrong = tuple(name for name, each in held.items() if each != most)
    return Findings(Verdict.SOUND if ours == most else Verdict.WRONG, wrong, differ)


def _above(prints: Mapping[int, bytes], floor: int) -> tuple[tuple[int, bytes], ...]:
    return tuple(sorted(each for each in prints.items() if each[0] > floor))
