"""`floe topic …`: create, list, describe, configure, bind to protobuf, delete, bring back."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from agent.cli import agent_http, requests
from agent.cli.deleted import delete, purge, undelete
from agent.cli.deleted import listed as deleted_topics
from agent.cli.failures import EPILOG, Failure, Status, after, usage
from agent.cli.held import held, purge_records, undelete_records
from agent.cli.options import (
    BOOTSTRAP_DEFAULT,
    COUNT_MAX,
    HTTP_DEFAULT,
    Bootstrap,
    Form,
    Http,
    Output,
    TopicName,
)
from agent.cli.output import print_json, print_table, remarks, results
from agent.cli.session import Session, session
from coordination.topic_configs import OFF, RULES

app = typer.Typer(
    help="Topics: create, look at, configure, bind to protobuf messages, delete.", epilog=EPILOG
)

DEFAULT_SOURCE = 5
LAST_MAX = 10_000_000  # records that are looked at for `floe topic rules`
FRAMINGS = ("any", "plain", "confluent")

Configs = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="NAME=VALUE", help="A config of the topic; repeatable."),
]
Proto = Annotated[
    list[Path] | None,
    typer.Option("--proto", metavar="FILE", help="A .proto file for the values; repeatable."),
]
ProtoPath = Annotated[
    list[Path] | None, typer.Option("--proto-path", metavar="FOLDER", help="Where imports are looked up.")
]
Message = Annotated[str, typer.Option(help="Full name of the values' message, as in shop.v1.Order.")]
KeyProto = Annotated[
    list[Path] | None,
    typer.Option("--key-proto", metavar="FILE", help="A .proto file for the keys; repeatable."),
]
KeyMessage = Annotated[str, typer.Option(help="Full name of the keys' message.")]
Framing = Annotated[
    str,
    typer.Option(help="What producers send: plain messages, confluent frames (magic, schema id), or any."),
]
Subject = Annotated[
    str, typer.Option(help="Follow this subject of the schema registry: values name its versions.")
]
Version = Annotated[int, typer.Option(min=0, help="Stay at this version of the subject; 0: any.")]
KeySubject = Annotated[str, typer.Option(help="The same for the keys.")]
KeyVersion = Annotated[int, typer.Option(min=0, help="Stay at this version of it; 0: any.")]
Tombstones = Annotated[bool, typer.Option("--tombstones", help="Allow records without a value.")]

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run one command's coroutine to its end."""
    return asyncio.run(work)


