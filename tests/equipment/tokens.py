"""An authorization server for tests: it signs tokens, and shows its keys by HTTP."""

from __future__ import annotations

import json
import threading
import time
from base64 import urlsafe_b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from joserfc import jws, jwt
from joserfc.jwk import ECKey, RSAKey

ISSUER, AUDIENCE = "https://issuer.example", "floe"


def base64(content: bytes) -> str:
    """As tokens write it."""
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def claims(**changed: Any) -> dict[str, Any]:
    """Of a good token; None leaves a claim out."""
    now = int(time.time())
    good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 300}
    return {name: value for name, value in (good | changed).items() if value is not None}


class Issuer:
    """Keys by `kid`; the newest signs."""

    def __init__(self) -> None:
        self.keys: dict[str, RSAKey | ECKey] = {}
        self.new_key("first")

    def new_key(self, kid: str, kind: str = "RSA") -> None:
        """Another key, which signs from now on."""
        made = RSAKey.generate_key(2048) if kind == "RSA" else ECKey.generate_key(kind)
        self.keys[kid] = made

    def jwks(self) -> bytes:
        """As the authorization server shows them."""
        rows = [{**key.as_dict(private=False), "kid": kid, "use": "sig"} for kid, key in self.keys.items()]
        return json.dumps({"keys": rows}).encode()

    def token(self, *, kid: str = "", algorithm: str = "RS256", header: Any = None, **changed: Any) -> str:
        """Signed by the key of that name, or the newest."""
        kid = kid or list(self.keys)[-1]
        said = {"alg": algorithm, "kid": kid} | (header or {})
        said = {name: value for name, value in said.items() if value is not None}
        registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
        return jwt.encode(said, claims(**changed), self.keys[kid], registry=registry)


CONFIGURATION = "/.well-known/openid-configuration"


class JwksServer:
    """`with JwksServer(issuer) as server`: its keys at `server.url`, as long as `up` is true.

    At `configuration` it says so, as providers of OpenID do.
    """

    def __init__(self, issuer: Issuer) -> None:
        self.issuer, self.up, self.asked = issuer, True, 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                said = {"issuer": outer.name, "jwks_uri": outer.url}
                shown = json.dumps(said).encode() if self.path == CONFIGURATION else outer.issuer.jwks()
                content = shown if outer.up else b""
                self.send_response(200 if outer.up else 503)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Nowhere."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.name = f"http://127.0.0.1:{self._server.server_port}"
        self.url, self.configuration = f"{self.name}/keys", f"{self.name}{CONFIGURATION}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
