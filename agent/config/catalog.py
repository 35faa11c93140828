"""The section of the REST catalog that the agents serve: its tokens, and keys of the bucket that it lends."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr

from agent.config.base import Section


class CatalogServiceConfig(Section):
    """The REST catalog that the agents serve at `/iceberg`: tokens that it gives users, and keys of the
    bucket that it lends for one table (docs/security.md). Give all agents of a cluster the same."""

    token_secret: SecretStr = SecretStr("")
    """What the catalog's tokens are signed with: 32 characters or more of chance. Empty: it gives no tokens
    (`/iceberg/v1/oauth/tokens`). Give it as FLOE_CATALOG__TOKEN_SECRET."""

    session_s: Annotated[int, Field(ge=60, le=86_400)] = 3_600
    """How long a token holds, seconds. One whose user's password was changed or taken away holds no more at
    once."""

    vending_role_arn: Annotated[str, Field(pattern=r"^(arn:[!-~]{16,1000})?$")] = ""
    """Role that keys are lent of: `arn:aws:iam::123456789012:role/floe-readers`, which may at most read the
    bucket and which the agents may assume. MinIO takes any, as `arn:aws:iam:::role/floe`. Empty: no keys are
    lent. S3 only."""

    vending_sts_url: Annotated[str, Field(max_length=2048)] = ""
    """URL of the security token service. Empty: `store.endpoint` where that is set, else Amazon's of
    `store.region`."""

    vending_s: Annotated[int, Field(ge=900, le=43_200)] = 3_600
    """How long lent keys hold, seconds; so long may somebody read on who may not any more. Roles allow an
    hour unless they say more, and never more to agents whose own keys are of a role."""

    vending_timeout_ms: Annotated[int, Field(ge=100, le=60_000)] = 5_000
    """How long the security token service may take to connect, and to answer, milliseconds."""

    vending_in_flight_max: Annotated[int, Field(ge=1, le=64)] = 4
    """Questions to the security token service at once, each in a thread; others wait."""

    vending_entries_max: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Lent keys that are kept for the next who asks, 2 KiB each: by user and table, for half their time."""
