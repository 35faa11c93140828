"""A change asked for twice: a form, a preview of what will change, its confirmation. Start reading here.

GET shows the form. POST without a preview's name makes the preview; with it, the change, once: whoever sends
it again is shown the outcome. What is not as it was previewed any more is previewed anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response

from agent.http.answers import Problem, read_body
from agent.http.barrier import barrier
from agent.http.console.changing.guarding import owner_from_now_on, owner_of, remember, require_own_page
from agent.http.console.changing.plans import BadFields, Errors, Given, Kind, Plan, Refusal, hidden
from agent.http.console.changing.previews import Preview, Previews
from agent.http.console.markup import Content, Html, link, many, table, tag
from agent.http.console.reading import is_open
from agent.http.console.shell import Handler, Page, answer
from agent.http.needs import CHANGE_PATH
from agent.http.parts import Parts
from coordination.kafka_codes import Code

PREVIEW: Final = "preview"
"""The field that has a preview's name."""
BYTES_MAX: Final = 256 * 1024
FIELDS_MAX: Final = 1_000
ROWS_MAX: Final = 200
"""Of a preview that are shown; further ones are counted, and changed all the same."""
_CHANGED: Final = "This has changed since the preview: look at it anew. Nothing was done."
_UNKNOWN: Final = (
    "This preview is not known here: its time is over, another agent made it, or it was shown to somebody "
    "else. Nothing was done. Look at it anew."
)


class Flow:
    """Of one kind of change."""

    def __init__(self, parts: Parts, previews: Previews, kind: Kind) -> None:
        self._parts, self._previews, self._kind = parts, previews, kind

    async def show(self, request: Request) -> Response:
        """The form; fields may be given by the query."""
        _require_allowed(self._parts)
        return self._form(request, dict(request.query_params), {})

    async def send(self, request: Request) -> Response:
        """A preview, or the confirmation of one."""
        _require_allowed(self._parts)
        require_own_page(self._parts, request)
        given = await _fields(self._parts, request)
        name, owner = given.pop(PREVIEW, ""), owner_of(request)
        known = None if owner is None else self._previews.find(name, self._kind.name, owner)
        if known is not None and known.doing is not None:
            return await self._confirmed(request, known)  # which needs no log
        await barrier(self._parts)
        if not name:
            return await self._preview(request, given)
        if known is None:
            return await self._preview(request, given, _UNKNOWN)
        if known.doing is None and known.plan.look() != known.plan.seen:
            self._previews.forget(name)
            return await self._preview(request, given, _CHANGED)
        return await self._confirmed(request, known)

    async def _preview(self, request: Request, given: Given, told: str = "") -> Response:
        try:
            plan = await self._kind.plan(given)
            refusals = await plan.do(True)
        except BadFields as bad:
            return self._form(request, given, bad.errors)
        if errors := _by_field(plan, refusals):
            return self._form(request, given, errors)
        owner = owner_from_now_on(self._previews, request)
        confirm: Content = None
        if not refusals:
            name = self._previews.keep(plan, self._kind.name, owner)
            confirm = self._way({**plan.given, PREVIEW: name}, Html(), "Do it")
        live = many(
            (
                tag("p", told, class_="bad", role="alert") if told else None,
                tag("p", "Nothing has changed yet. This is what will:"),
                *_shown(plan),
                *_told(refusals),
                confirm,
                tag("p", link("Not now", plan.after[1])),
            )
        )
        status = 409 if told or refusals else 200
        page = Page(f"Preview: {plan.title}", self._kind.here, live, refreshes=False, status=status)
        response = answer(self._parts, request, page)
        remember(response, request, owner)
        return response

    async def _confirmed(self, request: Request, known: Preview) -> Response:
        again = known.doing is not None
        doing, most_ms = known.do(), self._parts.config.console.confirm_ms_max
        await asyncio.wait({doing}, timeout=most_ms / 1000)
        if not doing.done():
            raise Problem(
                504, f"the outcome is not known after {most_ms} ms", "load this page again: it tells then"
            )
        refusals = doing.result()
        if errors := _by_field(known.plan, refusals):
            return self._form(request, known.plan.given, errors)
        unknown = any(each.code is Code.REQUEST_TIMED_OUT for each in refusals)
        title, status = ("Not known", 504) if unknown else ("Not done", 409) if refusals else ("Done", 200)
        live = many(
            (
                tag("p", "It was confirmed before, and done once.") if again and not refusals else None,
                *_shown(known.plan),
                *_told(refusals),
                tag("p", link(*known.plan.after)),
            )
        )
        page = Page(
            f"{title}: {known.plan.title}",
            self._kind.here,
            live,
            refreshes=False,
            status=status,
        )
        return answer(self._parts, request, page)

    def _form(self, request: Request, given: Given, errors: Errors) -> Response:
        form = self._kind.form(given, errors)
        live = self._way({}, form.fields, "Preview")
        page = Page(form.title, form.here, live, refreshes=False, status=400 if errors else 200)
        return answer(self._parts, request, page)

    def _way(self, given: Given, fields: Html, button: str) -> Html:
        path = CHANGE_PATH + self._kind.name
        return tag(
            "form", hidden(given), fields, tag("button", button), action=path, method="post", class_="change"
        )


