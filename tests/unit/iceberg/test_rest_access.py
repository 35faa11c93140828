"""What the catalog shows and does for whom: a table asks for what its topic asks for, by the real ACLs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.config.authorizer import AuthorizerConfig
from agent.http.needs import CLUSTER, TOPIC, Need
from agent.kafka.authority.authority import Authority
from agent.telemetry.metrics import Metrics
from agent.telemetry.shadow import Shadow
from coordination.clock import SystemClock
from coordination.commands import AclBinding, AlterTopicConfigs, CreateAcls, DeleteAcls, PutNamespace
from coordination.state.acl_types import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from coordination.state.types import Done
from iceberg.catalog import Catalog
from iceberg.rest_pointers import CatalogParts
from objectstore.store import StoreError
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.latest import catch_up as latest_rows
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.serving import ask as ask_as_anybody
from tests.unit.iceberg.test_views import request as view

FLOE = "/v1/namespaces/floe"
NS = "/v1/namespaces/ns"
DELEGATION = "vended-credentials,remote-signing"
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "a", "type": "int", "required": False}],
}
SET = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"owner": "me"}}]}
O = Operation  # noqa: E741  # as Kafka's tables of operations are short


class Lends:
    """Notes what is lent to whom."""

    def __init__(self) -> None:
        self.lent: list[tuple[str, tuple[str, ...]]] = []
        self.fails = False

    async def lend(self, principal: str, folders: Sequence[str]) -> Mapping[str, str]:
        if self.fails:
            raise StoreError("the role was not assumed")
        self.lent.append((principal, tuple(folders)))
        return {"s3.access-key-id": f"of {principal}"}


class Lake:
    """The catalog of a cluster that has topics `a`, `b` and `marked`, each with a table, and ACLs."""

    def __init__(self, rig: Rig, mode: str = "enforce") -> None:
        self.rig, self.lender, clock = rig, Lends(), SystemClock()
        self.shadow = Shadow(clock, 1_000)
        config = AuthorizerConfig.model_validate({"mode": mode, "super_users": "User:root"})
        self.authority = Authority(config, lambda: rig.replica.state, Metrics(), self.shadow)
        parts = CatalogParts(rig.replica, rig.store, rig.warehouse, clock, {}, self.lender)
        self.catalog = Catalog(parts)

    async def allow(self, operation: Operation, topic: str = "", user: str = "alice", **more: Any) -> None:
        """An ACL; without a topic of the cluster."""
        resource = ResourceType.TOPIC if topic else ResourceType.CLUSTER
        pattern = PatternType.PREFIXED if topic.endswith(".*") else PatternType.LITERAL
        acl = AclBinding(
            resource_type=resource,
            pattern_type=pattern,
            name=topic if topic == "*" else topic.rstrip("*") or CLUSTER_NAME,
            principal=f"User:{user}",
            host="*",
            operation=operation,
            permission=Permission.ALLOW,
        )
        assert isinstance(await self.rig.replica.propose(CreateAcls(acls=[acl])), Done)

    async def ask(
        self, method: str, path: str, body: object = None, user: str = "alice", **query: str
    ) -> tuple[int, Any]:
        """One request of `user`; the answer, or a refusal's kind and words."""
        content = b"" if body is None else json.dumps(body).encode()
        access = As(self.authority, user)
        delegation = query.pop("delegation", "")
        status, answer = await self.catalog.handle(method, path, query, content, access, delegation)
        if status >= 400:
            error = answer["error"]  # type: ignore[index]  # Iceberg's shape
            return status, f"{error['type']}: {error['message']}"
        return status, answer

    async def names(self, path: str, user: str = "alice") -> list[str]:
        """Of tables or views, or of namespaces."""
        status, found = await self.ask("GET", path, user=user)
        assert status == 200, found
        if "namespaces" in found:
            return [".".join(each) for each in found["namespaces"]]
        return [each["name"] for each in found["identifiers"]]


