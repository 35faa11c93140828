"""What asking ACLs costs: 10,000 of them, 200 topics in one request, answers that are new and remembered."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable

from agent.config.authorizer import AuthorizerConfig
from agent.kafka.authority.authority import Authority
from agent.kafka.authority.needs import PRODUCE
from agent.telemetry.metrics import Metrics
from agent.telemetry.shadow import Shadow
from coordination.clock import SystemClock
from coordination.commands import AclBinding, CreateAcls, DeleteAcls
from coordination.state import State
from coordination.state.acl_types import Operation, PatternType, Permission, ResourceType
from coordination.state.types import Done
from tests.bench.bench_apply import entry, prepared
from tests.bench.figure import ROUNDS, Figure

ACLS, TOPICS, USERS = 10_000, 200, 100
NAME = "10,000 ACLs"
TIMES = 50  # that one request is asked in a round


def acl(number: int) -> AclBinding:
    """One of many: literal names, prefixes of several lengths, wildcards, denials, networks."""
    kinds = (
        (f"orders.{number % 2_000}", PatternType.LITERAL),
        (f"orders.{number % 200}"[: 6 + number % 5], PatternType.PREFIXED),
        (f"team-{number}", PatternType.PREFIXED),
    )
    name, pattern = kinds[number % 3]
    return AclBinding(
        resource_type=ResourceType.TOPIC,
        pattern_type=pattern,
        name=name,
        principal=f"User:u{number % USERS}",
        host=("*", "10.0.0.0/8", f"10.1.{number % 250}.1")[number % 3],
        operation=(Operation.READ, Operation.WRITE, Operation.ALL)[number // 3 % 3],
        permission=Permission.DENY if number % 10 == 0 else Permission.ALLOW,
    )


def filled() -> tuple[State, float]:
    """A state with the ACLs, all by one command; how long applying it took, seconds."""
    state = prepared()
    made = entry(state.revision + 1, [CreateAcls(acls=[acl(number) for number in range(ACLS)])])
    start = time.perf_counter()
    state.apply(made)
    return state, time.perf_counter() - start


def ask(authority: Authority, names: list[str]) -> int:
    """One request's questions; how many are refused."""
    return len(authority.refused("u7", "10.1.2.3", PRODUCE, names))


def measure(authority: Authority, state: State) -> tuple[float, float]:
    """Seconds per topic: after a change of the ACLs, and asked again."""
    names = [f"orders.{number}" for number in range(TOPICS)]
    new: list[float] = []
    again: list[float] = []
    for _ in range(TIMES):
        state.acls.revision += 1  # as a change does
        for times in (new, again):
            start = time.perf_counter()
            refused = ask(authority, names)
            times.append((time.perf_counter() - start) / TOPICS)
            assert 0 < refused < TOPICS, "some are allowed, some are not"
    return statistics.median(new), statistics.median(again)


def figures() -> Iterable[Figure]:
    """The rows of docs/benchmarks.md."""
    rounds = []
    for _ in range(ROUNDS):
        state, applied_s = filled()
        clock, metrics = SystemClock(), Metrics()
        config = AuthorizerConfig(mode="enforce")
        authority = Authority(config, lambda state=state: state, metrics, Shadow(clock, 1))  # type: ignore[misc]  # mypy cannot type a lambda with a default
        new_s, again_s = measure(authority, state)
        everything = DeleteAcls.Filter(resource_type=1, pattern_type=1, operation=1, permission=1)
        gone = entry(state.revision + 1, [DeleteAcls(filters=[everything])])
        start = time.perf_counter()
        (result,) = state.apply(gone).results
        assert isinstance(result, Done)
        assert not state.acls.acls
        rounds.append((again_s, new_s, applied_s, time.perf_counter() - start))
    again_s, new_s, applied_s, deleted_s = (statistics.median(each) for each in zip(*rounds, strict=True))
    name = f"{NAME}, 200 topics in one request"
    yield Figure(f"{name}: per topic, asked again", again_s * 1e6, "µs", goal=1.0, better="less")
    yield Figure(f"{name}: per topic, new", new_s * 1e6, "µs", goal=20.0, better="less")
    yield Figure(f"{NAME} created by one command, applied", applied_s * 1e3, "ms", better="less")
    yield Figure(f"{NAME} deleted by one filter, applied", deleted_s * 1e3, "ms", better="less")
