"""The experiments by name: where each comes from, what it does, what is judged, and the runs that show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.proof.ran import Ran
from tests.proof.runs import RUNS

EVERYTHING: frozenset[str] = frozenset()
MIXES = ("queue-assign", "queue-subscribe", "transactions", "aborts", "list-append")
QUEUES = ("queue-assign", "queue-subscribe")
IN_TRANSACTIONS = ("transactions", "aborts", "list-append")
VANLIGHTLY = tuple(name for name in RUNS if name.startswith("vanlightly-") and "slow" not in name)
LOSSY = tuple(name for name in RUNS if name.startswith("vanlightly-slow"))


@dataclass(frozen=True, slots=True)
class Experiment:
    """One row of the report. `judged`: the anomalies that fail it; EVERYTHING: all there are."""

    group: str
    name: str
    source: str
    does: str
    runs: tuple[str, ...]
    judged: frozenset[str] = EVERYTHING
    others: str = ""
    """What others have shown in it."""

    def wrong(self, runs: Mapping[str, Ran]) -> dict[str, dict[str, int]]:
        """By run, what fails this experiment."""
        found = {name: runs[name].wrong for name in self.runs if name in runs}
        counted = {
            name: {a: n for a, n in wrong.items() if not self.judged or a in self.judged or a in ALWAYS}
            for name, wrong in found.items()
        }
        return {name: wrong for name, wrong in counted.items() if wrong}

    def ran(self, runs: Mapping[str, Ran]) -> bool:
        """Whether any of it has run."""
        return any(name in runs for name in self.runs)


ALWAYS = frozenset({"judges-disagree", "judge-ended", "run-ended"})
JEPSEN, REDPANDA, BUFSTREAM = "Jepsen's mixes", "Jepsen: Redpanda 21.10.1", "Jepsen: Bufstream 0.1.0"
FAULTS = "while agents, etcd and the store are killed, paused and cut off"


def _of(*anomalies: str) -> frozenset[str]:
    return frozenset(anomalies)


def _mix(name: str, does: str, run: str) -> Experiment:
    return Experiment(JEPSEN, name, "Jepsen's queue workload for Kafka", f"{does}, {FAULTS}", (run,))


def _redpanda(number: int, name: str, runs: tuple[str, ...], does: str, *judged: str) -> Experiment:
    return Experiment(REDPANDA, f"{number}. {name}", "Jepsen, Redpanda 21.10.1", does, runs, _of(*judged))


def _bufstream(number: int, name: str, runs: tuple[str, ...], does: str, *judged: str) -> Experiment:
    return Experiment(BUFSTREAM, f"#{number} {name}", "Jepsen, Bufstream 0.1.0", does, runs, _of(*judged))


RESTORED = tuple(name for name in RUNS if name.startswith("restored-"))
DISASTERS = "Disasters"

LOST = ("lost-write", "unseen", "not-in-log", "table-missing")
SKIPS = ("poll-skip", "internal-poll-skip", "nonmonotonic-poll", "internal-nonmonotonic-poll")

EXPERIMENTS: tuple[Experiment, ...] = (
    _mix("queue, assign", "Idempotent sends, polls by assigned readers", "queue-assign"),
    _mix("queue, subscribe", "Idempotent sends, polls by the members of one group", "queue-subscribe"),
    _mix("queue, transactions", "Sends, polls and positions inside of transactions", "transactions"),
    _mix("abort", "The same, often aborted; readers go back (KAFKA-17582)", "aborts"),
    _mix("list-append", "Transactions append to lists and read them whole", "list-append"),
    Experiment(
        "Kafka 2013", "isolated writer", "K. Kingsbury, Call me maybe: Kafka",
        "1,000 synchronous writes; their agent is cut off at 300 and lost for good at 600", ("kafka-2013",),
        others="Kafka 0.8 lost 520 of 987 acknowledged",
    ),
    Experiment(
        "Vanlightly", "part 1: kill, isolate, isolate from coordination", "J. Vanlightly, part 1",
        "10,000 messages a second, acks 0, 1 and all; at 3 of 10 something befalls the leader", VANLIGHTLY,
        others="Kafka lost 6,764 (acks 0), 5 to 11 (acks 1, killed), 31,784 to 43,509 (acks 1, isolated)",
    ),
    Experiment(
        "Vanlightly", "part 2: slow and lossy links", "J. Vanlightly, part 2",
        "The same over links that are slow and break", LOSSY,
    ),
    _redpanda(1, "duplicates by default", QUEUES, "Retries of sends", "duplicate"),
    _redpanda(2, "duplicates with idempotence", MIXES, "Retries with numbers", "duplicate", "sequence"),
    _redpanda(3, "inconsistent offsets", MIXES, "One offset has one record", "inconsistent-offset"),
    _redpanda(4, "lost or stale tail", MIXES, "What is acknowledged is read", *LOST),
    _redpanda(5, "aborted read", IN_TRANSACTIONS, "Aborted records are not read", "aborted-read"),
    _redpanda(6, "G1c of write-read edges", IN_TRANSACTIONS, "Nobody reads in a circle", "G1c-wr"),
    _redpanda(
        7, "InvalidTxnState on a retried commit", ("late-ends-floe",),
        "EndTxn repeated, its first answer lost", "aborted-read", "torn-transaction", "hanging-transaction",
    ),
    _redpanda(8, "lost transactional writes", IN_TRANSACTIONS, "Whole commits", *LOST, "torn-transaction"),
    _redpanda(
        9, "ambiguous errors", MIXES, "A refused one wrote nothing", "failed-in-log", "wrong-end"
    ),
    _redpanda(10, "write cycles", IN_TRANSACTIONS, "With writes they are legal", "G1c-wr"),
    _redpanda(11, "internal non-monotonic polls", MIXES, "Polls go on where they stood", *SKIPS),
    _redpanda(
        12, "membership change", ("queue-subscribe", "queue-assign"),
        "Agents leave, come back and lose their leases all the time", *LOST, "duplicate", "state-differs",
    ),
    _bufstream(1, "stuck consumers", ("queue-subscribe", "transactions"), "Agents restarted", "stuck"),
    _bufstream(2, "etcd paused beyond its leases", MIXES, "One of the faults", *LOST, "stuck", "agent-ended"),
    _bufstream(3, "spurious zero offsets", MIXES, "Offsets told are offsets kept", "inconsistent-offset",
               "nonmonotonic-send", "internal-nonmonotonic-send"),
    _bufstream(
        4, "lost transactional writes in a healthy cluster", ("brief-transactions",),
        "Transactions that time out after 1 s", *LOST, "torn-transaction", "aborted-read", "wrong-end",
    ),
    _bufstream(5, "records filtered for slow consumers", IN_TRANSACTIONS, "They begin late", *SKIPS, *LOST),
    Experiment(
        "KIP-868", "one change far beyond etcd's limits", "KIP-868",
        "Thousands of topics or configs in one request; its agent dies at steps of it: all or nothing",
        ("large-changes",),
    ),
    Experiment(
        "KAFKA-17754", "EndTxn held and delivered late", "KAFKA-17754",
        "Real clients of v1 in transactions behind proxies that hold, drop and repeat", ("late-ends-floe",),
        others="see the control",
    ),
    Experiment(
        "KAFKA-17754", "the same on Apache Kafka 4.3.1", "KAFKA-17754",
        "The control: it must find aborted, torn or precommitted reads", ("late-ends-kafka",),
    ),
    Experiment(
        DISASTERS, "etcd lost for good", "Floe",
        "Its data is removed under load, pieces of the archive and snapshots with it, or an old backup is "
        "put back; the cluster is restored from its bucket, with its table", RESTORED,
    ),
    Experiment(
        DISASTERS, "a member of etcd with another log", "Floe",
        "A value is changed on the disk of one of three: an agent there is found out, and what such a one "
        "archived is not what is restored", ("member-differs",),
    ),
    Experiment(
        DISASTERS, "objects damaged in the bucket", "Floe",
        "Bits, cuts, exchanges and losses of every kind of object: found, mended from what is held twice, or "
        "told by place", ("damaged-objects",),
    ),
    Experiment(
        DISASTERS, "deleted by mistake, or wanted as it was", "Floe",
        "Records and topics are deleted and brought back, topics restored as of a time or offsets, tables "
        "ahead of a restored log", ("deleted-by-mistake",),
    ),
)  # fmt: skip
