"""Who did what (agent/telemetry/trail.py, agent/kafka/trail): issue "7.", section E."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent.app import App
from agent.config.audit_log import AuditLogConfig
from agent.kafka.trail.writer import encoded
from agent.net.wire.generated import alter_user_scram_credentials as scram
from agent.net.wire.generated import create_acls as ca
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import delete_acls as da
from agent.net.wire.generated import delete_groups as dg
from agent.net.wire.generated import delete_records as dr
from agent.net.wire.generated import delete_topics as dt
from agent.net.wire.generated import incremental_alter_configs as ia
from agent.telemetry.changes import Change, changes_of
from agent.telemetry.metrics import Metrics
from agent.telemetry.trail import TEXT_CHARS_MAX, Actor, Event, Trail
from coordination.clock import SystemClock
from coordination.commands import AclBinding, AlterTopicConfigs, CreateAcls, PutScramCredential
from coordination.kafka_codes import Code
from objectstore.batch import records
from schema.proto.audit_pb2 import Event as Message
from tests.bench.load import Wire
from tests.unit.agent.rig import batch
from tests.unit.agent.test_app import World, connect, http, poll, produce, until

TOPIC = "floe.audit"
ALICE = Actor("alice", "10.0.0.1", "app", "L")


@pytest.fixture
async def world() -> Any:
    made = World()
    yield made
    for app in made.apps:
        await app.stop()


async def rows(app: App, wire: Wire, count: int) -> list[Message]:
    """The first events of the topic."""
    found: list[Message] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            request = poll(len(found), 500)
            request.topics[0].topic = TOPIC
            part = (await wire.call("Fetch", request, 12)).responses[0].partitions[0]
            raw = bytes(part.records or b"")
            found += [Message.FromString(bytes(each.value or b"")) for each in (records(raw) if raw else ())]
    return found


async def administrate(wire: Wire) -> None:
    """Something of each kind."""
    made = [ct.CreatableTopic(name=name, num_partitions=2, replication_factor=-1) for name in ("t", "u")]
    made[0].configs = [ct.CreatableTopicConfig("retention.ms", "7")]
    await wire.call("CreateTopics", ct.CreateTopicsRequest(topics=made, timeout_ms=5000), 5)
    change = ia.AlterableConfig("retention.ms", 0, "9")
    altered = ia.AlterConfigsResource(2, "t", [change])
    await wire.call("IncrementalAlterConfigs", ia.IncrementalAlterConfigsRequest(resources=[altered]), 1)
    assert (await produce(wire, batch(b"secret record"))).error_code == 0
    parts = [dr.DeleteRecordsPartition(0, -1)]
    await wire.call(
        "DeleteRecords", dr.DeleteRecordsRequest([dr.DeleteRecordsTopic("t", parts)], timeout_ms=5000), 2
    )
    user = scram.ScramCredentialUpsertion("bob", 1, 4096, b"salt of bob", b"password of bob!")
    await wire.call("AlterUserScramCredentials", scram.AlterUserScramCredentialsRequest(upsertions=[user]), 0)
    await wire.call("DeleteGroups", dg.DeleteGroupsRequest(groups_names=["nobody"]), 2)
    await wire.call("DeleteTopics", dt.DeleteTopicsRequest(topic_names=["u"], timeout_ms=5000), 5)


async def test_changes_are_rows_of_the_topic_and_lines_of_the_log(world: World) -> None:
    """In the order in which they came, with who and what, and never a secret or a record."""
    with capture_logs() as lines:
        app = await world.start(audit_log={"topic": TOPIC})
        wire = await connect(app)
        await administrate(wire)
        found = await rows(app, wire, 7)
        await wire.close()
    told = [(each.operation, each.resource_type, each.resource, each.detail) for each in found]
    assert told == [
        ("CreateTopic", "Topic", "t", "partitions=2 retention.ms=7"),
        ("CreateTopic", "Topic", "u", "partitions=2"),
        ("AlterConfigs", "Topic", "t", "retention.ms=9"),
        ("DeleteRecords", "Topic", "t", "partitions 0 (all)"),
        ("PutScramCredential", "User", "bob", "SCRAM-SHA-256"),
        ("DeleteGroup", "Group", "nobody", ""),
        ("DeleteTopic", "Topic", "u", ""),
    ]
    assert {(each.kind, each.principal, each.host, each.door) for each in found} == {
        ("CHANGE", "User:ANONYMOUS", "127.0.0.1", "PLAINTEXT")
    }
    assert [each.outcome for each in found] == ["NONE"] * 5 + ["GROUP_ID_NOT_FOUND", "NONE"]
    assert len({each.id for each in found}) == len(found)
    of_log = [line for line in lines if line["event"] == "audit"]
    assert [(each["operation"], each["resource"]) for each in of_log] == [(a, c) for a, _, c, _ in told]
    everything = repr(found) + repr(lines)
    assert "salt of bob" not in everything
    assert "password" not in everything
    assert "secret record" not in everything


async def test_what_is_refused_says_so_and_http_is_a_door(world: World) -> None:
    app = await world.start(audit_log={"topic": TOPIC})
    wire = await connect(app)
    again = [ct.CreatableTopic(name="t", num_partitions=1, replication_factor=-1)]
    for _ in range(2):
        await wire.call("CreateTopics", ct.CreateTopicsRequest(topics=again, timeout_ms=5000), 5)
    answer = await http_post(app, "/admin/topics/t/schema", {"role": "value", "unbind": True})
    found = await rows(app, wire, 3)
    await wire.close()
    assert [(each.operation, each.outcome) for each in found[:2]] == [
        ("CreateTopic", "NONE"),
        ("CreateTopic", "TOPIC_ALREADY_EXISTS"),
    ]
    assert (found[2].operation, found[2].door, found[2].host) == ("BindSchema", "HTTP", "127.0.0.1"), answer


async def http_post(app: App, path: str, body: dict[str, object]) -> int:
    import httpx

    async with httpx.AsyncClient() as client:
        return (await client.post(f"http://127.0.0.1:{app.http_port}{path}", json=body)).status_code


async def test_accesses_are_told_once_in_a_while(world: World) -> None:
    app = await world.start(audit_log={"topic": TOPIC, "access": True})
    wire = await connect(app)
    made = [ct.CreatableTopic(name="t", num_partitions=1, replication_factor=-1)]
    await wire.call("CreateTopics", ct.CreateTopicsRequest(topics=made, timeout_ms=5000), 5)
    for number in range(3):
        assert (await produce(wire, batch(b"%d" % number))).error_code == 0
        await wire.call("Fetch", poll(number, 500), 12)
    found = await rows(app, wire, 3)
    await wire.close()
    told = [(each.kind, each.operation, each.resource) for each in found]
    assert told == [("CHANGE", "CreateTopic", "t"), ("ACCESS", "Write", "t"), ("ACCESS", "Read", "t")]


async def test_what_the_stop_finds_is_written(world: World) -> None:
    """The last change before an agent leaves is in the topic that another agent reads."""
    first = await world.start(audit_log={"topic": TOPIC})
    second = await world.start("b", audit_log={"topic": TOPIC})
    wire, other = await connect(first), await connect(second)
    made = [ct.CreatableTopic(name="t", num_partitions=1, replication_factor=-1)]
    await wire.call("CreateTopics", ct.CreateTopicsRequest(topics=made, timeout_ms=5000), 5)
    await wire.close()
    await first.stop()
    (found,) = await rows(second, other, 1)
    await other.close()
    assert (found.agent, found.resource) == ("a", "t")


async def test_what_comes_while_the_stop_goes_on_is_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients are served until the server is drained, and while the last events are written. What comes by
    HTTP after that is a line, and counted as lost to the topic."""
    first = await world.start(audit_log={"topic": TOPIC})
    second = await world.start("b", audit_log={"topic": TOPIC})
    assert first._services is not None
    told_meanwhile = ["during the drain", "during the write", "by HTTP"]

    def tell(what: str) -> None:
        if what in told_meanwhile:
            told_meanwhile.remove(what)
            first.trail.login(ALICE._replace(principal=what), "PLAIN", Code.NONE)

    def before(owner: Any, name: str, what: str) -> None:
        work = getattr(owner, name)

        def first_this(*given: Any) -> Any:
            tell(what)
            return work(*given)

        monkeypatch.setattr(owner, name, first_this)

    before(first._server, "drain", "during the drain")
    before(first._services.produce, "append", "during the write")
    before(first._http, "stop", "by HTTP")
    with capture_logs() as lines:
        await first.stop()
    assert not told_meanwhile
    other = await connect(second)
    written = [each.principal for each in await rows(second, other, 2)]
    await other.close()
    assert written == ["User:during the drain", "User:during the write"]
    assert [each["principal"] for each in lines if each["event"] == "audit"] == [*written, "User:by HTTP"]
    assert first.metrics.audit_lost._value.get() == 1  # type: ignore[attr-defined]  # as below