class As:
    """One who is cleared only if he is called so."""

    def __init__(self, authority: Authority, principal: str) -> None:
        self._authority, self.principal = authority, principal
        self.cleared = principal == "cleared"

    def may(self, operation: Operation, topic: str, *, quiet: bool = False) -> bool:
        need = Need(operation, TOPIC if topic else CLUSTER, quiet)
        return self._authority.may(self.principal, "10.0.0.1", need, topic or CLUSTER_NAME)

    def holds(self, operation: Operation, topic: str) -> bool:
        resource, name = (TOPIC, topic) if topic else (CLUSTER, CLUSTER_NAME)
        return self._authority.allows(self.principal, "10.0.0.1", operation, resource, name)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigs.running(tmp_path) as found:
        for name in ("a", "b", "marked"):
            await found.create_topic(name, partitions=1)
            await found.produce([b"x"], topic=name)
            await found.drain(found.committer(name))
        await redact(found, "marked")
        await found.replica.propose(PutNamespace(name="ns"))
        yield found


@pytest.fixture
def lake(rig: Rig) -> Lake:
    return Lake(rig)


async def redact(rig: Rig, topic: str) -> None:
    message = AlterTopicConfigs(topic=topic)
    message.changes.add(name="floe.redact", value="remove")
    assert isinstance(await rig.replica.propose(message), Done)


async def own_table(lake: Lake, name: str = "own") -> None:
    """A table of another engine."""
    status, told = await ask_as_anybody(
        lake.catalog, "POST", f"{NS}/tables", {"name": name, "schema": SCHEMA}
    )
    assert status == 200, told


async def test_lists_show_what_one_may_describe(lake: Lake) -> None:
    await own_table(lake)
    assert await lake.names("/v1/namespaces") == []
    assert (await lake.ask("GET", f"{FLOE}/tables"))[0] == 404, "as if there were no such namespace"
    await lake.allow(O.DESCRIBE, "b")
    assert await lake.names("/v1/namespaces") == ["floe"]
    assert await lake.names(f"{FLOE}/tables") == ["b"]
    assert await lake.names(f"{FLOE}/views") == []
    assert (await lake.ask("HEAD", NS))[0] == 404
    await lake.allow(O.READ, "marked")
    assert await lake.names(f"{FLOE}/tables") == ["b", "marked"]
    assert await lake.names(f"{FLOE}/views") == ["marked_redacted"]
    await lake.allow(O.DESCRIBE, "ns.*")
    assert await lake.names("/v1/namespaces") == ["floe", "ns"]
    assert await lake.names(f"{NS}/tables") == ["own"]
    assert await lake.names(f"{FLOE}/tables", "root") == ["a", "b", "marked"]


async def test_a_namespace_without_tables_is_shown_to_whoever_administrates(lake: Lake) -> None:
    await lake.allow(O.DESCRIBE)
    assert await lake.names("/v1/namespaces") == ["floe", "ns"]
    assert await lake.names(f"{FLOE}/tables") == []


async def test_what_is_hidden_is_answered_as_what_is_not_there(lake: Lake) -> None:
    await lake.allow(O.DESCRIBE, "b")
    for method, of, body in (
        ("GET", "{}", None),
        ("HEAD", "{}", None),
        ("POST", "{}", SET),
        ("DELETE", "{}", None),
        ("GET", "{}/credentials", None),
    ):
        told = [await lake.ask(method, f"{FLOE}/tables/{of.format(name)}", body) for name in ("a", "nothing")]
        assert told[0][0] == told[1][0] == 404, (method, told)
        assert str(told[0][1]).replace("floe.a", "floe.nothing") == told[1][1]
    hidden, absent = [await lake.ask("GET", f"{FLOE}/views/{n}_redacted") for n in ("marked", "nothing")]
    assert hidden == (404, str(absent[1]).replace("nothing", "marked"))


