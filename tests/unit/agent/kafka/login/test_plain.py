"""PLAIN's one message, and the file of its users."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config import users
from agent.config.errors import ConfigError
from agent.kafka.login import plain
from agent.kafka.login.errors import LoginFailed
from tests.equipment.files import unseen

SALT = bytes(16)


def test_user_and_password_are_read() -> None:
    assert plain.parse(b"\0alice\0secret") == ("alice", "secret")
    assert plain.parse("alice\0alice\0päss".encode()) == ("alice", "päss")


@pytest.mark.parametrize(
    "message",
    [b"", b"alice\0secret", b"\0\0secret", b"\0alice\0", b"bob\0alice\0secret", b"\0a\0b\0c", b"\0\xff\0x"],
)
def test_what_is_no_message_of_plain_is_refused(message: bytes) -> None:
    with pytest.raises(LoginFailed):
        plain.parse(message)


def test_a_hash_fits_its_password_only() -> None:
    line = users.line_of("alice", "secret", SALT)
    assert "secret" not in line
    assert line != users.line_of("alice", "secret", b"s" * 16)
    assert not users.UsersFile("").nobody.fits("")


def test_the_file_is_read_again_when_it_changes_and_a_bad_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(f"# ours\n\n{users.line_of('alice', 'secret', SALT)}\n")
    known = users.UsersFile(str(path))
    assert known.users["alice"].fits("secret")
    assert not known.users["alice"].fits("secret2")
    assert not known.renew()
    path.write_text(users.line_of("a:b", "other", SALT) + "\n")
    assert known.renew()
    assert (list(known.users), known.problem) == (["a:b"], "")
    path.write_text("carol:hunter2\n")
    assert known.renew()
    assert "users:1)" in known.problem
    assert "hunter2" not in known.problem
    assert list(known.users) == ["a:b"]
    path.unlink()
    assert known.renew()
    assert "No such file" in known.problem
    assert list(known.users) == ["a:b"]


def test_a_file_that_could_not_be_read_once_is_tried_again(tmp_path: Path) -> None:
    """Though nothing of it changes that tells: a right to read it was missing."""
    path = tmp_path / "users"
    good = users.line_of("alice", "secret", SALT).encode()
    path.write_text("")
    known = users.UsersFile(str(path))
    path.write_bytes(b"x" * len(good))
    assert known.renew()
    assert known.problem
    assert not known.renew(), "nothing is new"
    unseen(path, good)
    assert known.renew()
    assert (list(known.users), known.problem) == (["alice"], "")
    unseen(path, b"x" * len(good))
    assert not known.renew(), "what is read is not read again without a sign"


@pytest.mark.parametrize(
    "content",
    [
        "alice",
        "alice:plain:20000:AAAA:AAAA",
        "alice:pbkdf2-sha256:1:AAAA:" + "A" * 43 + "=",
        "alice:pbkdf2-sha256:x:AAAA:" + "A" * 43 + "=",
        "alice:pbkdf2-sha256:20000:AAAA:AAAA",
        ":pbkdf2-sha256:20000:AAAA:" + "A" * 43 + "=",
        ("alice:pbkdf2-sha256:20000:AAAA:" + "A" * 43 + "=\n") * 2,
    ],
)
def test_a_file_that_is_none_is_refused_with_the_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "users"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"sasl.users_file \(.*users:[12]\)"):
        users.UsersFile(str(path))


@pytest.mark.parametrize("name", ["", " a", "#a", "a\nb", "a" * 256])
def test_a_name_that_cannot_be_in_the_file_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="a name has"):
        users.line_of(name, "secret", SALT)