async def test_a_topic_that_is_somebody_elses_is_left_alone_and_told(world: World) -> None:
    """Nothing is written to it, and nobody waits for that."""
    plain = await world.start()
    wire = await connect(plain)
    bound = "syntax = 'proto3'; message M { string a = 1; }"
    made = [ct.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=-1)]
    await wire.call("CreateTopics", ct.CreateTopicsRequest(topics=made, timeout_ms=5000), 5)
    body = {"role": "value", "message": "M", "sources": {"m.proto": bound}}
    assert await http_post(plain, f"/admin/topics/{TOPIC}/schema", body) == 200
    await wire.close()
    with capture_logs() as lines:
        app = await world.start("b", audit_log={"topic": TOPIC})
        wire = await connect(app)
        made = [ct.CreatableTopic(name="t", num_partitions=1, replication_factor=-1)]
        await wire.call("CreateTopics", ct.CreateTopicsRequest(topics=made, timeout_ms=5000), 5)
        async with asyncio.timeout(20):
            await until(lambda: any(each["event"] == "audit log not written" for each in lines))
        await wire.close()
    (told,) = [each for each in lines if each["event"] == "audit log not written"]
    assert "is bound to M" in told["error"]
    assert "audit_log.topic" in told["remedy"]
    assert app.replica.state.topics[TOPIC].partitions[0].high_watermark == 0


