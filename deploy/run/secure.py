"""The cluster of `make run-cluster SECURE=1`: certificates, users and ACLs, all made for this run alone.

TLS for clients (SASL_SSL with SCRAM), for agents among themselves (by certificates of an authority of their
own), for etcd, which asks for a certificate, and for MinIO. ACLs are enforced, and each of the job's programs
may what it needs, `GRANTS`, and nothing else.
"""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from deploy.run.access import MECHANISM, PROTOCOL, Access
from deploy.run.source import TOPICS
from deploy.services.certificates import Authority
from deploy.services.etcd import EtcdTls
from deploy.services.service import ServiceError

ROOT, CREATOR, LOADER, READER, SPARK = "root", "creator", "loader", "reader", "spark"
GRANTS: Mapping[str, tuple[AclOperation, ...]] = {
    CREATOR: (AclOperation.CREATE, AclOperation.ALTER),
    LOADER: (AclOperation.WRITE,),
    READER: (AclOperation.READ,),
    SPARK: (AclOperation.READ,),
}
"""What each may with each of the job's topics, by name: to bind a schema is to Alter, to load a table to
Read, all of which allow Describe as well."""
RESULTS = "results."
"""What the names of the pipeline's own tables begin with, as ACLs have them."""
LENT = "lent"
"""The catalog by which Spark reads topics' tables with keys that it is lent."""
ROLE = "arn:aws:iam:::role/floe"
"""MinIO takes any."""
ITERATIONS = 4096
ANSWER_S = 60.0
TRUST_PASSWORD = "not-a-secret"  # keytool wants one; the file holds a certificate that anybody may see
PROBE_MS = 5_000


class Secured:
    """Files and users of one run, below a folder."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "authority", "floe run")
        self._agents = Authority(folder / "agents", "floe agents")
        self._server, self._peer = self.authority.pair("server"), self._agents.pair("agent")
        self._passwords = {user: secrets.token_urlsafe(24) for user in (ROOT, *GRANTS)}
        client = self.authority.pair("etcd-client", "/CN=floe")
        ca, server = self.authority.cert, self._server
        self.etcd = EtcdTls(ca, server.cert, server.key, client.cert, client.key)
        self.minio = server

    def access(self, user: str) -> Access:
        """How a user comes in."""
        return Access(user, self._passwords[user], str(self.authority.cert))

    @property
    def listener(self) -> dict[str, Any]:
        """Settings of the only listener, beside its address."""
        tls = {"tls_cert_file": str(self._server.cert), "tls_key_file": str(self._server.key)}
        return {"name": "CLIENTS", "protocol": PROTOCOL, "sasl_mechanisms": MECHANISM, **tls}

    def settings(self) -> dict[str, dict[str, Any]]:
        """Sections of an agent's settings, what is here on top of what others say."""
        ca, files = str(self.authority.cert), self.etcd
        server = {"tls_cert_file": str(self._server.cert), "tls_key_file": str(self._server.key)}
        peer = {"tls_cert_file": str(self._peer.cert), "tls_key_file": str(self._peer.key)}
        return {
            "log": {
                "tls": True,
                "tls_ca_file": ca,
                "tls_cert_file": str(files.client_cert),
                "tls_key_file": str(files.client_key),
            },
            "http": {"authentication": "required", **server},
            "catalog": {"token_secret": secrets.token_urlsafe(32), "vending_role_arn": ROLE},
            "store": {"allow_http": False, "ca_file": ca},
            "peers": {**peer, "tls_ca_file": str(self._agents.cert), "host": "127.0.0.1"},
            "sasl": {"admin_user": ROOT, "admin_password": self._passwords[ROOT]},
            "authorizer": {"mode": "enforce", "super_users": f"User:{ROOT}"},
        }

    def let_in(self, bootstrap: str) -> None:
        """Make the users and their ACLs, as the administrator does."""
        admin = AdminClient({"bootstrap.servers": bootstrap, **self.access(ROOT).librdkafka()})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
        users = [UserScramCredentialUpsertion(user, info, self._passwords[user].encode()) for user in GRANTS]
        for future in admin.alter_user_scram_credentials(users).values():
            future.result(ANSWER_S)
        for future in admin.create_acls(list(_acls())).values():
            future.result(ANSWER_S)


def _acls() -> Iterator[AclBinding]:
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    for user, operations in GRANTS.items():
        for operation in operations:
            for topic in TOPICS:
                yield AclBinding(
                    ResourceType.TOPIC, topic.name, literal, f"User:{user}", "*", operation, allow
                )
    spark, cluster = f"User:{SPARK}", ResourceType.BROKER
    yield AclBinding(cluster, "kafka-cluster", literal, spark, "*", AclOperation.CREATE, allow)
    prefixed = ResourcePatternType.PREFIXED
    for operation in (AclOperation.READ, AclOperation.ALTER):
        yield AclBinding(ResourceType.TOPIC, RESULTS, prefixed, spark, "*", operation, allow)


def doors_stand_open(bootstrap: str, accesses: Mapping[str, Access]) -> list[str]:
    """What somebody may who should not: tried with a real client; empty is good."""
    reader, loader = accesses[READER], accesses[LOADER]
    wrong = Access(loader.user, "wrong", loader.ca)
    tries = {
        "somebody without a login writes": ({}, KafkaError._MSG_TIMED_OUT),
        "somebody with a wrong password writes": (wrong.librdkafka(), KafkaError._MSG_TIMED_OUT),
        "the reader writes": (reader.librdkafka(), KafkaError.TOPIC_AUTHORIZATION_FAILED),
    }
    return [
        f"{what}: {told}"
        for what, (settings, wanted) in tries.items()
        if (told := _written(bootstrap, settings)) != wanted
    ]


def _written(bootstrap: str, settings: Mapping[str, Any]) -> int | None:
    """The code of the error of one record; None when it was written."""
    told: list[KafkaError | None] = []
    own = {"bootstrap.servers": bootstrap, "message.timeout.ms": PROBE_MS, "log_level": 0}
    producer = Producer({**own, **settings})
    producer.produce(TOPICS[0].name, b"", on_delivery=lambda error, _: told.append(error))
    producer.flush(ANSWER_S)
    error = told[0]
    return None if error is None else error.code()


def trust_store(java_home: Path, authority: Path, target: Path) -> str:
    """Make a trust store with that authority alone; the JVM's options that name it. Raises ServiceError."""
    command = [str(java_home / "bin" / "keytool"), "-importcert", "-noprompt", "-alias", "run"]
    command += ["-file", str(authority), "-keystore", str(target), "-storetype", "PKCS12"]
    done = subprocess.run(
        [*command, "-storepass", TRUST_PASSWORD], capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode:
        raise ServiceError(f"keytool made no trust store: {done.stdout.strip()}{done.stderr.strip()}")
    option = "-Djavax.net.ssl.trustStore"
    return f"{option}={target} {option}Type=PKCS12 {option}Password={TRUST_PASSWORD}"