@app.command()
def create(
    name: TopicName,
    partitions: Annotated[
        int, typer.Option(min=-1, max=COUNT_MAX, help="How many; -1: the cluster's default.")
    ] = -1,
    config: Configs = None,
    proto: Proto = None,
    proto_path: ProtoPath = None,
    message: Message = "",
    key_proto: KeyProto = None,
    key_message: KeyMessage = "",
    framing: Framing = "any",
    tombstones: Tombstones = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    http: Http = HTTP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Create a topic; with --proto and --message, bind it to a protobuf message.

    floe topic create orders --partitions 6 --proto order.proto --message shop.v1.Order
    """
    bindings = _bindings(proto, message, key_proto, key_message, proto_path, framing, tombstones)
    created = run(_create(bootstrap, name, partitions, _pairs(config or [])))
    if output is Form.TABLE:
        results().print(f"created topic {name} with {created} partition{'s' if created != 1 else ''}")
    schemas = _bind(http, name, bindings, output, [f"topic {name} was created"])
    if output is Form.JSON:
        print_json({"topic": name, "partitions": created, "schemas": schemas})


async def _create(bootstrap: str, name: str, partitions: int, configs: dict[str, str]) -> int:
    async with session(bootstrap) as kafka:
        return await requests.create(kafka, name, partitions, configs)


@app.command()
def bind(
    name: TopicName,
    proto: Proto = None,
    proto_path: ProtoPath = None,
    message: Message = "",
    key_proto: KeyProto = None,
    key_message: KeyMessage = "",
    framing: Framing = "any",
    tombstones: Tombstones = False,
    subject: Subject = "",
    version: Version = 0,
    key_subject: KeySubject = "",
    key_version: KeyVersion = 0,
    unbind: Annotated[str, typer.Option(help="Remove the binding of: value, key.")] = "",
    force: Annotated[
        bool,
        typer.Option(
            help="Also where columns of the topic's table get another meaning, or rules cannot be used."
        ),
    ] = False,
    rules: Annotated[
        str,
        typer.Option(
            help="What becomes of records that break rules of protovalidate: off, observe, reject, "
            "quarantine. Without: reject where nothing was bound before and nobody has set it, else as it is."
        ),
    ] = "",
    http: Http = HTTP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Bind an existing topic to a protobuf message or a subject; records are checked from then on.

    floe topic bind orders --subject orders-value; --message says which message alone is taken.
    """
    followed = [
        *_followed("value", subject, version, message, proto),
        *_followed("key", key_subject, key_version, key_message, key_proto),
    ]
    own = ("" if subject else message), key_proto, ("" if key_subject else key_message)
    bindings = [*followed, *_bindings(proto, *own, proto_path, framing, tombstones)]
    if unbind:
        if unbind not in ("value", "key"):
            raise usage(f"--unbind {unbind!r}: give value or key")
        bindings.append({"role": unbind, "unbind": True})
    if not bindings:
        raise usage(
            "nothing to bind: give --proto and --message, or --subject, those of keys (--key-…), or --unbind"
        )
    if rules and rules not in RULES:
        raise usage(f"--rules {rules!r}: give one of {', '.join(RULES)}")
    more: dict[str, object] = {**({"force": True} if force else {}), **({"rules": rules} if rules else {})}
    bindings = [{**each, **more} for each in bindings]
    schemas = _bind(http, name, bindings, output)
    if output is Form.JSON:
        print_json({"topic": name, "schemas": schemas})


@app.command("list")
def list_topics(
    gone: Annotated[
        bool, typer.Option("--deleted", help="Those that were deleted and can come back, by --http.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    http: Http = HTTP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """List the topics; with --deleted those that were deleted: size, when, by whom, until when."""
    if gone:
        deleted_topics(http, output)
        return

    async def work() -> list[tuple[str, int]]:
        async with session(bootstrap) as kafka:
            return [(topic.name or "", len(topic.partitions)) for topic in await requests.topics(kafka)]

    rows = run(work())
    if output is Form.JSON:
        print_json([{"topic": name, "partitions": partitions} for name, partitions in rows])
    else:
        print_table(("topic", "partitions"), rows)


@app.command()
def describe(
    name: TopicName,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    http: Http = HTTP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Show a topic's partitions with their offsets, its changed configs and its bindings."""

    async def work(kafka: Session) -> tuple[list[requests.Bounds], dict[str, str]]:
        bounds = await requests.bounds(kafka, await requests.topic(kafka, name))
        configs = await requests.configs(kafka, name)
        return bounds, {c.name: c.value or "" for c in configs if c.config_source != DEFAULT_SOURCE}

    async def connected() -> tuple[list[requests.Bounds], dict[str, str]]:
        async with session(bootstrap) as kafka:
            return await work(kafka)

    bounds, configs = run(connected())
    schemas = _plain(agent_http.ask(http, f"/admin/topics/{name}/schema"))
    if output is Form.JSON:
        partitions = [
            {"partition": b.partition, "leader": b.leader, "start": b.start, "end": b.end} for b in bounds
        ]
        print_json({"topic": name, "partitions": partitions, "configs": configs, "schemas": schemas})
        return
    print_table(
        ("partition", "leader", "start", "end"), [(b.partition, b.leader, b.start, b.end) for b in bounds]
    )
    if configs:
        print_table(("config", "value"), configs.items())
    for schema in schemas:
        told = f"{schema['role']}: {_bound_to(schema)} (schema id {schema['schema_id']}"
        if not schema.get("naming"):
            allowed = "allowed" if schema["tombstones"] else "refused"
            told += f", version {schema['version']}, framing {schema['framing']}, tombstones {allowed}"
        results().print(f"{told})")
    if not schemas:
        results().print("neither message nor subject is bound: records are taken as they are")


app.command()(delete)
app.command()(undelete)
app.command()(purge)
app.command()(held)
app.command("undelete-records")(undelete_records)
app.command("purge-records")(purge_records)


@app.command()
def config(
    name: TopicName,
    assign: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change a config; repeatable.")
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="NAME", help="Return a config to its default; repeatable."),
    ] = None,
    partitions: Annotated[int, typer.Option(min=0, max=COUNT_MAX, help="Grow to this many partitions.")] = 0,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Show a topic's configs, or change them with --set, --unset and --partitions."""
    changes = _pairs(assign or [])
    grown = [f"{name} has {partitions} partitions"] if partitions else []

    async def work() -> list[tuple[str, str, str, str]]:
        async with session(bootstrap) as kafka:
            if partitions:
                if changes or unset:  # what is refused is so before there are more
                    await requests.alter(kafka, name, changes, unset or [], validate_only=True)
                await requests.grow(kafka, name, partitions)
            if changes or unset:
                try:
                    await requests.alter(kafka, name, changes, unset or [])
                except Failure as failure:
                    raise after(grown, failure) from None
            rows = await requests.configs(kafka, name)
            return [
                (
                    c.name,
                    c.value or "",
                    "default" if c.config_source == DEFAULT_SOURCE else "set",
                    c.documentation or "",
                )
                for c in rows
            ]

    rows = run(work())
    if output is Form.JSON:
        print_json([dict(zip(("name", "value", "source", "meaning"), row, strict=True)) for row in rows])
    else:
        print_table(("config", "value", "from"), [row[:3] for row in rows])
        told = {name: value for name, value, _, _ in rows}
        if told.get("floe.rules") and told["floe.value.rules"] == OFF:
            remarks().print("nobody looks at floe.rules: floe.value.rules is off", style="dim")


@app.command("skip-damaged")
def skip_damaged(
    name: TopicName,
    partition: Annotated[int, typer.Option(min=0, help="Number of the partition.")],
    start: Annotated[int, typer.Option("--from", min=0, help="Look from this offset on.")] = 0,
    yes: Annotated[bool, typer.Option("--yes", help="Record it; without, damage is only shown.")] = False,
    by: Annotated[str, typer.Option(help="Who decides it; your user name if not given.")] = "",
    http: Http = HTTP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Find records that are damaged or lost in the bucket; with --yes, readers and tables go on without them.

    Reads the whole partition from the bucket, so it takes its time. Sound records are never passed over.
    """
    from agent.cli import damage

    found = damage.find(http, name, partition, start)
    new = [each for each in found if not each["skipped"]]
    if new and yes:
        damage.skip(http, name, partition, new, by or damage.whoever())
    if output is Form.JSON:
        passed = [each for each in damage.skipped(http, name) if each["partition"] == partition]
        print_json({"topic": name, "partition": partition, "damaged": found, "skipped": passed})
        return
    if found:
        rows = [
            (d["from_offset"], d["to_offset"], "yes" if d["skipped"] or yes else "no", d["reason"])
            for d in found
        ]
        print_table(("from", "to", "passed over", "reason"), rows)
    damage.say(name, partition, found, recorded=yes)


@app.command("rules")
def rules_of(
    name: TopicName,
    last: Annotated[
        int, typer.Option(min=1, max=LAST_MAX, help="So many of the newest records, shared by partitions.")
    ] = 1_000,
    proto: Proto = None,
    message: Message = "",
    proto_path: ProtoPath = None,
    rule: Annotated[
        str,
        typer.Option(
            metavar="EXPRESSION",
            help="An expression of CEL over key, value, headers and timestamp, or what else floe.rules may "
            "be, that is not set yet: records are held against it alone.",
        ),
    ] = "",
    rules_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", exists=True, dir_okay=False, help="The same, from a file."),
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    http: Http = HTTP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """How many of the newest records break rules, of messages and of the topic. Nothing is changed.

    By the message that the topic is bound to and by its own rules; with --proto and --message by that
    message, before it is bound; with --rule by rules that are not set yet.

    floe topic rules orders --last 10000 --rule 'value.amount > 0.0'
    """
    if bool(proto) != bool(message):
        raise usage("--proto and --message belong together")
    if rule and rules_file:
        raise usage("--rule and --rules-file: give one of them")
    from agent.cli import rules
    from agent.cli.protos import descriptor_set

    candidate = rules.given(rule, rules_file) if rule or rules_file else ""
    values = None
    if proto:
        files = base64.b64decode(descriptor_set(proto, proto_path or [], message))
        values = rules.by_message(files, message)
    outcome = run(rules.tried(bootstrap, http, name, last, values, candidate))
    if output is Form.JSON:
        print_json(rules.as_json(name, outcome))
    elif outcome.broken:
        print_table(("field", "rule", "times", "example", "what it says"), rules.rows(outcome))
    remarks().print(rules.said(name, outcome), style="dim")
    if outcome.bad:
        raise typer.Exit(Status.FAILED)


def _pairs(assignments: Iterable[str]) -> dict[str, str]:
    pairs = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key:
            raise usage(f"{assignment!r} is not NAME=VALUE")
        pairs[key] = value
    return pairs


def _bindings(
    proto: list[Path] | None,
    message: str,
    key_proto: list[Path] | None,
    key_message: str,
    proto_path: list[Path] | None,
    framing: str,
    tombstones: bool,
) -> list[dict[str, object]]:
    """What to ask of /admin/topics/…/schema. Files are read before anything is created."""
    if framing not in FRAMINGS:
        raise usage(f"--framing {framing!r}: give one of {', '.join(FRAMINGS)}")
    bindings: list[dict[str, object]] = []
    for role, files, full_name, prefix in (
        ("value", proto, message, ""),
        ("key", key_proto, key_message, "key-"),
    ):
        if bool(files) != bool(full_name):
            raise usage(f"--{prefix}proto and --{prefix}message go together: the file and the message in it")
        if files:
            from agent.cli.protos import descriptor_set

            bindings.append(
                {
                    "role": role,
                    "message": full_name,
                    "framing": framing,
                    "tombstones": tombstones and role == "value",
                    "descriptor_set": descriptor_set(files, proto_path or [], full_name),
                }
            )
    return bindings


def _followed(
    role: str, subject: str, version: int, message: str, proto: list[Path] | None
) -> list[dict[str, object]]:
    """The same of a role that is to follow a subject, if it is."""
    prefix = "--key-" if role == "key" else "--"
    if version and not subject:
        raise usage(f"{prefix}version {version}: of which {prefix}subject?")
    if subject and proto:
        raise usage(f"{prefix}subject and {prefix}proto: give one of them")
    asked = {"role": role, "subject": subject, "subject_version": version, "message": message}
    return [asked] if subject else []


def _bound_to(schema: Mapping[str, object]) -> str:
    """What keys or values are bound to, for people."""
    naming = schema.get("naming")
    if not naming:
        return str(schema["message"])
    only = f", {schema['message']} only" if schema["message"] else ""
    if naming != "subject":
        return (
            f"subjects called as the message{' behind the topic' if naming == 'topic_record' else ''}{only}"
        )
    number = schema["subject_version"]
    return f"{f'version {number}' if number else 'all versions'} of subject {schema['subject']}{only}"


def _bind(
    http: str, name: str, bindings: list[dict[str, object]], output: Form, done: Sequence[str] = ()
) -> list[dict[str, object]]:
    """Make the bindings one after the other; gives all that the topic has then. `done`: what was before."""
    schemas: list[dict[str, object]] = []
    for at, binding in enumerate(bindings):
        try:
            answer = agent_http.ask(http, f"/admin/topics/{name}/schema", binding)
        except Failure as failure:
            made = (
                f"its {each['role']}s were {'unbound' if 'unbind' in each else 'bound'}"
                for each in bindings[:at]
            )
            raise after([*done, *made], failure) from None
        schemas = _plain(answer)
        if output is Form.JSON:
            continue
        if "unbind" in binding:
            results().print(f"unbound the {binding['role']}s of {name}")
            continue
        bound = next(schema for schema in schemas if schema["role"] == binding["role"])
        results().print(
            f"bound the {bound['role']}s of {name} to {_bound_to(bound)}, schema id {bound['schema_id']}"
        )
        if answer.get("has_rules"):
            policy = f"floe.{bound['role']}.rules={answer['rules']}"
            remarks().print(f"its message has rules: {policy} (floe topic config --set)", style="dim")
    if bindings:
        remarks().print("records that do not fit are refused with INVALID_RECORD from now on", style="dim")
    return schemas


def _plain(answer: dict[str, Any]) -> list[dict[str, object]]:
    """A topic's bindings without their descriptors."""
    return [{k: v for k, v in schema.items() if k != "descriptor_set"} for schema in answer["schemas"]]
