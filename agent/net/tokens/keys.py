"""A set of public keys (JWKS, RFC 7517), and which of them a token has to fit.

Keys are looked for by a token's `kid` and algorithm only. What else a token's header has (`jwk`, `jku`,
`x5u`, `x5c`) is never looked at: a key that comes with a token vouches for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

FAMILIES: Final = {
    "RS256": "RSA",
    "RS384": "RSA",
    "RS512": "RSA",
    "PS256": "RSA",
    "ES256": "secp256r1",
    "ES384": "secp384r1",
}
"""What kind of key each algorithm takes."""
KEYS_MAX: Final = 256
KID_LENGTH_MAX: Final = 1024
RSA_BITS_MIN, RSA_BITS_MAX = 2048, 8192
"""Smaller ones can be broken; larger ones take long."""


class PublicKey(NamedTuple):
    """One key that signatures can be checked with."""

    kid: str
    family: str
    algorithm: str
    """The only one that it is for; empty: all of its family."""
    key: RSAKey | ECKey


class PublicKeys:
    """What one look at the set found."""

    def __init__(self, keys: Iterable[PublicKey] = ()) -> None:
        self.keys = tuple(keys)

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, kid: str | None, algorithm: str) -> PublicKey | None:
        """The key that a token names. One that names none fits where there is no choice."""
        fitting = [
            each
            for each in self.keys
            if each.family == FAMILIES[algorithm] and each.algorithm in ("", algorithm)
            if kid is None or each.kid == kid
        ]
        return fitting[0] if len(fitting) == 1 else None


def parse(content: bytes) -> PublicKeys:
    """Raises ValueError, which says what is wrong. Keys that cannot check signatures are passed over."""
    try:
        told = json.loads(content)
        rows = told["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError('not a JWKS: JSON with a list "keys" (RFC 7517)') from None
    if not isinstance(rows, list) or len(rows) > KEYS_MAX:
        raise ValueError(f'not a JWKS: "keys" is no list of at most {KEYS_MAX}')
    keys = [one for one in map(_key, rows) if one is not None]
    if not keys:
        raise ValueError("a JWKS without a key that can check signatures (RSA of 2,048 bits, P-256, P-384)")
    names = [(each.kid, each.family) for each in keys]
    if len(set(names)) != len(names):
        raise ValueError("a JWKS with two keys of one kid")
    return PublicKeys(keys)


def _key(row: object) -> PublicKey | None:
    """None for keys of other kinds and for other purposes, and for what is no key at all."""
    if not isinstance(row, dict) or row.get("kty") not in ("RSA", "EC") or row.get("use", "sig") != "sig":
        return None
    kid, algorithm = row.get("kid", ""), row.get("alg", "")
    named = isinstance(kid, str) and isinstance(algorithm, str) and len(kid) <= KID_LENGTH_MAX
    if not named or "verify" not in row.get("key_ops", ["verify"]):
        return None
    public = {name: row[name] for name in ("kty", "n", "e", "crv", "x", "y") if name in row}
    try:
        key = RSAKey.import_key(public) if row["kty"] == "RSA" else ECKey.import_key(public)
        raw = key.public_key
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    if isinstance(raw, RSAPublicKey):
        family = "RSA" if RSA_BITS_MIN <= raw.key_size <= RSA_BITS_MAX else ""
    else:
        family = raw.curve.name if isinstance(raw, EllipticCurvePublicKey) else ""
    fits = any(family == FAMILIES[one] for one in ([algorithm] if algorithm in FAMILIES else FAMILIES))
    if not fits or (algorithm and algorithm not in FAMILIES):
        return None
    return PublicKey(kid, family, algorithm, key)
