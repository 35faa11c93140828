"""/status: one agent's view, for programs and for people."""

from __future__ import annotations

import html.parser

import httpx
import pytest

from agent.http import page, tables
from agent.telemetry.metrics import Metrics
from agent.telemetry.refusals import Refusals
from coordination.clock import ManualClock
from coordination.commands import BindSchema, Claim, CommitTable, DeleteTopic, DropTable, PutNamespace
from coordination.state.types import Done
from iceberg.latest_ids import claim_name, latest_id
from objectstore.turns import at_once
from tests.unit.agent.http.conftest import Edge, connect
from tests.unit.agent.http.registry_rig import A2, A, Registry


async def test_it_says_who_where_and_how_far(edge: Edge, client: httpx.AsyncClient) -> None:
    await edge.topic("orders", partitions=3)
    status = (await client.get("/status")).json()
    assert (status["agent"], status["cluster"], status["node_id"]) == ("edge", "floe", edge.replica.node_id)
    assert (status["topics"], status["partitions"], status["schemas"]) == (1, 3, 0)
    assert (status["revision"], status["state_hash"]) == (
        edge.replica.state.revision,
        edge.replica.state.hash,
    )
    assert status["brokers"][0]["listeners"] == ["PLAINTEXT://broker.example:9092"]
    assert status["queues"] == {"cached_bytes": 7}
    assert status["ready"] is True
    assert [d["name"] for d in status["dependencies"]] == [
        "log",
        "append",
        "store",
        "store write",
        "applying",
        "event loop",
        "clock",
        "state",
    ]


async def test_subjects_with_their_topics_and_refusals(edge: Edge, registry: Registry) -> None:
    """Followed ones first, then what changed last; a subject that is deleted is told as that."""
    for name in ("quiet", "<b>followed", "gone"):
        await registry.register(name, A)
    await registry.register("quiet", A2)
    await registry.delete("/subjects/gone")
    await edge.topic("orders")
    assert isinstance(await edge.replica.propose(BindSchema(topic="orders", subject="<b>followed")), Done)
    refusals = Refusals(ManualClock(), edge.parts.metrics)
    refusals.note("orders", 0, "INVALID_RECORD", "no", "client", "host")
    app = edge.rebuilt(refusals=refusals, metrics=Metrics())
    async with connect(app) as client:
        status = (await client.get("/status")).json()
        page = (await client.get("/status.html")).text
    assert {**status["registry"], "bytes": 0} == {
        "subjects": 3, "versions": 4, "schemas": 2, "bytes": 0, "settings": 0,
    }  # fmt: skip
    followed, gone, quiet = status["subjects"]
    assert followed == {
        "subject": "<b>followed", "type": "PROTOBUF", "version": 1, "id": 1, "versions": 1, "deleted": 0,
        "compatibility": "BACKWARD", "topics": ["orders (value)"], "refused": 1,
    }  # fmt: skip
    assert (gone["subject"], gone["version"], gone["deleted"]) == ("gone", None, 1)
    assert (quiet["subject"], quiet["version"], quiet["refused"]) == ("quiet", 2, 0)
    assert "&lt;b&gt;followed" in page
    assert "<b>followed" not in page


async def test_recent_hashes_let_two_agents_be_compared(edge: Edge, client: httpx.AsyncClient) -> None:
    seen = {}
    for number in range(5):
        await edge.topic(f"t{number}")
        seen[edge.replica.state.revision] = edge.replica.state.hash
    recent = {row["revision"]: row["state_hash"] for row in (await client.get("/status")).json()["recent"]}
    assert {revision: recent.get(revision) for revision in seen} == seen
    assert len(set(seen.values())) == 5


async def test_tables_say_how_far_they_are_behind(edge: Edge, client: httpx.AsyncClient) -> None:
    await edge.topic("orders")
    await edge.replica.propose(PutNamespace(name="floe"))
    table = CommitTable(
        namespace="floe", name="orders", metadata_location="m1", topic="orders", next_offsets=[0]
    )
    await edge.replica.propose(table)
    (row,) = (await client.get("/status")).json()["tables"]
    known = {"table": "floe.orders", "topic": "orders", "next_offsets": [0], "records_behind": 0}
    assert {name: row[name] for name in known} == known
    assert row["files"] is None, "only the agent that commits it knows"


