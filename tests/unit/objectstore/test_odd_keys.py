"""Keys that obstore refuses: one that somebody else put there must not fail the listing of its folder."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

import pytest
from obstore.store import AzureStore, GCSStore

from objectstore.adapters.cloud import CloudStore, translate
from objectstore.bucket import Level, _odd, open_bucket
from objectstore.odd_keys import TOLD_MAX, OddKeys, is_odd
from objectstore.open import StoreOptions, open_store
from objectstore.store import Denied, ObjectStore, Retryable

ODD = ["snapshots//a", "snapshots/./a", "snapshots/a/../b", "snapshots/a\tb", "snapshots/x//", "/x", "a//b"]
PAGE = 2


class Server:
    """A bucket that lists, in pages of two; `answer` instead of that, where it is set."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.answer: tuple[int, str] | None = None
        self.asked: list[str] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                told = {name: each[0] for name, each in parse_qs(urlsplit(self.path).query).items()}
                boto = "encoding-type" in told
                outer.asked.append("boto3" if boto else "obstore")
                status, body = 200, outer.listed(told)
                if boto and outer.answer is not None:
                    status, body = outer.answer
                content = body.encode()
                self.send_response(status)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_HEAD = do_GET

            def log_message(self, *args: Any) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def listed(self, told: dict[str, str]) -> str:
        prefix, delimiter = told.get("prefix", ""), told.get("delimiter", "")
        after = told.get("continuation-token") or told.get("start-after", "")
        found = [key for key in sorted(self.keys) if key.startswith(prefix) and key > after]
        if delimiter:
            folders = {prefix + key[len(prefix) :].partition("/")[0] + "/" for key in found}
            inside = "".join(
                f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>"
                for each in sorted(folders)
            )
            return f"<ListBucketResult><IsTruncated>false</IsTruncated>{inside}</ListBucketResult>"
        page, more = found[:PAGE], len(found) > PAGE
        inside = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-11-28T00:00:00.000Z</LastModified>"
            f'<ETag>"e"</ETag><Size>3</Size></Contents>'
            for key in page
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        truncated = f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}"
        return f"<ListBucketResult>{truncated}{inside}</ListBucketResult>"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


def given(server: Server) -> dict[str, Any]:
    return {"endpoint": server.endpoint, "access_key": "a", "secret_key": "b", "allow_http": True}


@pytest.fixture
def store(server: Server) -> ObjectStore:
    return open_store("s3://b/p", **given(server), retry=None)


async def listed(store: ObjectStore, prefix: str, start_after: str = "") -> list[str]:
    return [meta.key async for page in store.list(prefix, start_after) for meta in page]


@pytest.mark.parametrize("odd", ODD)
async def test_a_listing_passes_over_an_odd_key_and_tells_it_once(
    server: Server, store: ObjectStore, odd: str, caplog: pytest.LogCaptureFixture
) -> None:
    sound = [f"snapshots/{number}" for number in range(5)] + ["snapshots/a b/ä", "snapshots/x"]
    server.keys = [f"p/{key}" for key in [*sound, odd, "snapshots/"]] + ["other/a", "p/snapshotz/a"]
    for _ in range(2):
        everything = await listed(store, "")
        assert everything == sorted([*sound, "snapshotz/a"])
        assert await listed(store, "snapshots/") == sorted(sound)
        assert await listed(store, "snapshots/", "snapshots/2") == sorted(sound)[3:]
        assert await listed(store, "snapshots/3") == ["snapshots/3"]
    assert "boto3" in server.asked
    assert caplog.text.count(f"the object {f'p/{odd}'!r} is passed over") == 1
    server.keys = [key for key in server.keys if key not in (f"p/{odd}", "p/snapshots/")]
    server.asked.clear()
    assert await listed(store, "") == everything
    assert set(server.asked) == {"obstore"}, "once it is gone all is as before"


async def test_what_lies_before_it_is_listed_once(server: Server, store: ObjectStore) -> None:
    """The pages before that with the odd key have been handed out already."""
    sound = [f"snapshots/{number:04d}" for number in range(7)]
    server.keys = [f"p/{key}" for key in [*sound, "snapshots/0003//x"]]
    assert await listed(store, "snapshots/") == sound
    meta = [each async for page in store.list("snapshots/") for each in page]
    assert {(each.size, each.etag, each.modified_ms) for each in meta} == {(3, '"e"', 1_795_824_000_000)}


async def test_folders_are_named_but_for_odd_ones(server: Server, store: ObjectStore) -> None:
    server.keys = ["p/chunks/00/a", "p/chunks//x", "p/chunks/01/b", "p/chunks/./y"]
    assert await store.list_folders("chunks/") == ["00", "01"]


@pytest.mark.parametrize(("status", "kind"), [(403, Denied), (503, Retryable)])
async def test_a_listing_that_fails_all_the_same(
    server: Server, store: ObjectStore, status: int, kind: type[Exception]
) -> None:
    server.keys = ["p/chunks//x"]
    code = {403: "AccessDenied", 503: "SlowDown"}[status]
    server.answer = (status, f"<Error><Code>{code}</Code><Message>so it is</Message></Error>")
    with pytest.raises(kind, match="so it is"):
        await listed(store, "chunks/")
    server.http.shutdown()
    server.http.server_close()
    with pytest.raises(Retryable):
        await listed(store, "chunks/")


async def test_of_other_clouds_the_key_and_the_remedy_are_told(server: Server) -> None:
    """Those have no other way to list: google and azure are stood in for by a store without one."""
    from objectstore.open import s3_store

    server.keys = ["p/chunks//x"]
    store = CloudStore(s3_store("b", "p", StoreOptions(**given(server))))
    for asked in (listed(store, "chunks/"), store.list_folders("chunks/")):
        with pytest.raises(Denied, match=r"p/chunks//.*not Floe's, delete it or move it away"):
            await asked
    assert CloudStore(GCSStore("b", config={"skip_signature": True}))._odd is None
    assert CloudStore(AzureStore("b", config={"account_name": "a", "skip_signature": True}))._odd is None


def test_it_is_found_by_a_check_of_the_bucket(server: Server) -> None:
    server.keys = ["p/chunks/0/a", "p/log//x", "p/chunks/"]
    bucket = open_bucket("s3://b/p", StoreOptions(**given(server)))
    odd = list(_odd(bucket))
    assert [(each.level, each.remedy) for each in odd] == [
        (Level.WARNING, "it is not Floe's, delete it or move it away")
    ]
    assert "'p/log//x'" in odd[0].message
    server.keys.remove("p/log//x")
    assert [each.level for each in _odd(bucket)] == [Level.OK]
    bucket.client.close()


def test_which_keys_are_odd_and_how_many_are_told() -> None:
    assert all(map(is_odd, ODD))
    assert not any(map(is_odd, ["a", "a/b", "a/b/", "", "ä ö", "a..b", "k" * 1024]))
    odd = OddKeys("b", "", StoreOptions(), lambda: None)
    for number in range(TOLD_MAX + 5):
        assert not odd._is_even(f"a//{number}")
    assert len(odd._told) == TOLD_MAX


@pytest.mark.parametrize(
    ("code", "kind"), [("AccessDenied", "Denied"), ("InternalError", "Ambiguous"), ("SlowDown", "Ambiguous")]
)
def test_an_object_that_was_not_deleted_with_others(code: str, kind: str) -> None:
    text = f"Generic S3 error: DeleteObjects request failed for key p/a: it is so. (code: {code})"
    assert type(translate("p/a", OSError(text), wrote=True)).__name__ == kind
