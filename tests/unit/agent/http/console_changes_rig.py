"""What tests of the console's changes share: an agent that changes things, forms, previews."""

from __future__ import annotations

import httpx

from tests.unit.agent.http.conftest import Edge
from tests.unit.agent.http.console_rig import Page, page
from tests.unit.agent.rig import Agent

HTTP = {"host": "127.0.0.1", "port": 0, "authentication": "required", "barrier_timeout_ms": 10_000}
ON = {"http": HTTP, "console": {"changes": True, "confirm_ms_max": 10_000}}
IMPATIENT = {"http": HTTP, "console": {"changes": True, "confirm_ms_max": 100}}
Both = tuple[Edge, Agent]


DENIED: dict[str, dict[str, str]] = {
    "topic-create": {"topic": "new", "partitions": "1"},
    "topic-configs": {"topic": "orders", "value:retention.ms": "5"},
    "topic-partitions": {"topic": "orders", "count": "2"},
    "topic-delete": {"topic": "orders", "typed": "orders"},
    "topic-undelete": {"topic": "gone", "name": "gone"},
    "records-delete": {"topic": "orders"},
    "group-reset": {"group": "readers", "to": "latest"},
    "group-delete": {"group": "readers", "typed": "readers"},
    "acl-create": {
        "principal": "User:ann",
        "host": "*",
        "permission": "Allow",
        "operation": "All",
        "type": "Cluster",
        "name": "kafka-cluster",
        "pattern": "Literal",
    },
    "acl-delete": {
        "principal": "User:ann",
        "host": "*",
        "permission": "Allow",
        "operation": "Describe",
        "type": "Topic",
        "name": "orders",
        "pattern": "Literal",
    },
    "subject-level": {"subject": "orders-value", "level": "FULL"},
}
"""Of each kind one that is denied to whoever may only look."""


async def form(client: httpx.AsyncClient, kind: str, status: int = 200, **query: str) -> Page:
    """The form of a change."""
    return await page(client, f"/console/change/{kind}", status, **query)


async def send(
    client: httpx.AsyncClient, kind: str, given: dict[str, str], status: int = 200, **headers: str
) -> Page:
    """What is answered to a form."""
    answer = await client.post(f"/console/change/{kind}", data=given, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    return Page(answer.text)


def fields_of(shown: Page) -> dict[str, str]:
    """What a browser would send of a page's only form, its text fields as they stand."""
    return {
        str(attributes["name"]): str(attributes.get("value") or "")
        for name, attributes in shown.elements
        if name == "input" and "name" in attributes and attributes.get("type") in (None, "hidden")
    }


async def change(client: httpx.AsyncClient, kind: str, **given: str) -> Page:
    """A change that goes through: preview, confirmation; the page behind it."""
    shown = await send(client, kind, given)
    assert "Nothing has changed yet" in shown.said
    done = await send(client, kind, fields_of(shown))
    assert "Done:" in done.said
    return done
