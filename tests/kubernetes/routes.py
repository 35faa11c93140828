"""The chart's Ingress, HTTPRoute and TLSRoutes behind a gateway: HTTP by host name, TLS by the name in it.

Clients have no other way than the gateway's Service: the names lead there, and each agent's own is in what
Metadata tells. `gateway_there` brings the gateway before, `added` what the chart has of it.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import subprocess
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient

from deploy.images.kept import OUTPUT
from deploy.kubernetes.namespaces import PATIENCE
from deploy.kubernetes.node import RUN, NodeError
from deploy.services.certificates import Authority
from tests.kubernetes import gateway

if TYPE_CHECKING:
    from tests.kubernetes.lab import Lab

NAME = "routes"
WAIT_S = 120 * PATIENCE
UPGRADE = "helm upgrade"
"""The experiment that brings them."""
IMAGE = OUTPUT / "gateway.tar"
AGENTS = 3
KAFKA, BY_ROUTE, BY_INGRESS, STRANGER = "kafka.example", "route.example", "ingress.example", "other.example"
PORT = 443
SECRET = "routed"
PATHS = {"/console": "<html", "/metrics": "floe_", "/status.json": '"cluster', "/iceberg/v1/config": "{"}
"""Of the routes, each with something of what is there."""
NOT_LET_THROUGH = "/livez"
ANSWER_SECONDS_MAX = 20
_API = "/apis/gateway.networking.k8s.io/v1/namespaces/floe"
_RELEASE = "app.kubernetes.io/instance=floe"


def _parent(listener: str) -> list[dict[str, str]]:
    return [{"name": gateway.NAME, "namespace": gateway.NAMESPACE, "sectionName": listener}]


VALUES: dict[str, Any] = {
    "listeners": [
        {
            "name": "ROUTED",
            "port": 9096,
            "advertisedHost": f"{{pod}}.{KAFKA}",
            "advertisedPort": PORT,
            "protocol": "SSL",
            "tls": {"secretName": SECRET},
            "external": {"type": "TLSRoute", "bootstrapHost": KAFKA, "parentRefs": _parent("kafka")},
        }
    ],
    "httpRoute": {
        "enabled": True,
        "hosts": [BY_ROUTE],
        "parentRefs": _parent("web"),
        "paths": ["/console", "/metrics", "/status.json", "/iceberg"],
    },
    "ingress": {
        "enabled": True,
        "className": gateway.CLASS,
        "hosts": [BY_INGRESS],
        "paths": ["/console", "/metrics", "/status.json", "/iceberg"],
    },
}


def gateway_there(lab: Lab) -> None:
    """The definitions, the gateway, the names that lead to it, the certificate that agents show: all but what
    the chart has. Raises NodeError."""
    lab.node.kubectl("apply", "--server-side", "-f", "-", given=gateway.crds())
    lab.node.kubectl("wait", "--for=condition=Established", "crd", "--all", f"--timeout={WAIT_S}s")
    authority = Authority(RUN / "pki" / SECRET, "floe-routed")
    pair = authority.pair(SECRET, san=f"DNS:{KAFKA},DNS:*.{KAFKA}")
    lab.kubectl("create", "secret", "tls", SECRET, f"--cert={pair.cert}", f"--key={pair.key}")
    _named_at(_gateway(lab))


def added(lab: Lab) -> None:
    """An upgrade with listener and routes: every agent restarts. Raises NodeError."""
    lab.values |= VALUES
    lab.install("upgrade")
    lab.until_ready()


def prepared(lab: Lab) -> None:
    """All routes accepted, and clients let through; where no upgrade has brought them, one does. Raises
    NodeError."""
    if "listeners" not in lab.values:
        added(lab)
    _until_taken(lab, "httproutes", 1)
    _until_taken(lab, "tlsroutes", AGENTS + 1)
    lab.until(lambda: _reached(KAFKA), f"nobody answers by the name {KAFKA}")


def _gateway(lab: Lab) -> str:
    """Its address, once it is ready."""
    lab.node.bring(IMAGE)
    lab.node.kubectl("apply", "-f", "-", given=gateway.objects())
    there = ("-n", gateway.NAMESPACE)
    lab.node.kubectl(*there, "rollout", "status", f"deployment/{gateway.NAME}", f"--timeout={WAIT_S}s")
    of_it = ("get", "service", gateway.NAME, "-o", "jsonpath={.spec.clusterIP}")
    return lab.node.kubectl(*there, *of_it).strip()


def clients() -> dict[str, str]:
    """Settings of Kafka's clients: where they begin, and whom they trust."""
    return {
        "bootstrap.servers": f"{KAFKA}:{PORT}",
        "security.protocol": "SSL",
        "ssl.ca.location": str(RUN / "pki" / SECRET / "ca.crt"),
    }


