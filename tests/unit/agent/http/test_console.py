"""The console's pages: what each shows, to whom, how much of it at once, and that nothing in it is code."""

from __future__ import annotations

import html
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from agent.http.console import figures, groups, listing, topics
from agent.http.console.changing.plans import Field, control, hidden
from agent.http.console.markup import LINES, PIECE_CHARS, Html, in_pieces, link, tag, text, url
from agent.http.console.shell import PAGES
from agent.telemetry.printable import printable
from coordination.commands import AddToTransaction, InitTransactions
from coordination.state.acl_types import Operation, ResourceType
from coordination.state.types import Done
from objectstore.turns import at_once
from tests.unit.agent.http.conftest import Edge, connect
from tests.unit.agent.http.console_rig import Page, by, commit, console, let, page
from tests.unit.agent.http.registry_rig import A, Registry
from tests.unit.agent.kafka.test_handlers_produce_fetch import produce
from tests.unit.agent.rig import Agent, batch

SHOUTS = "<script>alert(1)</script>\"'&"
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER


@pytest.fixture
async def open_(tmp_path: Path) -> AsyncIterator[tuple[Edge, Agent]]:
    """No ACLs are asked."""
    async with console(tmp_path) as both:
        yield both


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[tuple[Edge, Agent]]:
    """ACLs are asked, and there are none."""
    async with console(tmp_path, "enforce") as both:
        yield both


def test_text_is_escaped_wherever_it_stands() -> None:
    shown = tag("a", SHOUTS, "\u202eback", "\0\ud800", title=SHOUTS, href=url("/console/topics/{}", "a/b?c"))
    assert "<script" not in shown
    assert shown.count("&lt;script&gt;") == 2
    assert "\u202e" not in shown
    assert "\\u202eback" in shown, "marks of direction are written out"
    assert shown.encode(), "half a character is no error"
    assert 'href="/console/topics/a%2Fb%3Fc"' in shown
    assert text(Html("<b>")) == "<b>", "what was made here is not escaped again"
    assert tag("input", disabled=False, title=None, hidden=True) == "<input hidden>"
    assert link("x", url("/console/group", id='"><script>')).count("<") == 2


def test_what_a_browser_sends_back_is_what_it_was_given() -> None:
    odd = 'team\u00a0a\u200b\r\n<x>\u202e"'
    fields = Page(hidden({odd: odd}) + control(Field("x", "X"), odd, {})).elements
    assert [(each.get("name"), each["value"]) for _, each in fields] == [(odd, odd), ("x", odd)]
    several = control(Field("x", "X", lines=True), f"\n{odd}", {})
    assert html.unescape(several.partition(">")[2]) == f"\n\n{odd}</textarea>", "the first goes"


def test_text_with_lines_is_not_looked_at_letter_by_letter_and_long_text_is_made_in_turns() -> None:
    lines = "{\n\t1\n}"
    assert printable(lines, LINES) is lines
    odd = "\0\n<\u202e" * PIECE_CHARS
    assert len(list(in_pieces(odd))) == 3
    assert at_once(in_pieces(odd)) == text(odd)


async def test_every_page_shows_what_there_is(open_: tuple[Edge, Agent]) -> None:
    edge, agent = open_
    await edge.topic("orders", partitions=2)
    assert (await produce(agent, batch(b"a", b"b"), name="orders")).error_code == 0
    await commit(edge, "readers", "orders", 1)
    await edge.replica.propose(InitTransactions(transactional_id="tx", timeout_ms=60_000, producer_id=-1))
    await let(edge, "ann", Operation.READ, TOPIC, "orders")
    async with by(edge, "root") as client:
        await Registry(client).register("orders-value", A)
        overview = await page(client, "/console")
        assert "edge" in overview.said
        assert "broker.example:9092" in overview.said
        assert "/console/group?id=readers" in overview.links
        shown = await page(client, "/console/topics")
        assert "/console/topics/orders" in shown.links
        one = await page(client, "/console/topics/orders")
        assert "retention.ms" in one.said
        assert "/console/topics/orders/records" in one.links
        assert "readers" in (await page(client, "/console/groups")).said
        assert "orders" in (await page(client, "/console/group", id="readers")).said
        assert "SCRAM-SHA-512" in (await page(client, "/console/acls")).said
        assert "User:ann" in (await page(client, "/console/acls", search="ANN")).said
        assert "orders-value" in (await page(client, "/console/schemas")).said
        assert "int32 a" in (await page(client, "/console/schema", subject="orders-value")).said
        await page(client, "/console/tables")
        await page(client, "/console/transactions")
        for path in ("/console/topics/none", "/console/group", "/console/schema", "/console/transaction"):
            assert "not exist" in (await page(client, path, 404)).said