def trail(**settings: Any) -> Trail:
    return Trail(AuditLogConfig(**settings), SystemClock(), "a", Metrics())


async def test_alike_refusals_are_few_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    made = trail(again_ms=60_000, alike_kinds_max=2)
    now = [0.0]
    monkeypatch.setattr(made._clock, "monotonic", lambda: now[0])
    change = Change("Read", "Topic", "t", "")
    for _ in range(5):
        made.refused(ALICE, change, Code.TOPIC_AUTHORIZATION_FAILED)
    now[0] = 61.0
    made.refused(ALICE, change, Code.TOPIC_AUTHORIZATION_FAILED)
    told = made.take(100)
    assert [each.times for each in told] == [1, 5]
    for number in range(10):
        made.refused(ALICE._replace(principal=str(number)), change, Code.TOPIC_AUTHORIZATION_FAILED)
    assert len(made._alike) == 2


async def test_what_waits_is_bounded_and_what_is_lost_is_counted() -> None:
    made = trail(queue_events_max=10)
    for number in range(25):
        made.login(ALICE._replace(principal=str(number)), "PLAIN", Code.NONE)
    assert [each.actor.principal for each in made.take(100)] == [str(number) for number in range(15, 25)]
    assert made._metrics.audit_lost._value.get() == 15  # type: ignore[attr-defined]  # a counter shows its value to Prometheus only


