"""The engines: how each is run, and where it is known to answer otherwise."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version as house_version
from pathlib import Path
from typing import Any

from deploy.setup.java import java_home
from tests.engines.question import Question

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OTHERS = ROOT / "build" / "engines" / "bin" / "python"
RESULTS = HERE / "results.json"
TIMEOUT_S = 300
PASSED = "passed"

_CLICKHOUSE = "an Array or Map cannot be null in ClickHouse: it reads as empty where the message is null"


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine. `own`: it is in the environment of the house, where `make test` asks it.

    `packages` are what its versions are told of. `known` has the questions that it answers otherwise,
    with the words of docs/engines.md; one that it answers well now must go from there.
    """

    name: str
    program: str
    packages: tuple[str, ...]
    how: str
    own: bool = False
    known: Mapping[str, str] = field(default_factory=dict)


ENGINES = (
    Engine("Spark", "spark_rows.py", ("pyspark",), "Iceberg's runtime 1.12, REST catalog", own=True),
    Engine("pyiceberg", "pyiceberg_rows.py", ("pyiceberg",), "REST catalog", own=True),
    Engine("DuckDB", "duckdb_rows.py", ("duckdb",), "`ATTACH … (TYPE iceberg, ENDPOINT …)`", own=True),
    Engine(
        "Polars", "polars_rows.py", ("polars",), "`scan_iceberg` of pyiceberg's table, its own Parquet reader"
    ),
    Engine("Daft", "daft_rows.py", ("daft",), "`read_iceberg` of pyiceberg's table"),
    Engine(
        "DataFusion",
        "datafusion_rows.py",
        ("datafusion", "pyiceberg-core"),
        "iceberg-rust's table provider, by the table's metadata file",
        known={
            "evolution": "iceberg-rust reads no file from before a struct got another field",
            "time travel": "its table provider takes no snapshot",
        },
    ),
    Engine(
        "chdb (ClickHouse)",
        "chdb_rows.py",
        ("chdb",),
        "`icebergLocal` of the table's folder; text and bytes are one type",
        known=dict.fromkeys(("unsigned", "structs", "lists", "maps", "version 3 nested"), _CLICKHOUSE),
    ),
)


def versions(engine: Engine) -> str:
    """The versions of an engine, of this environment or of the lock of the other one."""
    if engine.own:
        return ", ".join(house_version(each) for each in engine.packages)
    lines = (ROOT / "deploy" / "setup" / "engines.lock").read_text().splitlines()
    pins = dict(line.split(" ")[0].split("==") for line in lines if "==" in line and line[0].isalpha())
    return ", ".join(pins[each] for each in engine.packages)


async def answers(engine: Engine, url: str, questions: Sequence[Question]) -> dict[str, Any]:
    """What an engine answers: by question its rows, or `{"error": …}`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable if engine.own else str(OTHERS),
        str(HERE / "programs" / engine.program),
        url,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd="/",  # ClickHouse reads nothing outside its own
        env=_environment(engine),
    )
    asked = json.dumps([each.asked() for each in questions]).encode()
    async with asyncio.timeout(TIMEOUT_S):
        out, err = await process.communicate(asked)
    if process.returncode:
        raise RuntimeError(f"{engine.name} ended with {process.returncode}: {err.decode()[-2000:]}")
    found: dict[str, Any] = json.loads(out)
    return found


def _environment(engine: Engine) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    own = {"PYTHONPATH": str(ROOT), "JAVA_HOME": str(java_home())} if engine.own else {}
    # The zone of who asks must not matter.
    jars = str(ROOT / "build" / "jars" / "iceberg")
    return {**inherited, **own, "TZ": "America/New_York", "FLOE_SPARK_JARS": jars}


def outcome(engine: Engine, question: Question, answer: Any) -> str:
    """`passed`, or what was wrong; what is known is told in the words of `known`."""
    known = engine.known.get(question.name)
    if answer == json.loads(json.dumps(question.expected)):
        return PASSED if known is None else f"passed, though known otherwise: {known}"
    return f"known: {known}" if known else f"answered {json.dumps(answer)[:1000]}"
