"""Who asks: without an identity nothing but probes is served, and whoever guesses learns nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.routing import Route

from agent.http.identity import OPEN
from agent.kafka.login.passwords import WAITING_MAX
from agent.net.tokens.identity import Bearers
from agent.telemetry.trail import LOGIN, Trail
from tests.unit.agent.http.closed import OneToken, closed_agent
from tests.unit.agent.http.conftest import Edge, connect
from tests.unit.agent.net.server.harness import until

LOGIN_PATH = "/iceberg/v1/oauth/tokens"


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Edge]:
    """No ACLs are asked."""
    async with closed_agent(tmp_path) as edge:
        yield edge


@pytest.fixture
async def client(closed: Edge) -> AsyncIterator[httpx.AsyncClient]:
    """Says nothing of itself."""
    async with connect(closed.app) as opened:
        yield opened


def routes(edge: Edge) -> list[tuple[str, str]]:
    """Every method and path that the application has, with its parameters filled in."""
    found = []
    for route in edge.app.routes:
        assert isinstance(route, Route)
        path = route.path
        for name in route.param_convertors:
            path = path.replace(f"{{{name}:path}}", "some").replace(f"{{{name}}}", "some")
        found += [(method, path) for method in sorted(route.methods or ())]
    return found


async def test_no_route_is_served_without_an_identity(closed: Edge, client: httpx.AsyncClient) -> None:
    assert len(routes(closed)) > 50
    for method, path in routes(closed):
        answer = await client.request(method, path)
        if path in (*OPEN, "/metrics"):
            assert answer.status_code in (200, 503) or path == LOGIN_PATH, path
        else:
            assert answer.status_code == 401, path
            asked = answer.headers.get_list("www-authenticate")
            assert [each.split()[0] for each in asked] == ["Basic", "Bearer"], path
    assert set(OPEN) == {"/livez", "/readyz", LOGIN_PATH}
    assert (await client.post(LOGIN_PATH)).status_code == 400


async def test_no_change_is_asked_for_by_another_site_where_nobody_is_asked_who_he_is(closed: Edge) -> None:
    """Whoever looks at that site may reach an agent that its maker does not."""
    http = closed.parts.config.http.model_copy(update={"authentication": "none"})
    closed.have(config=closed.parts.config.model_copy(update={"http": http}))
    evil, own = {"Origin": "https://evil.example"}, {"Origin": "http://agent"}
    async with connect(closed.app) as client:
        for method, path in routes(closed):
            refused = method not in ("GET", "HEAD") and path != LOGIN_PATH
            assert ((await client.request(method, path, headers=evil)).status_code == 403) == refused, path
        answer = await client.put("/mode", json={"mode": "READWRITE"}, headers=own)
    assert answer.status_code == 200


@pytest.mark.parametrize("user", ["ann", "sam", "root"])
async def test_a_password_of_any_kind_lets_its_user_in(client: httpx.AsyncClient, user: str) -> None:
    for _ in range(2):  # the second time it is remembered
        assert (await client.get("/status.json", auth=(user, f"{user}'s"))).status_code == 200
    for wrong in (f"{user}'S", "", "ann's\0", f":{user}'s"):
        assert (await client.get("/status.json", auth=(user, wrong))).status_code == 401


async def test_a_password_that_is_no_longer_kept_does_not_let_in_again(
    closed: Edge, client: httpx.AsyncClient
) -> None:
    assert (await client.get("/status.json", auth=("sam", "sam's"))).status_code == 200
    del closed.replica.state.scram.credentials["sam", 2]
    assert (await client.get("/status.json", auth=("sam", "sam's"))).status_code == 401


async def test_a_page_of_another_site_changes_nothing(client: httpx.AsyncClient) -> None:
    """A browser sends the password that it knows along, whoever's page asks (CSRF)."""
    right = ("ann", "ann's")
    for origin in ("https://evil.example", "null", "http://agent.evil.example"):
        answer = await client.put("/mode", auth=right, json={}, headers={"Origin": origin})
        assert (answer.status_code, "another site" in answer.text) == (403, True), origin
    for headers in ({}, {"Origin": "http://agent"}):
        answer = await client.put("/mode", auth=right, json={"mode": "READWRITE"}, headers=headers)
        assert answer.status_code == 200


