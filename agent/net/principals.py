"""Who a client is by its certificate: Kafka's `ssl.principal.mapping.rules`, or a name of the SAN.

The distinguished name is written as Java writes it (RFC 2253): the most special part first, e.g.
`CN=alice,OU=Ops,O=Example,C=DE`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent.config.errors import ConfigError

Certificate = Mapping[str, Any]
"""As ssl.SSLObject.getpeercert gives it."""
Namer = Callable[[Certificate], str]
"""The principal of a certificate. Raises NoPrincipal."""

PRINCIPAL_LENGTH_MAX: Final = 4096
"""Characters of a distinguished name or a SAN that rules are tried on."""

_SHORT = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_EMAIL_OID = "1.2.840.113549.1.9.1"
_IA5_STRING = 0x16
_SPECIAL = re.compile(r'([,+"\\<>;])')
_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:[,\n]|$)")
_GROUP = re.compile(r"\$(\d)")
_SAN = {"san_dns": "DNS", "san_uri": "URI"}


class NoPrincipal(Exception):
    """A certificate that names nobody by the rules: its client is turned away."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """The principal, or None when the rule does not speak of this name."""
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        named = match.expand(self.replacement)
        return named.lower() if self.case == "L" else named.upper() if self.case == "U" else named


def namer(rules: str, source: str, listener: str) -> Namer:
    """How principals are made: `source` is `subject` (by the rules), `san_dns` or `san_uri`.

    Raises ConfigError for rules that are none.
    """
    if source in _SAN:
        return lambda certificate: _san(certificate, _SAN[source])
    parsed = _parse(rules, listener)

    def by_subject(certificate: Certificate) -> str:
        name = distinguished_name(certificate)
        if len(name) <= PRINCIPAL_LENGTH_MAX:
            for rule in parsed:
                principal = rule.apply(name)
                if principal is not None:
                    return principal
        raise NoPrincipal(f"no rule of tls_principal_rules fits {name[:PRINCIPAL_LENGTH_MAX]!r}")

    return by_subject


def _parse(rules: str, listener: str) -> list[_Rule]:
    found, at = [], 0
    while at < len(rules):
        match = _RULE.match(rules, at)
        if match is None:
            raise ConfigError(
                f"listener {listener}: tls_principal_rules: {rules[at:]!r} is no rule; "
                "write DEFAULT or RULE:pattern/replacement/ with L or U behind it, separated by commas"
            )
        default, pattern, replacement, case = match.groups()
        try:
            rule = _Rule(None) if default else _rule(pattern, replacement, case)
        except (re.error, IndexError) as error:
            raise ConfigError(
                f"listener {listener}: tls_principal_rules: {match[0]!r} cannot be used: {error}"
            ) from None
        found.append(rule)
        at = match.end()
    return found


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    compiled = re.compile(pattern.replace(r"\/", "/"))
    for group in _GROUP.findall(replacement):
        if int(group) > compiled.groups:
            raise IndexError(f"${group}: the pattern has {compiled.groups} groups")
    literal = replacement.replace(r"\/", "/").replace("\\", r"\\")
    return _Rule(compiled, _GROUP.sub(r"\\g<\1>", literal), case)


def distinguished_name(certificate: Certificate) -> str:
    """The subject by RFC 2253, as Java's X500Principal.getName writes it."""
    parts = reversed(certificate.get("subject", ()))
    return ",".join("+".join(_attribute(name, value) for name, value in part) for part in parts)


def _attribute(name: str, value: str) -> str:
    if name == "emailAddress":  # no keyword of RFC 2253: Java writes the bytes of its DER
        content = value.encode()
        length = bytes([len(content)]) if len(content) < 0x80 else b"\x81" + bytes([len(content) & 0xFF])
        return f"{_EMAIL_OID}=#{(bytes([_IA5_STRING]) + length + content).hex()}"
    escaped = _SPECIAL.sub(r"\\\1", value)
    if escaped.startswith(("#", " ")):
        escaped = "\\" + escaped
    if escaped.endswith(" ") and len(escaped) > 1:
        escaped = escaped[:-1] + "\\ "
    return f"{_SHORT.get(name, name)}={escaped}"


def _san(certificate: Certificate, kind: str) -> str:
    for found, name in certificate.get("subjectAltName", ()):
        if found == kind and 0 < len(name) <= PRINCIPAL_LENGTH_MAX:
            return str(name)
    raise NoPrincipal(f"the certificate of {distinguished_name(certificate)!r} has no SAN of kind {kind}")