async def test_pages_need_nothing_from_elsewhere_and_run_nothing_inline(open_: tuple[Edge, Agent]) -> None:
    edge, _ = open_
    await edge.topic("orders")
    async with by(edge, "root") as client:
        for path in [each for _, each in PAGES] + [
            "/console/topics/orders",
            "/console/topics/orders/records",
        ]:
            answer = await client.get(path)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["cache-control"] == "no-store"
            shown = Page(answer.text)
            for name, attributes in shown.elements:
                assert not [each for each in attributes if each.startswith("on") or each == "style"], name
                for where in ("href", "src", "action"):
                    assert str(attributes.get(where, "/")).startswith(("/", "#")), (path, name)
            scripts = [attributes for name, attributes in shown.elements if name == "script"]
            assert [bool(each.get("src")) for each in scripts] == [True]
            files = [
                str(attributes[at])
                for name, attributes in shown.elements
                for at in ("src", "href")
                if name in ("script", "link") and at in attributes
            ]
            for file in files:
                assert (await client.get(file)).status_code == 200, file


async def test_the_live_part_comes_alone_when_it_is_asked_for(open_: tuple[Edge, Agent]) -> None:
    edge, _ = open_
    async with by(edge, "root") as client:
        whole = (await client.get("/console/topics")).text
        part = (await client.get("/console/topics", headers={"X-Floe-Live": "1"})).text
    assert part.startswith("<section")
    assert part in whole
    assert "<nav" in whole


async def test_what_one_may_not_see_is_not_shown(closed: tuple[Edge, Agent]) -> None:
    edge, agent = closed
    for name in ("orders", "secret"):
        await edge.topic(name)
        assert (await produce(agent, batch(b"a"), name=name)).error_code == 0
    for group in ("g-ann", "g-other"):
        await commit(edge, group, "orders", 0)
        await commit(edge, group, "secret", 0)
    async with by(edge, "root") as client:
        await Registry(client).register("orders-value", A)
        await Registry(client).register("secret-value", A)
    await let(edge, "ann", Operation.DESCRIBE, TOPIC, "orders")
    await let(edge, "ann", Operation.DESCRIBE, GROUP, "g-ann")
    async with by(edge, "ann") as client:
        for path, seen, hidden in (
            ("/console", "g-ann", ("g-other", "broker.example", "Partitions,")),
            ("/console/topics", "orders", ("secret",)),
            ("/console/groups", "g-ann", ("g-other",)),
            ("/console/group?id=g-ann", "orders", ("secret",)),
            ("/console/schemas", "orders-value", ("secret",)),
            ("/console/topics/orders", "orders", ("retention.ms", "Look at records")),
        ):
            said = (await page(client, path)).said
            assert seen in said, path
            assert not [each for each in hidden if each in said], path
        for path in (
            "/console/topics/secret",
            "/console/topics/nothing",
            "/console/topics/orders/records",
            "/console/group?id=g-other",
            "/console/schema?subject=secret-value",
            "/console/transaction?id=x",
            "/console/acls",
        ):
            assert "User:ann may not" in (await page(client, path, 403)).said, path
    async with connect(edge.app) as nobody:
        for _, path in PAGES:
            assert (await nobody.get(path)).status_code == 401