async def test_to_describe_is_not_to_read(lake: Lake) -> None:
    await lake.allow(O.DESCRIBE, "a")
    assert (await lake.ask("HEAD", f"{FLOE}/tables/a"))[0] == 204
    status, why = await lake.ask("GET", f"{FLOE}/tables/a")
    assert (status, why.partition(":")[0]) == (403, "ForbiddenException")
    assert "Read on topic 'a'" in why
    assert (await lake.ask("GET", f"{FLOE}/tables/a/credentials"))[0] == 403
    await lake.allow(O.READ, "a")
    assert (await lake.ask("GET", f"{FLOE}/tables/a"))[0] == 200
    assert (await lake.ask("GET", f"{FLOE}/tables/b"))[0] == 404


async def test_commits_drops_and_renames_take_alter(lake: Lake) -> None:
    await own_table(lake)
    await lake.allow(O.READ, "*", "alice")
    path = f"{NS}/tables/own"
    rename = {
        "source": {"namespace": ["ns"], "name": "own"},
        "destination": {"namespace": ["ns"], "name": "other"},
    }
    for method, where, body in (
        ("POST", path, SET),
        ("POST", f"{FLOE}/tables/a", SET),
        ("DELETE", path, None),
        ("POST", "/v1/tables/rename", rename),
        ("POST", f"{FLOE}/views/marked_redacted", {}),
        ("DELETE", f"{FLOE}/views/marked_redacted", None),
    ):
        status, why = await lake.ask(method, where, body)
        assert status == 403, (method, where, why)
        assert "takes Alter on topic" in why
    await lake.allow(O.ALTER, "ns.own")
    assert (await lake.ask("POST", path, SET))[0] == 200
    status, why = await lake.ask("POST", "/v1/tables/rename", rename)
    assert status == 403
    assert "takes Create on topic 'ns.other'" in why
    await lake.allow(O.CREATE, "ns.other")
    assert (await lake.ask("POST", "/v1/tables/rename", rename))[0] == 204
    assert (await lake.ask("DELETE", f"{NS}/tables/other"))[0] == 403, "its name is another now"


async def test_creating_takes_create_on_the_name_or_the_cluster(lake: Lake) -> None:
    table = {"name": "new", "schema": SCHEMA}
    assert (await lake.ask("POST", f"{NS}/tables", table))[0] == 403
    assert (await lake.ask("POST", f"{NS}/views", view("v")))[0] == 403
    staged = {"requirements": [{"type": "assert-create"}], "updates": []}
    assert (await lake.ask("POST", f"{NS}/tables/new", staged))[0] == 403
    await lake.allow(O.CREATE, "ns.new")
    assert (await lake.ask("POST", f"{NS}/tables", table))[0] == 200
    assert (await lake.ask("POST", f"{NS}/tables", {**table, "name": "old"}))[0] == 403
    await lake.allow(O.CREATE)
    assert (await lake.ask("POST", f"{NS}/tables", {**table, "name": "old"}))[0] == 200
    assert (await lake.ask("POST", f"{NS}/views", view("v")))[0] == 200
    assert (await lake.ask("GET", f"{NS}/views/v"))[0] == 404, "to create is not to describe"


async def test_a_creation_does_not_change_a_table_that_is_there_and_hidden(lake: Lake) -> None:
    await own_table(lake)
    await lake.allow(O.CREATE)
    staged = {"requirements": [{"type": "assert-create"}], "updates": SET["updates"]}
    assert (await lake.ask("POST", f"{NS}/tables/own", staged))[0] == 409
    _, loaded = await ask_as_anybody(lake.catalog, "GET", f"{NS}/tables/own")
    assert "owner" not in loaded["metadata"]["properties"]


