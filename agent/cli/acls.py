"""`floe acl review`: what shadow mode saw that no ACL allows, as the commands that would allow it.

Every agent counts what came to it since it started, so every agent is asked.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, NamedTuple

import typer

from agent.cli import options
from agent.cli.acl_prefixes import prefixes
from agent.cli.failures import Failure
from coordination.clock import SystemClock
from coordination.state.acl_types import WILDCARD, Operation, ResourceType, spoken

app = typer.Typer(
    help="What may be done by whom (docs/security.md). ACLs are set with Kafka's own kafka-acls.sh.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_OPTIONS = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
    ResourceType.DELEGATION_TOKEN: "--delegation-token",
    ResourceType.USER: "--user-principal",
}
_DESCRIBES = (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
"""Operations that allow Describe as well."""
COUNTED_S_MAX = 10 * 365 * 86_400
NAMES_MAX = 1_000_000


class Wanted(NamedTuple):
    """Operations that somebody needs on resources of a type."""

    principal: str
    resource: ResourceType
    operations: tuple[Operation, ...]
    names: tuple[str, ...]
    prefixed: bool = False


@app.callback()
def _acls() -> None:
    """What may be done by whom."""


@app.command("review")
def review(
    http: options.Http = options.HTTP_DEFAULT,
    since_s: Annotated[
        int, typer.Option("--since-s", min=1, max=COUNTED_S_MAX, help="Only of the last seconds.")
    ] = COUNTED_S_MAX,
    prefix: Annotated[
        int,
        typer.Option(
            min=0,
            max=NAMES_MAX,
            help="One prefixed ACL for so many names or more that begin alike, where nothing else that was "
            "seen begins so; it allows later names too. 0: each name by itself.",
        ),
    ] = 0,
    output: options.Output = options.Form.TABLE,
) -> None:
    """Print the ACLs that allow what shadow mode saw and no ACL allows: commands of kafka-acls.sh.

    floe acl review --since-s 86400 --prefix 3 > acls.sh
    """
    from agent.cli.output import print_json, remarks

    told, silent = _asked(http, SystemClock().now_ms() - since_s * 1000)
    rows = [row for answer in told for row in answer["unallowed"]]
    found = wanted(rows, prefix)
    if output is options.Form.JSON:
        agents = [{name: value for name, value in each.items() if name != "unallowed"} for each in told]
        print_json({"agents": agents, "silent": silent, "unallowed": rows, "commands": list(commands(found))})
        return
    for line in commands(found):
        typer.echo(line)
    say = remarks().print
    for answer in told:
        if answer["mode"] != "shadow":
            say(f"{answer['agent']}: authorizer.mode is {answer['mode']}, so it counts nothing")
        if answer["forgotten"]:
            say(f"{answer['agent']}: {answer['forgotten']} kinds are forgotten (authorizer.shadow_rows_max)")
    for name in silent:
        say(f"{name} does not answer: what came to it is missing here")
    if not found:
        say("nothing was seen that no ACL allows")


def _asked(http: str, after_ms: int) -> tuple[list[dict[str, Any]], list[str]]:
    """What every agent tells, and the addresses of those that do not answer. Raises Failure for the first."""
    from agent.cli.agent_http import ask

    path = f"/admin/acls/unallowed?after_ms={max(after_ms, 0)}"
    scheme = "https" if http.startswith("https:") else "http"
    told, silent = [], []
    for broker in ask(http, "/status.json")["brokers"]:
        try:
            told.append(ask(f"{scheme}://{broker['http']}", path))
        except Failure:
            silent.append(f"{broker['name']} ({broker['http']})")
    return told, silent


def wanted(rows: Iterable[dict[str, Any]], prefix: int = 0) -> list[Wanted]:
    """The fewest ACLs that allow these rows and nothing else: nothing that others imply.

    `prefix`: so many names that begin alike become one prefix, where it fits nothing else seen; 0: none.
    """
    by_name: dict[tuple[str, int, str], set[Operation]] = {}
    for row in rows:
        key = row["principal"], row["resource"], row["name"]
        by_name.setdefault(key, set()).add(Operation(row["operation"]))
    together: dict[tuple[str, int, tuple[Operation, ...]], list[str]] = {}
    for (principal, resource, name), operations in sorted(by_name.items()):
        together.setdefault((principal, resource, _least(operations)), []).append(name)
    found = [
        Wanted(principal, ResourceType(resource), operations, tuple(names))
        for (principal, resource, operations), names in together.items()
    ]
    if not prefix:
        return found
    seen = {(ResourceType(resource), name) for _, resource, name in by_name}
    return [each for one in found for each in _by_prefix(one, seen, prefix)]


def _by_prefix(one: Wanted, seen: set[tuple[ResourceType, str]], least: int) -> Iterator[Wanted]:
    """The same in two: names that have a prefix in common, and the others."""
    others = {name for resource, name in seen if resource is one.resource} - set(one.names)
    found, left = prefixes([name for name in one.names if name != WILDCARD], others, least)
    if not found:
        yield one
        return
    yield one._replace(names=tuple(found), prefixed=True)
    left += [name for name in one.names if name == WILDCARD]
    if left:
        yield one._replace(names=tuple(left))


def _least(operations: set[Operation]) -> tuple[Operation, ...]:
    """Without those that others allow as well."""
    needless = set()
    if operations & set(_DESCRIBES):
        needless.add(Operation.DESCRIBE)
    if Operation.ALTER_CONFIGS in operations:
        needless.add(Operation.DESCRIBE_CONFIGS)
    return tuple(sorted(operations - needless))


def commands(found: Iterable[Wanted]) -> Iterator[str]:
    """Each as one command line of Kafka's tool, for a shell."""
    for one in found:
        words = ["kafka-acls.sh", "--bootstrap-server", "$BOOTSTRAP", "--command-config", "$ADMIN", "--add"]
        words += ["--allow-principal", quoted(one.principal)]
        for operation in one.operations:
            words += ["--operation", spoken(operation.name)]
        if one.resource is ResourceType.CLUSTER:
            words.append("--cluster")
        else:
            if one.prefixed:
                words += ["--resource-pattern-type", "prefixed"]
            for name in one.names:
                words += [_OPTIONS[one.resource], "'*'" if name == WILDCARD else quoted(name)]
        yield " ".join(words)


def quoted(text: str) -> str:
    """For a shell, on one line, with nothing that a terminal would obey."""
    if text.isprintable():
        return shlex.quote(text)
    escaped = "".join(each if each.isprintable() and each not in "'\\" else _escaped(each) for each in text)
    return f"$'{escaped}'"


def _escaped(letter: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in letter.encode("utf-8", "surrogatepass"))
