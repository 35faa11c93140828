"""Attacks by paths: imports that leave the folder, subjects and tables that climb, keys that are none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from coordination.memory_server import MemoryServer
from objectstore.adapters.folder import FolderStore
from objectstore.adapters.memory import MemoryStore
from objectstore.faulty import FaultyStore
from schema.compiler import CompileError, compile_protos
from tests.unit.agent.http.conftest import agent_on, connect
from tests.unit.agent.http.registry_rig import A, Registry

CLIMBING = ("../secret", "..%2Fsecret", "/etc/passwd", "a/../../secret", "..\\secret", "a\0b", "%2e%2e/x")


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    """That of an agent, by HTTP."""
    async with agent_on(MemoryServer(), FaultyStore(MemoryStore(), 1)) as one, connect(one.app) as client:
        yield Registry(client)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file that nobody may read by an import."""
    file = tmp_path / "outside.proto"
    file.write_text('syntax = "proto3"; message Outside { int32 secret_field = 1; }')
    return file


def test_import_of_a_file_by_its_path(outside: Path) -> None:
    """Absolute, climbing, or by a scheme: what is not among the sources is not there."""
    climbing = "/".join([".."] * 20) + str(outside)
    for name in (str(outside), climbing, f"./{climbing}", f"file://{outside}", f"x/{climbing}"):
        with pytest.raises(CompileError) as caught:
            compile_protos({"a.proto": f'syntax = "proto3"; import "{name}"; message A {{}}'.encode()})
        assert "secret_field" not in str(caught.value)
        assert "passwd" not in str(caught.value)


def test_source_by_a_path_that_climbs(tmp_path: Path) -> None:
    """Nothing is written outside of the folder of one compilation."""
    climbing = (str(tmp_path / "x.proto"), "../x.proto", "a/../../x.proto", "a/./x.proto")
    none = ("a\0.proto", "a\n.proto", "\ud800.proto", "a" * 256 + ".proto", "a/" * 600 + "b.proto")
    for name in (*climbing, *none):
        with pytest.raises(CompileError, match="relative import path"):
            compile_protos({name: b'syntax = "proto3";'})
    with pytest.raises(CompileError, match="relative import path"):
        compile_protos({"a.proto": b'syntax = "proto3";', "a.proto/b.proto": b'syntax = "proto3";'})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", CLIMBING)
async def test_subject_that_climbs(registry: Registry, name: str) -> None:
    """A subject is a name in the replicated state: it may look like a path, and leads nowhere."""
    path = quote(name, safe="")
    answer = await registry.client.post(
        f"/subjects/{path}/versions", json={"schema": A, "schemaType": "PROTOBUF"}
    )
    assert answer.status_code in (200, 404, 422), answer.text
    listed = (await registry.client.get("/subjects")).json()
    assert listed == ([name] if answer.status_code == 200 else [])


@pytest.mark.parametrize("name", CLIMBING)
async def test_reference_that_climbs(registry: Registry, outside: Path, name: str) -> None:
    """The import of a schema is looked for among its references, whatever it is called."""
    text = f'syntax = "proto3"; import "{outside}"; message B {{ Outside a = 1; }}'
    more = {"references": [{"name": str(outside), "subject": name, "version": 1}]}
    answer = await registry.client.post(
        "/subjects/b/versions", json={"schema": text, "schemaType": "PROTOBUF", **more}
    )
    assert answer.status_code in (404, 422), answer.text
    assert "secret_field" not in answer.text


@pytest.mark.parametrize("key", ["../x", "a/../../x", "/etc/passwd", "a//b", "./a", "a\0b", "..", "a/.."])
async def test_object_key_that_climbs(tmp_path: Path, key: str) -> None:
    """Neither written, nor read, nor deleted; a folder is the store in which it would hurt most."""
    (tmp_path / "x").write_text("outside")
    store = FolderStore(tmp_path / "store")
    for attempt in (store.put(key, [b"y"]), store.get(key), store.head(key), store.delete([key])):
        with pytest.raises(ValueError, match="object key"):
            await attempt
    assert (tmp_path / "x").read_text() == "outside"
