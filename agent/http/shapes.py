"""The shapes in which clients of different APIs read a refusal, by the path that they asked for."""

from __future__ import annotations

from typing import Final

from starlette.responses import JSONResponse, Response

from agent.http.answers import Problem
from agent.http.identity import REMEDY, Unidentified
from agent.http.registry.errors import RegistryProblem

_REGISTRY: Final = ("/subjects", "/schemas", "/config", "/mode", "/compatibility", "/contexts", "/v1/")
_REALM: Final = "floe"


def unidentified(path: str, error: Unidentified) -> Response:
    """401, with what would help (RFC 9110, 7617, 6750)."""
    if path == "/iceberg" or path.startswith("/iceberg/"):
        told = {"message": f"{error}: {REMEDY}", "type": "NotAuthorizedException", "code": 401}
        answer = JSONResponse({"error": told}, 401)
    elif path.startswith(_REGISTRY):
        answer = RegistryProblem(401, f"Unauthorized: {error}").response()
    else:
        answer = Problem(401, str(error), REMEDY).response()
    answer.headers.append("WWW-Authenticate", f'Basic realm="{_REALM}", charset="UTF-8"')
    answer.headers.append("WWW-Authenticate", f'Bearer realm="{_REALM}"{error.challenge}')
    return answer


def forbidden(path: str, why: str) -> Response:
    """403 for whoever it is, where an agent does none of it."""
    if path == "/iceberg" or path.startswith("/iceberg/"):
        return JSONResponse({"error": {"message": why, "type": "ForbiddenException", "code": 403}}, 403)
    if path.startswith((*_REGISTRY, "/admin/subjects/")):
        return RegistryProblem(403, why).response()
    return Problem(403, why).response()
