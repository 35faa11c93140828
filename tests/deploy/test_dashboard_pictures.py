"""The guard of the dashboards' pictures in the docs sees a query without an answer, and a blank panel."""

from __future__ import annotations

from typing import Any

import pytest
from PIL import Image, ImageDraw

from deploy.dashboards.panels import Board, Row, built, line
from tests.compat.dashboards.drawing import AROUND, COLUMN, GAP, TOP, UNIT, WIDTH, blank
from tests.compat.dashboards.pictures import unanswered

ASKED = ("rate(floe_requests_total{@}[1m])", "a"), ("rate(floe_errors_total{@}[1m])", "b")


def board(*, empty: str = "") -> dict[str, Any]:
    panels = [
        line("Requests", "How many.", "ops", *ASKED, empty=empty),
        line("Ready", "Who.", "short", ASKED[0]),
    ]
    return built(Board("floe-of-tests", "Of tests", "None.", [Row("All", panels, (12, 12))]))


def test_what_did_not_happen_may_be_silent_beside_what_did() -> None:
    told = line("Turned away", "Who.", "ops", ("floe_connections_held_total{@}", "a"), ASKED[0])
    shown = built(Board("floe-of-tests", "Of tests", "None.", [Row("All", [told], (24,))]))["panels"][1]
    assert unanswered(shown, [answer("B", "0")]) == []
    assert len(unanswered(shown, [])) == 2


def answer(ref: str, *values: str) -> dict[str, Any]:
    return {"refId": ref, "name": ref, "values": [[at, text] for at, text in enumerate(values)]}


@pytest.mark.parametrize(
    ("empty", "said", "wrong"),
    [
        ("", [answer("A", "1"), answer("B", "NaN", "0")], []),
        ("", [answer("A", "1")], ["no data of rate(floe_errors"]),
        ("", [], ["no data of rate(floe_requests", "no data of rate(floe_errors"]),
        ("None so far", [], []),
        ("None so far", [answer("A", "NaN", "+Inf"), answer("B", "1")], ["no numbers of rate(floe_requests"]),
    ],
)
def test_each_query_of_a_panel_has_an_answer(empty: str, said: list[Any], wrong: list[str]) -> None:
    panel = board(empty=empty)["panels"][1]
    found = unanswered(panel, said)
    assert len(found) == len(wrong)
    assert all(each.startswith(f"Requests: {told}") for each, told in zip(found, wrong, strict=True))


def picture(shown: dict[str, Any], drawn: set[str]) -> Image.Image:
    """Panels with borders and titles; of those that are `drawn` something below."""
    rows = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in shown["panels"])
    image = Image.new("RGB", (WIDTH, rows * UNIT + AROUND), "white")
    pen = ImageDraw.Draw(image)
    for panel in shown["panels"]:
        at = panel["gridPos"]
        left, top = GAP + at["x"] * COLUMN, TOP + at["y"] * UNIT
        pen.rectangle((left, top, left + at["w"] * COLUMN - GAP, top + at["h"] * UNIT - GAP), outline="grey")
        pen.text((left + 8, top + 10), panel["title"], fill="black")
        if panel["title"] in drawn:
            pen.text((left + 90, top + 120), "1", fill="black")
    return image


def test_a_panel_below_whose_title_nothing_is_drawn_is_named() -> None:
    shown = board()
    assert blank(shown, picture(shown, {"Requests", "Ready"})) == []
    assert blank(shown, picture(shown, {"Requests"})) == ["Ready"]
    assert blank(shown, Image.new("RGB", (WIDTH, 900), "white")) == ["Requests", "Ready"]
