"""`python -m tests.kubernetes` (`make kubernetes`): the chart on a real Kubernetes, made and taken away here.

Builds what is missing, then runs `tests.kubernetes.story` in namespaces of its own. Must be root. Writes
tests/kubernetes/results.json and docs/kubernetes.md when all experiments ran, or, with KEEP=1 in the
environment, the rows of those that did.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from deploy.kubernetes.namespaces import STATE, NotHere, inside
from deploy.services.build import BuildError
from deploy.setup.debian import NotToBeHad
from deploy.setup.gateway import NoGateway
from tests.kubernetes.built import Built
from tests.kubernetes.page import merged, write

KEPT = Path(__file__).with_name("results.json")


def main() -> int:
    """Build, run, and keep the results of a whole run."""
    begun = time.monotonic()
    try:
        built = Built()
        agent = built.all()
        built_s = time.monotonic() - begun
        took = ", ".join(f"{what} {seconds} s" for what, seconds in built.seconds.items())
        print(f"built in {built_s:.0f} s ({took}); agent's image {agent.size / 1e6:.1f} MB", flush=True)
        found = STATE / "results.json"
        found.unlink(missing_ok=True)  # of a run of some experiments, or one that was cut off
        status = inside("tests.kubernetes.story", *sys.argv[1:])
    except (NotHere, NoGateway, NotToBeHad, BuildError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    if found.exists() and (not sys.argv[1:] or os.environ.get("KEEP")):
        parts = {"image_bytes": agent.size, "built_s": round(built_s), "built": built.seconds}
        results = json.loads(found.read_text()) | parts
        if sys.argv[1:]:
            results = merged(json.loads(KEPT.read_text()), results)
        KEPT.write_text(json.dumps(results, indent=1) + "\n")
        write(results)
        found.unlink()
    return status


if __name__ == "__main__":
    sys.exit(main())
