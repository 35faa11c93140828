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
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any, NamedTuple

from deploy.kubernetes.extras import METRICS_SECONDS
from deploy.kubernetes.namespaces import STATE
from deploy.kubernetes.node import RUN, Node, NodeError
from tests.kubernetes import autoscaling, jobs, policies, routes
from tests.kubernetes.autoscaling import STEADY_SECONDS
from tests.kubernetes.experiments import ALL, OF_ALL
from tests.kubernetes.kept import PodLogs, Steps
from tests.kubernetes.lab import POD_LOGS, VALUES, Lab
from tests.kubernetes.load import LIGHT_RATE, SETTLE_S, Load, Result, stored
from tests.kubernetes.page import FAILED

ALONE = ("--set", "replicas=1", "--set", "resources.limits.cpu=1")
STARTS = 3
ASIDE = "those on releases of their own, side by side"


class Aside(NamedTuple):
    """Of an experiment with a release of its own, of one agent: its values beside the usual ones, and its
    topic's configs."""

    release: str
    values: Mapping[str, Any]
    config: Mapping[str, str]


BESIDE = {
    autoscaling.NAME: Aside(autoscaling.RELEASE, {}, {}),
    jobs.NAME: Aside(jobs.RELEASE, {"spark": jobs.VALUES, **jobs.RELEASE_VALUES}, jobs.CONFIG),
}
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
    if amiss := unclean(results):
        print(f"not clean: {', '.join(amiss)}", file=sys.stderr)
    return int(bool(amiss))


def unclean(results: Mapping[str, Any]) -> list[str]:
    """What a run has to be ashamed of: experiments, objects that stay, records that do not."""
    told, gone = results["experiments"], results["uninstall"]
    amiss = [each["name"] for each in told if not Result(**each).clean or each["note"].startswith(FAILED)]
    if gone["left"]:
        amiss.append(f"left by helm uninstall: {', '.join(gone['left'])}")
    if gone["before"] != gone["after"]:
        amiss.append(f"{gone['before']} records before helm uninstall, {gone['after']} after a new install")
    return amiss


def _told(lab: Lab, chosen: list[str]) -> dict[str, Any]:
    begun, steps = time.monotonic(), Steps()
    with ThreadPoolExecutor(8) as beside:
        lab.node.start([IMAGES / f"{name}.tar" for name in ("pause", "servers")])
        agent = beside.submit(lab.node.bring, IMAGES / "agent.tar")
        node_s = steps.done("node ready")
        lab.services()
        services_s = steps.done("etcd and MinIO ready")
        agent.result()
        steps.done("the agent's image imported")
        lab.install()
        install_s = steps.done("`helm install --wait`")
        tested = beside.submit(lab.helm, "test", lab.release)
        results = _experiments(lab, chosen, beside, steps)
        helm_test = "Succeeded" in tested.result()
    ending = time.monotonic()
    main = [name for name in chosen if name not in BESIDE]
    before = sum(each.stored for each in results if each.name in main)
    gone = _uninstalled(lab, main, before, steps)
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
            **{name: VALUES[name] for name in ("preStopSeconds", "minReadySeconds")},
            "an agent less after": STEADY_SECONDS,
        },
        "settle_s": SETTLE_S,
        "metrics_s": METRICS_SECONDS,
        "steps": steps.told,
        "programs": {name: round(seconds, 1) for name, seconds in lab.node.core_seconds().items()},
        "experiments": [each.as_json() for each in results],
    }


def _experiments(lab: Lab, chosen: list[str], beside: ThreadPoolExecutor, steps: Steps) -> Sequence[Result]:
    """One after another; between those on agents and those on what all releases share, side by side, those
    that have a release of their own. The image that one of them needs comes meanwhile."""
    image = beside.submit(lab.node.bring, IMAGES / "jobs.tar") if jobs.NAME in chosen else None
    before = _made_ready(lab, chosen, beside)
    of_all = list(ALL)[list(ALL).index(OF_ALL) :]
    main = [name for name in chosen if name not in BESIDE]
    results = _one_after_another(lab, [n for n in main if n not in of_all], before, beside, steps)
    if image is not None:
        image.result()
    aside = [beside.submit(_aside, lab.node, name, steps) for name in chosen if name in BESIDE]
    wait([*results, *aside])
    steps.done(ASIDE)
    results += _one_after_another(lab, [n for n in main if n in of_all], before, beside, steps)
    told = [each.result() for each in (*results, *aside)]
    steps.done("the last ones judged")
    return told


def _made_ready(lab: Lab, chosen: list[str], beside: ThreadPoolExecutor) -> dict[str, Future[None]]:
    """What has to be there before an experiment, or its clients, and is made while others are under way."""
    found = dict[str, Future[None]]()
    if routes.NAME in chosen or routes.UPGRADE in chosen:
        found[routes.UPGRADE] = found[routes.NAME] = beside.submit(routes.gateway_there, lab)
    if policies.NAME in chosen:
        found[policies.NAME] = beside.submit(policies.prepared, lab)
    return found


