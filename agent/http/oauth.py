"""/iceberg/v1/oauth/tokens: a user's name and password against a token (RFC 6749, RFC 8693), as Iceberg's
clients ask for it.

`client_credentials`: client id and secret are a user of SASL and his password, in the form or as Basic.
`token-exchange`: a token that holds against a newer one; with Basic beside it, one that is over will do.
Errors are OAuth's, with the status 401 for whoever is not who he says, late as every failed login.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agent.http.answers import Problem, read_body
from agent.http.identity import Doorkeeper, Unidentified, actor_of, basic_of
from agent.net.tokens.identity import TokenRefused

if TYPE_CHECKING:
    from agent.http.parts import Parts, TokenGiver

CREDENTIALS: Final = "client_credentials"
EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"
TOKEN_TYPES: Final = (ACCESS_TOKEN, "urn:ietf:params:oauth:token-type:jwt")
SCOPE: Final = "catalog"
FORM_BYTES_MAX: Final = 32 * 1024
FIELDS_MAX: Final = 32
PLACES_SHARE: Final = 4
"""One in so many of the places for requests (http.requests_in_flight_max) is for those who ask for tokens:
whoever guesses waits for the answer, and must not take all of them."""
_NOT_KEPT: Final = {"Cache-Control": "no-store", "Pragma": "no-cache"}


class OauthError(Exception):
    """An error of RFC 6749, section 5.2: its code, and what is wrong."""

    def __init__(self, code: str, description: str) -> None:
        super().__init__(description)
        self.code = code

    def response(self) -> Response:
        """The error as an answer."""
        status = 401 if self.code == "invalid_client" else 400
        headers = {**_NOT_KEPT}
        if status == 401:
            headers["WWW-Authenticate"] = 'Basic realm="floe", charset="UTF-8"'
        body = {"error": self.code, "error_description": str(self)}
        return JSONResponse(body, status, headers=headers)


class OauthRoutes:
    """Of one agent."""

    def __init__(self, parts: Parts) -> None:
        self._tokens = parts.tokens
        self._doorkeeper = Doorkeeper(parts)
        self._serving, self._most = 0, max(1, parts.config.http.requests_in_flight_max // PLACES_SHARE)

    async def token(self, request: Request) -> Response:
        """POST: a token, or why there is none. Raises Problem 503 when many ask: failed logins wait."""
        if self._serving >= self._most:
            raise Problem(503, "many ask for tokens", "try again")
        self._serving += 1
        try:
            return await self._given(request)
        finally:
            self._serving -= 1

    async def _given(self, request: Request) -> Response:
        try:
            if self._tokens is None:
                raise OauthError("invalid_request", "no tokens are given here: set catalog.token_secret")
            form = await _form(request)
            user = await self._user(self._tokens, request, form)
        except OauthError as error:
            return error.response()
        except Unidentified as error:
            return OauthError("invalid_client", str(error)).response()
        answer = {
            "access_token": self._tokens.issue(user),
            "token_type": "bearer",
            "expires_in": self._tokens.lifetime_s,
            "issued_token_type": ACCESS_TOKEN,
            "scope": SCOPE,
        }
        return JSONResponse(answer, headers=_NOT_KEPT)

    async def _user(self, tokens: TokenGiver, request: Request, form: Mapping[str, str]) -> str:
        """Who gets one. Raises OauthError, Unidentified."""
        grant = form.get("grant_type", "")
        if grant == CREDENTIALS:
            return await self._by_password(request, *_client(request, form))
        if grant != EXCHANGE:
            raise OauthError("unsupported_grant_type", f"grant_type is neither {CREDENTIALS} nor {EXCHANGE}")
        token, kind = form.get("subject_token", ""), form.get("subject_token_type", ACCESS_TOKEN)
        if not token or kind not in TOKEN_TYPES:
            raise OauthError("invalid_request", f"a subject_token of type {ACCESS_TOKEN} is needed")
        if not _has_basic(request):
            if not tokens.takes(token):
                raise OauthError("invalid_grant", "subject_token was not given by this catalog")
            found = await self._doorkeeper.by_token(actor_of(request.scope), token)
            return found.principal
        user = await self._by_password(request, *basic_of(request.headers["authorization"]))
        try:
            owner = tokens.subject(token)
        except TokenRefused:
            raise OauthError("invalid_grant", "subject_token was not given by this catalog") from None
        if owner != user:
            raise OauthError("invalid_grant", "subject_token is another user's")
        return user

    async def _by_password(self, request: Request, user: str, password: str) -> str:
        found = await self._doorkeeper.by_password(actor_of(request.scope), user, password)
        return found.principal


def _has_basic(request: Request) -> bool:
    return request.headers.get("authorization", "").lower().startswith("basic ")


def _client(request: Request, form: Mapping[str, str]) -> tuple[str, str]:
    """Client id and secret; empty ones for what is none."""
    if not _has_basic(request):
        return form.get("client_id", ""), form.get("client_secret", "")
    if "client_secret" in form:
        raise OauthError("invalid_request", "client credentials are both in the form and in Authorization")
    return basic_of(request.headers["authorization"])


async def _form(request: Request) -> dict[str, str]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise OauthError("invalid_request", "the body is not application/x-www-form-urlencoded")
    try:
        body = await read_body(request, FORM_BYTES_MAX)
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict"
        )
    except Problem as problem:
        if problem.status == 408:
            raise  # the connection ends by it
        raise OauthError("invalid_request", problem.message) from None
    except ValueError:
        raise OauthError("invalid_request", "the body is no form of at most 32 fields in UTF-8") from None
    form = dict(pairs)
    if len(form) != len(pairs):
        raise OauthError("invalid_request", "a field of the form is there twice")
    return form