async def test_a_wrong_password_is_answered_late_and_keeps_nobody_waiting(closed: Edge) -> None:
    config = closed.parts.config
    sasl = config.sasl.model_copy(update={"failed_delay_ms": 3_600_000})
    http = config.http.model_copy(update={"requests_in_flight_max": 1})
    closed.have(config=config.model_copy(update={"sasl": sasl, "http": http}))
    logins = closed.parts.metrics.logins.labels("BASIC", "failed")
    async with connect(closed.app) as client:
        wrong = [asyncio.create_task(client.get("/status", auth=("ann", "guessed"))) for _ in range(3)]
        await until(lambda: logins._value.get() == len(wrong))
        assert (await client.get("/status.json", auth=("ann", "ann's"))).status_code == 200
        assert not any(each.done() for each in wrong)
        for each in wrong:
            each.cancel()


async def test_a_flood_of_guesses_is_told_to_come_again_and_whoever_is_known_passes(
    closed: Edge, client: httpx.AsyncClient
) -> None:
    right = ("ann", "ann's")
    assert (await client.get("/status.json", auth=right)).status_code == 200
    guesses = [client.get("/status.json", auth=("ann", f"guess {number}")) for number in range(300)]
    flood = asyncio.gather(*guesses)
    await asyncio.sleep(0)
    assert (await client.get("/status.json", auth=right)).status_code == 200
    told = Counter(answer.status_code for answer in await flood)
    assert told.keys() == {401, 503}
    assert told[401] >= WAITING_MAX


async def test_the_answer_does_not_tell_whether_there_is_such_a_user(client: httpx.AsyncClient) -> None:
    answers = [
        await client.get("/status.json", auth=(user, "guessed"))
        for user in ("ann", "sam", "root", "nobody", "", "a" * 300)
    ]
    told = {(answer.status_code, answer.text, answer.headers["content-type"]) for answer in answers}
    assert len(told) == 1
    assert "the user or the password is wrong" in answers[0].text


@pytest.mark.parametrize(
    "header",
    [
        *("Basic", "Basic ", "Basic !!", "Basic YW5u", "Basic /zp4", "Digest x", "ann:ann's"),
        *("Bearer", "Bearer ", "Bearer a b", "Bearer t-right,t-right", "Bearer " + "x" * 20_000),
    ],
)
async def test_what_is_no_identity_is_refused(client: httpx.AsyncClient, header: str) -> None:
    answer = await client.get("/status.json", headers={"Authorization": header})
    assert answer.status_code == 401
    assert "secret" not in answer.text


async def test_two_authorization_headers_are_none(client: httpx.AsyncClient) -> None:
    right = ("Authorization", "Bearer t-right")
    assert (await client.get("/status.json", headers=[right])).status_code == 200
    assert (await client.get("/status.json", headers=[right, right])).status_code == 401


async def test_a_token_names_who_it_is_and_why_it_is_refused_only_the_log_has(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.get("/status.json", headers={"Authorization": "Bearer t-wrong"})
    assert answer.status_code == 401
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]
    assert "secret" not in answer.text


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/status", {"status", "message", "remedy"}),
        ("/iceberg/v1/config", {"message", "type", "code"}),
    ],
)
async def test_a_refusal_has_the_shape_of_its_api(
    client: httpx.AsyncClient, path: str, shape: set[str]
) -> None:
    assert set((await client.get(path)).json()["error"]) == shape


async def test_the_registry_refuses_as_confluents_does(client: httpx.AsyncClient) -> None:
    answer = await client.get("/subjects")
    assert (answer.status_code, answer.json()["error_code"]) == (401, 401)


async def test_metrics_are_closed_by_choice(closed: Edge) -> None:
    http = closed.parts.config.http.model_copy(update={"metrics_open": False})
    config = closed.parts.config.model_copy(update={"http": http})
    async with connect(closed.rebuilt(config=config)) as client:
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.get("/livez")).status_code == 200


async def test_the_audit_log_has_who_came_in_and_who_did_not(closed: Edge) -> None:
    trail = Trail(closed.parts.config.audit_log, closed.parts.clock, "edge", closed.parts.metrics)
    async with connect(closed.rebuilt(trail=trail, bearers=Bearers([OneToken()]))) as client:
        for _ in range(3):
            await client.get("/status.json", headers={"Authorization": "Bearer t-right"})
        await client.get("/status.json", auth=("eve", "a secret word"))
    events = trail.take(100)
    seen = [(each.kind, each.actor.principal, each.actor.door, each.change.operation) for each in events]
    assert seen == [(LOGIN, "tom", "HTTP", "BEARER"), (LOGIN, "eve", "HTTP", "BASIC")]
    assert [each.outcome for each in events] == ["NONE", "SASL_AUTHENTICATION_FAILED"]
    assert "secret" not in str(events)
