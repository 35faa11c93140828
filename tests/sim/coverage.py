"""What happened in a run, and over many runs what never did: a story that never happens shows nothing.

Counted are commands with what apply answered, requests by API, named steps of work under each fault, and for
each rule of docs/architecture.md the evidence that a run put it to the test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from agent.kafka.handlers import HANDLERS as SERVED
from agent.net.wire.api import APIS
from coordination import steps
from coordination.state.state import HANDLERS as COMMANDS
from iceberg.steps import STEPS as TABLE_STEPS
from iceberg.upsert.steps import STEPS as LATEST_STEPS
from tests.sim.faults import FAULTS
from tests.sim.network import EVENTS

if TYPE_CHECKING:
    from tests.sim.outcome import Outcome

_OF_TABLES = (("table", TABLE_STEPS), ("latest", LATEST_STEPS))
STEPS = (*steps.STEPS, *steps.COPY_STEPS, *(f"{path}/{step}" for path, names in _OF_TABLES for step in names))
RULES: Mapping[str, tuple[str, ...]] = {
    "1 ack means durable": ("command commit_chunk", "fault kill"),
    "2 leases drive liveness only": ("fault expire-lease", "command fence_incarnation"),
    "3 retries are idempotent": ("fault lose-answers",),
    "4 dedup in the state": ("fault hold-requests", "fault cut-clients"),
    "5 read barrier": ("positions asked for behind the log", "request ListOffsets"),
    "6 the watch is not trusted": ("fault silence-watches", "fault compact", "fault cancel-watches"),
    "7 fetch hides nothing": ("small fetches",),
    "8 a transaction ends once": ("command end_transaction", "command abort_transaction", "held EndTxn"),
    "9 nothing referenced goes": ("step collect/delete", "command forget_chunks", "command swap_segments"),
    "10 agents outlive what they need": ("fault cut-log", "fault bad-store"),
    "12 large changes": ("step change/end",),
}
"""By rule: what must have happened, all of it. Rules 11 and 13 are no matter of schedules."""

_CATALOG = "only the Iceberg REST catalog asks for it, over HTTP; it has no client here"
_QUOTAS = (
    "time is not the loop's own there, and nobody is slowed down: the command is in "
    "tests/unit/coordination/test_quotas.py"
)
_LOGINS = "no client logs in here: the commands are in tests/unit/coordination/test_scram.py"
_ACLS = "nothing is forbidden here: the commands are in tests/unit/coordination/test_acls.py"
_TOKENS = "no client logs in here: the commands are in tests/unit/coordination/test_delegation.py"
COMMANDS_OUT: Mapping[str, str] = {
    "commit_tables": _CATALOG,
    "abort": "an author gives a large change up only when a part is refused; where the author is fenced "
    "in its midst, as in a kept plan, the state drops the change without a command",
    "downgrade_consumer_group": "its group must lose the last member of KIP-848 while classic ones stay: "
    "no group here has members of both kinds",
    "drop_namespace": _CATALOG,
    "create_acls": _ACLS,
    "delete_acls": _ACLS,
    "put_scram_credential": _LOGINS,
    "delete_scram_credential": _LOGINS,
    "alter_client_quotas": _QUOTAS,
    "create_delegation_token": _TOKENS,
    "renew_delegation_token": _TOKENS,
    "expire_delegation_token": _TOKENS,
    "expire_transactions": "transactional ids are kept for days: in a run that would be an anomaly (due.py)",
    "judge_agent": "only an agent that stays unwell for seconds is judged: seeds with --sick come to it",
}
"""Commands that may stay out, each with the reason."""
REQUESTS_OUT: Mapping[str, str] = dict.fromkeys(
    ("SaslHandshake", "SaslAuthenticate", "AlterUserScramCredentials"), _LOGINS
) | {"AlterClientQuotas": _QUOTAS} | dict.fromkeys(
    (
        "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken",
    ), _TOKENS,
)  # fmt: skip
"""APIs that may stay out, likewise."""


@cache
def _named(what: str, step: str, between: str = "") -> str:
    """What is counted: there are few of them, and a run comes to thousands."""
    return what + between + step


class Seen:
    """One run's counts. `armed` is asked at every step."""

    def __init__(self, node: Callable[[], str]) -> None:
        self.counts: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        """Faults under way."""
        self.armed: dict[str, tuple[str, Callable[[], None]]] = {}
        """By node name: a step, and what happens to the node when it comes to it."""
        self._node = node

    @contextmanager
    def watches(self) -> Iterator[None]:
        """Count steps meanwhile."""
        steps.install(self._reached)
        try:
            yield
        finally:
            steps._hooks.remove(self._reached)

    def _reached(self, step: str) -> None:
        counts = self.counts
        counts[_named("step ", step)] += 1
        for fault in self.faults:
            counts[_named(fault, step, ":")] += 1
        if not self.armed:
            return
        name = self._node().partition("/")[0]
        due, happens = self.armed.get(name, ("", None))
        if due == step and happens is not None:
            del self.armed[name]
            self.counts[f"stopped at {step}"] += 1
            happens()


