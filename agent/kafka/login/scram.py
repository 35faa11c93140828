"""The server's side of SCRAM (RFC 5802, RFC 7677), without channel binding, as Kafka speaks it.

The primitives are hashlib's and hmac's. A user who does not exist goes all the way through with a credential
that nobody's password fits, so that neither answers nor times tell who exists.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Final

from agent.kafka.login.errors import OTHER_ID, LoginFailed, NotTold
from coordination.state.scram import ITERATIONS_MIN
from coordination.state.scram_types import ScramCredential

MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""As Kafka numbers them."""
DIGESTS: Final = {1: "sha256", 2: "sha512"}
SERVER_NONCE_BYTES: Final = 18
INVALID: Final = "Authentication failed: Invalid user credentials"
SALT_ALPHABET: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
SALT_LENGTH: Final = 26
"""Made-up salts look like those of Kafka's own tools: so many characters of that alphabet."""

_NONCE = r"[\x21-\x2b\x2d-\x7e]{1,1024}"
_MORE = r"(?:,[A-Za-z]=[^,]*)*"
_BASE64 = r"[A-Za-z0-9+/=]+"
_FIRST = re.compile(rf"[ny],(?:a=([^,]*))?,(n=([^,]+),r=({_NONCE})((?:,[A-Za-z]+=[^,]*)*))")
_FINAL = re.compile(rf"(c=({_BASE64}),r=({_NONCE}){_MORE}),p=({_BASE64})")
_ESCAPE = re.compile(r"=(2C|3D|)")


def salted(digest: str, password: str, salt: bytes, iterations: int) -> bytes:
    """SaltedPassword. Takes milliseconds: call it in a thread."""
    return hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)


def keys(digest: str, salted_password: bytes) -> tuple[bytes, bytes]:
    """StoredKey and ServerKey."""
    client_key = hmac.digest(salted_password, b"Client Key", digest)
    stored_key = hashlib.new(digest, client_key).digest()
    return stored_key, hmac.digest(salted_password, b"Server Key", digest)


def made_up(secret: bytes, user: str, mechanism: int) -> ScramCredential:
    """The credential of a user who does not exist: always the same one, which no password fits."""
    seed = hmac.digest(secret, f"{mechanism}:{user}".encode(), "sha512")
    salt = "".join(SALT_ALPHABET[byte % len(SALT_ALPHABET)] for byte in seed[:SALT_LENGTH])
    size = hashlib.new(DIGESTS[mechanism]).digest_size
    unknown = hmac.digest(seed, b"keys", "sha512")[:size]
    return ScramCredential(ITERATIONS_MIN, salt.encode(), unknown, unknown)


@dataclass(frozen=True, slots=True)
class First:
    """The client's first message: who it is, and what the exchange is bound to."""

    user: str
    header: str
    bare: str
    nonce: str
    token: bool = False
    """Whether the user is the id of a delegation token (Kafka's extension `tokenauth=true`)."""


def parse_first(message: bytes) -> First:
    """Raises LoginFailed for what is no first message of SCRAM."""
    match = _FIRST.fullmatch(_text(message))
    if match is None:
        raise NotTold("Invalid SASL/SCRAM client first message")
    authorization, bare, name, nonce, extensions = match.groups()
    user = name_of(name)
    if authorization and name_of(authorization) != user:
        raise LoginFailed(OTHER_ID, user)
    header = match[0][: -len(bare)]
    return First(user, header, bare, nonce, "tokenauth=true" in extensions.split(","))


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise NotTold("Invalid SASL/SCRAM message: not UTF-8") from None


def name_of(escaped: str) -> str:
    """A saslname: commas and equals signs are escaped in it."""

    def one(match: re.Match[str]) -> str:
        if not match[1]:
            raise NotTold("Invalid SASL/SCRAM username: an equals sign is not escaped")
        return "," if match[1] == "2C" else "="

    return _ESCAPE.sub(one, escaped)


class Exchange:
    """One login from the server's first message on. Each is used once, so that nothing can be replayed."""

    def __init__(self, mechanism: int, first: First, credential: ScramCredential, nonce: bytes) -> None:
        """`nonce`: SERVER_NONCE_BYTES of randomness."""
        self.user, self.by_token = first.user, first.token
        self._first, self._credential = first, credential
        self._digest = DIGESTS[mechanism]
        self._nonce = first.nonce + b64encode(nonce).decode()
        salt = b64encode(credential.salt).decode()
        self.message = f"r={self._nonce},s={salt},i={credential.iterations}"
        """The server's first message."""

    def finish(self, message: bytes) -> bytes:
        """The server's final message. Raises LoginFailed unless the client has shown that it is the user."""
        match = _FINAL.fullmatch(_text(message))
        if match is None:
            raise NotTold("Invalid SASL/SCRAM client final message", self.user)
        without_proof, binding, nonce, proof = match.groups()
        bound = _decoded(binding) == self._first.header.encode()
        if not bound or not hmac.compare_digest(nonce, self._nonce):
            raise NotTold("Invalid client nonce or channel binding in the final client message.", self.user)
        signed = f"{self._first.bare},{self.message},{without_proof}".encode()
        signature = hmac.digest(self._credential.stored_key, signed, self._digest)
        shown = _decoded(proof)
        client_key = bytes(a ^ b for a, b in zip(signature, shown, strict=False))
        stored_key = hashlib.new(self._digest, client_key).digest()
        if len(shown) != len(signature) or not hmac.compare_digest(stored_key, self._credential.stored_key):
            raise NotTold(INVALID, self.user)
        return b"v=" + b64encode(hmac.digest(self._credential.server_key, signed, self._digest))


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise NotTold("Invalid SASL/SCRAM message: not base64") from None
