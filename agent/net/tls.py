"""A listener's certificates: made into a TLS context, tried out, and made anew when the files change.

What is wrong with the files is said in one line, at the start as an error; later the context before stays in
force. New handshakes take the newest context, connections keep theirs.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from agent.config.certificates import ends_s
from agent.config.errors import ConfigError
from agent.config.renewed import Renewed
from agent.net.principals import Namer

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
PEM_BYTES_MAX = 1024 * 1024
"""What is read of a key's file to see whether it is encrypted, bytes."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """What a context is made of; `listener` names its settings in errors."""

    listener: str
    cert_file: str
    key_file: str
    ca_file: str = ""
    key_password: str = field(default="", repr=False)
    client_auth: str = "none"
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ciphers: str = ""


class Tls(Renewed):
    """The context in force. `renew` is called from time to time, in a thread: it reads files."""

    context: ssl.SSLContext
    expires_s: float
    """When its certificate ends, Unix time, seconds."""

    def __init__(self, files: TlsFiles, namer: Namer) -> None:
        """Raises ConfigError for files that make no context."""
        super().__init__(files.cert_file, files.key_file, files.ca_file)
        self.name = f"certificates of listener {files.listener}"
        self.files = files
        self.namer = namer
        self.make()

    def make(self) -> None:
        """See Renewed."""
        self.context, self.expires_s = build(self.files)


def build(files: TlsFiles) -> tuple[ssl.SSLContext, float]:
    """The context, and when its certificate ends (Unix time, seconds). Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = min(VERSIONS[one] for one in files.versions)
    context.maximum_version = max(VERSIONS[one] for one in files.versions)
    # No session is resumed: it would outlive the authority that vouched for its client, and costs memory.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION
    context.num_tickets = 0
    _attempt(files, "tls_cert_file", files.cert_file, lambda: _readable(files.cert_file))
    _attempt(files, "tls_key_file", files.key_file, lambda: _opened(files))
    _attempt(
        files,
        "tls_cert_file and tls_key_file",
        f"{files.cert_file}, {files.key_file}",
        # A password is always given: OpenSSL would ask the terminal for one.
        lambda: context.load_cert_chain(files.cert_file, files.key_file, lambda: files.key_password),
    )
    if files.ciphers:
        _attempt(files, "tls_ciphers", files.ciphers, lambda: context.set_ciphers(files.ciphers))
    expires_s = _attempt(files, "tls_cert_file", files.cert_file, lambda: ends_s(context, files.cert_file))
    if files.client_auth != "none":
        _attempt(files, "tls_ca_file", files.ca_file, lambda: context.load_verify_locations(files.ca_file))
        context.verify_mode = VERIFY[files.client_auth]
    return context, expires_s


def _readable(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(PEM_BYTES_MAX)


def _opened(files: TlsFiles) -> None:
    """OpenSSL has no words for an encrypted key without a password."""
    if b"ENCRYPTED" in _readable(files.key_file) and not files.key_password:
        raise ValueError("the key is encrypted: set tls_key_password")


def _attempt(files: TlsFiles, setting: str, value: str, act: Callable[[], _T]) -> _T:
    """Do it, or say which setting of which listener is wrong and how."""
    try:
        return act()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = _reason(error)
    raise ConfigError(f"listener {files.listener}: {setting} ({value}): {reason}")


def _reason(error: OSError | ValueError) -> str:
    """What is wrong, in the words of whoever reads configurations."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"clients would refuse it: {error.verify_message}"
    if not isinstance(error, ssl.SSLError):
        return getattr(error, "strerror", None) or str(error)
    told = {
        "KEY_VALUES_MISMATCH": "the key is not that of the certificate",
        "NO_CERTIFICATE_OR_CRL_FOUND": "no PEM certificate is in there",
        "NO_SHARED_CIPHER": "none of the ciphers can be used with this certificate",
        "BAD_DECRYPT": "the key is encrypted, and tls_key_password does not open it",
    }
    reason = getattr(error, "reason", None)  # not every SSLError of Python 3.11 has one
    if reason is None and isinstance(error.args[0], str):
        return error.args[0]
    return told.get(
        reason or "", reason or "not PEM that OpenSSL can read, or tls_key_password does not open it"
    )