class Coverage:
    """The sum over many runs."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.runs = 0

    def note(self, outcome: Outcome) -> None:
        """One run more."""
        self.runs += 1
        self.counts.update(outcome.coverage)

    def add(self, other: Coverage) -> None:
        """Those of another process."""
        self.runs += other.runs
        self.counts.update(other.counts)

    def report(self) -> str:
        """What happened how often, and what never did."""
        lines = [
            "faults: " + self._shown("fault "),
            "stopped at: " + self._shown("stopped at "),
            "jobs: " + self._shown("job "),
            "commands: " + self._shown("command "),
            "requests: " + self._shown("request "),
            "held: " + self._shown("held "),
            "rows of the topics that are bound: " + self._shown("row "),
            "the registry: " + self._shown("registry "),
            f"keys: {self.counts['keys']}, retired {self.counts['keys retired']}",
            "groups that subscribe: " + self._shown("group "),
            "where a consumer goes on behind a transaction that failed: " + self._shown("behind an abort "),
            f"records that a copying client skipped so: {self.counts['skipped behind an abort']}",
            "clients that an error of aiokafka's ended: " + self._shown("broke "),
            "damage of objects: " + self._shown("scrub "),
            "replicas of a bucket: " + self._shown("replica ") + "; " + self._shown("havoc "),
            "queues of two clusters: " + self._shown("queue ") + "; " + self._shown("quarrel "),
            "relays inside a zone: " + self._shown("relay "),
            "sickness: " + self._shown("sickness "),
            "network: " + self._shown("network "),
            f"pairs of faults that were on together: {sum(each.startswith('pair ') for each in self.counts)}",
            f"never in the network: {', '.join(self._never('network ', EVENTS)) or 'none'}",
            f"rules never put to the test: {', '.join(self.untested()) or 'none'}",
            *self._played("commands", "command ", list(COMMANDS), COMMANDS_OUT),
            *self._played("requests", "request ", self._api_names(), REQUESTS_OUT),
            f"steps never reached: {', '.join(self._never('step ', STEPS)) or 'none'}",
        ]
        return "\n".join([*lines, *self._pairs()])

    def _played(self, what: str, prefix: str, names: Sequence[str], out: Mapping[str, str]) -> Iterator[str]:
        """How many of all are played, why the others stay out, and which of them nobody has thought of."""
        never = self._never(prefix, names)
        yield f"{what} played: {len(names) - len(never)} of {len(names)}"
        for name in never:
            if name in out:
                yield f"  not {name}: {out[name]}"
        yield f"{what} neither played nor excused: {', '.join(n for n in never if n not in out) or 'none'}"

    def _pairs(self) -> Iterator[str]:
        """Faults with the steps that were reached, but never while the fault was under way."""
        reached = [step for step in STEPS if self.counts[f"step {step}"]]
        found = sum(bool(self.counts[f"{fault.name}:{step}"]) for fault in FAULTS for step in reached)
        yield f"steps under faults: {found} of {len(FAULTS) * len(reached)} pairs; never:"
        for fault in FAULTS:
            never = [step for step in reached if not self.counts[f"{fault.name}:{step}"]]
            shown = "not on at all" if len(never) == len(reached) else ", ".join(never)
            if never:
                yield f"  {fault.name}: {shown}"

    def untested(self) -> list[str]:
        """Rules without all of their evidence."""
        return [rule for rule, needs in RULES.items() if not all(self.counts[each] for each in needs)]

    def _shown(self, prefix: str) -> str:
        found = sorted(each for each in self.counts if each.startswith(prefix))
        return ", ".join(f"{each.removeprefix(prefix)} {self.counts[each]}" for each in found) or "none"

    def _never(self, prefix: str, names: Iterable[str]) -> list[str]:
        return [name for name in names if not self.counts[prefix + name]]

    def _api_names(self) -> list[str]:
        return [APIS[key].name for key in sorted(SERVED)]
