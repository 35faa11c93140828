"""DescribeUserScramCredentials: which users log in by SCRAM, by which mechanism, with how many iterations.

Versions 0.
Behaviour: no list or an empty one asks for everybody; a named user without a credential is
RESOURCE_NOT_FOUND, one named twice DUPLICATE_RESOURCE. Salts and keys are never told.
Deviations: the configured administrator (`sasl.admin_user`) is not listed.
"""

from __future__ import annotations

from collections import Counter

from agent.kafka.context import Context
from agent.net.wire.api import Encoded
from agent.net.wire.generated import describe_user_scram_credentials
from agent.net.wire.generated.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from agent.net.wire.steps import Pace, encoded
from coordination.config_types import shown
from coordination.kafka_codes import Code

KEY = 50
VERSIONS = (0, 0)


async def handle(ctx: Context, request: DescribeUserScramCredentialsRequest, version: int) -> Encoded:
    """One answer per user."""
    await ctx.barrier()
    known: dict[str, list[CredentialInfo]] = {}
    pace = Pace()
    for (user, mechanism), one in list(ctx.state.scram.credentials.items()):
        known.setdefault(user, []).append(CredentialInfo(mechanism, one.iterations))
        await pace.row()
    named = Counter(user.name for user in request.users or []) or dict.fromkeys(known, 1)
    response = DescribeUserScramCredentialsResponse(error_message="")  # as Kafka's
    for user, times in named.items():
        response.results.append(_described(user, times, known))
        await pace.row()
    return await encoded(describe_user_scram_credentials, response, version, "results")


def _described(
    user: str, times: int, known: dict[str, list[CredentialInfo]]
) -> DescribeUserScramCredentialsResult:
    """The texts are Kafka's (ScramImage.describe)."""
    if times > 1:
        code = Code.DUPLICATE_RESOURCE
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {shown(user)}"
    elif user not in known:
        code = Code.RESOURCE_NOT_FOUND
        text = f"Attempt to describe a user credential that does not exist: {shown(user)}"
    else:
        infos = sorted(known[user], key=lambda info: info.mechanism)
        return DescribeUserScramCredentialsResult(user=user, error_message=None, credential_infos=infos)
    return DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=text)
