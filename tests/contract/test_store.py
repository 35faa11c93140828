"""The contract of objectstore/store.py, over every adapter: what a caller may rely on anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from deploy.services.s3 import S3Service
from objectstore.open import open_store
from objectstore.store import (
    CREATE,
    Denied,
    NotFound,
    ObjectStore,
    Precondition,
    Replace,
    Retryable,
    StoreError,
)

ADAPTERS = [
    "memory",
    "folder",
    pytest.param("minio", marks=pytest.mark.services),
    pytest.param("versitygw", marks=pytest.mark.services),
]
SERVERS = ADAPTERS[2:]


def s3_options(server: S3Service) -> dict[str, object]:
    return {
        "endpoint": server.endpoint,
        "access_key": server.access_key,
        "secret_key": server.secret_key,
        "region": server.region,
        "allow_http": True,
        "retry": None,
    }


@pytest.fixture(params=ADAPTERS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    if request.param == "memory":
        opened = open_store("memory:")
    elif request.param == "folder":
        opened = open_store(f"file://{tmp_path}/a folder", retry=None)
    else:
        server: S3Service = request.getfixturevalue(request.param)
        bucket = request.getfixturevalue("bucket")(server)
        opened = open_store(f"s3://{bucket}/some/prefix", **s3_options(server))
    yield opened
    await opened.close()
    await opened.close()


async def keys_below(store: ObjectStore, prefix: str, start_after: str = "") -> list[str]:
    return [meta.key async for page in store.list(prefix, start_after) for meta in page]


async def test_put_joins_its_parts_and_get_returns_them(store: ObjectStore) -> None:
    etag = await store.put("a/b", [b"one ", bytearray(b"two "), memoryview(b"three")[:4]])
    assert etag
    data = await store.get("a/b")
    assert data == b"one two thre"
    assert isinstance(data, bytes)
    assert await store.put("empty", []) != ""
    assert await store.get("empty") == b""


async def test_a_plain_put_replaces(store: ObjectStore) -> None:
    first = await store.put("a", [b"one"])
    second = await store.put("a", [b"two"])
    assert first != second
    assert await store.get("a") == b"two"


async def test_create_only_happens_once(store: ObjectStore) -> None:
    await store.put("once", [b"first"], CREATE)
    for _ in range(2):
        with pytest.raises(Precondition):
            await store.put("once", [b"second"], CREATE)
    assert await store.get("once") == b"first"


async def test_of_many_creators_one_wins(store: ObjectStore) -> None:
    async def create(number: int) -> int | None:
        for _ in range(20):
            try:
                await store.put("race/key", [b"%d" % number], CREATE)
            except Precondition:
                return None
            except Retryable:  # S3: a conflicting request is under way
                continue
            return number
        return None

    winners = [winner for winner in await asyncio.gather(*map(create, range(8))) if winner is not None]
    assert len(winners) == 1
    assert await store.get("race/key") == b"%d" % winners[0]


async def test_replace_needs_the_present_etag(store: ObjectStore) -> None:
    with pytest.raises(Precondition):
        await store.put("pointer", [b"x"], Replace("0123456789abcdef0123456789abcdef"))
    first = await store.put("pointer", [b"one"], CREATE)
    assert (await store.head("pointer")).etag == first
    second = await store.put("pointer", [b"two"], Replace(first))
    with pytest.raises(Precondition):
        await store.put("pointer", [b"three"], Replace(first))
    assert await store.get("pointer") == b"two"
    await store.put("pointer", [b"three"], Replace(second))
    await store.delete(["pointer"])
    with pytest.raises(Precondition):
        await store.put("pointer", [b"four"], Replace(second))
    with pytest.raises(NotFound):
        await store.get("pointer")


async def test_of_many_replacers_one_wins_each_round(store: ObjectStore) -> None:
    etag = await store.put("counter", [b"start"])

    async def replace(text: bytes) -> str | None:
        try:
            return await store.put("counter", [text], Replace(etag))
        except (Precondition, Retryable):
            return None

    for round_number in range(5):
        found = await asyncio.gather(*(replace(b"%d %d" % (round_number, writer)) for writer in range(6)))
        winners = [winner for winner in found if winner is not None]
        assert len(winners) == 1
        etag = winners[0]
        assert (await store.get("counter")).startswith(b"%d " % round_number)


async def test_etags_never_come_again_for_other_bytes(store: ObjectStore) -> None:
    etags = [await store.put("same-size", [b"%02d" % number]) for number in range(30)]
    assert len(set(etags)) == 30


async def test_ranges_are_exact(store: ObjectStore) -> None:
    data = bytes(range(256)) * 40
    await store.put("data", [data])
    assert await store.get_range("data", 100, 1000) == data[100:1100]
    assert await store.get_range("data", 0, len(data)) == data
    assert await store.get_range("data", 5, 0) == b""
    ranges = [(9_000, 10), (0, 1), (5, 0), (1, 20), (10_000, 240), (10, 20)]
    parts = await store.get_ranges("data", ranges)
    assert parts == [data[start : start + length] for start, length in ranges]
    assert all(isinstance(part, bytes) for part in parts)
    assert await store.get_ranges("data", []) == []


async def test_a_short_range_is_retryable_never_short_bytes(store: ObjectStore) -> None:
    await store.put("data", [b"0123456789"])
    for start, length in [(5, 6), (0, 11), (10, 1), (50, 5)]:
        with pytest.raises(Retryable):
            await store.get_range("data", start, length)
        with pytest.raises(Retryable):
            await store.get_ranges("data", [(0, 2), (start, length)])


async def test_what_is_missing_is_not_found(store: ObjectStore) -> None:
    await store.put("folder/object", [b"x"])
    for key in ("nothing", "folder", "folder/nothing", "folder/object2"):
        with pytest.raises(NotFound):
            await store.get(key)
        with pytest.raises(NotFound):
            await store.get_range(key, 0, 1)
        with pytest.raises(NotFound):
            await store.get_ranges(key, [(0, 1)])
        with pytest.raises(NotFound):
            await store.head(key)


async def test_head_tells_size_etag_and_time(store: ObjectStore) -> None:
    etag = await store.put("a/b", [b"12345"])
    meta = await store.head("a/b")
    assert (meta.key, meta.size, meta.etag) == ("a/b", 5, etag)
    await store.put("a/c", [b"1"])
    assert (await store.head("a/c")).modified_ms >= meta.modified_ms > 0
    [[listed]] = [page async for page in store.list("a/b")]
    assert (listed.key, listed.size) == ("a/b", 5)


NAMES = ["a", "b/0", "b/1/x", "b/1/y", "b/10/x", "b/2/x", "b-c", "bb", "c/d/e/f", "b/é", "b/a b=c+d%20"]


async def test_list_is_in_key_order_from_anywhere(store: ObjectStore) -> None:
    for name in NAMES:
        await store.put(name, [b"x"])
    for prefix in ("", "b", "b/", "b/1", "b/1/", "b/1/x", "b-", "nothing", "nothing/", "b/é"):
        wanted = sorted(name for name in NAMES if name.startswith(prefix))
        assert await keys_below(store, prefix) == wanted
        for after in [*NAMES, "b/1", "b/1/", "b/1/xx", "b/1~", "zzz"]:
            assert await keys_below(store, prefix, after) == [name for name in wanted if name > after]


async def test_list_folders_names_the_next_segments(store: ObjectStore) -> None:
    for name in NAMES:
        await store.put(name, [b"x"])
    assert await store.list_folders("b/") == ["1", "10", "2"]
    assert await store.list_folders("c/") == ["d"]
    assert await store.list_folders("b/1/") == []
    assert await store.list_folders("nothing/") == []
    await store.delete(["b/10/x"])
    assert await store.list_folders("b/") == ["1", "2"]


async def test_a_listing_of_many_pages_is_complete(store: ObjectStore) -> None:
    names = [f"many/{number:05d}" for number in range(2_100)]
    for start in range(0, len(names), 50):
        await asyncio.gather(*(store.put(name, [b""]) for name in names[start : start + 50]))
    pages = [page async for page in store.list("many/")]
    assert len(pages) > 1
    assert [meta.key for page in pages for meta in page] == names
    assert await keys_below(store, "many/", names[999]) == names[1000:]
    await store.delete(names)
    assert await keys_below(store, "many/") == []


async def test_delete_ignores_what_is_missing(store: ObjectStore) -> None:
    for name in ("x/1", "x/2", "x/3"):
        await store.put(name, [b""])
    await store.delete(["x/1", "x/none", "other/none", "x/3"])
    assert await keys_below(store, "") == ["x/2"]
    await store.delete([])
    await store.put("x/1", [b"again"], CREATE)
    assert await store.get("x/1") == b"again"


@pytest.mark.parametrize("key", ["", "/a", "a//b", "a/", "../a", "a/../b", "./a", "x" * 1025, "a\0b"])
async def test_impossible_keys_are_refused_before_anything_is_sent(store: ObjectStore, key: str) -> None:
    for attempt in (store.put(key, [b"x"]), store.get(key), store.head(key), store.delete([key])):
        with pytest.raises(ValueError, match="object key"):
            await attempt
    assert await keys_below(store, "") == []


async def test_big_objects_of_many_parts(store: ObjectStore) -> None:
    part = bytes(range(256)) * 64
    parts = [memoryview(part)] * 700
    await store.put("big", parts, CREATE)
    assert (await store.head("big")).size == len(part) * 700
    assert await store.get("big") == part * 700


# What only servers can get wrong.


@pytest.mark.parametrize("server", SERVERS, indirect=True)
async def test_wrong_credentials_are_denied(server: S3Service, bucket: Callable[[S3Service], str]) -> None:
    name = bucket(server)
    for wrong in ({"secret_key": "nothing"}, {"access_key": "nobody"}):
        store = open_store(f"s3://{name}", **(s3_options(server) | wrong))
        with pytest.raises(Denied, match="credentials"):
            await store.put("a", [b"x"], CREATE)
        with pytest.raises(Denied):
            await store.get("a")


@pytest.mark.parametrize("server", SERVERS, indirect=True)
async def test_a_missing_bucket_is_denied_with_its_remedy(server: S3Service) -> None:
    store = open_store("s3://no-such-bucket/p", **s3_options(server))
    with pytest.raises(Denied, match="floe bucket prepare"):
        await store.put("a", [b"x"], CREATE)
    with pytest.raises(Denied, match="floe bucket prepare"):
        await store.get("a")


@pytest.mark.parametrize("server", SERVERS, indirect=True)
async def test_two_prefixes_of_a_bucket_are_two_stores(
    server: S3Service, bucket: Callable[[S3Service], str]
) -> None:
    name = bucket(server)
    one, two = (open_store(f"s3://{name}/{prefix}", **s3_options(server)) for prefix in ("one", "one2"))
    await one.put("a", [b"1"], CREATE)
    await two.put("a", [b"2"], CREATE)
    assert await keys_below(one, "") == ["a"]
    assert await two.list_folders("") == []


async def test_a_server_that_is_not_there_is_retryable() -> None:
    store = open_store(
        "s3://bucket",
        endpoint="http://127.0.0.1:1",
        allow_http=True,
        access_key="a",
        secret_key="b",
        retry=None,
    )
    for attempt in (store.put("a", [b"x"], CREATE), store.get("a"), store.head("a"), store.delete(["a"])):
        with pytest.raises(Retryable):
            await attempt
    with pytest.raises(StoreError):
        await store.list_folders("")


@pytest.fixture
def server(request: pytest.FixtureRequest) -> S3Service:
    found: S3Service = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("server", SERVERS, indirect=True)
async def test_credentials_come_from_the_environment_unless_given(
    server: S3Service, bucket: Callable[[S3Service], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, given = f"s3://{bucket(server)}", s3_options(server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_key)
    from_environment = open_store(url, **(given | {"access_key": "", "secret_key": ""}))
    await from_environment.put("a", [b"x"], CREATE)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody else")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something else")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of that other session")
    assert await open_store(url, **given).get("a") == b"x"


@pytest.mark.services
async def test_a_token_that_is_wrong_is_denied(minio: S3Service, bucket: Callable[[S3Service], str]) -> None:
    store = open_store(f"s3://{bucket(minio)}", **(s3_options(minio) | {"session_token": "wrong"}))
    with pytest.raises(Denied):
        await store.put("a", [b"x"])
