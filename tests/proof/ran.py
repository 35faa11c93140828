"""What a run of an experiment leaves, and the judgement over all of them by those that share no code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.checker.judge import judge
from tests.checker.operations import History
from tests.checker.porcupine import refused
from tests.checker.progress import Patience
from tests.checker.tables import Logged, write

ROOT = Path(__file__).parents[2]
SECOND = 1_000_000_000
PATIENCE = Patience(process_ns=20 * SECOND, group_ns=30 * SECOND)
"""How long a consumer may poll in vain when all is well again."""
SETTLE_S = 32.0
"""How long a mix goes on then, so that who is stuck is seen to be."""
DISAGREE = "judges-disagree"
LINEAR_MAX = 30_000
"""Sends to one partition that porcupine is asked about: its memory grows with their square."""
JUDGE_ENDED = "judge-ended"
REFUSED = "not-linearizable"


@dataclass
class Ran:
    """One run. Times are the monotonic clock's ns."""

    name: str
    history: History = field(default_factory=History)
    log: Sequence[Logged] = ()
    topic: str = ""
    """The topic that has a table; none: no table is looked at."""
    findings: list[str] = field(default_factory=list)
    """What the run's own checks said: "anomaly: where and what"."""
    happened: list[tuple[str, int, int]] = field(default_factory=list)
    """Faults, from when to when."""
    healed_ns: int | None = None
    """When all was well again; None: nobody waited to see who is stuck."""
    allowed: frozenset[str] = frozenset()
    """Anomalies that this run's settings do not exclude: counted, and no failure."""
    control: frozenset[str] = frozenset()
    """A control: one of these must be found, and nothing counts as a failure."""
    clocked: bool = True
    """Whether the history's times are those of the operations, which linearizability needs."""
    figures: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    pure: Counter[str] = field(default_factory=Counter)
    spark: Counter[str] = field(default_factory=Counter)
    porcupine: list[str] = field(default_factory=list)
    """Keys that are no one log."""

    @property
    def found(self) -> Counter[str]:
        """Anomalies by all judges, the highest count of each."""
        own = Counter(each.split(":", 1)[0] for each in self.findings)
        return own | self.pure | self.spark | Counter({REFUSED: len(self.porcupine)})

    @property
    def disagree(self) -> dict[str, tuple[int, int]]:
        """Anomalies that the pure checker and Spark count otherwise."""
        known = self.pure.keys() | (self.spark.keys() - WHITE_BOX)
        return {a: (self.pure[a], self.spark[a]) for a in sorted(known) if self.pure[a] != self.spark[a]}

    @property
    def wrong(self) -> dict[str, int]:
        """What fails this run."""
        found = dict(self.found)
        if self.control:
            if self.control & found.keys():
                return {}
            return {"control-found-nothing": 1}
        bad = {name: count for name, count in sorted(found.items()) if count and name not in self.allowed}
        return bad | ({DISAGREE: len(self.disagree)} if self.disagree else {})


WHITE_BOX = {
    "tiling", "sequence", "not-in-log", "failed-in-log", "wrong-end", "torn-end", "no-end",
    "table-missing", "table-extra", "table-doubled", "table-changed",
}  # fmt: skip
"""What Spark alone looks for: in broker_log and the tables."""


def shifted(history: History, to_zero_ns: int) -> History:
    """The same with `to_zero_ns` as the clock's zero, so that one moment of healing counts for all runs."""
    return History(
        [
            replace(op, invoked_ns=op.invoked_ns - to_zero_ns, completed_ns=op.completed_ns - to_zero_ns)
            for op in history.operations
        ]
    )


def _healed(ran: Ran) -> int:
    """Where nobody waited nobody can be stuck: all was well only when all was over."""
    if ran.healed_ns is not None:
        return ran.healed_ns
    return max((op.completed_ns for op in ran.history.operations), default=0)


def judged_by_all(runs: Sequence[Ran], folder: Path, catalog: Mapping[str, Any] | None = None) -> None:
    """Every judge over every run; what they find goes into the runs. `catalog`: see spark.py."""
    judged_here(runs, folder)
    keep(runs, folder)
    tables = {each.name: each.topic for each in runs if each.topic} if catalog else {}
    order = {"folder": str(folder.resolve()), "catalog": catalog, "topics": tables}
    command = [sys.executable, "-m", "tests.proof.spark"]
    asked = json.dumps(order).encode()
    done = subprocess.run(command, check=False, input=asked, stdout=subprocess.PIPE, cwd=ROOT)
    found: dict[str, dict[str, int]] = json.loads(done.stdout) if not done.returncode else {}
    for ran in runs:
        ran.spark = Counter(found.get(ran.name, {}))
        if done.returncode:
            ran.findings.append(f"{JUDGE_ENDED}: the Spark job, status {done.returncode}")


def judged_here(runs: Sequence[Ran], folder: Path) -> None:
    """The judges that need no Spark: the pure checker, and porcupine."""
    for ran, history in zip(runs, [shifted(each.history, _healed(each)) for each in runs], strict=True):
        findings = judge(history, healed_ns=0, patience=PATIENCE).findings
        ran.pure = Counter(each.anomaly for each in findings if each.weight == "fail")
    asked = [each for each in runs if each.clocked and each.history.operations]
    for ran in asked:
        sends = Counter(send.key for op in ran.history.operations for send in op.sends)
        if max(sends.values(), default=0) > LINEAR_MAX:
            ran.figures["porcupine"] = f"not asked: more than {LINEAR_MAX} sends to a partition"
    clocked = {each.name: each.history for each in asked if "porcupine" not in each.figures}
    for name, keys in refused(clocked, folder / "linear").items():
        next(each for each in runs if each.name == name).porcupine = keys


def keep(runs: Sequence[Ran], folder: Path) -> None:
    """The runs as Parquet, for Spark and for whoever wants to look."""
    histories = {each.name: shifted(each.history, _healed(each)) for each in runs}
    write(histories, folder, logs={each.name: each.log for each in runs})
