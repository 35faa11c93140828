"""How a helper process of the job comes in: in the clear, or by TLS with a login of its own."""

from __future__ import annotations

import base64
import ssl
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

PROTOCOL, MECHANISM = "SASL_SSL", "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True)
class Access:
    """A user; without a name nobody logs in and nothing is encrypted. `ca`: PEM file of the authority."""

    user: str = ""
    password: str = ""
    ca: str = ""

    @classmethod
    def of(cls, plan: Mapping[str, Any]) -> Self:
        """As `plan` has it."""
        return cls(**plan["access"])

    def plan(self) -> dict[str, str]:
        """For the plan of a helper process, which comes by a pipe."""
        return asdict(self)

    def librdkafka(self) -> dict[str, Any]:
        """Settings of librdkafka."""
        if not self.user:
            return {}
        return {
            "security.protocol": PROTOCOL,
            "ssl.ca.location": self.ca,
            "sasl.mechanism": MECHANISM,
            "sasl.username": self.user,
            "sasl.password": self.password,
        }

    def python(self) -> dict[str, Any]:
        """Settings of aiokafka and of kafka-python, which name them alike."""
        if not self.user:
            return {}
        return {
            "security_protocol": PROTOCOL,
            "ssl_context": ssl.create_default_context(cafile=self.ca),
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }

    def request(self, url: str) -> urllib.request.Request:
        """A GET over HTTP that says who asks."""
        asking = urllib.request.Request(url)
        if self.user:
            told = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            asking.add_unredirected_header("Authorization", f"Basic {told}")
        return asking

    def context(self) -> ssl.SSLContext | None:
        """What HTTP is spoken with; None: in the clear."""
        return ssl.create_default_context(cafile=self.ca) if self.user else None

    def catalog(self) -> dict[str, str]:
        """Properties of an Iceberg client of the REST catalog, but for where its tokens are given."""
        return {"credential": f"{self.user}:{self.password}"} if self.user else {}

    def command(self, folder: Path) -> dict[str, str]:
        """The environment of a `floe` command: names a file in `folder` that only its owner reads."""
        if not self.user:
            return {}
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        properties = {
            "security.protocol": PROTOCOL,
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": f'{module} required username="{self.user}" password="{self.password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
        }
        path = folder / f"{self.user}.properties"
        path.touch(mode=0o600)
        path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        return {"FLOE_COMMAND_CONFIG": str(path)}
