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

from deploy.images import jobs
from deploy.images.__main__ import cached
from deploy.images.oci import of_programs
from deploy.kubernetes.namespaces import STATE, NotHere, inside
from deploy.kubernetes.settings import PAUSE
from deploy.services.build import BuildError, tool_path
from deploy.setup.debian import NotToBeHad, unpacked
from tests.kubernetes.manifests import SERVERS
from tests.kubernetes.page import merged, write

ROOT = Path(__file__).resolve().parents[2]
KEPT = Path(__file__).with_name("results.json")
TOOLS = ("kubernetes", "coredns", "pause", "etcd", "minio", "helm")


def main() -> int:
    """Build, run, and keep the results of a whole run."""
    begun = time.monotonic()
    try:
        unpacked("containers")
        tools = {name: tool_path(name) for name in TOOLS}
        images = ROOT / "build" / "images"
        agent = cached()
        jobs.cached(agent)
        of_programs(PAUSE, {"pause": tools["pause"]}, images / "pause.tar")
        of_programs(SERVERS, {each: tools[each] for each in ("etcd", "minio")}, images / "servers.tar")
        built_s = time.monotonic() - begun
        print(
            f"built in {built_s:.0f} s; agent's image {agent.size / 1e6:.1f} MB, {agent.digest}", flush=True
        )
        found = STATE / "results.json"
        found.unlink(missing_ok=True)  # of a run of some experiments, or one that was cut off
        status = inside("tests.kubernetes.story", *sys.argv[1:])
    except (NotHere, NotToBeHad, BuildError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    if found.exists() and (not sys.argv[1:] or os.environ.get("KEEP")):
        results = json.loads(found.read_text()) | {"image_bytes": agent.size, "built_s": round(built_s)}
        if sys.argv[1:]:
            results = merged(json.loads(KEPT.read_text()), results)
        KEPT.write_text(json.dumps(results, indent=1) + "\n")
        write(results)
        found.unlink()
    return status


if __name__ == "__main__":
    sys.exit(main())