def _one_after_another(
    lab: Lab,
    chosen: list[str],
    before: Mapping[str, Future[None]],
    beside: ThreadPoolExecutor,
    steps: Steps,
) -> list[Future[Result]]:
    """The load of the next begins when what is done to the cluster is done, while clients of the last settle;
    these are judged while the next experiment runs, and their topic is read for that."""
    results = list[Future[Result]]()
    coming = beside.submit(_load, lab, chosen[0], before) if chosen else None
    for number, name in enumerate(chosen):
        assert coming is not None
        load, amiss = coming.result()
        steps.done(f"{name}: clients begin")
        begun, note = time.monotonic(), _done(lab, name, amiss)
        if number + 1 < len(chosen):
            coming = beside.submit(_load, lab, chosen[number + 1], before)
        time.sleep(SETTLE_S)
        steps.done(name)
        results.append(beside.submit(_judged, load, name, begun, time.monotonic(), note))
    return results


def _aside(node: Node, name: str, steps: Steps) -> Result:
    """An experiment on a release of its own, which comes and goes with it."""
    since = time.monotonic()
    release, values, config = BESIDE[name]
    lab = Lab(node, release, replicas=1)
    lab.values |= values
    lab.values["objectStore"]["prepare"] = False  # the bucket is there
    lab.install()
    load = Load(lab.bootstrap, _plain(name), RUN / "logs", LIGHT_RATE, config=config)
    load.begin()
    begun, note = time.monotonic(), _done(lab, name)
    time.sleep(SETTLE_S)
    result = _judged(load, name, begun, time.monotonic(), note)
    lab.helm("uninstall", release, "--wait")
    steps.beside(name, time.monotonic() - since)
    return result


def _judged(load: Load, name: str, begun: float, ended: float, note: str) -> Result:
    result = load.judge(name, begun, ended, note)
    _say(f"{name}: {result.as_json()}")
    return result


def _load(lab: Lab, name: str, before: Mapping[str, Future[None]]) -> tuple[Load, str]:
    """Clients that have begun, and what of that which has to be there before them is not, else nothing."""
    settings, amiss = dict[str, str](), ""
    try:
        if name in before:
            before[name].result()
        if name == routes.NAME:
            routes.prepared(lab)
            settings = routes.clients()
    except NodeError as error:
        amiss = str(error)
    load = Load(lab.bootstrap, _plain(name), RUN / "logs", settings=settings)
    load.begin()
    return load, amiss


def _done(lab: Lab, name: str, amiss: str = "") -> str:
    """Its note. What it cannot do, or does not understand of an answer, is its own failure, not the run's; it
    is not done where something is amiss."""
    try:
        if amiss:
            raise NodeError(amiss)
        return ALL[name](lab)
    except (NodeError, ValueError, LookupError, OSError, TimeoutExpired) as error:
        _say(f"{name} failed: {error}")
        lab.install("upgrade")
        lab.until_ready()
        return f"{FAILED}: {(str(error) or repr(error)).splitlines()[0]}"


def _uninstalled(lab: Lab, experiments: list[str], before: int, steps: Steps) -> dict[str, Any]:
    """Nothing of any release stays; installed again, all records are there, as many as were read `before`."""
    lab.helm("uninstall", lab.release, "--wait")
    lab.until(lambda: not lab.agents(), "agents stay after helm uninstall")
    routed = ",httproute,tlsroute" if "listeners" in lab.values else ""
    releases = (lab.release, *(each.release for each in BESIDE.values()))
    chosen = (
        f"all,configmap,secret,pdb,serviceaccount,job,cronjob,hpa,networkpolicy,ingress{routed}",
        "-l",
        f"app.kubernetes.io/instance in ({','.join(releases)})",
        "-o",
        "name",
    )
    left = [line for line in lab.kubectl("get", *chosen).splitlines() if "sh.helm" not in line]
    steps.done("`helm uninstall --wait`")
    starts_s = [lab.start_seconds(lambda: lab.install("install", *ALONE))]
    steps.done("a new install")
    after = stored(lab.bootstrap, [f"load-{_plain(name)}" for name in experiments])
    steps.done("every record read again")
    replaced = partial(lab.kubectl, "delete", "pod", f"{lab.release}-0", "--grace-period=1")
    starts_s += [lab.start_seconds(replaced) for _ in range(STARTS - 1)]
    steps.done("starts")
    shown = sorted(round(each, 1) for each in starts_s)
    _say(f"uninstalled, left {left}; {before} records before, {after} after; ready in {shown} s")
    return {"left": left, "before": before, "after": after, "starts_s": shown}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z]+", "-", name.lower()).strip("-")


def _keep_logs(lab: Lab) -> None:
    target: Path = STATE / "logs"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(RUN / "logs", target, ignore_dangling_symlinks=True)
    try:
        (target / "pods.txt").write_text(lab.kubectl("get", "pods", "-o", "wide"))
        (target / "events.txt").write_text(lab.kubectl("get", "events"))
        (target / "agents.log").write_text(lab.kubectl("logs", "-l", lab.selector, "--prefix", "--tail=2000"))
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
