"""No collection while modules are imported; the collector is left as it was found."""

from __future__ import annotations

import gc

import pytest

from objectstore.late import without_collections


@pytest.mark.parametrize("before", [True, False])
def test_the_collector_rests_and_is_as_before_even_behind_a_failure(before: bool) -> None:
    enabled = gc.isenabled()
    try:
        gc.enable() if before else gc.disable()
        with pytest.raises(ImportError):
            _fail()
        assert gc.isenabled() is before
    finally:
        gc.enable() if enabled else gc.disable()


def _fail() -> None:
    with without_collections():
        assert not gc.isenabled()
        raise ImportError


def test_a_command_is_imported_without_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    from agent.cli import app

    seen: list[bool] = []

    def importing(name: str) -> object:
        seen.append(gc.isenabled())
        return __import__(name, fromlist=["_"])

    monkeypatch.setattr(app, "import_module", importing)
    app.typer.main.get_command(app.app).get_command(None, "status")
    assert seen == [False]
