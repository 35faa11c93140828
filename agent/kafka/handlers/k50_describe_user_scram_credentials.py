"""DescribeUserScramCredentials: the users with SCRAM credentials, of whom there are none.

Versions 0.
Behaviour: no list or an empty one asks for everybody and gets nobody; a named user is RESOURCE_NOT_FOUND, one
named twice DUPLICATE_RESOURCE.
Deviations: credentials cannot be set: AlterUserScramCredentials is not answered.
"""

from __future__ import annotations

from collections import Counter

from agent.kafka.context import Context
from agent.net.wire.generated.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from coordination.config_types import shown
from coordination.kafka_codes import Code

KEY = 50
VERSIONS = (0, 0)


async def handle(
    ctx: Context, request: DescribeUserScramCredentialsRequest, version: int
) -> DescribeUserScramCredentialsResponse:
    """One answer per user that was named."""
    named = Counter(user.name for user in request.users or [])
    results = [_unknown(user, times) for user, times in named.items()]
    return DescribeUserScramCredentialsResponse(error_message="", results=results)  # as Kafka's


def _unknown(user: str, times: int) -> DescribeUserScramCredentialsResult:
    """The texts are Kafka's (ScramImage.describe)."""
    code, text = (
        Code.RESOURCE_NOT_FOUND,
        f"Attempt to describe a user credential that does not exist: {shown(user)}",
    )
    if times > 1:
        code = Code.DUPLICATE_RESOURCE
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {shown(user)}"
    return DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=text)