def by_the_gateway(lab: Lab) -> str:
    """Pages by both, the names that Metadata tells, and an agent deleted while clients come by TLSRoutes."""
    for host in (BY_ROUTE, BY_INGRESS):
        for path, part in PATHS.items():
            _until(lab, host, path, 200, part)
        _until(lab, host, NOT_LET_THROUGH, 404, "")
    _until(lab, STRANGER, "/status.json", 404, "")
    told = AdminClient(clients()).list_topics(timeout=ANSWER_SECONDS_MAX).brokers.values()
    names = sorted(f"{each.host}:{each.port}" for each in told)
    wanted = sorted(f"floe-{n}.{KAFKA}:{PORT}" for n in range(AGENTS))
    if names != wanted:
        raise NodeError(f"Metadata tells {names}, not {wanted}")
    if dumb := [each for each in names if not _reached(each.partition(":")[0])]:
        raise NodeError(f"by the gateway nobody answers to {', '.join(dumb)}, which Metadata tells")
    if _reached(STRANGER):
        raise NodeError(f"the gateway let a client through that asked for {STRANGER}")
    lab.kubectl("delete", "pod", "floe-1")
    lab.until_ready()
    pages = ", ".join(f"`{path}`" for path in PATHS)
    return (
        f"Traefik served {pages} by HTTPRoute and by Ingress, each by its host name, and neither "
        f"`{NOT_LET_THROUGH}` nor another name; clients of this row came by TLSRoutes alone, to each agent "
        "by the name that Metadata tells, while one of them was deleted; asking for another ended in nothing"
    )


def _named_at(address: str) -> None:
    """Every name of ours at the gateway's address, for this process and those that it starts."""
    names = [KAFKA, BY_ROUTE, BY_INGRESS, STRANGER, *(f"floe-{n}.{KAFKA}" for n in range(AGENTS))]
    hosts = RUN / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{address} {' '.join(names)}\n")
    subprocess.run(["mount", "--bind", str(hosts), "/etc/hosts"], check=True, capture_output=True)


def _until_taken(lab: Lab, kind: str, count: int) -> None:
    """Wait until the gateway has taken so many routes of the release, all that there are, and found the
    Services and ports that they lead to. Raises NodeError with what it says of the others."""
    found = dict[str, list[str]]()

    def all_taken() -> bool:
        found.clear()
        found.update(
            {each["metadata"]["name"]: _amiss(each) for each in lab.node.listed(f"{_API}/{kind}", _RELEASE)}
        )
        return len(found) == count and not any(found.values())

    try:
        lab.until(all_taken, "")
    except NodeError:
        raise NodeError(f"the gateway has not taken all {count} {kind}: {found}") from None


def _amiss(route: dict[str, Any]) -> list[str]:
    """What the gateway says of a route, but for that all is well."""
    conditions = [each for one in route.get("status", {}).get("parents", []) for each in one["conditions"]]
    told = {each["type"]: each for each in conditions}
    return [
        f"{kind}: {told[kind].get('message') or told[kind]['reason']}" if kind in told else f"{kind}: nothing"
        for kind in ("Accepted", "ResolvedRefs")
        if told.get(kind, {}).get("status") != "True"
    ]


def _reached(name: str) -> bool:
    """Whether TLS with somebody of ours comes about for a client that asks for this name."""
    context = ssl.create_default_context(cafile=clients()["ssl.ca.location"])
    context.check_hostname = False
    try:
        with (
            socket.create_connection((KAFKA, PORT), ANSWER_SECONDS_MAX) as plain,
            context.wrap_socket(plain, server_hostname=name),
        ):
            return True
    except (ssl.SSLError, OSError):
        return False


def _until(lab: Lab, host: str, path: str, status: int, part: str) -> None:
    """Wait until the gateway answers so for a name. Raises NodeError with what it answers."""
    found: list[tuple[int, str]] = []

    def as_wanted() -> bool:
        connection = http.client.HTTPConnection(host, 80, timeout=ANSWER_SECONDS_MAX)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            found.append((answer.status, answer.read().decode(errors="replace")))
        except OSError as error:
            found.append((0, str(error)))
        finally:
            connection.close()
        return found[-1][0] == status and part in found[-1][1]

    try:
        lab.until(as_wanted, "")
    except NodeError:
        raise NodeError(f"{host}{path}: {json.dumps(found[-1])[:400]}, not {status} with {part!r}") from None
