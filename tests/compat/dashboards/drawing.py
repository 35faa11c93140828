"""A dashboard as a picture: Grafana's components (package.json) on a page, which Chromium opens."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image  # matplotlib brings it

from deploy.setup.chromium import chromium_command
from deploy.setup.node import ROOT, modules, node_command

FOLDER = Path(__file__).parent
PACKAGES = ROOT / "build" / "dashboard-pictures"
BUNDLE_S_MAX, BROWSER_S_MAX = 240, 240
WIDTH, UNIT, AROUND = 1408, 38, 64
"""Of the picture, of a row of the grid, and of what is above and below it: pixels, as in draw.jsx."""
COLUMN, GAP, TOP = 1400 / 24, 8, 56
"""Of the grid, between panels, and above them: pixels, as in draw.jsx."""
HEADING, EDGE = 36, 4
"""Of a panel, what its title takes and what its border does, pixels."""
COLORS = 128
SLASHED = "<\\/"
"""How `</` stands in a script without ending it."""
LOADERS = {".svg": "dataurl", ".woff2": "dataurl", ".ttf": "empty"}


@functools.cache
def bundle() -> tuple[str, str]:
    """draw.jsx with all that it imports: the script and its style sheet. Raises NoNode."""
    installed = modules(FOLDER, PACKAGES)
    options = ("--bundle", "--minify", "--format=iife", "--jsx=automatic", "--log-level=warning")
    loaders = [f"--loader:{ending}={kind}" for ending, kind in LOADERS.items()]
    out = PACKAGES / "draw.js"
    subprocess.run(
        [
            *(node_command(), str(installed / "esbuild" / "bin" / "esbuild"), str(FOLDER / "draw.jsx")),
            *(*options, *loaders, f"--outfile={out}", '--define:process.env.NODE_ENV="production"'),
        ],
        check=True,
        env={**os.environ, "NODE_PATH": str(installed)},
        timeout=BUNDLE_S_MAX,
    )
    return out.read_text(), out.with_suffix(".css").read_text()


def drawn(
    board: Mapping[str, Any], answers: Mapping[int, Any], over: tuple[float, float], file: Path
) -> Sequence[str]:
    """The board as a PNG; `answers` by panel. Returns the errors that are shown on it instead of panels, and
    which panels show nothing at all."""
    script, style = bundle()
    given = {"BOARD": board, "ANSWERS": answers, "RANGE": over, "process": {"env": {}}}
    told = json.dumps(given).replace("</", SLASHED)
    rows = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in board["panels"])
    with tempfile.TemporaryDirectory() as folder:
        page, picture = Path(folder) / "page.html", Path(folder) / "picture.png"
        page.write_text(
            f"<!doctype html><meta charset='utf-8'><style>{style}</style><body><div id='board'></div>"
            f"<script>Object.assign(window, {told})</script><script>{script}</script>"
        )
        shown = _opened(page, picture, rows * UNIT + AROUND)
        image = Image.open(picture)
        image.convert("P", palette=Image.Palette.ADAPTIVE, colors=COLORS).save(file, optimize=True)
        empty = [f"{title}: nothing is drawn" for title in blank(board, image)]
    return [*re.findall(r"Error: [^<]*", shown.partition("<script>")[0]), *empty]


def blank(board: Mapping[str, Any], image: Image.Image) -> Sequence[str]:
    """The panels that have one colour below their titles: not even why there is nothing to show."""
    found = []
    for panel in board["panels"]:
        place = panel["gridPos"]
        left, top = GAP + place["x"] * COLUMN, TOP + place["y"] * UNIT
        right, bottom = left + place["w"] * COLUMN - GAP, top + place["h"] * UNIT - GAP
        inside = (left + EDGE, top + HEADING, right - EDGE, bottom - EDGE)
        if panel["type"] != "row" and image.crop(tuple(map(round, inside))).convert("L").getcolors(1):
            found.append(panel["title"])
    return found


def _opened(page: Path, picture: Path, height: int) -> str:
    """Draws the page; returns what has become of its elements."""
    options = ("--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=3000")
    ran = subprocess.run(
        [
            *(*chromium_command(), *options, f"--user-data-dir={page.parent / 'profile'}"),
            *(f"--window-size={WIDTH},{height}", f"--screenshot={picture}", "--dump-dom", page.as_uri()),
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=BROWSER_S_MAX,
    )
    return ran.stdout
