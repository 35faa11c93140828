"""What can be wrong with a cluster, as far as its agents tell: each with what to do and where to read on.

The rules are those of the alerts (deploy/alerts.yaml), for the moment instead of over time, and what only a
look at all agents together shows: agents that disagree, or that only this machine cannot reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agent.health.told import Told

CLOCK_MS_MAX = 10_000
LATE_S_MAX = 0.5
LAG_S_MAX = 5.0
BUFFER_SHARE_MAX = 0.75
TABLE_BEHIND_S_MAX = 600.0
CERTIFICATE_S_MIN = 7 * 86_400
SHOWN = 5
"""Of many of one kind."""
PAGE = "docs/operations.md"


class Grade(StrEnum):
    """How bad it is, the worst first."""

    WRONG = "WRONG"
    ODD = "odd"


@dataclass(frozen=True, slots=True)
class Ailment:
    """Something that is wrong: with whom, what, what to do, where it is explained."""

    grade: Grade
    where: str
    what: str
    remedy: str
    page: str = PAGE


def ailments(agents: Sequence[Told], now_ms: int) -> list[Ailment]:
    """All that is found, the worst first. `now_ms`: wall clock, for what has a date."""
    answered = [each for each in agents if each.status is not None]
    found = [*_reach(agents), *_agreement(answered)]
    for each in answered:
        for rule in OF_ONE:
            found += rule(each)
        found += _certificates(each, now_ms)
    found += _tables(answered)
    return sorted(set(found), key=lambda each: (list(Grade).index(each.grade), each.where, each.what))


def _reach(agents: Sequence[Told]) -> Iterator[Ailment]:
    """Agents that do not answer here; whether they live, the others say."""
    away = {
        broker["name"]: broker["unwell"]
        for each in agents
        if each.status is not None
        for broker in each.status["brokers"]
        if broker["unwell"]
    }
    for each in agents:
        if each.status is None and each.name in away:
            remedy = "restart it if it does not come back by itself; its clients are at other agents"
            yield Ailment(Grade.WRONG, each.name, f"does not answer, and is aside: {away[each.name]}", remedy)
        elif each.status is None:
            what = f"cannot be reached from here ({each.error}), and no agent calls it unwell"
            remedy = (
                "run this where agents reach each other, or set http.advertised_host; else it has just died"
            )
            yield Ailment(Grade.ODD, each.name, what, remedy)


def _processes(each: Told) -> Iterator[Ailment]:
    """Of a machine with several: one that ends again and again."""
    for process in each.processes:
        if not process["ready"] and process["replaced"]:
            times = f"was replaced {process['replaced']} times and is not ready"
            what = f"{times}; the one before: {process['last_end']}"
            remedy = "its last lines in the log say why it ends"
            page = f"{PAGE}#several-agents-on-one-machine"
            yield Ailment(Grade.WRONG, str(process["name"]), what, remedy, page)


def _agreement(answered: Sequence[Told]) -> Iterator[Ailment]:
    """What has to be the same on all."""
    hashes: dict[int, dict[str, list[str]]] = {}
    for each in answered:
        status = status_of(each)
        for point in status["recent"]:
            hashes.setdefault(point["revision"], {}).setdefault(point["state_hash"], []).append(each.name)
    for revision, told in sorted(hashes.items()):
        if len(told) > 1:
            sides = " against ".join(", ".join(names) for names in told.values())
            remedy = "a defect: stop the cluster, keep logs and the bucket, and report it"
            yield Ailment(Grade.WRONG, "cluster", f"state differs at revision {revision}: {sides}", remedy)
            break
    versions = {str(status_of(each)["version"]) for each in answered}
    if len(versions) > 1:
        what = f"agents of several versions: {', '.join(sorted(versions))}"
        remedy = "finish the upgrade, then raise the feature level: floe upgrade check"
        yield Ailment(Grade.ODD, "cluster", what, remedy, f"{PAGE}#upgrade")
    clusters = {str(status_of(each)["cluster"]) for each in answered}
    if len(clusters) > 1:
        what = f"agents of several clusters: {', '.join(sorted(clusters))}"
        yield Ailment(
            Grade.WRONG, "cluster", what, "an address is another cluster's: set http.advertised_host"
        )


def status_of(each: Told) -> Any:
    """What it told; only of one that answered."""
    assert each.status is not None
    return each.status


def _ready(each: Told) -> Iterator[Ailment]:
    status = status_of(each)
    bad = {check["name"]: check for check in status["dependencies"] if not check["ok"]}
    for name, check in bad.items():
        remedy = REMEDIES.get(name, f"see {PAGE}, Health")
        what = f"{name}: {check['message']}, for {check['for_s']:.0f} s"
        yield Ailment(Grade.WRONG, each.name, what, remedy, f"{PAGE}#health")
    drained = any(each.get("drained") and each["name"] == status["agent"] for each in status["brokers"])
    if not status["ready"] and not bad and not drained:
        what = f"is not ready: {'; '.join(status['reasons'])}"
        yield Ailment(Grade.WRONG, each.name, what, "wait for its start or end to be over", f"{PAGE}#health")
    for broker in status["brokers"]:
        if broker["unwell"]:
            yield _aside(broker)


def _aside(broker: Mapping[str, Any]) -> Ailment:
    if broker.get("drained"):
        remedy = f"its clients are at other agents; floe drain {broker['name']} --undo brings it back"
        return Ailment(Grade.ODD, broker["name"], f"is {broker['unwell']}", remedy, f"{PAGE}#drain-an-agent")
    remedy = "its clients are at other agents; mend what it names, it comes back by itself"
    page = f"{PAGE}#an-agent-that-is-not-well-steps-aside"
    return Ailment(Grade.WRONG, broker["name"], f"has stepped aside: {broker['unwell']}", remedy, page)


REMEDIES = {
    "log": "look after etcd, or at the way there: etcdctl endpoint status; floe check says more",
    "append": "etcd answers and takes nothing: NOSPACE, no quorum, a slow disk. floe check says which",
    "store": "look after the object store, its credentials, the way there: floe check says more",
    "store write": "the object store can be read, not written: full, rights, a quota. floe check says which",
    "applying": "the agent is short of CPU, or etcd's watch is slow",
    "event loop": "the agent is short of CPU: raise its limit, or add agents",
    "clock": "synchronise the machine's clock (NTP)",
    "state": "look which member of etcd the agents' logs name, and replace it: it heals by itself",
}


def _jobs(each: Told) -> Iterator[Ailment]:
    for job in status_of(each)["failing_jobs"]:
        what = f"{job['job']} has failed {job['failures']} times since {job['since']}: {job['error']}"
        yield Ailment(Grade.WRONG, each.name, what, "what the error says; it is tried again by itself")


def _records(each: Told) -> Iterator[Ailment]:
    status = status_of(each)
    for place in status["damaged"][:SHOWN]:
        what = (
            f"{place['topic']}-{place['partition']}: offsets {place['from_offset']} to {place['to_offset']} "
            f"cannot be read: {place['reason']}"
        )
        remedy = "restore the object from a copy of the bucket, or let readers pass: floe topic skip-damaged"
        yield Ailment(Grade.WRONG, "records", what, remedy)
    refused = each.total("floe_produce_rejected_total")
    if refused and status["refused"]:
        newest = status["refused"][0]
        what = (
            f"{refused:.0f} batches were refused since its start, the newest: {newest.get('message', newest)}"
        )
        yield Ailment(Grade.ODD, each.name, what, "tell who sends them: refused in /status names the clients")


def _load(each: Told) -> Iterator[Ailment]:
    late = each.total("floe_event_loop_delay_seconds")
    if late > LATE_S_MAX:
        yield Ailment(Grade.WRONG, each.name, f"its loop is {late:.1f} s late", REMEDIES["event loop"])
    lag = each.total("floe_lag_seconds")
    if lag > LAG_S_MAX:
        yield Ailment(Grade.WRONG, each.name, f"is {lag:.0f} s behind the log", REMEDIES["applying"])
    skew = each.total("floe_clock_skew_ms")
    if abs(skew) > CLOCK_MS_MAX:
        yield Ailment(Grade.WRONG, each.name, f"its clock is {skew / 1000:.0f} s off", REMEDIES["clock"])
    most = each.total("floe_produce_buffer_bytes_max")
    share = each.total("floe_produce_buffered_bytes") / most if most else 0.0
    if share > BUFFER_SHARE_MAX:
        what = f"its produce buffer is {share:.0%} full: connections are held back"
        yield Ailment(Grade.ODD, each.name, what, "add agents, or the bucket is slow")
    limit, needed = (each.total(f"floe_memory_{what}_bytes") for what in ("limit", "needed"))
    if limit and needed > limit:
        what = f"may use {needed / 2**20:.0f} MiB of the {limit / 2**20:.0f} MiB it has"
        yield Ailment(Grade.ODD, each.name, what, "floe check says what to lower", f"{PAGE}#memory")


def _secrets(each: Told) -> Iterator[Ailment]:
    for name, why in status_of(each)["files"].items():
        remedy = "restart the agent, or mend the file"
        yield Ailment(
            Grade.ODD, each.name, f"the file of {name}: {why}", remedy, f"{PAGE}#secrets-that-change"
        )
    for metric, what in STALE.items():
        if each.total(metric):
            yield Ailment(Grade.WRONG, each.name, what, "its log says why", "docs/security.md")


STALE = {
    "floe_tls_renewal_failing": "certificates on its disk cannot be used: the old ones are in force",
    "floe_users_file_failing": "its file of users cannot be used: the old one is in force",
    "floe_jwks_failing": "newer keys of tokens cannot be had: the known ones are in force",
}


def _certificates(each: Told, now_ms: int) -> Iterator[Ailment]:
    for labels, ends in each.samples.get("floe_tls_expires_seconds", ()):
        left = ends - now_ms / 1000
        if left < CERTIFICATE_S_MIN:
            when = f"ends in {left / 86_400:.1f} days" if left > 0 else "is over"
            what = f"the certificate of listener {labels['listener']} {when}"
            yield Ailment(Grade.WRONG, each.name, what, "renew it on the disk", "docs/security.md")


def _defects(each: Told) -> Iterator[Ailment]:
    for defect in status_of(each)["defects"][:SHOWN]:
        what = f"{defect['place']}: {defect['error']}, {defect['count']} times"
        yield Ailment(Grade.ODD, each.name, what, "a defect: report it with the traceback in its log")


OF_ONE: tuple[Callable[[Told], Iterator[Ailment]], ...] = (
    _ready, _processes, _jobs, _records, _load, _secrets, _defects
)  # fmt: skip
"""What one agent is asked for."""


def _tables(answered: Sequence[Told]) -> Iterator[Ailment]:
    """Of all agents, as each tells of every table: the worst."""
    behind: dict[str, float] = {}
    for each in answered:
        for labels, seconds in each.samples.get("floe_table_seconds_behind", ()):
            behind[labels["topic"]] = max(seconds, behind.get(labels["topic"], 0.0))
    for topic, seconds in sorted(behind.items(), key=lambda item: -item[1])[:SHOWN]:
        if seconds > TABLE_BEHIND_S_MAX:
            what = f"the table of {topic} lacks a record that is {seconds:.0f} s old"
            yield Ailment(Grade.WRONG, "tables", what, "floe table list says who commits it and why not")
    for each in answered:
        for table in status_of(each)["tables"]:
            for problem in table.get("problems", ())[:SHOWN]:
                what = f"the table of {table.get('topic', '?')} goes on with a problem: {problem}"
                yield Ailment(Grade.ODD, "tables", what, "what the problem says", "docs/tables.md")
