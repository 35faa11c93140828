"""The runs: what is really done to a cluster, by name. Experiments (catalogue.py) are read off them."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.checker.operations import History
from tests.checker.tables import Logged
from tests.equipment.proxy import Action
from tests.proof import disasters
from tests.proof.mixes import Aborting, Hasty, Lists, Mixed, live, members, noted, workers
from tests.proof.prefixes import not_prefixes
from tests.proof.ran import REFUSED, ROOT, Ran
from tests.torture.broker_log import read_log
from tests.torture.cluster import Cluster, Member
from tests.torture.experiments import (
    ALLOWED,
    Written,
    isolate,
    isolate_from_coordination,
    kafka_2013,
    kill,
    vanlightly,
)
from tests.torture.faults import Step, schedule
from tests.torture.inside import inspect
from tests.torture.late_clients import CLIENTS
from tests.torture.late_ends import BROKERS
from tests.torture.late_ends import run as late_ends
from tests.torture.restoring import ARCHIVES
from tests.torture.run import torture
from tests.torture.soak import for_minutes

SLOW_S = 0.03
LOST_OF = 20  # of so many pieces one breaks its connection
CONTROL = frozenset({"aborted-read", "torn-transaction", "precommitted-read"})
TEST_S_MAX = 1_800
OTHER_DISK = ("tests/torture/test_divergent_member.py", "tests/torture/test_restore_other_disk.py")
DELETED = (
    "tests/compat/test_held_records_embedded.py", "tests/compat/test_restore_topic_embedded.py",
    "tests/compat/test_restore_rows_embedded.py", "tests/torture/test_restored_tables.py",
)  # fmt: skip


@dataclass
class Lab:
    """Where runs happen. `seconds`: of faults in a mix; `settle_s`: of peace behind them."""

    cluster: Cluster
    seed: int
    seconds: float
    settle_s: float
    messages: int = 100_000
    """Of Vanlightly's scenarios."""
    short: bool = False
    """Fewer damages."""
    late_s: float = 120.0
    """Of late EndTxn, on Floe and on its control."""

    def steps(self, salt: int) -> Iterator[Step]:
        """A mix's own schedule."""
        drawn = schedule(self.seed * 100 + salt, len(self.cluster.members))
        return for_minutes(drawn, self.seconds / 60)


Run = Callable[[Lab], Ran]


def queue_assign(lab: Lab) -> Ran:
    """torture.run: idempotent writers, assigned readers, every fault, its table, what is inside."""
    ran = Ran("queue-assign", topic="queue-assign")

    def keep(history: History, log: Sequence[Logged]) -> None:
        ran.history, ran.log = history, log

    steps = noted(lab.steps(1), ran.happened)
    verdict = torture(lab.cluster, steps, keep=keep, topic=ran.topic)
    ran.findings = [str(each).replace(" at ", ": ", 1) for each in verdict.findings]
    return ran


def _mix(lab: Lab, topic: str, salt: int, make: Callable[[Lab], Mixed], *, faults: bool = True) -> Ran:
    mixed = make(lab)
    steps: Iterator[Step] = lab.steps(salt) if faults else iter(())
    live(lab.cluster, topic, mixed, steps, lab.settle_s if faults else lab.seconds)
    hanging = [f"{each.anomaly}: {each.key} {each.detail}" for each in mixed.hanging]
    wrong = inspect(lab.cluster, topic)
    return Ran(
        topic,
        mixed.recorder.history,
        read_log(*lab.cluster.opened, topic),
        topic,
        [*hanging, *(str(each).replace(" at ", ": ", 1) for each in wrong)],
        mixed.happened,
        mixed.healed_ns if faults else None,
    )


def queue_subscribe(lab: Lab) -> Ran:
    """Members of one group."""
    return _mix(lab, "queue-subscribe", 2, lambda lab: members(lab.cluster, "queue-subscribe", 4))


KINDS = ["librdkafka", "librdkafka", "aiokafka", "aiokafka"]


def transactions(lab: Lab) -> Ran:
    """Sends and polls inside of transactions."""
    name = "transactions"
    return _mix(lab, name, 3, lambda lab: workers(lab.cluster, name, KINDS, lab.seed))


def aborts(lab: Lab) -> Ran:
    """Most transactions end in an abort, some on purpose, and readers go back."""
    name = "aborts"
    return _mix(lab, name, 4, lambda lab: workers(lab.cluster, name, KINDS, lab.seed, Aborting))


def list_append(lab: Lab) -> Ran:
    """Lists, read whole."""
    name, kinds = "list-append", ["librdkafka"] * 3
    ran = _mix(lab, name, 5, lambda lab: workers(lab.cluster, name, kinds, lab.seed, Lists))
    ran.findings += [f"incompatible-order: {each}" for each in not_prefixes(ran.history)]
    ran.healed_ns = None  # readers of whole lists stand nowhere
    return ran


def brief_transactions(lab: Lab) -> Ran:
    """Nothing is wrong with the cluster, and transactions time out after a second."""
    name, kinds = "brief-transactions", ["librdkafka"] * 3
    return _mix(lab, name, 6, lambda lab: workers(lab.cluster, name, kinds, lab.seed, Hasty), faults=False)


