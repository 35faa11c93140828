"""The errors of the REST catalog, in the shape and with the names of Iceberg's REST specification.

Where Iceberg's compatibility kit looks at the words (tests/engines/kit), they are the reference's.
"""

from __future__ import annotations


class CatalogError(Exception):
    """Answered as an error; `kind` is the exception that Java clients raise."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind

    def body(self) -> dict[str, object]:
        """The JSON answer."""
        return {"error": {"message": str(self), "type": self.kind, "code": self.status}}


def bad_request(message: str) -> CatalogError:
    """The request cannot be right."""
    return CatalogError(400, "BadRequestException", message)


def forbidden(message: str) -> CatalogError:
    """The request is understood and refused."""
    return CatalogError(403, "ForbiddenException", message)


def no_such_namespace(name: str) -> CatalogError:
    """404 of a namespace."""
    return CatalogError(404, "NoSuchNamespaceException", f"Namespace does not exist: {name}")


def no_such_table(namespace: str, name: str) -> CatalogError:
    """404 of a table."""
    return CatalogError(404, "NoSuchTableException", f"Table does not exist: {namespace}.{name}")


def no_such_view(namespace: str, name: str) -> CatalogError:
    """404 of a view."""
    return CatalogError(404, "NoSuchViewException", f"View does not exist: {namespace}.{name}")


def already_exists(kind: str, name: str, renaming: str = "") -> CatalogError:
    """409 of a creation, or of `renaming`. `kind` is Table, View or Namespace."""
    if renaming:
        return CatalogError(409, "AlreadyExistsException", f"{renaming}{name}. {kind} already exists")
    return CatalogError(409, "AlreadyExistsException", f"{kind} already exists: {name}")


def commit_failed(message: str) -> CatalogError:
    """409 of a commit: it had no effect; the client may build it anew on the table as it is now."""
    return CatalogError(409, "CommitFailedException", message)


def commit_unknown(message: str) -> CatalogError:
    """The commit may or may not have taken effect: clients must look, never retry blindly."""
    return CatalogError(504, "CommitStateUnknownException", message)


def unavailable(message: str) -> CatalogError:
    """Definitely no effect; try again later."""
    return CatalogError(503, "ServiceUnavailableException", message)
