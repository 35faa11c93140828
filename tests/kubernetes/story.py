"""Inside the namespaces: everything up, each experiment under load, then build/kubernetes/results.json.

`python -m tests.kubernetes.story [NAME …]`: only experiments whose names contain one of these.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from deploy.kubernetes.namespaces import STATE
from deploy.kubernetes.node import RUN, Node, NodeError
from tests.kubernetes.experiments import ALL
from tests.kubernetes.lab import AGENTS, Lab
from tests.kubernetes.load import PARTITIONS, SETTLE_S, Load, Result
from tests.torture.workload import read_all

RESULTS = STATE / "results.json"
IMAGES = ("pause", "servers", "agent")


def main() -> int:
    """0: everything was clean. Logs of a run are under build/kubernetes/logs."""
    chosen = [name for name in ALL if not sys.argv[1:] or any(each in name for each in sys.argv[1:])]
    lab = Lab(Node())
    try:
        results = _told(lab, chosen)
    except (NodeError, AssertionError) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    finally:
        _keep_logs(lab)
    RESULTS.write_text(json.dumps(results, indent=1))
    unclean = [each["name"] for each in results["experiments"] if not Result(**each).clean]
    if unclean:
        print(f"not clean: {', '.join(unclean)}", file=sys.stderr)
    return int(bool(unclean))


def _told(lab: Lab, chosen: list[str]) -> dict[str, Any]:
    begun = time.monotonic()
    lab.node.start([STATE.parent / "images" / f"{name}.tar" for name in IMAGES])
    node_s = time.monotonic() - begun
    _say(f"node ready after {node_s:.1f} s")
    lab.services()
    services_s = time.monotonic() - begun - node_s
    _say(f"etcd and MinIO ready after {services_s:.1f} s")
    installing = time.monotonic()
    lab.install()
    install_s = time.monotonic() - installing
    _say(f"helm install --wait: {install_s:.1f} s")
    tested = lab.helm("test", "floe")
    results = [_experiment(lab, name) for name in chosen]
    gone = _uninstalled(lab, chosen)
    version = json.loads(lab.node.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"]
    return {
        "kubernetes": version,
        "node_s": round(node_s, 1),
        "services_s": round(services_s, 1),
        "install_s": round(install_s, 1),
        "start_s": round(_start_seconds(lab), 1),
        "helm_test": "Succeeded" in tested,
        "uninstall": gone,
        "all_s": round(time.monotonic() - begun, 1),
        "experiments": [each.as_json() for each in results],
    }


def _experiment(lab: Lab, name: str) -> Result:
    load = Load(lab.bootstrap, _plain(name))
    load.begin()
    begun = time.monotonic()
    note = ALL[name](lab)
    time.sleep(SETTLE_S)
    result = load.judge(name, begun, time.monotonic(), note)
    _say(f"{name}: {result.as_json()}")
    return result


def _uninstalled(lab: Lab, experiments: list[str]) -> dict[str, Any]:
    """Nothing of the release stays; installed again, all records are there."""
    before = _records(lab, experiments)
    lab.helm("uninstall", "floe", "--wait")
    lab.until(lambda: not lab.agents(), "agents stay after helm uninstall")
    chosen = (
        "all,configmap,secret,pdb,serviceaccount,job",
        "-l",
        "app.kubernetes.io/instance=floe",
        "-o",
        "name",
    )
    left = [line for line in lab.kubectl("get", *chosen).splitlines() if "sh.helm" not in line]
    lab.install()
    after = _records(lab, experiments)
    _say(f"uninstalled, left {left}; {before} records before, {after} after")
    return {"left": left, "before": before, "after": after}


def _records(lab: Lab, experiments: list[str]) -> int:
    topics = [f"load-{_plain(name)}" for name in experiments]
    read = [read_all(lab.bootstrap, topic, range(PARTITIONS)) for topic in topics]
    return sum(len(records) for found in read for records in found.values())


def _start_seconds(lab: Lab) -> float:
    """The longest time of an agent from its container's start to ready, of the last install."""
    longest = 0.0
    for pod in lab.agents():
        ready = next(c for c in pod["status"]["conditions"] if c["type"] == "Ready")["lastTransitionTime"]
        started = pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
        longest = max(longest, _seconds(ready) - _seconds(started))
    return longest


def _seconds(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


def _plain(name: str) -> str:
    return re.sub(r"[^a-z]+", "-", name.lower()).strip("-")


def _keep_logs(lab: Lab) -> None:
    target: Path = STATE / "logs"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(RUN / "logs", target, ignore_dangling_symlinks=True)
    try:
        (target / "pods.txt").write_text(lab.kubectl("get", "pods", "-o", "wide"))
        (target / "events.txt").write_text(lab.kubectl("get", "events"))
        (target / "agents.log").write_text(lab.kubectl("logs", "-l", AGENTS, "--prefix", "--tail=2000"))
        (target / "describe.txt").write_text(lab.kubectl("describe", "pods"))
    except NodeError as error:
        print(f"no logs of the pods: {error}", file=sys.stderr)


def _say(message: str) -> None:
    print(message, flush=True)


if __name__ == "__main__":
    try:
        status = main()
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # clients of an experiment that failed would first wait for their cluster
