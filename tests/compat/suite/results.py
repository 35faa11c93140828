"""Results of the suite: tests/compat/results/<broker>.json, and how two of them compare."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.compat.against.agreement import Row, differences, unexplained

RESULTS = Path(__file__).parents[1] / "results"
LOCK = Path(__file__).parents[3] / "build" / "compat.lock"
PASSED = "passed"
LEFT_OUT = "left out: "


@dataclass(frozen=True)
class Result:
    """One test against one broker. `test` is `file::name[case]`; `saw` what it observed, by name."""

    test: str
    client: str
    version: str
    what: str
    outcome: str
    saw: dict[str, str] = field(default_factory=dict)

    @property
    def case(self) -> str:
        """The case of a test that has several, else nothing."""
        return self.test.partition("[")[2].removesuffix("]")

    @property
    def story(self) -> str:
        """The test without its case."""
        return self.test.partition("[")[0]


def path(broker: str) -> Path:
    """Where the results against `broker` are kept."""
    return RESULTS / f"{broker}.json"


def load(broker: str) -> dict[str, Result]:
    """test → its result; empty when nothing was ever kept."""
    file = path(broker)
    rows = json.loads(file.read_text())["results"] if file.exists() else []
    return {row["test"]: Result(**row) for row in rows}


def version(broker: str) -> str:
    """The version of the broker that the kept results are of."""
    found: str = json.loads(path(broker).read_text())["version"]
    return found


def keep(broker: str, version: str, fresh: Iterable[Result], *, whole: bool) -> None:
    """Write results; those of a part of the suite go into what is kept already."""
    RESULTS.mkdir(exist_ok=True)
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = {} if whole else load(broker)
        kept |= {result.test: result for result in fresh}
        rows = [asdict(kept[test]) for test in sorted(kept)]
        text = json.dumps({"broker": broker, "version": version, "results": rows}, indent=1)
        path(broker).write_text(text + "\n")


def problems(kafka: Result | None, floe: Result, agreed: list[Row]) -> list[str]:
    """What of Floe's result is neither Apache Kafka's nor a row of docs/deviations.md."""
    if kafka is None:
        return [f"{floe.test} was never run against Apache Kafka: make compat BROKER=kafka"]
    return unexplained(floe.test, differences(_facts(kafka), _facts(floe)), agreed)


def _facts(result: Result) -> dict[str, str]:
    return {**result.saw, "outcome": result.outcome}
