"""What is wrong with the words of maintenance or backfill is said in one line, before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg.spark import backfill, maintenance
from iceberg.spark.commands import LINE_CHARS_MAX, one_line

URI = "http://127.0.0.1:1/iceberg"
TABLES = ("lake.floe.t", "lake.own.t")
WRITE = ("--write", "os:getcwd")


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for a session has gone too far."""

    def started(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    for module in (backfill, maintenance):
        monkeypatch.setattr(module, "started", started)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--target-bytes", "5"), "target_bytes=5: give 1024 or more"),
        (("--target-bytes", "999999999"), "target_bytes=999999999: give 536870912 or less"),
        (("--orphans-older-than", "3h"), "orphan_hours=3: give 24 or more"),
    ],
)
def test_sizes_and_ages_of_maintenance(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert maintenance.main([URI, *words]) == 1
    assert capsys.readouterr() == ("", f"maintenance: {said}\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "say how rows are written: --write MODULE:FUNCTION, or --select and --key"),
        (("--key", "id"), "say how rows are written: --write MODULE:FUNCTION, or --select and --key"),
        (("--write", "os"), "--write os: "),
        (("--write", "os:nothing"), "give module:function, which takes (rows, target)"),
        (("--write", "no_such_module:f"), "No module named 'no_such_module'; give module:function"),
        ((*WRITE, "--message", "p.M"), "--descriptors and --message: give both, or none"),
        ((*WRITE, "--since", "yesterday"), "time 'yesterday': write 2026-11-01 or 2026-11-01T10:00:00Z"),
        ((*WRITE, "--until", "2026-11-01' OR '1'='1"), "write 2026-11-01 or 2026-11-01T10:00:00Z"),
    ],
)
def test_words_of_backfill_that_do_not_go_together(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert backfill.main([URI, *TABLES, *words]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("backfill: ")
    assert said in err


def test_descriptors_of_backfill(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [URI, *TABLES, *WRITE, "--message", "p.M", "--descriptors", str(tmp_path / "gone.pb")]
    assert backfill.main(given) == 1
    assert f"No such file or directory: '{tmp_path / 'gone.pb'}'" in capsys.readouterr().err
    assert backfill.main([*given, "--clear", "id = 1"]) == 1
    assert "--clear id = 1: what could not be decoded has no rows" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--offsets", "0:5"), ("--offsets", "a:0-1"), ("--offsets", "0:-1-2")])
def test_offsets_of_backfill_are_read(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        backfill.main([URI, *TABLES, *WRITE, *words])
    assert "write PARTITION:FIRST-END, such as 0:100-200" in capsys.readouterr().err


def test_keys_of_the_bucket_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.undo()  # started is the real one: it looks at the keys first
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    assert maintenance.main([URI, "--s3-endpoint", "http://127.0.0.1:1"]) == 1
    expected = "maintenance: --s3-endpoint http://127.0.0.1:1: set AWS_SECRET_ACCESS_KEY in the environment\n"
    assert capsys.readouterr().err == expected


def test_an_error_is_one_line_without_the_calls_that_led_to_it() -> None:
    raised = RuntimeError("An error occurred while calling o1.sql.\n: java.lang.X: gone\n\tat a.b.c\n")
    assert one_line(raised) == "java.lang.X: gone"
    assert one_line(RuntimeError("")) == "RuntimeError"
    assert len(one_line(RuntimeError("x" * 5_000))) == LINE_CHARS_MAX
