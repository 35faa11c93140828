"""Certificates and logins of Kafka's listeners in the chart (docs/security.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.config.sections import ListenerConfig
from tests.deploy.test_chart import CHART, agents_of, given, pod_of, refused, render, resources

pytestmark = pytest.mark.services
DOORS = CHART / "ci" / "doors.yaml"
TLS = "kafka.protocol=SSL,kafka.tls.secretName=s"


def mounted(workload: dict[str, Any], container: str = "agent") -> dict[str, dict[str, Any]]:
    """The volume at each path of the agent, or of another container."""
    pod = pod_of(workload)
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    (agent,) = [each for each in pod["containers"] if each["name"] == container]
    return {mount["mountPath"]: volumes[mount["name"]] for mount in agent["volumeMounts"]}


def test_each_listener_finds_its_certificate_where_the_pod_has_it(tmp_path: Path) -> None:
    ((workload, config),) = agents_of(DOORS, tmp_path)
    mounts = mounted(workload)
    secrets = {
        "SASL_SSL": "r-floe-kafka-tls",
        "MUTUAL": "mutual",
        "OUTSIDE": "r-floe-outside-tls",
        "ROUTED": "r-floe-routed-tls",
    }
    assert [each.name for each in config.listeners] == list(secrets)
    for listener in config.listeners:
        for path in files_of(listener):
            assert mounts[str(path.parent)]["secret"]["secretName"] == secrets[listener.name], path
            assert path.name in ("tls.crt", "tls.key", "ca.crt"), "as cert-manager names them"
    inside, mutual, outside, _ = config.listeners
    assert (inside.sasl_mechanisms, outside.sasl_mechanisms) == ("SCRAM-SHA-512", "PLAIN,SCRAM-SHA-512")
    assert (mutual.tls_client_auth, bool(mutual.tls_ca_file)) == ("required", True)
    assert mutual.tls_principal_rules == "RULE:^CN=([^,]*).*$/$1/L,DEFAULT"
    assert not inside.tls_ca_file, "nobody need show one there"


def files_of(listener: ListenerConfig) -> list[Path]:
    named = (listener.tls_cert_file, listener.tls_key_file, listener.tls_ca_file)
    return [Path(each) for each in named if each]


def test_clients_are_sent_to_names_that_the_certificate_has(tmp_path: Path) -> None:
    """An address of a pod could not be in a certificate that is there before the pod."""
    ((_, config),) = agents_of(DOORS, tmp_path)
    issued = {
        name: each["spec"]
        for name, each in resources(render(DOORS)).items()
        if name.startswith("Certificate/")
    }
    assert set(issued) == {f"Certificate/r-floe-{each}-tls" for each in ("kafka", "outside", "routed")}
    inside, _, outside, routed = config.listeners
    names = issued["Certificate/r-floe-kafka-tls"]["dnsNames"]
    assert inside.advertised_host == "r-floe-0.r-floe-agents.streams.svc"
    assert wild(inside.advertised_host) in names
    assert "r-floe.streams.svc" in names, "where clients begin"
    for listener, name in ((outside, "outside"), (routed, "routed")):
        assert wild(listener.advertised_host) in issued[f"Certificate/r-floe-{name}-tls"]["dnsNames"]
    assert all("server auth" in each["usages"] for each in issued.values())


def wild(name: str) -> str:
    """The name in a certificate that stands for all pods'."""
    return "*." + name.partition(".")[2]


