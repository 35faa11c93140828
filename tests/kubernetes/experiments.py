"""What is done to the cluster, one function each; what it returns is a note for the page.

Each leaves three ready agents behind, as it found them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from deploy.kubernetes.node import NodeError
from tests.kubernetes import autoscaling, jobs, policies, routes
from tests.kubernetes.lab import PODS, READY_SECONDS_MAX, Lab

AWAY_S, WRONG_S = 6.0, 3.0
PRE_STOP_S = 1


def upgrade(lab: Lab) -> str:
    """`helm upgrade` with a changed configuration, and with what the routes need: every agent restarts, one
    after another. It stays changed."""
    lab.values["config"] = {"fetch": {"sessions_max": 2_000}}
    lab.values["preStopSeconds"] = PRE_STOP_S
    routes.added(lab)
    return (
        f"`fetch.sessions_max` 1,000 → 2,000, `preStopSeconds` 0 → {PRE_STOP_S}, a listener behind a gateway "
        "with a Service and a route for each agent, HTTPRoute and Ingress; all three agents replaced"
    )


def rollout_restart(lab: Lab) -> str:
    """`kubectl rollout restart`."""
    lab.kubectl("rollout", "restart", f"statefulset/{lab.release}")
    lab.rolled_out(lab.release)
    return "all three agents replaced"


def delete_force(lab: Lab) -> str:
    """`kubectl delete pod --force --grace-period=0`; whether its agent was told to stop, its own log says."""
    victim = next(each for each in lab.agents() if each["metadata"]["name"] == "floe-1")
    lab.kubectl("delete", "pod", "floe-1", "--force", "--grace-period=0")
    lab.until_ready()
    said = lab.said(victim)
    told = '"event": "Shutting down"' in said  # upon SIGTERM, and nothing else
    ended = "and to its end, `stopped`" if '"event": "stopped"' in said else "and not to its end"
    how = f"SIGTERM came: its log goes on with its stop, {ended}" if told else "no SIGTERM came to its log"
    return f"one agent deleted with no grace; {how}"


def killed(lab: Lab) -> str:
    """SIGKILL to all processes of an agent's container, as the kernel does when memory is out."""
    before = lab.restarts()
    count = lab.kill("floe-2")
    lab.until(lambda: lab.restarts() > before, "the kubelet started no container anew")
    lab.until_ready()
    return (
        f"SIGKILL to the {count} processes of one agent, as for want of memory; the kubelet started it again"
    )


def out_of_memory(lab: Lab) -> str:
    """Processes beside the agent take its container's memory; the kernel kills the largest: the agent."""
    before = lab.restarts()
    lab.exhaust("floe-0")
    lab.until(lambda: lab.restarts() > before, "the kernel killed no agent")
    why = lab.ended_by("floe-0")
    lab.until_ready()
    if why != "OOMKilled":
        raise NodeError(f"floe-0 ended by {why}, not for want of memory")
    return "limit of 1 GiB reached; the kernel killed the agent (`OOMKilled`), the kubelet started it again"


def drain(lab: Lab) -> str:
    """Evictions of every agent, as `kubectl drain` asks for them; the budget lets one go at a time."""
    refused = sum(lab.evict(f"floe-{n}") for n in range(3))
    lab.until_ready()
    return f"three evictions by the Eviction API; the budget refused {refused} times until its turn came"


def scale(lab: Lab) -> str:
    """`kubectl scale` to 5, to 2, and back to 3."""
    for count in (5, 2, 3):
        lab.kubectl("scale", "statefulset/floe", f"--replicas={count}")
        lab.until_ready(count)
    return "3 → 5 → 2 → 3"


def etcd_follower(lab: Lab) -> str:
    """A member of etcd that does not lead is deleted; it comes back with another address."""
    leader = lab.etcd_leader()
    victim = next(f"etcd-{n}" for n in range(3) if f"etcd-{n}" != leader)
    lab.replaced("etcd", victim)
    return f"{victim} deleted while {leader} led"


def etcd_leader(lab: Lab) -> str:
    """etcd's leader is deleted, with no grace."""
    leader = lab.etcd_leader()
    lab.replaced("etcd", leader, "--force", "--grace-period=0")
    return f"{leader}, which led, killed with no grace; then {lab.etcd_leader()} led"


def etcd_all(lab: Lab) -> str:
    """All members of etcd are deleted; all come back with other addresses."""
    begun = time.monotonic()
    lab.replaced("etcd", "etcd-0", "etcd-1", "etcd-2", "--force", "--grace-period=0")
    return f"all three members killed at once; etcd was ready again after {time.monotonic() - begun:.1f} s"


def minio(lab: Lab) -> str:
    """The object store is deleted, and comes back with another address behind its Service."""
    begun = time.monotonic()
    lab.replaced("minio", "minio-0", "--force", "--grace-period=0")
    return f"its only pod killed; ready again after {time.monotonic() - begun:.1f} s"


def minio_away(lab: Lab) -> str:
    """No object store for a while."""
    lab.kubectl("scale", "statefulset/minio", "--replicas=0")
    lab.until(lambda: not lab.node.listed(PODS, "app=minio"), "minio stays")
    begun, before = time.monotonic(), lab.restarts()
    time.sleep(AWAY_S)
    lab.kubectl("scale", "statefulset/minio", "--replicas=1")
    lab.rolled_out("minio")
    return f"gone for {time.monotonic() - begun:.1f} s; agents restarted {lab.restarts() - before} times"


def wrong_configuration(lab: Lab) -> str:
    """A value that renders and that no agent starts with is rolled out; then `helm rollback`."""
    wrong = ["--set", "extraEnv[0].name=FLOE_PRODUCE__LINGER_MS", "--set-string", "extraEnv[0].value=soon"]
    before = lab.uids()
    lab.install("upgrade", *wrong, wait=False)
    lab.until(lambda: lab.restarts(before) > 0, "no agent with the wrong configuration ended")
    time.sleep(WRONG_S)
    ready = lab.ready_agents()
    lab.helm("rollback", lab.release, "--wait", f"--timeout={READY_SECONDS_MAX}s")
    lab.until_ready()
    return (
        f"{ready} of 3 agents served on with the old configuration while one did not start; then rolled back"
    )


ALL: dict[str, Callable[[Lab], str]] = {
    "delete --force": delete_force,
    "agent killed": killed,
    "out of memory": out_of_memory,
    policies.NAME: policies.enforced,
    "wrong configuration": wrong_configuration,
    "scale": scale,
    "drain": drain,
    "rollout restart": rollout_restart,
    routes.UPGRADE: upgrade,
    routes.NAME: routes.by_the_gateway,
    "etcd's follower deleted": etcd_follower,
    "etcd's leader deleted": etcd_leader,
    "etcd's members all deleted": etcd_all,
    "MinIO deleted": minio,
    "MinIO away": minio_away,
    autoscaling.NAME: autoscaling.up_and_down,
    jobs.NAME: jobs.by_spark,
}
"""In the page's order. Those with a release of their own (story.BESIDE) are done before OF_ALL, side by side.
While images come and others start it is agents that fail, and those waits are not for processors."""
OF_ALL = "etcd's follower deleted"
"""From here on it is done to what all releases share: nothing else is under way then."""
