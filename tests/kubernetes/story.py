"""Inside the namespaces: everything up, each experiment under load, then build/kubernetes/results.json.

`python -m tests.kubernetes.story [NAME …]`: only experiments whose names contain one of these.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import sys
import time
import traceback
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from deploy.kubernetes.namespaces import STATE
from deploy.kubernetes.node import RUN, Node, NodeError
from tests.kubernetes import routes
from tests.kubernetes.autoscaling import STEADY_SECONDS
from tests.kubernetes.experiments import ALL
from tests.kubernetes.kept import PodLogs, Steps
from tests.kubernetes.lab import AGENTS, POD_LOGS, Lab
from tests.kubernetes.load import LIGHT_RATE, PARTITIONS, RATE, SETTLE_S, Load, Result
from tests.kubernetes.page import FAILED
from tests.torture.workload import read_all

ALONE = ("--set", "replicas=1", "--set", "resources.limits.cpu=1")
STARTS = 3
READERS = 4
JOBS = "jobs by Spark"
AUTOSCALING = "autoscaling"
RESULTS = STATE / "results.json"
IMAGES = STATE.parent / "images"


def main() -> int:
    """0: everything was clean. Logs of a run are under build/kubernetes/logs."""
    chosen = [name for name in ALL if not sys.argv[1:] or any(each in name for each in sys.argv[1:])]
    lab = Lab(Node())
    try:
        with PodLogs(RUN / "pods", POD_LOGS):
            results = _told(lab, chosen)
    except (NodeError, AssertionError) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    finally:
        _keep_logs(lab)
    RESULTS.write_text(json.dumps(results, indent=1))
    told = results["experiments"]
    unclean = [each["name"] for each in told if not Result(**each).clean or each["note"].startswith(FAILED)]
    if unclean:
        print(f"not clean: {', '.join(unclean)}", file=sys.stderr)
    return int(bool(unclean))


def _told(lab: Lab, chosen: list[str]) -> dict[str, Any]:
    begun, steps = time.monotonic(), Steps()
    with ThreadPoolExecutor(3) as beside:
        lab.node.start([IMAGES / f"{name}.tar" for name in ("pause", "servers")])
        agent = beside.submit(lab.node.bring, IMAGES / "agent.tar")
        node_s = steps.done("node ready")
        lab.services()
        services_s = steps.done("etcd and MinIO ready")
        agent.result()
        steps.done("the agent's image imported")
        lab.install()
        install_s = steps.done("`helm install --wait`")
        tested = beside.submit(lab.helm, "test", "floe")
        first = beside.submit(_load, lab, chosen[0])
        helm_test = "Succeeded" in tested.result()
        steps.done("`helm test`, while the first clients begin")
        results = _experiments(lab, chosen, first, beside, steps)
    ending = time.monotonic()
    gone = _uninstalled(lab, chosen, sum(each.stored for each in results), steps)
    version = json.loads(lab.node.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"]
    shown = {"node_s": node_s, "services_s": services_s, "install_s": install_s}
    return {
        "kubernetes": version,
        **{name: round(seconds, 1) for name, seconds in shown.items()},
        "end_s": round(time.monotonic() - ending, 1),
        "starts_s": gone.pop("starts_s"),
        "helm_test": helm_test,
        "uninstall": gone,
        "all_s": round(time.monotonic() - begun, 1),
        "waiting_s": {
            **{name: lab.values[name] for name in ("preStopSeconds", "minReadySeconds")},
            "an agent less after": STEADY_SECONDS,
        },
        "steps": steps.told,
        "experiments": [each.as_json() for each in results],
    }


def _experiments(
    lab: Lab, chosen: list[str], first: Future[Load], beside: ThreadPoolExecutor, steps: Steps
) -> list[Result]:
    """One after another; the load of the next begins when what is done to the cluster is done, while clients
    of the last settle; these are judged while the next experiment runs, and their topic is read for that.
    The image that one of them needs comes meanwhile."""
    image = beside.submit(lab.node.bring, IMAGES / "jobs.tar") if JOBS in chosen else None
    results, coming = list[Future[Result]](), first
    for name, following in itertools.zip_longest(chosen, chosen[1:]):
        load = coming.result()
        if name == JOBS and image is not None:
            image.result()
        if name == AUTOSCALING and results:
            wait(results[-1:])  # whoever reads the last topic would count as the usual load
        steps.done(f"{name}: clients begin")
        begun, note = time.monotonic(), _done(lab, name)
        if following:
            coming = beside.submit(_load, lab, following)
        time.sleep(SETTLE_S)
        steps.done(name)
        results.append(beside.submit(_judged, load, name, begun, time.monotonic(), note))
    told = [each.result() for each in results]
    steps.done("the last ones judged")
    return told


def _judged(load: Load, name: str, begun: float, ended: float, note: str) -> Result:
    result = load.judge(name, begun, ended, note)
    _say(f"{name}: {result.as_json()}")
    return result


def _load(lab: Lab, name: str) -> Load:
    """Clients that have begun; what has to be there before them is."""
    settings: dict[str, str] = {}
    if name == routes.NAME:
        try:
            routes.prepared(lab)
            settings = routes.clients()
        except NodeError as error:  # the experiment will find nothing there, and say so
            _say(f"{name}: {error}")
    rate = LIGHT_RATE if name in (AUTOSCALING, JOBS) else RATE
    load = Load(lab.bootstrap, _plain(name), RUN / "logs", rate, settings)
    load.begin()
    return load


def _done(lab: Lab, name: str) -> str:
    """Its note. What it cannot do, or does not understand of an answer, is its own failure, not the run's."""
    try:
        return ALL[name](lab)
    except (NodeError, ValueError, LookupError, OSError, TimeoutExpired) as error:
        _say(f"{name} failed: {error}")
        lab.install("upgrade")
        lab.until_ready(3)
        return f"{FAILED}: {(str(error) or repr(error)).splitlines()[0]}"