def test_http_over_tls_is_probed_and_scraped_over_tls(tmp_path: Path) -> None:
    ((workload, config),) = agents_of(DOORS, tmp_path)
    assert (config.http.authentication, config.http.metrics_open) == ("required", False)
    secret = mounted(workload)["/etc/floe/tls/http"]["secret"]["secretName"]
    files = (config.http.tls_cert_file, config.http.tls_key_file, config.http.tls_ca_file)
    assert secret == "floe-http"
    assert [Path(each).name for each in files] == ["tls.crt", "tls.key", "ca.crt"]
    assert {str(Path(each).parent) for each in files} == {"/etc/floe/tls/http"}
    (agent,) = [each for each in pod_of(workload)["containers"] if each["name"] == "agent"]
    probes = [agent[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
    assert [each["scheme"] for each in probes] == ["HTTPS"] * 3
    (endpoint,) = resources(render(DOORS))["ServiceMonitor/r-floe"]["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"]["serverName"] == "doors-floe-http.streams.svc"
    assert endpoint["basicAuth"]["username"] == {"name": "prometheus", "key": "user"}


def test_the_test_of_helm_asks_again_for_a_while(tmp_path: Path) -> None:
    """Right after `helm install --wait` the node may not know of the agents yet: refused is no verdict."""
    pod = resources(render(given(tmp_path)))["Pod/r-floe-test"]["spec"]
    assert pod["restartPolicy"] == "OnFailure"
    assert 0 < pod["activeDeadlineSeconds"] < 300, "helm's own patience"


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("http.tls.clientAuth=requested", "http.tls.clientAuth requested needs http.tls.secretName"),
        ("http.tls.clientAuth=required,http.tls.secretName=s", "clientAuth"),
        ("config.http.authentication=required", "config.http.authentication: set http.authentication"),
        ("config.http.tls_cert_file=/x", "config.http.tls_cert_file: set http.tls.secretName"),
    ],
)
def test_what_probes_and_volumes_would_not_follow_is_refused(setting: str, complaint: str) -> None:
    refused("r", setting, complaint)


NOT_SAID = {
    "host": "a pod is bound as a whole",
    "tls_key_password": "cert-manager's keys have none, and a Secret guards a key as well as its password",
}
"""Settings of a listener that the chart has no value for, with the reason."""


def test_the_chart_has_every_setting_of_a_listener(tmp_path: Path) -> None:
    """One listener that says all there is, and each setting is another than by default."""
    tls = {"secretName": "s", "clientAuth": "required", "protocols": "TLSv1.3", "ciphers": "ECDHE+AESGCM"}
    names = {"principalFrom": "san_uri", "principalRules": "RULE:^CN=(.*)$/$1/"}
    asked = {
        "name": "ALL",
        "port": 9999,
        "advertisedHost": "h",
        "advertisedPort": 7,
        "zone": "z",
        "protocol": "SASL_SSL",
        "saslMechanisms": "PLAIN",
        "frames": "bare",
        "tls": {**tls, **names},
        "connectionsMax": 1_000_000,
        "connectionsPerSecondMax": 2,
        "connectionsPerIpMax": 3,
        "connectionsPerIp": {"10.0.0.7": 4},
    }
    ((_, config),) = agents_of(
        given(tmp_path, listeners=[asked], sasl={"usersSecretName": "users"}), tmp_path
    )
    plain, said = config.listeners
    default = ListenerConfig()
    same = {key for key in ListenerConfig.model_fields if getattr(said, key) == getattr(default, key)}
    assert same == set(NOT_SAID)
    assert (said.connections_max, said.connections_per_ip) == (1_000_000, {"10.0.0.7": 4})
    assert (plain.frames, plain.connections_max) == ("topic", 0), "and nobody else's"


def test_users_and_the_administrator_come_from_secrets(tmp_path: Path) -> None:
    ((workload, config),) = agents_of(DOORS, tmp_path)
    users = Path(config.sasl.users_file)
    (item,) = mounted(workload)[str(users.parent)]["secret"]["items"]
    assert item["path"] == users.name
    (agent,) = [each for each in pod_of(workload)["containers"] if each["name"] == "agent"]
    variables = {each["name"]: each for each in agent["env"]}
    asked = variables["FLOE_SASL__ADMIN_PASSWORD"]["valueFrom"]["secretKeyRef"]
    assert asked == {"name": "floe-root", "key": "password"}
    assert config.sasl.admin_user == "root"
    assert "password" not in str(resources(render(DOORS))["ConfigMap/r-floe"])


