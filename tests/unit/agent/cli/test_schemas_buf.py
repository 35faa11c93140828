"""`floe schema register --buf`: workspaces and modules of buf, of every version of its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.agent.cli.conftest import Dev

MONEY = 'syntax = "proto3"; package {name}.common; message Money {{ int64 units = 1; }}\n'
ORDER = """syntax = "proto3";
package {name}.shop;
import "{name}/common/money.proto";
import "buf/validate/validate.proto";
import "google/protobuf/timestamp.proto";
message Order {{
  int64 id = 1 [(buf.validate.field).int64.gt = 0];
  {name}.common.Money total = 2;
  google.protobuf.Timestamp at = 3;
}}
"""
LAYOUTS = {
    "v1": ({"buf.yaml": "version: v1\nbuild: {excludes: [old]}\n"}, (".", ".")),
    "v1beta1": ({"buf.yaml": "version: v1beta1\nbuild: {roots: [a, b]}\n"}, ("a", "b")),
    "work": (
        {"buf.work.yaml": "version: v1\ndirectories: [a, b]\n", "a/buf.yaml": "version: v1\n"},
        ("a", "b"),
    ),
    "v2": (
        {"buf.yaml": "version: v2\nmodules:\n- {path: a, excludes: [a/old]}\n- {path: b}\ndeps: [x/y/z]\n"},
        ("a", "b"),
    ),
}


def put(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def workspace(folder: Path, layout: str) -> Path:
    yaml, (first, second) = LAYOUTS[layout]
    name = f"buf{layout}"
    put(folder, {
        **yaml,
        f"{first}/{name}/common/money.proto": MONEY.format(name=name),
        f"{second}/{name}/shop/order.proto": ORDER.format(name=name),
    })  # fmt: skip
    if "old" in "".join(yaml.values()):
        put(folder, {f"{first}/old/bad.proto": "this is none"})
    return folder


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_files_under_their_import_paths(dev: Dev, tmp_path: Path, layout: str) -> None:
    """References name the files of other modules; what every registry knows needs none."""
    folder, name = workspace(tmp_path, layout), f"buf{layout}"
    out = json.loads(dev.run("schema", "register", "--buf", str(folder), "--output", "json").out)
    assert [row["subject"] for row in out] == [f"{name}/common/money.proto", f"{name}/shop/order.proto"]
    shown = json.loads(dev.run("schema", "show", f"{name}/shop/order.proto", "--output", "json").out)
    assert [one["name"] for one in shown["references"]] == [f"{name}/common/money.proto"]
    again = json.loads(dev.run("schema", "register", "--buf", str(folder), "--output", "json").out)
    assert again == out, "found, not registered anew"
    one = ("schema", "register", f"{name}-value", f"{name}/shop/order.proto", "--buf", str(folder))
    assert f"{name}-value: version 1" in dev.run(*one).out


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "it has no buf.yaml and no buf.work.yaml"),
        ({"buf.yaml": "version: v3\n"}, "version 'v3' is not one of v1beta1, v1, v2"),
        ({"buf.yaml": "- x\n"}, "holds no mapping"),
        ({"buf.yaml": "version: v2\nmodules: [{path: ../x}]\n"}, "'../x' leads out of"),
        ({"buf.yaml": "version: v2\nmodules: [{path: x}]\n"}, "there is no"),
        ({"buf.yaml": "version: v2\nmodules: 7\n"}, "modules is no list of mappings"),
        ({"buf.yaml": "version: v1\nbuild: {excludes: x}\n"}, "excludes is no list of texts"),
        ({"buf.yaml": "version: v1\n"}, "no .proto file below"),
        (
            {"buf.yaml": "version: v1\n", "x.proto": 'syntax = "proto3"; import "google/type/date.proto";'},
            "buf export",
        ),
        (
            {
                "buf.yaml": "version: v2\nmodules: [{path: a}, {path: b}]\n",
                "a/x.proto": "",
                "b/x.proto": "",
            },
            "an import path has one file",
        ),
    ],
)
def test_what_is_no_workspace(dev: Dev, tmp_path: Path, files: dict[str, str], words: str) -> None:
    put(tmp_path, files)
    status, line = dev.fails("schema", "register", "--buf", str(tmp_path))
    assert (status, words in line) == (2, True), line


def test_what_does_not_go_together(dev: Dev, tmp_path: Path) -> None:
    for words in ((), ("only-a-subject",), ("subject", "--buf", str(workspace(tmp_path, "v1")))):
        status, line = dev.fails("schema", "register", *words)
        assert (status, "give SUBJECT and FILE, or --buf" in line) == (2, True), line
