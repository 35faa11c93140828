"""What a client does all the time: Jepsen's transactions of sends and polls, some aborted, as a history.

Discipline, as there: a transactional id and a group of its own, positions committed with what was read, the
reader goes back to where the transaction began when it was aborted (KAFKA-17582). A transaction whose commit
was never asked for is `fail`: nothing of it may ever be read. Whoever meets an error ends, and a new client
follows.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer, TopicPartition

from tests.checker.findings import Finding
from tests.checker.operations import History, Micro, Operation, Outcome, Poll, Send
from tests.torture.late_clients import CLIENTS, ERRORS, Transacting

PARTITIONS = 10
MICRO_MAX = 5
POLLS_OF = 0.35
ABORTED_OF = 0.06  # before each micro-operation, and before the end
PAUSE_S = 0.02
REASSIGNED_OF = 1 / 64
RETRY_S = 0.2
JOIN_S_MAX = 180.0
LOOKED_OF = 0.3  # of transactions that have committed positions
COMMITTED_S = 60.0


class Recorder:
    """Collects operations of many threads in the order of their completions."""

    def __init__(self, topic: str) -> None:
        self.history = History()
        self._topic = topic
        self._processes = 0
        self._lock = threading.Lock()

    def process(self) -> int:
        """A new process number."""
        with self._lock:
            self._processes += 1
            return self._processes

    def key(self, partition: int) -> str:
        """A key as the history spells it."""
        return f"{self._topic}-{partition}"

    def poll(self, records: Mapping[int, list[tuple[int, str]]]) -> Poll:
        """What one poll returned, as the history spells it."""
        return Poll({self.key(partition): tuple(rows) for partition, rows in sorted(records.items())})

    def note(
        self,
        process: int,
        f: str,
        outcome: Outcome,
        invoked_ns: int,
        micro: tuple[Micro, ...] = (),
        partitions: tuple[int, ...] = (),
        error: str = "",
        moved: Iterable[int] = (),
    ) -> None:
        """One completion. `moved`: partitions that came or went meanwhile."""
        keys = tuple(self.key(each) for each in partitions)
        rebalanced = frozenset(self.key(each) for each in moved)
        with self._lock:
            made = Operation(
                len(self.history.operations), process, f, outcome, micro, keys, rebalanced,
                invoked_ns, time.monotonic_ns(), error,
            )  # fmt: skip
            self.history.operations.append(made)


@dataclass(slots=True)
class Done:
    """What is done so far in a transaction: by partition the first and the following offset read."""

    micro: list[Micro] = field(default_factory=list)
    first: dict[int, int] = field(default_factory=dict)
    following: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Places:
    """Whom a client talks to, and as whom. `direct`: no proxy between; `name`: its transactional id."""

    bootstrap: str
    direct: str
    name: str
    group: str
    topic: str

    def committed(self, partitions: Sequence[int]) -> dict[int, int]:
        """Where the group stands, as a fresh client hears it; -1 for nothing."""
        reader = Consumer({"bootstrap.servers": self.direct, "group.id": self.group, "log_level": 0})
        try:
            told = reader.committed([TopicPartition(self.topic, each) for each in partitions], COMMITTED_S)
        finally:
            reader.close()
        return {each.partition: max(-1, each.offset) for each in told}


class Worker(threading.Thread):
    """One client after the other under one transactional id, until told to stop."""

    polls_of, aborted_of = POLLS_OF, ABORTED_OF

    def __init__(self, kind: str, places: Places, recorder: Recorder, seed: int) -> None:
        super().__init__(name=places.name, daemon=True)
        self.kind = kind
        self.group = places.group
        self.stale: list[Finding] = []
        """Positions that were not what a transaction had just committed."""
        self._places = places
        self.processes: set[int] = set()
        self.outcomes: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.positions: dict[int, set[int]] = {}
        """By partition: what the group's committed position may be."""
        make = self.client_of(kind)
        self._make: Callable[[], Transacting] = lambda: make(
            places.bootstrap, places.name, places.group, places.topic
        )
        self._recorder = recorder
        self._random = random.Random(seed)
        self._halt = threading.Event()
        self._next = 0
        self._done = False

    @staticmethod
    def client_of(kind: str) -> Callable[[str, str, str, str], Transacting]:
        """What makes a client of this kind."""
        return CLIENTS[kind]

    def run(self) -> None:
        while not self._halt.is_set():
            process = self._recorder.process()
            self.processes.add(process)
            client: Transacting | None = None
            try:
                client = self._make()
                client.start()
                self._work(client, process)
            except ERRORS as error:
                self.errors[f"{type(error).__name__} {error}"[:100]] += 1
                self._halt.wait(RETRY_S)
            finally:
                if client is not None:
                    client.stop()
                self._recorder.note(process, "crash", "info", time.monotonic_ns())
        self._done = True

    def stop(self) -> None:
        """After the transaction that is under way."""
        self._halt.set()

    def joined(self) -> None:
        """Wait for its end."""
        self.join(JOIN_S_MAX)
        assert not self.is_alive(), f"{self.name} is stuck"
        assert self._done, f"{self.name} ended by an error that no client should raise"

    def _work(self, client: Transacting, process: int) -> None:
        self._assign(client, process)
        while not self._halt.is_set():
            self._halt.wait(self._random.expovariate(1 / PAUSE_S))
            if self._random.random() < REASSIGNED_OF:
                self._assign(client, process)
            self._transaction(client, process)

    def _assign(self, client: Transacting, process: int) -> None:
        count = self._random.randint(1, PARTITIONS)
        partitions = sorted(self._random.sample(range(PARTITIONS), count))
        client.assign(partitions)
        self._recorder.note(process, "assign", "ok", time.monotonic_ns(), partitions=tuple(partitions))

    def _transaction(self, client: Transacting, process: int) -> None:
        done, invoked = Done(), time.monotonic_ns()
        outcome: Outcome = "fail"
        error = ""
        try:
            client.begin()
            commit = self._micro(client, done)
            if done.following:
                client.positions(done.following)
            outcome = "info" if commit else "fail"
            client.end(commit=commit)
            outcome, error = ("ok", "") if commit else ("fail", "aborted")
        except ERRORS as raised:
            error = f"{type(raised).__name__} {raised}"[:120]
            raise
        finally:
            self._note(process, done, outcome, invoked, error)
        if not commit:
            client.seek(done.first)
        elif done.following and self._random.random() < LOOKED_OF:
            self._look()

    def _look(self) -> None:
        """All positions of the group, against what its transactions have committed."""
        found = self._places.committed(list(self.positions))
        for partition, may in self.positions.items():
            if found[partition] not in may:
                detail = f"{self.name} at {found[partition]}, not {sorted(may)}"
                self.stale.append(Finding("stale-position", self._recorder.key(partition), detail, ()))

    def _note(self, process: int, done: Done, outcome: Outcome, invoked: int, error: str) -> None:
        self.outcomes[error if error == "aborted" else outcome] += 1
        for partition, offset in done.following.items():
            if outcome == "ok":
                self.positions[partition] = {offset}
            elif outcome == "info":
                self.positions.setdefault(partition, {-1}).add(offset)
        self._recorder.note(process, "txn", outcome, invoked, tuple(done.micro), error=error)

    def _micro(self, client: Transacting, done: Done) -> bool:
        """The micro-operations; whether to commit."""
        for _ in range(self._random.randint(1, MICRO_MAX)):
            if self._random.random() < self.aborted_of:
                return False
            if self._random.random() < self.polls_of:
                records = client.poll()
                done.micro.append(self._recorder.poll(records))
                for partition, rows in records.items():
                    done.first.setdefault(partition, rows[0][0])
                    done.following[partition] = rows[-1][0] + 1
            else:
                self._send(client, done)
        return self._random.random() > self.aborted_of

    def _send(self, client: Transacting, done: Done) -> None:
        """The first partitions more often than the last ones."""
        self._send_to(client, done, int(self._random.expovariate(1.5 / PARTITIONS)) % PARTITIONS)

    def _send_to(self, client: Transacting, done: Done, partition: int) -> None:
        self._next += 1
        value, key = f"{self.name}.{self._next}", self._recorder.key(partition)
        done.micro.append(Send(key, value))
        done.micro[-1] = Send(key, value, client.send(partition, value))
