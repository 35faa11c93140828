"""Ask every engine; keep the outcomes and write docs/engines.md. Ends with 1 when one is not as known."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from tests.engines import lake, page
from tests.engines.engines import ENGINES, PASSED, RESULTS, answers, outcome, versions


async def main() -> int:
    """Run all of them, one after the other."""
    found: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with lake.served(Path(folder)) as served:
            for engine in ENGINES:
                given = await answers(engine, served.url, served.questions)
                found[engine.name] = {
                    question.name: outcome(engine, question, given[question.name])
                    for question in served.questions
                }
                bad = {name: what for name, what in found[engine.name].items() if not _right(what)}
                print(f"{engine.name} {versions(engine)}: {len(given) - len(bad)} of {len(given)}", bad or "")
            told = {question.name: question.what for question in served.questions}
    RESULTS.write_text(json.dumps({"questions": told, "engines": found}, indent=1, ensure_ascii=False) + "\n")
    page.PAGE.write_text(page.render())
    return int(any(not _right(what) for each in found.values() for what in each.values()))


def _right(what: str) -> bool:
    return what == PASSED or what.startswith("known: ")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
