"""What a change is while it is asked for: fields, a form, a plan."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from agent.http.console.markup import Content, Html, data, many, tag
from coordination.kafka_codes import Code

Given = Mapping[str, str]
"""A form's fields as they came."""
Errors = Mapping[str, str]
"""What is wrong with which; under "" with all of them."""


class BadFields(Exception):
    """A form that cannot be meant."""

    def __init__(self, errors: Errors) -> None:
        super().__init__("; ".join(errors.values()))
        self.errors = errors


class Refusal(NamedTuple):
    """Why something is not done: Kafka's code, and words. `what`: a part of the change; empty: all."""

    what: str
    code: Code
    message: str


class Form(NamedTuple):
    """`here`: the place in the navigation. `fields`: what stands in the form."""

    title: str
    here: str
    fields: Html


class Plan(NamedTuple):
    """A change that can be shown and done.

    `given`: the fields by which it is planned again. `rows`: what, now, then. `seen` is what must still be
    the same when it is done, and `look` says what it is by then. `do(rehearse)` says what is refused.
    `fields`: the field that a refusal is about, by code. `after`: where one sees the outcome.
    """

    title: str
    given: Given
    rows: Sequence[tuple[Content, Content, Content]]
    look: Callable[[], object]
    seen: object
    do: Callable[[bool], Awaitable[Sequence[Refusal]]]
    after: tuple[str, str]
    notes: Sequence[str] = ()
    fields: Mapping[Code, str] = {}


class Kind(Protocol):
    """One kind of change."""

    name: str
    """Its row in agent/http/needs.py."""
    here: str
    """Its place in the navigation."""

    def form(self, given: Given, errors: Errors) -> Form:
        """The form. Raises Problem where its thing is not there, or may not be seen."""
        ...

    async def plan(self, given: Given) -> Plan:
        """What is meant, by what is applied here. Raises BadFields, Problem."""
        ...


class Field(NamedTuple):
    """One that people fill in; `choices`: those there are, else any text."""

    name: str
    label: str
    doc: str = ""
    choices: Sequence[str] = ()
    lines: bool = False
    preset: str = ""


def controls(fields: Sequence[Field], given: Given, errors: Errors) -> Html:
    """All of a form's fields, each with what is wrong with it."""
    return many((_all(errors), *(_control(each, given, errors) for each in fields)))


def _all(errors: Errors) -> Content:
    return tag("p", errors[""], class_="bad", role="alert") if "" in errors else None


def _control(one: Field, given: Given, errors: Errors) -> Html:
    value = given.get(one.name, one.preset)
    return tag(
        "p",
        tag("label", f"{one.label} ", control(one, value, errors)),
        wrong(one.name, errors),
        tag("span", one.doc, class_="doc") if one.doc else None,
        class_="field",
    )


def control(one: Field, value: str, errors: Errors) -> Html:
    """What is filled in, without its label."""
    bad = one.name in errors
    told = {
        "name": one.name,
        "id": f"field-{one.name}",
        "aria_invalid": "true" if bad else None,
        "aria_describedby": f"wrong-{one.name}" if bad else None,
    }
    if one.choices:
        known = one.choices if value in one.choices else (value, *one.choices)
        options = (tag("option", each, value=each, selected=each == value) for each in known)
        return tag("select", *options, **told)
    if one.lines:
        first = "\n"  # a browser drops it
        return tag("textarea", data(first + value), rows="4", cols="50", **told)
    return tag("input", value=value, autocomplete="off", **told)


def wrong(name: str, errors: Errors) -> Content:
    """What is wrong with a field; None: nothing."""
    return tag("span", errors[name], class_="bad", id=f"wrong-{name}") if name in errors else None


def hidden(given: Given) -> Html:
    """Fields that go along."""
    return many(tag("input", type="hidden", name=name, value=value) for name, value in given.items())


def whole(given: Given, name: str, low: int, high: int) -> int:
    """A whole number of a field. Raises BadFields."""
    text = given.get(name, "").strip()
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and low <= int(text) <= high):
        raise BadFields({name: f"{text!r} is no whole number from {low:,} to {high:,}"})
    return int(text)
