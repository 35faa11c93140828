"""What must hold of transactions in every world, whatever happened: rule 8 and CORRECTNESS §3."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from agent.kafka.fetch.planner import Wanted, plan_fetch
from objectstore.naming import MarkerId
from tests.explore.history import History
from tests.explore.transaction_language import Record, log_of, named_by, offset_of, positions

Log = tuple[Any, ...]


class Checker:
    """Judges worlds; what it has judged of a log, or of a log and what clients know, it remembers."""

    def __init__(self, history: History, speaks: Sequence[Any], *, tolerant: bool) -> None:
        self._history = history
        self._speaks = speaks
        self._clients = len(speaks)
        self._tolerant = tolerant
        self._judged: dict[Hashable, list[str]] = {}
        self._fates: dict[int, dict[tuple[int, int], dict[int, str]]] = {}

    def findings(self, world: Any) -> list[str]:
        """What is wrong, each with its anomaly's name first."""
        about = (world.head, tuple(each.told for each in world.clients))
        found = self._judged.get(about)
        if found is None:
            found = list(self._of_log(world.head))
            for number, client in enumerate(world.clients):
                for transaction, told in enumerate(client.told):
                    fates = self.fates_of(world.head).get((number, transaction), {})
                    name = f"transaction {transaction} of client {number}"
                    found += _of_client(name, told, fates)
                    if told.outcome.startswith("was told") and not self._tolerant:
                        found.append(f"error without a cause: {name} {told.outcome}")
            found += self._of_positions(world)
            self._judged[about] = found
        return found

    def _of_log(self, head: int) -> list[str]:
        """The last stable offset, what committed readers see, and that neither goes back."""
        known = self._judged.get(head)
        if known is not None:
            return known
        found: list[str] = []
        node = self._history[head]
        for handle, partition in enumerate(node.state.partitions):
            assert partition is not None, "topics are not deleted here"
            log = log_of(node.state, handle, node.notes or {})
            stable = next((at for at, one in enumerate(_fates(log)) if one == "open"), len(log))
            if partition.last_stable != stable:
                found.append(f"LSO: partition {handle} says {partition.last_stable}, it is {stable}: {log}")
            seen = self._read(head, handle, log)
            committed = [
                each for each, fate in zip(log[:stable], _fates(log), strict=False) if fate == "committed"
            ]
            if seen != committed:
                wrong = [each for each in seen if each not in committed]
                name = "aborted-read" if wrong else "lost-write"
                found.append(f"{name}: a committed reader of {handle} sees {seen}, committed are {committed}")
            if node.depth > 1:
                found += self._of_parent(node.parent, handle, partition.last_stable, seen)
        self._judged[head] = found
        return found

    def _of_parent(self, parent: int, handle: int, stable: int, seen: list[Record]) -> list[str]:
        node = self._history[parent]
        if handle >= len(node.state.partitions):
            return []
        before = node.state.partitions[handle]
        assert before is not None, "topics are not deleted here"
        earlier = self._read(parent, handle, log_of(node.state, handle, node.notes or {}))
        found = []
        if before.last_stable > stable:
            found.append(f"LSO: partition {handle} goes back from {before.last_stable} to {stable}")
        if seen[: len(earlier)] != earlier:
            found.append(f"nonmonotonic-poll: committed readers of {handle} saw {earlier}, now {seen}")
        return found

    def _read(self, head: int, handle: int, log: Log) -> list[Record]:
        """What a consumer with read_committed gets from the start: the planner and clients' rule."""
        partition = self._history[head].state.partitions[handle]
        assert partition is not None, "topics are not deleted here"
        planned = plan_fetch([Wanted(partition, 0, 1 << 30)], 1 << 30, True).partitions[0]
        ids = {marker.producer_id for marker in log if isinstance(marker, MarkerId)}
        begun = sorted((first, producer_id, last) for producer_id, first, last in planned.aborted)
        seen = []
        for offset, one in enumerate(log[: planned.end_offset]):
            if isinstance(one, MarkerId):
                continue
            producer = one[0]  # producer ids are given to clients in their order
            if not any(first <= offset < last and number == producer for first, number, last in begun):
                seen.append(one)
        assert ids <= set(range(self._clients)), "producer ids are the clients' numbers here"
        return seen

    def fates_of(self, head: int) -> dict[tuple[int, int], dict[int, str]]:
        """Per (client, transaction) the fate of its record in each partition."""
        known = self._fates.get(head)
        if known is None:
            known = self._fates[head] = {}
            node = self._history[head]
            for handle in range(len(node.state.partitions)):
                log = log_of(node.state, handle, node.notes or {})
                for one, fate in zip(log, _fates(log), strict=True):
                    if not isinstance(one, MarkerId):
                        fates = known.setdefault(one[:2], {})
                        fates[handle] = fate if handle not in fates else f"twice, {fates[handle]} and {fate}"
        return known

    def _of_positions(self, world: Any) -> list[str]:
        """Positions are of committed transactions; a lone client's are what its last such ones set."""
        fates = self.fates_of(world.head)
        committed = {who for who, fate in fates.items() if set(fate.values()) == {"committed"}}
        found = []
        for handle, position in enumerate(positions(self._history[world.head].state)):
            client, transaction = divmod(max(position - 1, 0) // 10, 10)
            if position >= 0 and (client, transaction) not in committed:
                found.append(
                    f"aborted-read: position {handle} is transaction {transaction}'s of client {client}"
                )
            elif self._clients == 1 and position != (due := self._due(handle, committed)):
                found.append(f"stale-position: position {handle} is {position}, not {due}")
        return found

    def _due(self, handle: int, committed: set[tuple[int, int]]) -> int:
        """What the only client's committed transactions have set; -1: nothing."""
        due = -1
        for transaction, steps in enumerate(self._speaks[0].transactions):
            if (0, transaction) in committed:
                for kind, argument in steps:
                    if kind == "offsets" and handle in named_by(argument):
                        due = offset_of(0, transaction, argument)
        return due


def _fates(log: Log) -> list[str]:
    """Per offset: committed, aborted, open, or marker: decided by the producer's next marker."""
    fates = []
    for offset, one in enumerate(log):
        if isinstance(one, MarkerId):
            fates.append("marker")
            continue
        ends = (m for m in log[offset:] if isinstance(m, MarkerId) and m.producer_id == one[0])
        end = next(ends, None)
        fates.append("open" if end is None else "committed" if end.committed else "aborted")
    return fates


def _of_client(name: str, told: Any, fates: dict[int, str]) -> list[str]:
    """One outcome for all of it, which its client has asked for, and which is what it was told."""
    found = []
    outcomes = set(fates.values())
    if any(fate.startswith("twice") for fate in outcomes):
        return [f"duplicate: {name}: {fates}"]
    if len(outcomes) > 1:
        found.append(f"torn-transaction: {name}: {fates}")
    if "committed" in outcomes:
        if 1 not in told.asked:
            found.append(f"ended by another's EndTxn: {name} is committed, nobody asked for that")
        elif missing := [each for each in told.acked if each not in fates]:
            found.append(f"torn-transaction: {name} is committed without {missing}")
    if told.outcome == "committed" and (outcomes != {"committed"} or set(told.acked) - set(fates)):
        found.append(f"lost-write: {name} was told committed: {fates}")
    if told.outcome in ("aborted", "failed") and "committed" in outcomes:
        found.append(f"aborted-read: {name} was told {told.outcome} and is committed")
    return found
