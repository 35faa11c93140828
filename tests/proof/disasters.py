"""Disasters as runs: etcd lost for good, objects damaged in the bucket.

Each has a cluster of its own: what is lost there is not to be the other runs'.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

from tests.checker.operations import History, Send
from tests.proof.ran import ROOT, Ran
from tests.torture.late_work import Recorder
from tests.torture.restore_load import PLAIN, Load
from tests.torture.restore_verdict import Found
from tests.torture.restoring import Watch, one_run

DAMAGES, AT_S3 = 1_000, 40
DAMAGES_SHORT = 100
DAMAGES_S_MAX = 1_800
TOLD = "told of as aborted by the restore"


def restored(name: str, seed: int, how: str) -> Ran:
    """etcd's data is removed under load, and what `how` says of the archive; the cluster is restored.

    Plain producers may write twice, so their records are judged by the run itself alone. What no archive has
    may have other offsets than clients were told, and another order among producers: the history names those
    of the restored log, and porcupine is not asked.
    """
    kept = Kept(name)
    row = asyncio.run(one_run(seed, how, watch=Watch(kept.note, kept.over)))
    figures = {what: each for what, each in asdict(row).items() if what not in ("findings", "kind", "mbps")}
    figures["restore_s"] = round(row.restore_s, 1)
    findings = [f"restored: {each}" for each in row.findings]
    return Ran(name, kept.history, findings=findings, clocked=False, figures=figures)


class Kept:
    """The history of a run: what idempotent and transactional producers did, and the last reader."""

    def __init__(self, topic: str) -> None:
        self._recorder = Recorder(topic)
        self._processes: dict[str, int] = {}
        self._of: dict[int, tuple[str, list[str]]] = {}
        self.history = History()

    def note(
        self,
        name: str,
        f: Literal["send", "txn"],
        outcome: Literal["ok", "info"],
        begun_ns: int,
        what: Sequence[tuple[int, str]],
    ) -> None:
        """See Load."""
        if name.startswith(PLAIN):
            return
        process = self._processes.get(name) or self._processes.setdefault(name, self._recorder.process())
        self._of[len(self._recorder.history.operations)] = (name, [value for _, value in what])
        sends = tuple(Send(self._recorder.key(partition), value) for partition, value in what)
        self._recorder.note(process, f, outcome, begun_ns, sends)

    def over(self, load: Load, found: Found, report: dict[str, Any], before: int) -> None:
        """See Watch."""
        at = {value: offset for partition in reversed(found) for offset, value in reversed(partition)}
        acknowledged = set(load.transactions[:before])
        operations = []
        for op in self._recorder.history.operations:
            name, values = self._of[op.index]
            if op.f == "txn" and tuple(values) in acknowledged and name in report["aborted"]:
                away = not any(value in at for value in values)
                op = replace(op, outcome="info", error=TOLD) if away else op
            sends = [replace(each, offset=at.get(str(each.value))) for each in op.sends]
            operations.append(replace(op, micro=tuple(sends)))
        self._recorder.history.operations[:] = operations
        rows = {
            number: [(offset, value) for offset, value in partition if not value.startswith(PLAIN)]
            for number, partition in enumerate(found)
        }
        reader, begun_ns = self._recorder.process(), time.monotonic_ns()
        self._recorder.note(reader, "assign", "ok", begun_ns, partitions=tuple(rows))
        self._recorder.note(reader, "poll", "ok", begun_ns, (self._recorder.poll(rows),))
        self.history = self._recorder.history


def damaged(name: str, seed: int, *, short: bool) -> Ran:
    """Objects of small buckets are damaged one by one: found, mended from what is held twice, or told."""
    count = DAMAGES_SHORT if short else DAMAGES
    command = [sys.executable, "-m", "tests.unit.agent.background.scrub_runs", "--seed", str(seed)]
    command += ["--damages", str(count), "--s3", str(AT_S3)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=DAMAGES_S_MAX,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    return told(name, done.returncode, done.stdout, done.stderr)


def told(name: str, status: int, output: str, errors: str) -> Ran:
    """What scrub_runs said: a line of what became of how many for each store, then a line for each missed."""
    lines = output.splitlines()
    missed = [line for line in lines if line.startswith("MISSED")]
    stores = zip(("in memory", "at MinIO"), [line for line in lines if line not in missed], strict=False)
    ran = Ran(name, figures=dict(stores))
    ran.findings = [line.replace("MISSED: ", "damage-missed: ") for line in missed]
    if status and not missed:
        ran.findings.append(f"run-ended: status {status}: {errors[-300:]}")
    return ran