def _written(lab: Lab, name: str, written: Written, acks: str) -> Ran:
    verdict = written.verdict
    log = read_log(*lab.cluster.opened, written.topic)
    happened = [(what, at, at + 1_000_000_000) for what, at in written.happened]
    found = [str(each).replace(" at ", ": ", 1) for each in verdict.findings]
    twice = {REFUSED} if ALLOWED[acks] else set()  # what may be there twice, or not, is no log of its sends
    ran = Ran(name, written.history, log, written.topic, found, happened, allowed=ALLOWED[acks] | twice)
    lost = sum(each.anomaly == "lost-write" for each in verdict.findings)
    counts = Counter(each.anomaly for each in verdict.findings)
    ran.figures = {
        "acks": acks,
        "sent": len(written.sent),
        "acknowledged": verdict.acknowledged,
        "read": verdict.read,
        "acknowledged and lost": lost if acks != "0" else 0,
        "told as sent and not there (acks=0)": counts["lost-write"] if acks == "0" else 0,
        "doubled": counts["duplicate"],
    }
    return ran


def kafka_of_2013(lab: Lab) -> Ran:
    """1,000 synchronous writes."""
    return _written(lab, "kafka-2013", kafka_2013(lab.cluster, "kafka-2013"), "all")


def slow_and_lossy(member: Member) -> None:
    """Part 2: each link of the leader is slow, and its connections break now and then."""
    passed = Counter[str]()

    def rule(_: bytes) -> Action:
        passed["pieces"] += 1
        return Action.RESET if passed["pieces"] % LOST_OF == 0 else Action.PASS

    for link in member.links:
        for lane in (link.requests, link.answers):
            lane.delay_s = SLOW_S
    member.clients.requests.rule = rule


VANLIGHTLY = [(f, acks) for f in (kill, isolate, isolate_from_coordination) for acks in ("0", "1", "all")]
VANLIGHTLY += [(slow_and_lossy, acks) for acks in ("1", "all")]


def _vanlightly(fault: Callable[[Member], None], acks: str) -> tuple[str, Run]:
    name = f"vanlightly-{fault.__name__}-{acks}"
    return name, lambda lab: _written(lab, name, vanlightly(lab.cluster, fault, acks, lab.messages), acks)


def _late_ends(broker: str) -> Run:
    def run(lab: Lab) -> Ran:
        kinds = [kind for kind in CLIENTS for _ in range(2)]
        with BROKERS[broker](len(kinds)) as brokers:
            outcome = late_ends(brokers, kinds, lab.late_s, lab.seed)
        ran = Ran(f"late-ends-{broker}", outcome.recorder.history, outcome.log)
        ran.control = CONTROL if broker == "kafka" else frozenset()
        ran.findings = [f"{each.anomaly}: {each.key} {each.detail}" for _, each in outcome.findings]
        told = outcome.figures()
        ran.figures = {name: told[name] for name in ("transactions", "ends held", "ends late")}
        return ran

    return run


def _restored(how: str) -> tuple[str, Run]:
    name = f"restored-{how.replace(' ', '-').replace(',', '')}"
    return name, lambda lab: disasters.restored(name, lab.seed, how)


def damaged_objects(lab: Lab) -> Ran:
    """Scrubbing."""
    return disasters.damaged("damaged-objects", lab.seed, short=lab.short)


def tested(name: str, *nodes: str) -> tuple[str, Run]:
    """A run that is a test of this repository as well: its nodes, and what failed."""

    def run(lab: Lab) -> Ran:
        with TemporaryDirectory() as scratch:
            report = Path(scratch) / "report.xml"
            command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *nodes]
            subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False, timeout=TEST_S_MAX)
            cases = list(ET.parse(report).iter("testcase"))
        failed = [
            case for case in cases if case.find("failure") is not None or case.find("error") is not None
        ]
        ran = Ran(name, figures={"tests": len(cases), "failed": len(failed)})
        ran.findings = [f"test-failed: {case.get('name')}" for case in failed]
        if not cases:
            ran.findings.append(f"test-failed: {' '.join(nodes)} has no test")
        return ran

    return name, run


RUNS: dict[str, Run] = {
    "queue-assign": queue_assign,
    "queue-subscribe": queue_subscribe,
    "transactions": transactions,
    "aborts": aborts,
    "list-append": list_append,
    "brief-transactions": brief_transactions,
    "kafka-2013": kafka_of_2013,
    **dict(_vanlightly(fault, acks) for fault, acks in VANLIGHTLY),
    "late-ends-floe": _late_ends("floe"),
    "late-ends-kafka": _late_ends("kafka"),
    **dict([tested("large-changes", "tests/torture/test_large_changes_killed.py")]),
    **dict(_restored(how) for how in ARCHIVES),
    **dict([tested("member-differs", *OTHER_DISK)]),
    "damaged-objects": damaged_objects,
    **dict([tested("deleted-by-mistake", *DELETED)]),
}