def with_problems(parts: Parts, handler: Callable[[Request], Awaitable[Response]]) -> Handler:
    """The handler, with what is refused told on a page."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except Problem as problem:
            told = many((tag("p", problem.message, class_="bad"), tag("p", problem.remedy)))
            title = "It is not known whether it is done" if problem.status == 504 else "Nothing was done"
            return answer(parts, request, Page(title, "", told, refreshes=False, status=problem.status))

    return handle


def _require_allowed(parts: Parts) -> None:
    """Raises Problem 403 where whoever comes by HTTP could do more than by Kafka's listeners."""
    if not is_open(parts.config):
        raise Problem(
            403,
            "nobody is asked who he is here, and Kafka's clients are: nothing is changed",
            "set http.authentication to required",
        )


async def _fields(parts: Parts, request: Request) -> dict[str, str]:
    """Of a form. Raises Problem 400, 413, 415."""
    kind = request.headers.get("content-type", "").partition(";")[0]
    if kind != "application/x-www-form-urlencoded":
        raise Problem(415, f"{kind[:100]!r} is no form", "send application/x-www-form-urlencoded")
    body = await read_body(request, min(BYTES_MAX, parts.config.http.body_bytes_max))
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict")
    except ValueError:
        raise Problem(400, "the form is none", f"send at most {FIELDS_MAX} fields in UTF-8") from None
    return dict(pairs)


def _by_field(plan: Plan, refusals: Sequence[Refusal]) -> dict[str, str]:
    """What is refused, where all of it is about fields."""
    if not all(each.code in plan.fields for each in refusals):
        return {}
    return {plan.fields[each.code]: each.message or each.code.name for each in refusals}


def _shown(plan: Plan) -> tuple[Content, ...]:
    more = len(plan.rows) - ROWS_MAX
    return (
        table(("What", "Now", "Then"), plan.rows[:ROWS_MAX]),
        tag("p", f"and {more:,} more, which are not shown") if more > 0 else None,
        *(tag("p", each, class_="bad") for each in plan.notes),
    )


def _told(refusals: Sequence[Refusal]) -> tuple[Content, ...]:
    more = len(refusals) - ROWS_MAX
    return (
        *(tag("p", _words(each), class_="bad", role="alert") for each in refusals[:ROWS_MAX]),
        tag("p", f"and {more:,} more") if more > 0 else None,
    )


def _words(one: Refusal) -> str:
    what = f"{one.what}: " if one.what else ""
    return f"{what}{one.message} ({one.code.name})" if one.message else f"{what}{one.code.name}"