async def test_others_have_their_turns_while_tables_are_told(
    edge: Edge, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "TOLD_PER_TURN", 1)
    monkeypatch.setattr(page, "ROWS_PER_TURN", 1)
    await edge.replica.propose(PutNamespace(name="floe"))
    for number in range(5):
        made = CommitTable(namespace="floe", name=f"t{number}", metadata_location="m1", next_offsets=[0])
        assert isinstance(await edge.replica.propose(made), Done)
    assert len(list(tables.tables(edge.parts))) >= 5
    status = (await client.get("/status")).json()
    assert [row["table"] for row in status["tables"]] == [f"floe.t{number}" for number in range(5)]
    assert len(list(page.render(status))) >= 5
    work = tables.tables(edge.parts)
    next(work)
    await edge.replica.propose(DropTable(namespace="floe", name="t3"))
    assert len(at_once(work)) == 4, "one that goes meanwhile is not told"


async def test_the_table_of_newest_rows_is_told_beside_the_topics_own(
    edge: Edge, client: httpx.AsyncClient
) -> None:
    """Each with its own offsets and holder; nobody but its holder knows more of it."""
    await edge.topic("orders", **{"floe.table.mode": "upsert"})
    topic_id = edge.replica.state.topics["orders"].topic_id
    await edge.replica.propose(PutNamespace(name="floe"))
    for name, table_id in (("orders", topic_id), ("orders__latest", latest_id(topic_id))):
        made = CommitTable(namespace="floe", name=name, metadata_location=name, topic="orders")
        made.topic_id, made.next_offsets[:] = table_id, [0]
        assert isinstance(await edge.replica.propose(made), Done)
    claim = Claim(name=claim_name("orders"))
    assert isinstance(await edge.replica.propose(claim, incarnation=edge.replica.incarnation), Done)
    own, latest = (await client.get("/status")).json()["tables"]
    assert set(own) == set(latest), "readers find the same fields"
    assert (own["table"], own["latest"], own["committed_by"]) == ("floe.orders", False, "")
    assert (latest["table"], latest["topic"]) == ("floe.orders__latest", "orders")
    assert (latest["latest"], latest["committed_by"], latest["records_behind"]) == (True, "edge", 0)
    assert latest["files"] is None, "only the agent that keeps it knows"
    page = (await client.get("/status", headers={"Accept": "text/html"})).text
    assert "floe.orders__latest" in page
    await edge.replica.propose(DeleteTopic(name="orders"))
    _, left = (await client.get("/status")).json()["tables"]
    assert (left["table"], left["records_behind"]) == ("floe.orders__latest", None)


async def test_the_newest_refused_records_are_listed_and_escaped(
    edge: Edge, client: httpx.AsyncClient
) -> None:
    assert (await client.get("/status")).json()["refused"] == []
    refusals = Refusals(ManualClock(), edge.parts.metrics)
    refusals.note("orders", 2, "INVALID_RECORD", "<b>record 0</b>", "app", "10.0.0.7")
    app = edge.rebuilt(refusals=refusals, metrics=Metrics())
    async with connect(app) as other:
        (row,) = (await other.get("/status")).json()["refused"]
        page = (await other.get("/status.html")).text
    assert row == {
        "at": "2023-11-14T22:13:20+00:00",
        "topic": "orders",
        "partition": 2,
        "code": "INVALID_RECORD",
        "message": "<b>record 0</b>",
        "client_id": "app",
        "host": "10.0.0.7",
        "at_ms": 1_700_000_000_000,
    }
    assert "10.0.0.7" in page
    assert "&lt;b&gt;record 0" in page


class Links(html.parser.HTMLParser):
    """Collects what a page would fetch, and checks that every tag is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note links and open tags."""
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close the innermost open tag."""
        assert self.open.pop() == tag


async def test_browsers_get_a_page_that_fetches_nothing_and_escapes_names(
    edge: Edge, client: httpx.AsyncClient
) -> None:
    answer = await client.get("/status", headers={"Accept": "text/html,*/*"})
    assert answer.headers["content-type"].startswith("text/html")
    parser = Links()
    parser.feed(answer.text)
    assert (parser.fetched, parser.open) == ([], [])
    assert "ready" in answer.text
    assert edge.replica.state.hash in answer.text
    assert (await client.get("/status.html")).text.startswith("<!doctype html>")
    assert (await client.get("/status.json", headers={"Accept": "text/html"})).json()["agent"] == "edge"


async def test_the_root_leads_to_the_page(client: httpx.AsyncClient) -> None:
    assert (await client.get("/")).headers["location"] == "/status.html"
