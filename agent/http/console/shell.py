"""What is around every page: head, navigation, headers that keep foreign code out, and the part that is live.

A page has a part that stays (forms) and one that a browser asks for again: `X-Floe-Live: 1` gets it alone.
Without the script each page is whole, and is read again by the browser's own means.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from agent.http.answers import Problem
from agent.http.console.markup import Html, link, many, tag, url
from agent.http.parts import Parts

PAGES: Final = (
    ("Overview", "/console"),
    ("Topics", "/console/topics"),
    ("Groups", "/console/groups"),
    ("Transactions", "/console/transactions"),
    ("Tables", "/console/tables"),
    ("Schemas", "/console/schemas"),
    ("ACLs", "/console/acls"),
    ("Alarms", "/console/alarms"),
    ("Who changed what", "/console/trail"),
)
LIVE_HEADER: Final = "x-floe-live"
FILES: Final = {"console.css": "text/css", "console.js": "text/javascript"}
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Page(NamedTuple):
    """`here`: the path of its place in the navigation. `refreshes`: whether `live` is asked for again."""

    title: str
    here: str
    live: Html
    stays: Html = Html()
    refreshes: bool = True
    status: int = 200


Handler = Callable[[Request], Awaitable[Response]]
Maker = Callable[[Request], Awaitable[Page]]


def served(parts: Parts, make: Maker) -> Handler:
    """The handler of a page."""

    async def handle(request: Request) -> Response:
        return answer(parts, request, await make(request))

    return handle


def with_problems(parts: Parts, handler: Handler) -> Handler:
    """The handler, with what is refused told on a page: status, what is wrong, what to do."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except Problem as problem:
            told = many((tag("p", problem.message, class_="bad"), tag("p", problem.remedy)))
            page = Page("Not shown", "", told, refreshes=False, status=problem.status)
            return answer(parts, request, page)

    return handle


def answer(parts: Parts, request: Request, page: Page) -> Response:
    """The whole page, or its live part alone."""
    live = tag(
        "section",
        _trouble(parts),
        page.live,
        tag("footer", f"Agent {parts.config.agent_name}, revision {parts.replica.state.revision:,}"),
        id="live",
        data_refreshes=page.refreshes,
    )
    alone = request.headers.get(LIVE_HEADER) == "1"
    content = live if alone else _whole(parts, page, live)
    # What a record holds may be half a character: it is shown as a question mark, and not as an error.
    body = content.encode(errors="replace")
    return HTMLResponse(body, page.status, {**HEADERS, "Cache-Control": "no-store"})


async def file(request: Request) -> Response:
    """The style and the script. Their addresses change with what is in them."""
    name = request.url.path.rpartition("/")[2]
    kept = {"Cache-Control": "max-age=86400, immutable"}
    return Response(_content(name), media_type=FILES[name], headers={**HEADERS, **kept})


def _trouble(parts: Parts) -> Html:
    """Why what is shown may be old, or incomplete."""
    reasons = parts.health.reasons()
    return many(tag("p", f"This agent is not well: {each}", class_="bad", role="status") for each in reasons)


def _whole(parts: Parts, page: Page, live: Html) -> Html:
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{page.title} · Floe {parts.config.cluster.name}"),
        tag("link", rel="stylesheet", href=_address("console.css")),
        tag("script", src=_address("console.js"), defer=True),
    )
    ways = (link(name, path, aria_current="page" if path == page.here else None) for name, path in PAGES)
    body = tag(
        "body",
        link("To the content", "#main", class_="skip"),
        tag(
            "header",
            tag("strong", f"Floe {parts.config.cluster.name}"),
            tag("nav", *ways, aria_label="Pages"),
        ),
        tag("main", tag("h1", page.title), page.stays, live, id="main", tabindex="-1"),
    )
    return Html(f"<!doctype html>{tag('html', head, body, lang='en')}")


def _address(name: str) -> str:
    return url(f"/console/{name}", v=blake2b(_content(name), digest_size=6).hexdigest())


@cache
def _content(name: str) -> bytes:
    return Path(__file__).with_name(name).read_bytes()