async def test_names_are_cut_and_cannot_pretend_to_be_other_fields() -> None:
    made = trail()
    made.login(Actor("x" * 5_000, "h", "a\nb=c", "L"), "PLAIN", Code.SASL_AUTHENTICATION_FAILED)
    (event,) = made.take(1)
    assert len(event.actor.principal) == TEXT_CHARS_MAX
    assert Message.FromString(encoded(event)).client_id == "a\nb=c"
    assert not made.arrived.is_set()
    long = Change("Read", "Group", "g" * 5_000)
    made.refused(ALICE._replace(client_id="c" * 5_000), long, Code.GROUP_AUTHORIZATION_FAILED)
    ((_, actor, change, _),) = made._alike
    assert (len(actor.client_id), len(change.resource)) == (TEXT_CHARS_MAX, TEXT_CHARS_MAX)


async def test_switched_off_nothing_is_kept() -> None:
    made = trail(lines=False)
    made.login(ALICE, "PLAIN", Code.NONE)
    assert not made.described([PutScramCredential(user="u")], None)  # type: ignore[arg-type]  # it is not looked at
    assert made.take(10) == []


def test_a_command_with_many_configs_names_some() -> None:
    changes = [AlterTopicConfigs.Change(name=f"c{n}", value="v") for n in range(30)]
    (told,) = changes_of(AlterTopicConfigs(topic="t", changes=changes))
    assert told.detail.endswith("c19=v; 10 more")
    assert isinstance(Event("i", 1, "CHANGE", ALICE, told, "NONE", 1), tuple)


async def test_acls_are_told_one_by_one_and_refusals_with_them(world: World) -> None:
    """What was added and removed is there to be read by programs; who was refused is told."""
    rules = {"mode": "enforce", "allow_everyone_if_no_acl_found": True}
    app = await world.start(audit_log={"topic": TOPIC}, authorizer=rules)
    wire = await connect(app)
    made = [ct.CreatableTopic(name="t", num_partitions=1, replication_factor=-1)]
    await wire.call("CreateTopics", ct.CreateTopicsRequest(topics=made, timeout_ms=5000), 5)
    deny = ca.AclCreation(2, "t", 3, "User:ANONYMOUS", "*", 3, 2)
    assert not (await wire.call("CreateAcls", ca.CreateAclsRequest([deny]), 3)).results[0].error_code
    answer = await wire.call("Fetch", poll(0, 0), 12)
    assert answer.responses[0].partitions[0].error_code == Code.TOPIC_AUTHORIZATION_FAILED
    every = da.DeleteAclsFilter(1, None, 1, None, None, 1, 1)
    assert not (await wire.call("DeleteAcls", da.DeleteAclsRequest([every]), 3)).filter_results[0].error_code
    _, added, refused, removed = await rows(app, wire, 4)
    await wire.close()
    assert (added.operation, added.detail) == (
        "CreateAcls",
        "DENY User:ANONYMOUS Read Topic LITERAL t from *",
    )
    (acl,) = added.acls_added
    assert list(removed.acls_removed) == [acl]
    assert (acl.principal, acl.operation, acl.resource_type, acl.name) == (
        "User:ANONYMOUS",
        "Read",
        "Topic",
        "t",
    )
    assert (refused.kind, refused.operation, refused.resource_type, refused.resource) == (
        "REFUSED", "Read", "Topic", "t"
    )  # fmt: skip
    assert refused.outcome == "TOPIC_AUTHORIZATION_FAILED"


def test_many_acls_are_several_events() -> None:
    bound = [
        AclBinding(resource_type=2, pattern_type=3, name=str(n), operation=3, permission=3)
        for n in range(250)
    ]
    told = changes_of(CreateAcls(acls=bound))
    assert [len(each.added) for each in told] == [100, 100, 50]
    assert told[0].detail.endswith("and 80 more")


async def test_metrics_count_events(world: World) -> None:
    app = await world.start(audit_log={"topic": ""})
    wire = await connect(app)
    made = [ct.CreatableTopic(name="t", num_partitions=1, replication_factor=-1)]
    await wire.call("CreateTopics", ct.CreateTopicsRequest(topics=made, timeout_ms=5000), 5)
    async with asyncio.timeout(20):
        while 'floe_audit_events_total{kind="CHANGE"} 1.0' not in (await http(app, "/metrics")).text:  # noqa: ASYNC110  # asked over HTTP
            await asyncio.sleep(0.05)
    await wire.close()