@pytest.mark.parametrize("name", ["full", "in-cluster-minio"])
def test_a_rotated_secret_is_a_file_that_agents_read_again(name: str, tmp_path: Path) -> None:
    """What comes by a variable stays as it was until a restart, which no change of a Secret brings."""
    values = CHART / "ci" / f"{name}.yaml"
    ((workload, config),) = agents_of(values, tmp_path)
    named = [config.store.access_key_file, config.store.secret_key_file, config.log.password_file]
    files = [Path(each) for each in named if each]
    assert len(files) == {"full": 3, "in-cluster-minio": 2}[name]
    given_to = [mounted(workload)]
    for job in (each for kind, each in resources(render(values)).items() if kind.startswith("Job/")):
        given_to.append(mounted({"spec": {"template": job["spec"]["template"]}}, "bucket"))
    assert len(given_to) == {"full": 1, "in-cluster-minio": 2}[name], (
        "who makes the bucket needs its keys too"
    )
    for mounts in given_to:
        for file in files:
            secret = mounts[str(file.parent)]["secret"]
            assert {"key": file.name, "path": file.name} in secret["items"]
    assert "SECRET_KEY" not in str(workload) + str(pod_of(workload)["containers"][0]["env"])


def test_keys_of_another_cloud_stay_variables(tmp_path: Path) -> None:
    """Only S3's are read again from files."""
    store = {"url": "gs://floe-demo/demo", "credentialsSecretName": "keys"}
    ((_, config),) = agents_of(given(tmp_path, objectStore=store), tmp_path)
    assert config.store.access_key_file == ""
    assert config.store.access_key.get_secret_value() == "from-secret"


def test_the_test_of_helm_speaks_in_the_clear_only(tmp_path: Path) -> None:
    def asks(values: Path) -> set[str]:
        pod = resources(render(values)).get("Pod/r-floe-test")
        return set() if pod is None else {each["name"] for each in pod["spec"]["containers"]}

    assert asks(DOORS) == set()
    assert asks(given(tmp_path)) == {"ready", "topics"}
    assert asks(given(tmp_path, http={"authentication": "required"})) == {"topics"}
    assert asks(given(tmp_path, http={"tls": {"secretName": "s"}})) == {"topics"}


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("kafka.protocol=TLS", "protocol"),
        ("kafka.frames=naked", "/kafka/frames"),
        ("kafka.connectionsPerIp.host=1", "/kafka/connectionsPerIp"),
        ("kafka.connectionsMax=-1", "/kafka/connectionsMax"),
        ("kafka.protocol=SSL", "kafka speaks SSL and has no certificate: set its tls.secretName"),
        ("kafka.tls.secretName=s", "kafka has tls and speaks PLAINTEXT, which is in the clear"),
        ("kafka.saslMechanisms=PLAIN", "kafka has saslMechanisms and speaks PLAINTEXT, where nobody logs in"),
        ("kafka.protocol=SSL,kafka.tls.certManager.enabled=true", "issuerRef.name is empty"),
        (f"{TLS},kind=Deployment", "pods of a Deployment have no names for a certificate"),
        (
            f"{TLS},listeners[0].name=SSL,listeners[0].port=1,listeners[0].advertisedHost=h",
            '"SSL" is there twice',
        ),
        (
            f"{TLS},kafka.tls.certManager.enabled=true,kafka.tls.certManager.issuerRef.name=i,"
            "listeners[0].name=X,listeners[0].port=1,listeners[0].advertisedHost=h,listeners[0].protocol=SSL",
            "listeners: X: tls.dnsNames is empty",
        ),
        (
            "listeners[0].name=X,listeners[0].port=1,listeners[0].advertisedHost=h,listeners[0].tls.secretName=s",
            "listeners: X has tls and speaks PLAINTEXT",
        ),
        ("sasl.adminUser=root", "sasl.adminUser and sasl.adminSecretName"),
        ("sasl.adminSecretName=root", "sasl.adminUser and sasl.adminSecretName"),
        (
            "sasl.usersSecretName=s,config.sasl.users_file=/f",
            "config.sasl.users_file: set sasl.usersSecretName instead",
        ),
        (
            "sasl.adminUser=a,sasl.adminSecretName=s,extraEnv[0].name=FLOE_SASL__ADMIN_PASSWORD,extraEnv[0].value=p",
            "it is in sasl.adminSecretName",
        ),
        (
            "extraVolumes[0].name=users,extraVolumes[0].emptyDir.medium=Memory",
            "the volume users is the chart's own",
        ),
    ],
)
def test_doors_that_cannot_be_are_refused(setting: str, complaint: str) -> None:
    refused("r", setting, complaint)
