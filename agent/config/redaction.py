"""The section that says who reads fields that schemas mark as not for everybody."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr

from agent.config.base import Section

Names = Annotated[str, Field(max_length=65_536)]


def names(text: str, between: str = ",") -> list[str]:
    """The names in a list."""
    return [each for part in text.split(between) if (each := part.strip())]


class RedactionConfig(Section):
    """Who reads marked fields of topics with `floe.redact` (docs/schemas.md). Give all agents the same."""

    cleared_listeners: Names = ""
    """Names of listeners whose clients read all fields, parted by commas."""

    cleared_principals: Names = ""
    """Users and certificates' names that read all fields, parted by semicolons (docs/security.md)."""

    cleared_client_ids: Names = ""
    """Client ids that read all fields, parted by commas; a `*` at the end stands for anything. A client id is
    what a client says it is: where that is not to be trusted, clear principals or listeners."""

    hash_key: SecretStr = SecretStr("")
    """The key of hashes in place of fields. Empty: such fields are removed."""