async def test_what_is_of_no_table_takes_the_cluster(lake: Lake) -> None:
    await lake.allow(O.CREATE, "*")
    for method, path, body, operation in (
        ("POST", "/v1/namespaces", {"namespace": ["more"]}, O.CREATE),
        ("POST", f"{NS}/properties", {"updates": {"a": "b"}}, O.ALTER),
        ("POST", f"{NS}/register", {"name": "t", "metadata-location": "file:///x"}, O.ALTER),
        ("POST", f"{NS}/register-view", {"name": "t", "metadata-location": "file:///x"}, O.ALTER),
        ("DELETE", NS, None, O.ALTER),
    ):
        status, why = await lake.ask(method, path, body)
        assert status in (403, 404), (path, why)  # namespaces are hidden from him, too
        await lake.allow(operation)
        assert (await lake.ask(method, path, body))[0] not in (403, 404), path
        lake = Lake(lake.rig)
        await clear(lake)
        await lake.allow(O.CREATE, "*")


async def clear(lake: Lake) -> None:
    """No ACLs any more."""
    every = DeleteAcls.Filter(resource_type=1, pattern_type=1, operation=1, permission=1)
    assert isinstance(await lake.rig.replica.propose(DeleteAcls(filters=[every])), Done)


async def test_one_table_that_one_may_not_change_keeps_all_of_a_commit_away(lake: Lake) -> None:
    for name in ("one", "two"):
        await own_table(lake, name)
    await lake.allow(O.ALTER, "ns.one")
    await lake.allow(O.READ, "ns.two")
    changes = [{"identifier": {"namespace": ["ns"], "name": name}, **SET} for name in ("one", "two")]
    status, why = await lake.ask("POST", "/v1/transactions/commit", {"table-changes": changes})
    assert (status, "ns.two" in why) == (403, True)
    for name in ("one", "two"):
        _, loaded = await ask_as_anybody(lake.catalog, "GET", f"{NS}/tables/{name}")
        assert "owner" not in loaded["metadata"]["properties"]
    await lake.allow(O.ALTER, "ns.two")
    assert (await lake.ask("POST", "/v1/transactions/commit", {"table-changes": changes}))[0] == 204


async def test_the_table_of_a_topic_that_is_gone_stays_its_readers(lake: Lake) -> None:
    await lake.allow(O.READ, "a")
    await lake.allow(O.READ, "floe.a", "bob")
    await lake.rig.delete_topic("a")
    assert (await lake.ask("GET", f"{FLOE}/tables/a"))[0] == 200
    assert (await lake.ask("GET", f"{FLOE}/tables/a", user="bob"))[0] == 404


async def test_a_marked_topics_table_is_for_those_who_are_cleared(lake: Lake) -> None:
    """Its newest rows too, and keys for its files. The view shows what the others may know of it."""
    rig = lake.rig
    message = AlterTopicConfigs(topic="marked")
    message.changes.add(name="floe.table.mode", value="upsert")
    await rig.replica.propose(message)
    await latest_rows(rig, "marked")
    for user in ("alice", "cleared"):
        await lake.allow(O.READ, "marked", user)
    for path in ("marked", "marked__latest", "marked/credentials"):
        status, why = await lake.ask("GET", f"{FLOE}/tables/{path}", delegation=DELEGATION)
        assert (status, "redaction.cleared_principals" in str(why)) == (403, True), path
        assert (await lake.ask("GET", f"{FLOE}/tables/{path}", user="cleared"))[0] == 200
    assert {who for who, _ in lake.lender.lent} == {"cleared"}
    assert (await lake.ask("GET", f"{FLOE}/views/marked_redacted"))[0] == 200
    assert (await lake.ask("HEAD", f"{FLOE}/tables/marked"))[0] == 204


