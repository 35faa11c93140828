"""Confluent's error codes and words (its API reference): clients and tools go by them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agent.http.answers import Problem

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
STORE, TIMEOUT, DENIED = 50001, 50002, 40301
INVALID_SCHEMA = 42201


class RegistryProblem(Exception):
    """A request that is answered with an error; the HTTP status is in the code's first three digits."""

    def __init__(self, code: int, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status or int(str(code)[:3])

    def response(self) -> JSONResponse:
        """The error as an answer."""
        headers = {"Retry-After": "1"} if self.status == 503 else None
        content = {"error_code": self.code, "message": self.message}
        return JSONResponse(content, self.status, headers=headers, media_type=CONTENT_TYPE)


def subject_missing(subject: str) -> RegistryProblem:
    """There is no such subject, or all its versions are deleted."""
    return RegistryProblem(40401, f"Subject '{subject}' not found.")


def version_missing(version: object) -> RegistryProblem:
    """The subject has no such version."""
    return RegistryProblem(40402, f"Version {version} not found.")


def schema_missing(name: object = None) -> RegistryProblem:
    """No schema has this id or content."""
    return RegistryProblem(40403, "Schema not found" if name is None else f"Schema {name} not found")


def subject_deleted(subject: str) -> RegistryProblem:
    """It is deleted already."""
    what = f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
    return RegistryProblem(40404, what)


def subject_not_deleted(subject: str) -> RegistryProblem:
    """It has to be deleted before it is for good."""
    what = f"Subject '{subject}' was not deleted first before being permanently deleted"
    return RegistryProblem(40405, what)


def version_deleted(subject: str, version: int) -> RegistryProblem:
    """It is deleted already."""
    what = f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently"
    return RegistryProblem(40406, what)


def version_not_deleted(subject: str, version: int) -> RegistryProblem:
    """It has to be deleted before it is for good."""
    what = f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    return RegistryProblem(40407, what)


def config_missing(subject: str) -> RegistryProblem:
    """Nothing was set for it."""
    what = f"Subject '{subject}' does not have subject-level compatibility configured"
    return RegistryProblem(40408, what)


def mode_missing(subject: str) -> RegistryProblem:
    """Nothing was set for it."""
    return RegistryProblem(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, problems: list[str]) -> RegistryProblem:
    """The schema does not go with versions that the subject has."""
    words = f'Schema being registered is incompatible with an earlier schema for subject "{subject}"'
    return RegistryProblem(409, f"{words}, details: [{', '.join(problems)}]")


def invalid_schema(why: str) -> RegistryProblem:
    """The text is no schema."""
    return RegistryProblem(INVALID_SCHEMA, f"Invalid schema: {why}")


def invalid_version(given: object) -> RegistryProblem:
    """It is no number of a version."""
    words = (
        f"The specified version '{given}' is not a valid version id. Allowed values are between [1, 2^31-1]"
    )
    return RegistryProblem(42202, f'{words} and the string "latest"')


def invalid_compatibility() -> RegistryProblem:
    """There is no such level."""
    levels = "none, backward, forward, full, backward_transitive, forward_transitive, and full_transitive"
    return RegistryProblem(42203, f"Invalid compatibility level. Valid values are {levels}")


def invalid_mode() -> RegistryProblem:
    """There is no such mode."""
    modes = "READWRITE, READONLY, READONLY_OVERRIDE, IMPORT"
    return RegistryProblem(42204, f"Invalid mode. Valid values are {modes}")


def not_permitted(why: str) -> RegistryProblem:
    """The mode, a bound or Floe does not let it."""
    return RegistryProblem(42205, why)


def referred_to(subject: str, version: int) -> RegistryProblem:
    """Other schemas need it."""
    what = f"{{subject={subject},version={version}}}"
    return RegistryProblem(42206, f"One or more references exist to the schema {what}.")


def invalid_subject(subject: str) -> RegistryProblem:
    """It cannot be the name of a subject."""
    return RegistryProblem(42208, f"The specified subject '{subject}' is not a valid.")


Handler = Callable[[Request], Awaitable[Response]]


def told(handler: Handler) -> Handler:
    """The handler, with every problem told as Confluent's registry does."""

    async def answered(request: Request) -> Response:
        try:
            return await handler(request)
        except RegistryProblem as problem:
            return problem.response()
        except Problem as problem:
            codes = {503: STORE, 504: TIMEOUT, 413: 42209, 403: DENIED}
            code = codes.get(problem.status, problem.status)
            status = 422 if problem.status == 413 else problem.status
            return RegistryProblem(code, problem.message, status).response()

    return answered
