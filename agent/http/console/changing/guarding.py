"""Who may send a change: a page of this console's own, in the browser that it was shown in.

Browsers send passwords and certificates along with requests of any site's pages. So a change needs the name
of a preview, which only this site's pages can read; the cookie of the browser that it was shown in, which
other sites' requests do not carry (SameSite); and an Origin, where a browser tells one, that is this site.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from agent.http.answers import Problem
from agent.http.console.changing.previews import Owner, Previews
from agent.http.identity import from_elsewhere
from agent.http.parts import Parts
from agent.telemetry.trail import http_actor

COOKIE: Final = "floe-console"
COOKIE_CHARS: Final = 64
LOCAL: Final = "localhost"


def require_own_page(parts: Parts, request: Request) -> None:
    """Raises Problem 403 for what a page of another site sends."""
    fetched = request.headers.get("sec-fetch-site", "same-origin")
    if from_elsewhere(request.scope) or fetched != "same-origin":
        raise Problem(403, "a page of another site asks for a change", "ask from the console's own pages")
    if parts.config.http.authentication == "none" and not _meant(parts, request.url.hostname or ""):
        # A name of somebody else's may lead here (DNS rebinding): his pages would be of this origin.
        raise Problem(
            403,
            f"{request.url.hostname} is no name of this agent's, and nobody is asked who he is here",
            "go by the agent's address, by localhost or by http.advertised_host; or set http.authentication "
            "to required",
        )


def owner_of(request: Request) -> Owner | None:
    """Whose request it is; None: the browser has not been shown a preview."""
    actor, browser = http_actor.get(), request.cookies.get(COOKIE, "")
    return Owner(actor.principal, actor.host, browser) if _is_ours(browser) else None


def owner_from_now_on(previews: Previews, request: Request) -> Owner:
    """The same of a browser that may be new."""
    actor = http_actor.get()
    return owner_of(request) or Owner(actor.principal, actor.host, previews.name())


def remember(response: Response, request: Request, owner: Owner) -> None:
    """Have the browser say again that it is this one."""
    response.set_cookie(
        COOKIE,
        owner.browser,
        path="/console/change",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


def _is_ours(browser: str) -> bool:
    return len(browser) == COOKIE_CHARS and browser.isascii() and browser.isalnum()


def _meant(parts: Parts, host: str) -> bool:
    """Whether a browser that says this host was sent here by someone who knows the agent."""
    http = parts.config.http
    if host in (LOCAL, http.host, http.advertised_host) or host.endswith(f".{LOCAL}"):
        return True
    if host and any(
        host == each.http_address.rpartition(":")[0] for each in parts.replica.state.brokers.values()
    ):
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