async def test_keys_are_lent_for_the_tables_own_folder_to_whoever_asks(lake: Lake) -> None:
    await lake.allow(O.READ, "a")
    _, plain = await lake.ask("GET", f"{FLOE}/tables/a")
    assert (plain["config"], lake.lender.lent) == ({}, [])
    _, loaded = await lake.ask("GET", f"{FLOE}/tables/a", delegation=DELEGATION)
    folder = f"{loaded['metadata']['location']}/"
    assert lake.lender.lent == [("alice", (folder,))]
    assert loaded["config"] == {
        "s3.access-key-id": "of alice",
        "client.refresh-credentials-endpoint": "v1/namespaces/floe/tables/a/credentials",
    }
    lent = [{"prefix": folder, "config": {"s3.access-key-id": "of alice"}}]
    assert loaded["storage-credentials"] == lent
    assert await lake.ask("GET", f"{FLOE}/tables/a/credentials") == (200, {"storage-credentials": lent})
    _, config = await lake.ask("GET", "/v1/config")
    assert "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials" in config["endpoints"]


async def test_folders_that_an_engine_names_are_lent_where_they_are_its_own(lake: Lake) -> None:
    root = lake.rig.warehouse.location
    await own_table(lake)
    for path in (f"{root}/ns/elsewhere", "s3://another/bucket"):
        change = {"action": "set-properties", "updates": {"write.data.path": path}}
        body = {"requirements": [], "updates": [change]}
        assert (await lake.ask("POST", f"{NS}/tables/own", body, "root"))[0] == 200
        _, loaded = await lake.ask("GET", f"{NS}/tables/own", user="root", delegation=DELEGATION)
        own = f"{loaded['metadata']['location']}/"
        more = (f"{path}/",) if path.startswith(root) else ()
        assert lake.lender.lent.pop() == ("root", (own, *more))


async def test_no_keys_are_lent_for_a_folder_that_has_anothers_files_too(lake: Lake) -> None:
    """A table came to lie where an engine had said that another one's data would be."""
    root = lake.rig.warehouse.location
    await own_table(lake)
    change = {"action": "set-properties", "updates": {"write.data.path": f"{root}/ns/elsewhere"}}
    body = {"requirements": [], "updates": [change]}
    assert (await lake.ask("POST", f"{NS}/tables/own", body, "root"))[0] == 200
    late = {"name": "late", "schema": SCHEMA, "location": f"{root}/ns/elsewhere/late"}
    assert (await lake.ask("POST", f"{NS}/tables", late, "root"))[0] == 200
    status, why = await lake.ask("GET", f"{NS}/tables/own", user="root", delegation=DELEGATION)
    assert (status, "ns.late has files there too" in why) == (403, True)
    assert lake.lender.lent == []


async def test_a_store_that_lends_nothing_is_told_as_such(lake: Lake) -> None:
    await lake.allow(O.READ, "a")
    lake.lender.fails = True
    status, why = await lake.ask("GET", f"{FLOE}/tables/a", delegation=DELEGATION)
    assert (status, why) == (
        503,
        "ServiceUnavailableException: the object store failed: the role was not assumed",
    )
    assert (await lake.ask("GET", f"{FLOE}/tables/a"))[0] == 200


async def test_shadow_mode_refuses_nothing_and_counts(rig: Rig) -> None:
    lake = Lake(rig, "shadow")
    assert await lake.names("/v1/namespaces") == ["floe", "ns"]
    assert (await lake.ask("GET", f"{FLOE}/tables/a"))[0] == 200
    assert (await lake.ask("POST", f"{FLOE}/tables/a", SET))[0] == 200
    assert (await lake.ask("POST", f"{NS}/tables", {"name": "new", "schema": SCHEMA}))[0] == 200
    assert (await lake.ask("POST", "/v1/namespaces", {"namespace": ["more"]}))[0] == 200
    seen = {(each.operation, each.name) for each in lake.shadow._rows}
    assert seen == {
        (O.DESCRIBE, "a"),
        (O.READ, "a"),
        (O.ALTER, "a"),
        (O.CREATE, "ns.new"),
        (O.CREATE, CLUSTER_NAME),
    }