async def test_lists_are_paged_and_searched(
    open_: tuple[Edge, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    edge, _ = open_
    monkeypatch.setattr(listing, "LOOKED_AT_PER_TURN", 7)
    names = [f"t-{number:04}" for number in range(250)]
    for name in reversed(names):
        await edge.topic(name)
    async with by(edge, "root") as client:
        seen: list[str] = []
        path: str | None = "/console/topics"
        while path:
            shown = await page(client, path)
            assert "250 in all" in shown.said
            seen += [each.rpartition("/")[2] for each in shown.links if "/topics/" in each]
            path = next((each for each in shown.links if "after=" in each), None)
        assert seen == names
        found = await page(client, "/console/topics", search="T-01")
        assert "100 in all" in found.said
        assert "after=" not in "".join(found.links)
        assert "shorten it" in (await page(client, "/console/topics", 400, search="x" * 5_000)).said


async def test_partitions_and_positions_are_paged(
    open_: tuple[Edge, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    edge, _ = open_
    monkeypatch.setattr(topics, "PARTITIONS", 2)
    monkeypatch.setattr(groups, "POSITIONS", 2)
    await edge.topic("wide", partitions=5)
    for number in range(5):
        await edge.topic(f"p-{number}")
        await commit(edge, "g", f"p-{number}", 0)
    async with by(edge, "root") as client:
        for path, pages in (("/console/topics/wide", 3), ("/console/group?id=g", 3)):
            seen, way = [], path
            for _ in range(10):
                shown = await page(client, way)
                seen.append(shown.said)
                following = [dict(a) for t, a in shown.elements if t == "a" and a.get("rel") == "next"]
                if not following:
                    break
                way = str(following[0]["href"])
            assert len(seen) == pages, path
            assert all(one != other for one, other in pairwise(seen))


async def test_groups_behind_are_the_furthest_first(
    open_: tuple[Edge, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    edge, agent = open_
    monkeypatch.setattr(figures, "POSITIONS_PER_TURN", 1)
    await edge.topic("t")
    assert (await produce(agent, batch(*[b"x"] * 30))).error_code == 0
    for number in range(15):
        await commit(edge, f"g-{number:02}", "t", 15 + number)
    await commit(edge, "level", "t", 30)
    async with by(edge, "root") as client:
        shown = await page(client, "/console")
    behind = [each.rpartition("=")[2] for each in shown.links if "group?id" in each]
    assert behind == [f"g-{number:02}" for number in range(10)]


async def test_pages_are_there_while_the_log_is_away(open_: tuple[Edge, Agent]) -> None:
    edge, agent = open_
    await edge.topic("orders")
    assert (await produce(agent, batch(b"kept"), name="orders")).error_code == 0
    edge.log.faults.refused = True
    await edge.parts.health.refresh()
    async with by(edge, "root") as client:
        for _, path in PAGES:
            shown = await page(client, path)
            assert "This agent is not well" in shown.said, path
        assert "kept" in (await page(client, "/console/topics/orders/records")).said


async def test_an_agent_may_be_without_a_console(edge: Edge) -> None:
    without = edge.parts.config.console.model_copy(update={"enabled": False})
    app = edge.rebuilt(config=edge.parts.config.model_copy(update={"console": without}))
    async with connect(app) as client:
        assert (await client.get("/console")).status_code == 404


async def test_a_transaction_is_shown_with_what_it_writes_to(closed: tuple[Edge, Agent]) -> None:
    edge, _ = closed
    await edge.topic("orders")
    await edge.topic("secret")
    begun = await edge.replica.propose(
        InitTransactions(transactional_id="tx", timeout_ms=60_000, producer_id=-1)
    )
    assert isinstance(begun, Done)
    known = edge.replica.state.transactions["tx"]
    handles = [edge.replica.state.topics[name].partitions[0].handle for name in ("orders", "secret")]
    added = AddToTransaction(
        transactional_id="tx", producer_id=known.producer_id, producer_epoch=known.epoch, partition=handles
    )
    assert isinstance(await edge.replica.propose(added), Done)
    await let(edge, "ann", Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "tx")
    await let(edge, "ann", Operation.DESCRIBE, TOPIC, "orders")
    async with by(edge, "ann") as client:
        assert "Ongoing" in (await page(client, "/console/transactions")).said
        shown = await page(client, "/console/transaction", id="tx")
    assert "orders" in shown.said
    assert "secret" not in shown.said
