"""What ACLs let somebody do by HTTP: routes ask for what the table says, and show nothing of the rest."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.routing import Route

from agent.http.docs import PAGE, replaced
from agent.http.needs import CATALOG_PATH, TABLE, row_of
from agent.telemetry.trail import REFUSED
from coordination.commands import DeleteAcls
from coordination.state.acl_types import Operation
from coordination.state.types import Done
from tests.unit.agent.http.closed import acl, allow, closed_agent
from tests.unit.agent.http.conftest import Edge, connect
from tests.unit.agent.http.registry_rig import A2, USES, A, Registry, reference


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Edge]:
    """ACLs are asked, and there are none."""
    async with closed_agent(tmp_path, "enforce") as edge:
        yield edge


def by(edge: Edge, user: str) -> httpx.AsyncClient:
    """A client of this user."""
    client = connect(edge.app)
    client.auth = httpx.BasicAuth(user, f"{user}'s")
    return client


def test_no_route_is_without_a_row_and_no_row_without_a_route(edge: Edge) -> None:
    all_of_it = edge.parts.config.console.model_copy(update={"changes": True})
    app = edge.rebuilt(config=edge.parts.config.model_copy(update={"console": all_of_it}))
    routes = [each for each in app.routes if isinstance(each, Route)]
    asked = {
        ("" if route.path == CATALOG_PATH else method, route.path)
        for route in routes
        for method in (route.methods or set()) - {"HEAD"}
        if "{context}" not in route.path
    }
    assert asked == set(TABLE)
    with pytest.raises(KeyError):
        row_of("GET", "/admin/new")


def test_the_page_shows_the_table() -> None:
    page = PAGE.read_text()
    assert replaced(page) == page, "run python -m agent.http.docs"


def _all(edge: Edge) -> list[tuple[str, str]]:
    """Routes that ask by what the path names, filled in."""
    found = []
    for (method, path), row in TABLE.items():
        if row.need is not None and not row.by_itself:
            named = path.replace("{name}", "orders").replace("{subject:path}", "orders-value")
            found.append((method, named.replace("{version}", "1")))
    return found


async def test_every_route_refuses_whoever_has_no_acl(closed: Edge) -> None:
    await closed.topic("orders")
    async with by(closed, "ann") as client:
        for method, path in _all(closed):
            answer = await client.request(method, path, content=b"{}")
            assert answer.status_code == 403, (method, path, answer.text)
            assert "User:ann" in answer.text
        unknown = await client.get("/admin/topics/nothing/schema")
        assert unknown.status_code == 403, "whether there is such a topic is not told"
    async with by(closed, "root") as client:
        for method, path in _all(closed):
            assert (await client.request(method, path, content=b"{}")).status_code != 403, path


async def test_a_topics_subjects_are_for_whoever_has_the_topic(closed: Edge) -> None:
    async with by(closed, "root") as client:
        registry = Registry(client)
        for subject in ("orders-value", "secret-value", "common"):
            await registry.register(subject, A)
        named = await registry.get("/subjects/secret-value/versions/1")
    await allow(closed, "ann", Operation.READ, "orders")
    async with by(closed, "ann") as client:
        registry = Registry(client)
        assert await registry.get("/subjects") == ["orders-value"]
        assert [each["subject"] for each in await registry.get("/schemas")] == ["orders-value"]
        assert await registry.get("/subjects/orders-value/versions") == [1]
        await registry.get("/subjects/secret-value/versions", 40301)
        await registry.get("/subjects/common/versions", 40301)
        await registry.get("/subjects/:.x:orders-value/versions", 40301)
        assert await registry.get(f"/schemas/ids/{named['id']}/subjects") == ["orders-value"]
    await allow(closed, "sam", Operation.DESCRIBE)
    async with by(closed, "sam") as client:
        assert await Registry(client).get("/subjects") == ["common"]


async def test_a_schema_by_its_id_is_for_whoever_has_a_subject_with_it(closed: Edge) -> None:
    async with by(closed, "root") as client:
        registry = Registry(client)
        shared = await registry.register("orders-value", A)
        await registry.register("secret-value", A)
        secret = await registry.register("secret-value", A2)
    await allow(closed, "ann", Operation.WRITE, "orders")
    async with by(closed, "ann") as client:
        registry = Registry(client)
        for path in (f"/schemas/ids/{shared['id']}", f"/schemas/guids/{shared['guid']}"):
            await registry.get(path)
        for path in (f"/schemas/ids/{secret['id']}", f"/schemas/guids/{secret['guid']}"):
            await registry.get(path, 40301)
        assert (await client.get(f"/admin/schemas/{shared['id']}")).status_code == 200
        assert (await client.get(f"/admin/schemas/{secret['id']}")).status_code == 403


async def test_whoever_may_write_records_registers_what_is_there_and_nothing_new(closed: Edge) -> None:
    async with by(closed, "root") as client:
        first = await Registry(client).register("orders-value", A)
    await allow(closed, "ann", Operation.WRITE, "orders")
    async with by(closed, "ann") as client:
        registry = Registry(client)
        assert await registry.register("orders-value", A) == first
        await registry.register("orders-value", A2, 40301)
        await allow(closed, "ann", Operation.ALTER, "orders")
        assert (await registry.register("orders-value", A2))["version"] == 2


async def test_neither_an_alias_nor_a_reference_is_a_way_round(closed: Edge) -> None:
    async with by(closed, "root") as client:
        registry = Registry(client)
        await registry.register("secret-value", A)
        await registry.put("/config/shown-value", alias="secret-value")
    for operation in (Operation.DESCRIBE, Operation.ALTER, Operation.ALTER_CONFIGS):
        for topic in ("shown", "own"):
            await allow(closed, "ann", operation, topic)
    async with by(closed, "ann") as client:
        registry = Registry(client)
        await registry.get("/subjects/shown-value/versions", 40301)
        await registry.delete("/subjects/shown-value", 40301)
        await registry.register("shown-value", A, 40301)
        await registry.put("/config/own-value", 40301, alias="secret-value")
        references = [reference("secret-value", 1)]
        await registry.register("own-value", USES, 40301, references=references)
        bound = {"subject": "secret-value"}
        await closed.topic("own")
        assert (await client.post("/admin/topics/own/schema", json=bound)).status_code == 403


async def test_a_refusal_is_in_the_audit_log_and_one_that_is_only_not_shown_is_not(closed: Edge) -> None:
    async with by(closed, "root") as client:
        await Registry(client).register("orders-value", A)
    trail = closed.parts.trail
    assert trail is not None
    trail.take(100)
    async with by(closed, "ann") as client:
        await client.get("/subjects")
        await client.get("/subjects/orders-value/versions")
    refused = [
        (each.actor.principal, each.change.resource) for each in trail.take(100) if each.kind == REFUSED
    ]
    assert refused == [("ann", "orders")]


async def test_in_shadow_mode_nothing_is_refused_and_what_would_be_is_counted(tmp_path: Path) -> None:
    async with closed_agent(tmp_path, "shadow") as edge:
        async with by(edge, "ann") as client:
            registry = Registry(client)
            placed = await registry.register("orders-value", A)
            await registry.get(f"/schemas/ids/{placed['id']}")
            assert (await client.get("/status.json")).status_code == 200
        assert edge.parts.shadow is not None
        seen = {(each.principal, each.operation, each.name) for each, _ in edge.parts.shadow.rows()}
        assert seen == {
            ("User:ann", Operation.DESCRIBE, "orders"),
            ("User:ann", Operation.ALTER, "orders"),
            ("User:ann", Operation.DESCRIBE, "kafka-cluster"),
        }


async def test_a_revoked_acl_stops_the_next_request(closed: Edge) -> None:
    await allow(closed, "ann", Operation.DESCRIBE)
    async with by(closed, "ann") as client:
        assert (await client.get("/status.json")).status_code == 200
        given = acl("ann", Operation.DESCRIBE)
        gone = DeleteAcls.Filter(
            resource_type=given.resource_type,
            pattern_type=given.pattern_type,
            principal=given.principal,
            operation=given.operation,
            permission=given.permission,
        )
        assert isinstance(await closed.replica.propose(DeleteAcls(filters=[gone])), Done)
        assert (await client.get("/status.json")).status_code == 403


async def test_where_nobody_says_who_he_is_acls_are_not_asked(closed: Edge) -> None:
    http = closed.parts.config.http.model_copy(update={"authentication": "none"})
    closed.have(config=closed.parts.config.model_copy(update={"http": http}))
    async with connect(closed.app) as client:
        assert (await client.get("/status.json")).status_code == 200
