"""The server's side of SCRAM against the vectors of RFC 7677, a client of another library, and attackers."""

from __future__ import annotations

import base64

import pytest

from agent.kafka.login import scram
from agent.kafka.login.errors import LoginFailed
from coordination.state.scram_types import ScramCredential

FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)


def exchange(first: bytes = FIRST, password: str = "pencil") -> scram.Exchange:
    """An exchange as in RFC 7677: its server's nonce is text there."""
    salted = scram.salted("sha256", password, SALT, 4096)
    credential = ScramCredential(4096, SALT, *scram.keys("sha256", salted))
    made = scram.Exchange(1, scram.parse_first(first), credential, b"")
    made._nonce += SERVER_NONCE
    made.message = f"r={made._nonce},s={base64.b64encode(SALT).decode()},i=4096"
    return made


def test_the_vectors_of_rfc_7677() -> None:
    one = exchange()
    assert one.message == (
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert one.finish(FINAL) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize(
    "final",
    [
        FINAL.replace(b"p=dH", b"p=dI"),  # another proof
        FINAL.replace(b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", b"p=dHzbZapW"),  # a short one
        FINAL.replace(b"c=biws", b"c=eSws"),  # the header was another ("y,,")
        FINAL.replace(b"k0,p", b"k1,p"),  # a nonce of another exchange: replayed
        FINAL.replace(b",p=", b",x=1,p="),  # what was signed is another message
        FINAL.partition(b",p=")[0],
        b"",
        b"\xff\xfe",
    ],
)
def test_what_is_no_proof_is_refused(final: bytes) -> None:
    with pytest.raises(LoginFailed):
        exchange().finish(final)


@pytest.mark.parametrize(("before", "after"), [(b"c=biws", b"c=eSws"), (b"k0,p", b"k1,p")])
def test_another_exchange_s_message_is_refused_before_its_proof(before: bytes, after: bytes) -> None:
    with pytest.raises(LoginFailed, match="nonce or channel binding"):
        exchange().finish(FINAL.replace(before, after))


def test_another_password_is_refused() -> None:
    with pytest.raises(LoginFailed, match="Invalid user credentials"):
        exchange(password="pencils").finish(FINAL)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"p=tls-unique,,n=user,r=abc",  # channel binding is not offered
        b"n,,m=x,n=user,r=abc",  # an extension that must be understood
        b"n,,n=,r=abc",
        b"n,,n=us=er,r=abc",  # an equals sign that is not escaped
        b"n,a=other,n=user,r=abc",  # on behalf of somebody else
        b"n,,n=user,r=",
        b"n,,n=user,r=a b",
        b"n,,n=user,r=" + b"a" * 60_000,
        b"n,,n=\xff,r=abc",
        FINAL,  # out of order
    ],
)
def test_what_is_no_first_message_is_refused(first: bytes) -> None:
    with pytest.raises(LoginFailed):
        scram.parse_first(first)


def test_names_with_commas_and_equals_signs_are_read() -> None:
    assert scram.parse_first(b"y,a=a=2Cb=3Dc,n=a=2Cb=3Dc,r=x").user == "a,b=c"
    assert scram.parse_first("n,,n=Zoë,r=x,t=1".encode()).user == "Zoë"


def test_the_salt_of_an_unknown_user_is_always_the_same() -> None:
    """As long and of the same letters as those of Kafka's tools; another for each name and secret."""
    one = scram.made_up(b"s" * 32, "nobody", 1)
    assert one == scram.made_up(b"s" * 32, "nobody", 1)
    others = (
        scram.made_up(b"s" * 32, "somebody", 1),
        scram.made_up(b"t" * 32, "nobody", 1),
        scram.made_up(b"s" * 32, "nobody", 2),
    )
    assert len({one.salt, *(other.salt for other in others)}) == 4
    assert len(one.salt) == 26
    assert set(one.salt.decode()) <= set(scram.SALT_ALPHABET)
    assert one.iterations == 4096
