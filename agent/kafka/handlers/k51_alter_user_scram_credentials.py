"""AlterUserScramCredentials: set and delete how users log in by SCRAM.

Versions 0.
Behaviour: each user is answered alone; what is wrong with the request itself (no such mechanism, a credential
named twice) lets nothing of that user happen. Iterations are 4,096 to 16,384. The log gets the keys that the
salted password gives, never the salted password.
Deviations: 100,000 credentials at most, names of 255 characters and salts of 256 bytes.
"""

from __future__ import annotations

from collections import Counter

from google.protobuf.message import Message

from agent.kafka.context import Context
from agent.kafka.login import scram
from agent.kafka.propose import propose
from agent.net.wire.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from coordination.commands import DeleteScramCredential, PutScramCredential
from coordination.kafka_codes import Code
from coordination.state.scram import SECRET_BYTES
from coordination.state.types import Refused

KEY = 51
VERSIONS = (0, 0)
TWICE = "A user credential cannot be altered twice in the same request"
UNKNOWN = Refused(Code.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")


async def handle(
    ctx: Context, request: AlterUserScramCredentialsRequest, version: int
) -> AlterUserScramCredentialsResponse:
    """One answer per user, in the order of the request."""
    alterations: list[ScramCredentialDeletion | ScramCredentialUpsertion]
    alterations = [*request.deletions, *request.upsertions]
    times = Counter((one.name, one.mechanism) for one in alterations)
    results: dict[str, Refused | None] = {one.name: None for one in alterations}
    for (name, mechanism), count in times.items():
        if count > 1:
            results[name] = Refused(Code.DUPLICATE_RESOURCE, TWICE)
        elif mechanism not in scram.DIGESTS:
            results[name] = results[name] or UNKNOWN
    asked = [one for one in alterations if results[one.name] is None]
    secret = ctx.services.clock.random_bytes(SECRET_BYTES)
    for one, result in zip(asked, await propose(ctx, [_command(one, secret) for one in asked]), strict=True):
        if isinstance(result, Refused):
            results[one.name] = results[one.name] or result
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=name, error_message=None)
            if refused is None
            else AlterUserScramCredentialsResult(name, refused.code, refused.message)
            for name, refused in results.items()
        ]
    )


def _command(one: ScramCredentialDeletion | ScramCredentialUpsertion, secret: bytes) -> Message:
    if not isinstance(one, ScramCredentialUpsertion):
        return DeleteScramCredential(user=one.name, mechanism=one.mechanism)
    stored_key, server_key = scram.keys(scram.DIGESTS[one.mechanism], bytes(one.salted_password))
    return PutScramCredential(
        user=one.name,
        mechanism=one.mechanism,
        iterations=max(one.iterations, 0),
        salt=bytes(one.salt),
        stored_key=stored_key,
        server_key=server_key,
        secret=secret,
    )
