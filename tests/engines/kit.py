"""Iceberg's compatibility kit for REST catalogs (iceberg-open-api), run against Floe's."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pyspark

from deploy.setup import jars
from deploy.setup.java import java_home

TESTS = (
    "org.apache.iceberg.rest.RESTCompatibilityKitCatalogTests",
    "org.apache.iceberg.rest.RESTCompatibilityKitViewCatalogTests",
)
CONSOLE = "junit-platform-console-standalone"
TIMEOUT_S = 280
PASSED = "passed"
FROM_SPARK = (
    "hadoop-client-api",
    "hadoop-client-runtime",
    "log4j-api",
    "log4j-core",
    "log4j-slf4j2-impl",
    "zstd-jni",
)

_LOCATION = "a table or view lies below the warehouse; the kit wants it in a folder of /tmp"
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "testCompleteCreateTable",
            "testCompleteCreateTransaction",
            "testCompleteCreateTransactionV2",
            "testCompleteCreateTransactionMultipleSchemas",
            "testCompleteCreateOrReplaceTransactionCreate",
            "testCompleteCreateOrReplaceTransactionReplace",
            "testCompleteReplaceTransaction",
            "testCreateTableWithDefaultColumnValue",
            "testLoadTable",
            "completeCreateView",
            "updateViewLocation",
            "createViewWithCustomMetadataLocation",
            "createAndReplaceViewWithLocation",
        ),
        _LOCATION,
    ),
}
"""What is refused by design, and why."""
LEFT_OUT = "left out by the kit"


async def outcomes(uri: str, folder: Path) -> dict[str, str]:
    """What came of each test of the kit: `passed`, LEFT_OUT, or its first line of complaint."""
    found = await asyncio.to_thread(jars.ensure, "kit")
    spark = Path(pyspark.__file__).parent / "jars"
    hadoop = [each for name in FROM_SPARK for each in spark.glob(f"{name}-*.jar")]
    (console,) = [each for each in found if each.name.startswith(CONSOLE)]
    classes = os.pathsep.join(str(each) for each in [*found, *hadoop] if each != console)
    process = await asyncio.create_subprocess_exec(
        str(java_home() / "bin" / "java"),
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Drck.local=false",
        "-jar",
        str(console),
        "execute",
        *("-cp", classes, *(f"--select-class={each}" for each in TESTS)),
        *("--details=none", f"--reports-dir={folder}"),
        env={**os.environ, **_client(uri)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(TIMEOUT_S):
        await process.wait()
    return _read(folder / "TEST-junit-jupiter.xml")


def _client(uri: str) -> dict[str, str]:
    """The client's properties, as the kit takes them: `__` is a dash, `_` a dot."""
    return {
        "CATALOG_URI": uri,
        "CATALOG_WAREHOUSE": "floe",
        "CATALOG_IO__IMPL": "org.apache.iceberg.hadoop.HadoopFileIO",
        "CATALOG_RCK_REQUIRES__NAMESPACE__CREATE": "true",
    }


def _read(report: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):  # our own child wrote it
        bad = next((each for kind in ("failure", "error") for each in case.iter(kind)), None)
        name = case.attrib["name"].replace("()", "").replace("(Path)", "")
        outcome = PASSED if next(case.iter("skipped"), None) is None else LEFT_OUT
        if bad is not None:
            outcome = (bad.attrib.get("message") or "failed").strip()[:300]
        if found.get(name, PASSED) == PASSED:  # tables and views have some names in common
            found[name] = outcome
    return found
