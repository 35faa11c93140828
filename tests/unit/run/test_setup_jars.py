"""Bringing jars and Java, as far as it goes without either."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from deploy.setup import jars, java
from deploy.setup.jars import Jar, JarsFailed


def test_every_set_is_pinned_by_hash() -> None:
    for name in jars.ROOTS:
        listed = jars.pinned(name)
        assert all(len(jar.sha256) == 64 for jar in listed)
        roots = {
            "/".join(filter(None, (jar.organisation, jar.name, jar.version, jar.classifier)))
            for jar in listed
        }
        assert roots >= set(jars.ROOTS[name])


def test_a_jar_that_was_changed_is_named_in_one_line(tmp_path: Path) -> None:
    jar = Jar("org.example", "thing", "1.0", hashlib.sha256(b"as it was").hexdigest())
    (tmp_path / jar.file).write_bytes(b"as it was")
    jars.check(tmp_path, [jar])
    (tmp_path / jar.file).write_bytes(b"as it is")
    with pytest.raises(JarsFailed, match=r"thing-1\.0\.jar has sha256 .*, pinned is ") as failure:
        jars.check(tmp_path, [jar])
    assert "\n" not in str(failure.value)


def test_a_jar_that_did_not_come_is_named(tmp_path: Path) -> None:
    with pytest.raises(JarsFailed, match=r"thing-1\.0\.jar was not delivered"):
        jars.check(tmp_path, [Jar("org.example", "thing", "1.0", "0" * 64)])


def test_an_unknown_set_is_refused_with_those_there_are() -> None:
    every = "there are connect, iceberg, kafka, kit, mirror, rest, sparkkafka, streams"
    with pytest.raises(JarsFailed, match=every):
        jars.pinned("spark")


def fake_java(folder: Path, version: str) -> Path:
    """A `java` that reports a version and nothing else."""
    (folder / "bin").mkdir(parents=True)
    launcher = folder / "bin" / "java"
    launcher.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    launcher.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("version", "major"), [("1.8.0_402", 8), ("11.0.2", 11), ("17.0.15", 17), ("21", 21), ("25-ea", 25)]
)
def test_versions_are_read_in_every_spelling(tmp_path: Path, version: str, major: int) -> None:
    assert java.major_version(fake_java(tmp_path / "jdk", version) / "bin" / "java") == major


@pytest.mark.parametrize(("version", "used"), [("11.0.2", False), ("17.0.1", True), ("25", False)])
def test_only_a_java_that_spark_runs_on_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, used: bool
) -> None:
    home = fake_java(tmp_path / "jdk", version)
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert java.installed_java_home() == (home if used else None)


def test_the_wrapper_drops_one_argument_and_keeps_the_rest_as_they_are(tmp_path: Path) -> None:
    echo = tmp_path / "echo"
    echo.write_text('#!/bin/sh\nfor argument do printf "%s|" "$argument"; done\n')
    echo.chmod(0o755)
    wrapper = tmp_path / "java"
    wrapper.write_text(java.WRAPPER.format(java=echo))
    wrapper.chmod(0o755)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=b c", "", "$HOME", "Main"]
    ran = subprocess.run(
        [wrapper, *arguments], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert ran.stdout == "-Xmx1g|-Da=b c||$HOME|Main|"
