"""Opening stores by URL: what cannot be is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from objectstore.adapters.cloud import CloudStore
from objectstore.adapters.folder import FolderStore
from objectstore.adapters.memory import MemoryStore
from objectstore.open import open_store
from objectstore.retry import RetryingStore

CLOUDS = [
    ("s3://bucket/prefix", {}),
    ("gs://bucket/prefix", {"skip_signature": "true"}),
    ("az://container/prefix", {"account_name": "account", "account_key": "a2V5"}),
]


@pytest.mark.parametrize(("url", "extra"), CLOUDS)
def test_clouds_are_opened_by_configuration(url: str, extra: dict[str, str]) -> None:
    assert isinstance(open_store(url, extra=extra, retry=None), CloudStore)
    assert isinstance(open_store(url, extra=extra), RetryingStore)


async def test_folders_and_memory(tmp_path: Path) -> None:
    folder = open_store(f"file://{tmp_path}/a%20b", retry=None)
    assert isinstance(folder, FolderStore)
    await folder.put("x", [b"1"])
    assert (tmp_path / "a b" / "x").read_bytes() == b"1"
    await folder.close()
    memory = open_store("memory:", now_ms=lambda: 77)
    assert isinstance(memory, MemoryStore)
    await memory.put("x", [b"1"])
    assert (await memory.head("x")).modified_ms == 77


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("", "known are memory:"),
        ("bucket/prefix", "known are memory:"),
        ("ftp://host/x", "known are memory:.*s3://bucket/prefix"),
        ("s3:///prefix", "names no bucket"),
        ("file://relative/path", "file:///absolute/path"),
        ("file:///", "file:///absolute/path"),
        ("s3://bucket/p?region=x", "beside the URL"),
    ],
)
def test_impossible_urls_are_refused_with_the_remedy(url: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        open_store(url)


def test_unknown_options_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="regoin"):
        open_store("memory:", regoin="x")
    with pytest.raises(Exception, match="no_such_setting"):
        open_store("s3://bucket", extra={"no_such_setting": "x"})
