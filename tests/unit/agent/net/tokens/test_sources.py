"""Where keys come from: rotation, floods of unknown keys, and an authorization server that is away."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from agent.config import ConfigError
from agent.config.tokens import OauthConfig
from agent.net.tokens.identity import TokenRefused
from agent.net.tokens.sources import JwksFile, JwksUrl
from agent.net.tokens.verifying import Tokens
from agent.telemetry.metrics import Metrics
from coordination.clock import SystemClock
from tests.equipment.certificates import Authority
from tests.equipment.files import unseen
from tests.equipment.tokens import ISSUER, Issuer, JwksServer


def config_of(url: str, **settings: Any) -> OauthConfig:
    return OauthConfig(jwks_url=url, issuer=ISSUER, **settings)


def value(metrics: Metrics, name: str, **labels: str) -> float:
    found = metrics.registry.get_sample_value(f"floe_{name}", labels)
    assert found is not None
    return found


async def test_unknown_kid_flood() -> None:
    """Thousands of tokens with keys that nobody knows cause one lookup, and the next only when it is time."""
    issuer, stranger = Issuer(), Issuer()
    with JwksServer(issuer) as server:
        source = JwksUrl(config_of(server.url), Metrics())
        tokens = Tokens(source._config, source, SystemClock())
        assert (await tokens.verify(issuer.token())).principal == "alice"
        assert server.asked == 1
        forged = [stranger.token(header={"kid": str(number)}) for number in range(50)]
        for _ in range(20):
            refused = await asyncio.gather(*map(tokens.verify, forged), return_exceptions=True)
            assert all(isinstance(one, TokenRefused) for one in refused)
        assert server.asked == 1
        assert (await tokens.verify(issuer.token())).principal == "alice"


async def test_rotation_of_keys() -> None:
    issuer = Issuer()
    with JwksServer(issuer) as server:
        source = JwksUrl(config_of(server.url, jwks_lookup_ms_min=100), Metrics())
        tokens = Tokens(source._config, source, SystemClock())
        old = issuer.token()
        await tokens.verify(old)
        issuer.new_key("second")
        await asyncio.sleep(0.15)
        many = await asyncio.gather(*(tokens.verify(issuer.token()) for _ in range(20)))
        assert len(many) == 20
        assert server.asked == 2, "all of them waited for one lookup"
        await tokens.verify(old)
        del issuer.keys["first"]
        await asyncio.sleep(0.15)
        await source.look_again()
        with pytest.raises(TokenRefused, match="its key is not one"):
            await tokens.verify(old)


async def test_an_unreachable_jwks() -> None:
    """Known keys serve on, a metric says so; an agent that starts without any lives, and has them later."""
    issuer, metrics = Issuer(), Metrics()
    with JwksServer(issuer) as server:
        server.up = False
        source = JwksUrl(config_of(server.url, jwks_lookup_ms_min=100, jwks_refresh_ms=1_000), metrics)
        tokens = Tokens(source._config, source, SystemClock())
        source.start()
        with pytest.raises(TokenRefused, match="its key is not one"):
            await tokens.verify(issuer.token())
        server.up = True
        async with asyncio.timeout(10):
            while not len(source.keys):  # noqa: ASYNC110 - a thread changes it
                await asyncio.sleep(0.05)
        assert value(metrics, "jwks_failing") == 0
        server.up = False
        async with asyncio.timeout(10):
            while not source.failing:  # noqa: ASYNC110 - a thread changes it
                await asyncio.sleep(0.05)
        assert value(metrics, "jwks_failing") == 1
        assert value(metrics, "jwks_lookups_total", outcome="failed") >= 2
        assert (await tokens.verify(issuer.token())).principal == "alice"
        await source.stop()


async def test_who_waits_for_a_lookup_may_go_away_without_ending_it() -> None:
    issuer, begun, go_on = Issuer(), threading.Event(), threading.Event()

    def slow() -> bytes:
        begun.set()
        assert go_on.wait(10)
        return issuer.jwks()

    source = JwksUrl(config_of("https://issuer.example/keys"), Metrics(), slow)
    first, second = asyncio.create_task(source.look_again()), asyncio.create_task(source.look_again())
    assert await asyncio.to_thread(begun.wait, 10)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    go_on.set()
    await second
    assert len(source.keys) == 1


async def test_what_answers_is_bounded_and_not_followed_elsewhere(tmp_path: Path) -> None:
    issuer = Issuer()
    with JwksServer(issuer) as server:
        for content in (issuer.jwks() + b" " * 2_000, b"not json"):
            server.issuer = type("Other", (), {"jwks": staticmethod(lambda content=content: content)})  # type: ignore[assignment]  # has what is used
            source = JwksUrl(config_of(server.url, jwks_bytes_max=1_024), Metrics())
            await source.look_again()
            assert source.failing
            assert not len(source.keys)
    with pytest.raises(ConfigError, match="jwks_ca_file"):
        JwksUrl(config_of("https://issuer.example/keys", jwks_ca_file=str(tmp_path / "none")), Metrics())
    authority = Authority(tmp_path / "authority")
    JwksUrl(config_of("https://issuer.example/keys", jwks_ca_file=str(authority.cert)), Metrics())


def test_a_file_is_renewed_and_what_cannot_be_used_changes_nothing(tmp_path: Path) -> None:
    issuer, path = Issuer(), tmp_path / "jwks.json"
    path.write_bytes(issuer.jwks())
    source = JwksFile(str(path), 1024**2)
    assert not source.renew()
    issuer.new_key("second")
    path.write_bytes(issuer.jwks())
    assert source.renew()
    assert [each.kid for each in source.keys.keys] == ["first", "second"]
    path.write_bytes(b"half")
    assert source.renew()
    assert str(path) in source.problem
    assert len(source.keys) == 2
    for broken in (tmp_path / "none", path):
        with pytest.raises(ConfigError, match=r"oauth\.jwks_file"):
            JwksFile(str(broken), 1024**2)


def test_a_file_that_could_not_be_read_once_is_tried_again(tmp_path: Path) -> None:
    """Though nothing of it changes that tells: a right to read it was missing."""
    issuer, path = Issuer(), tmp_path / "jwks.json"
    path.write_bytes(issuer.jwks())
    source = JwksFile(str(path), 1024**2)
    issuer.new_key("second")
    good = issuer.jwks()
    path.write_bytes(b"x" * len(good))
    assert source.renew()
    assert source.failing
    assert not source.renew(), "nothing is new"
    unseen(path, good)
    assert source.renew()
    assert not source.failing
    assert [each.kid for each in source.keys.keys] == ["first", "second"]