def _uninstalled(lab: Lab, experiments: list[str], before: int, steps: Steps) -> dict[str, Any]:
    """Nothing of the release stays; installed again, all records are there, as many as were read `before`."""
    lab.helm("uninstall", "floe", "--wait")
    lab.until(lambda: not lab.agents(), "agents stay after helm uninstall")
    routed = ",httproute,tlsroute" if routes.NAME in experiments else ""
    chosen = (
        f"all,configmap,secret,pdb,serviceaccount,job,cronjob,hpa,networkpolicy,ingress{routed}",
        "-l",
        "app.kubernetes.io/instance=floe",
        "-o",
        "name",
    )
    left = [line for line in lab.kubectl("get", *chosen).splitlines() if "sh.helm" not in line]
    steps.done("`helm uninstall --wait`")
    starts_s = [lab.start_seconds(lambda: lab.install("install", *ALONE))]
    steps.done("a new install")
    after = _records(lab, experiments)
    steps.done("every record read again")
    replaced = partial(lab.kubectl, "delete", "pod", "floe-0", "--grace-period=1")
    starts_s += [lab.start_seconds(replaced) for _ in range(STARTS - 1)]
    steps.done("starts")
    shown = sorted(round(each, 1) for each in starts_s)
    _say(f"uninstalled, left {left}; {before} records before, {after} after; ready in {shown} s")
    return {"left": left, "before": before, "after": after, "starts_s": shown}


def _records(lab: Lab, experiments: list[str]) -> int:
    topics = [f"load-{_plain(name)}" for name in experiments]
    with ThreadPoolExecutor(READERS) as readers:
        read = list(readers.map(lambda topic: read_all(lab.bootstrap, topic, range(PARTITIONS)), topics))
    return sum(len(records) for found in read for records in found.values())


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
