"""etcd is lost long after the bucket took the last of its log: what was merged since is still all there.

A rule of the bucket refuses what lies below log/ and snapshots/, and nothing else: records come in, are
merged, and their chunks are let go of. The log that is restored knows none of that, so it needs these chunks.
The control is an agent that deletes them once their grace is over.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from deploy.services import Etcd
from deploy.services.floe import FloeAgent
from tests.torture.other_disk import until
from tests.torture.restoring import restore
from tests.torture.run import create_topic, unexplained
from tests.torture.unarchived_agent import REFUSED, UnarchivedAgent
from tests.torture.unwaiting_agent import UnwaitingAgent
from tests.torture.verdict import judge
from tests.torture.workload import Writer, read_all

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]

TOPIC, PARTITIONS = "unarchived", (0, 1)
PASSES_S = 6  # some passes of the collection, which has no grace here
SETTINGS: dict[str, Any] = {
    "snapshots": {"interval_s": 2},
    "log_archive": {"interval_ms": 500},
    "merging": {"interval_ms": 100, "min_slices": 8, "keep_slices": 0},
    "collection": {"interval_s": 1, "grace_s": 0},
    "shutdown": {"drain_ms": 0},
    "tables": {"enabled": False},
}


class Lab(NamedTuple):
    """The servers."""

    etcd: Etcd
    bucket: Path
    agent: FloeAgent

    def count(self, folder: str) -> int:
        """Objects below it."""
        return sum(path.is_file() for path in (self.bucket / folder).rglob("*"))


@pytest.fixture(
    params=[
        pytest.param(UnarchivedAgent, id="waits"),
        pytest.param(UnwaitingAgent, id="control", marks=pytest.mark.thorough),
    ]
)
def lab(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lab]:
    with ExitStack() as stack:
        etcd = stack.enter_context(Etcd())
        places = {
            "log": {"url": f"etcd://{etcd.endpoint}/floe", "lease_ttl_s": 5},
            "store": {"url": f"file://{tmp_path / 'bucket'}"},
        }
        yield Lab(etcd, tmp_path / "bucket", stack.enter_context(request.param("agent", SETTINGS | places)))


def test_what_was_merged_behind_the_archive_is_there_for_a_restore(lab: Lab) -> None:
    create_topic(lab.agent.bootstrap, TOPIC, len(PARTITIONS))
    writer = Writer("writer", lab.agent.bootstrap, TOPIC, PARTITIONS, rate=200)
    writer.start()
    until(lambda: _acknowledged(writer) > 200, "records are acknowledged")
    until(lambda: lab.count("log") > 1, "the log is archived")
    until(lambda: lab.count("snapshots") > 0, "a snapshot is there")
    (lab.bucket.parent / REFUSED).touch()
    merged, sent = lab.count("manifests"), _acknowledged(writer)
    until(lambda: _acknowledged(writer) > sent + 600, "more records are acknowledged")
    time.sleep(PASSES_S)
    writer.stop()
    held = lab.count("manifests")
    lab.agent.kill()
    (lab.bucket.parent / REFUSED).unlink()
    lab.etcd.kill()
    shutil.rmtree(lab.etcd.data)
    lab.etcd.start()
    report = restore(lab.bucket, lab.etcd)
    gone = report["missing_chunks"] + report["missing_merged"]
    if isinstance(lab.agent, UnwaitingAgent):
        assert gone, "what the restored log names was deleted"
        return
    assert gone == []
    assert held > merged + 4, "manifests that merges replaced wait"
    lab.agent.start()
    verdict = judge(writer.sent, read_all(lab.agent.bootstrap, TOPIC, PARTITIONS), [])
    verdict.findings += unexplained([writer])
    assert verdict.findings == [], verdict.report()
    assert verdict.acknowledged > 600


def _acknowledged(writer: Writer) -> int:
    return sum(each.outcome == "ok" for each in writer.sent)
