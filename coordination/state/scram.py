"""Users who log in by SCRAM: their credentials are set and deleted here, one by one."""

from __future__ import annotations

from coordination.commands import DeleteScramCredential, PutScramCredential
from coordination.kafka_codes import Code
from coordination.state.data import StateData
from coordination.state.scram_types import ScramCredential
from coordination.state.types import At, Done, Refused, Result

CREDENTIALS_MAX = 100_000
NAME_LENGTH_MAX = 255  # characters
SALT_BYTES_MAX = 256
SECRET_BYTES = 32
ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 16_384  # as Kafka's
KEY_BYTES = {1: 32, 2: 64}  # by mechanism, of the digest
UNKNOWN_USER = "Attempt to delete a user credential that does not exist"  # Kafka's words


def put_scram_credential(state: StateData, message: PutScramCredential, at: At) -> Result:
    """Set a user's credential for one mechanism. Done's value: None."""
    refused = _refusal(message)
    key = (message.user, message.mechanism)
    table = state.scram
    if refused is None and key not in table.credentials and len(table.credentials) >= CREDENTIALS_MAX:
        refused = Refused(Code.POLICY_VIOLATION, f"{CREDENTIALS_MAX} credentials are the most")
    if refused is not None:
        return refused
    if not table.secret:
        table.secret = message.secret
    table.credentials[key] = ScramCredential(
        message.iterations, message.salt, message.stored_key, message.server_key
    )
    return Done()


def _refusal(message: PutScramCredential) -> Refused | None:
    """Why a credential is none; Kafka's codes and words where it has them."""
    size = KEY_BYTES.get(message.mechanism)
    if size is None:
        return Refused(Code.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if not message.user:
        return Refused(Code.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if len(message.user) > NAME_LENGTH_MAX:
        return Refused(Code.UNACCEPTABLE_CREDENTIAL, f"Username is longer than {NAME_LENGTH_MAX}")
    if message.iterations < ITERATIONS_MIN:
        return Refused(Code.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if message.iterations > ITERATIONS_MAX:
        return Refused(Code.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not 0 < len(message.salt) <= SALT_BYTES_MAX:
        return Refused(Code.UNACCEPTABLE_CREDENTIAL, f"a salt has 1 to {SALT_BYTES_MAX} bytes")
    if len(message.stored_key) != size or len(message.server_key) != size:
        return Refused(Code.UNACCEPTABLE_CREDENTIAL, f"keys of this mechanism have {size} bytes")
    if len(message.secret) != SECRET_BYTES:
        return Refused(Code.INVALID_REQUEST, f"a secret has {SECRET_BYTES} bytes")
    return None


def delete_scram_credential(state: StateData, message: DeleteScramCredential, at: At) -> Result:
    """Delete a user's credential for one mechanism. Done's value: None."""
    if state.scram.credentials.pop((message.user, message.mechanism), None) is None:
        return Refused(Code.RESOURCE_NOT_FOUND, UNKNOWN_USER)
    return Done()
