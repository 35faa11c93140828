"""Every source of settings, their precedence, and each way in which a configuration is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from agent.config import Config, ConfigError, embedded_values, in_force, load
from agent.dependencies import store_options
from coordination.clock import SystemClock

REQUIRED = {"FLOE_LOG__URL": "etcd://e1:2379,e2:2379/prod", "FLOE_STORE__URL": "s3://bucket/prod"}
ROLE = "arn:aws:iam::123456789012:role/floe"


def write(folder: Path, text: str) -> Path:
    """A configuration file with this text."""
    file = folder / "floe.yaml"
    file.write_text(text)
    return file


def refusal(flags: tuple[str, ...] = (), file: Path | None = None, **environment: str) -> str:
    """The one line with which a configuration is refused."""
    with pytest.raises(ConfigError) as caught:
        load(file, flags, environment={**REQUIRED, **environment})
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_defaults_need_only_the_two_urls() -> None:
    config = load(environment=REQUIRED).config
    assert config.log.url == "etcd://e1:2379,e2:2379/prod"
    assert config.limits.request_bytes_max == 104_857_600
    assert config.agent.node_id == -1
    assert config.warehouse == "s3://bucket/prod/tables"


def test_a_later_source_replaces_single_settings_of_an_earlier_one(tmp_path: Path) -> None:
    file = write(tmp_path, "produce: {linger_ms: 20, quiet_ms: 3, puts_in_flight_max: 5}\n")
    loaded = load(
        file,
        ["produce.puts_in_flight_max=7"],
        base={"produce": {"linger_ms": 10, "hedge_ms": 99}},
        environment={**REQUIRED, "FLOE_PRODUCE__QUIET_MS": "4"},
    )
    produce = loaded.config.produce
    assert (produce.hedge_ms, produce.linger_ms, produce.quiet_ms, produce.puts_in_flight_max) == (
        99,
        20,
        4,
        7,
    )
    assert loaded.config.produce.chunk_bytes_max == 8 * 1024 * 1024
    origins = {name: origin for name, _, origin in in_force(loaded)}
    assert origins["produce.hedge_ms"] == "floe dev"
    assert origins["produce.linger_ms"] == f"{file}:1"
    assert origins["produce.quiet_ms"] == "environment FLOE_PRODUCE__QUIET_MS"
    assert origins["produce.puts_in_flight_max"] == "--set"
    assert origins["produce.chunk_bytes_max"] == "default"


def test_listeners_come_from_every_source(tmp_path: Path) -> None:
    file = write(tmp_path, "listeners:\n  - {port: 9092}\n  - {name: OUTSIDE, port: 9093}\n")
    loaded = load(
        file,
        ["listeners.1.advertised_host=kafka.example"],
        environment={**REQUIRED, "FLOE_LISTENERS__0__PORT": "19092"},
    )
    first, second = loaded.config.listeners
    assert (first.port, second.name, second.port, second.advertised_host) == (
        19092,
        "OUTSIDE",
        9093,
        "kafka.example",
    )


def test_the_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    file = write(tmp_path, "cluster:\n  name: prod\n")
    assert load(environment={**REQUIRED, "FLOE_CONFIG": str(file)}).config.cluster.name == "prod"


def test_an_empty_file_and_empty_sections_say_nothing(tmp_path: Path) -> None:
    assert load(write(tmp_path, ""), environment=REQUIRED).config == load(environment=REQUIRED).config
    assert load(write(tmp_path, "produce:\nfetch: {}\n"), environment=REQUIRED).config.produce.linger_ms > 0


def test_the_embedded_configuration_is_local_and_complete(tmp_path: Path) -> None:
    config = Config.embedded(tmp_path, kafka_port=0, http_port=0)
    assert config.log.url == f"sqlite://{tmp_path}/log.sqlite"
    assert config.store.url == f"file://{tmp_path}/store"
    assert config.listeners[0].host == "127.0.0.1"
    loaded = load(base=embedded_values(tmp_path, kafka_port=0, http_port=0), environment={})
    assert loaded.config == config


def test_a_configuration_never_changes() -> None:
    config = load(environment=REQUIRED).config
    with pytest.raises(ValidationError):
        config.produce.linger_ms = 3  # type: ignore[misc]  # that is the point


def test_secrets_are_masked_wherever_settings_are_shown() -> None:
    loaded = load(
        flags=["store.access_key=AKIA-SECRET", "store.secret_key=hunter2hunter2"], environment=REQUIRED
    )
    shown = {name: value for name, value, _ in in_force(loaded)}
    assert shown["store.secret_key"] == shown["store.access_key"] == "********"
    assert shown["log.password"] == ""
    assert "hunter2" not in repr(loaded.config)
    assert loaded.config.store.secret_key.get_secret_value() == "hunter2hunter2"


def test_options_of_the_store_and_headers_of_catalogs_are_secrets(tmp_path: Path) -> None:
    """Keys of Azure and Google, and bearer tokens, have no other place."""
    tree: dict[str, Any] = {"store": {"options": {"azure_storage_account_key": "hunter2", "empty": ""}}}
    tree["catalogs"] = [
        {"name": "c", "type": "rest", "uri": "https://c", "headers": {"Authorization": "hunter2"}}
    ]
    loaded = load(base=tree, environment=REQUIRED)
    shown = {name: value for name, value, _ in in_force(loaded)}
    assert shown["store.options.azure_storage_account_key"] == "********"
    assert shown["store.options.empty"] == ""
    assert shown["catalogs.0.headers.Authorization"] == "********"
    assert "hunter2" not in repr(loaded.config)
    assert store_options(loaded.config, SystemClock()).extra["azure_storage_account_key"] == "hunter2"
    tree["store"]["options"] = {"azure_storage_account_key": 7142869073}
    with pytest.raises(ConfigError, match=r"azure_storage_account_key: .* \(given: \*{8}\)"):
        load(base=tree, environment=REQUIRED)


@pytest.mark.parametrize("scheme", ["https", "sftp"])
@pytest.mark.parametrize(
    "name",
    [
        *("log.url", "store.url", "store.endpoint", "store.role_sts_url", "oauth.jwks_url"),
        *("traces.endpoint", "catalogs.0.uri", "catalogs.0.oauth_uri", "tables.warehouse"),
    ],
)
def test_a_url_with_a_login_is_refused_and_not_quoted(name: str, scheme: str) -> None:
    base = {"catalogs": [{"name": "c", "type": "rest", "uri": "https://c"}]} if "catalogs" in name else {}
    with pytest.raises(ConfigError, match=name) as refused:
        load(base=base, flags=[f"{name}={scheme}://me:hunter2@host/path"], environment=REQUIRED)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("produce.linger", "produce.linger_ms"),
        ("produce.lingerms", "produce.linger_ms"),
        ("linger_ms", "produce.linger_ms"),
        ("producer.linger_ms", "produce.linger_ms"),
        ("listener.0.port", "listeners.0.port"),
        ("listeners.1.prot", "listeners.1.port"),
        ("store.regions", "store.region"),
        ("tabels.interval_ms", "tables.interval_ms"),
        ("limits.max_connections", "limits.connections_max"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(wrong: str, nearest: str) -> None:
    assert refusal((f"{wrong}=1",)) == f"--set: unknown setting {wrong}; did you mean {nearest}?"


def test_an_unknown_key_of_a_file_is_refused_with_its_line(tmp_path: Path) -> None:
    file = write(tmp_path, "cluster:\n  name: a\nproduce:\n  linger_ms: 3\n  lingr_ms: 3\n")
    assert (
        refusal(file=file) == f"{file}:5: unknown setting produce.lingr_ms; did you mean produce.linger_ms?"
    )


def test_an_unknown_key_of_the_environment_is_refused_with_its_variable() -> None:
    message = refusal(FLOE_STORE__REGOIN="x")
    assert (
        message == "environment FLOE_STORE__REGOIN: unknown setting store.regoin; did you mean store.region?"
    )


def test_a_variable_that_lacks_an_underscore_is_refused_but_kubernetes_own_are_not() -> None:
    assert refusal(FLOE_STORE_REGION="x").endswith("did you mean FLOE_STORE__REGION?")
    kubernetes = {
        "FLOE_SERVICE_HOST": "10.0.0.1",
        "FLOE_PORT": "tcp://10.0.0.1:80",
        "FLOE_HTTP_PORT": "tcp://10.0.0.1:80",
    }
    assert load(environment={**REQUIRED, **kubernetes}).config.http.port == 8080


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("produce: {linger_ms: 1\nfetch: x", 2, "not valid YAML"),
        ("produce:\n  linger_ms: [1\n", 3, "not valid YAML"),
        ("produce:\n\tlinger_ms: 1\n", 2, "not valid YAML"),
        ("- a\n- b\n", 1, "mapping of sections"),
        ("just text\n", 1, "mapping of sections"),
        ("produce:\n  linger_ms: 1\nproduce:\n  quiet_ms: 1\n", 3, "given twice"),
        ("produce: 7\n", 1, "group of settings"),
        ("produce:\n  linger_ms: soon\n", 2, "produce.linger_ms: input should be a valid integer"),
        ("produce:\n  linger_ms: -4\n", 2, "greater than or equal to 0 (given: -4)"),
        ("produce: !!python/object:os.system {}\n", 1, "not valid YAML"),
    ],
)
def test_a_broken_file_is_one_line_with_its_place(tmp_path: Path, text: str, line: int, part: str) -> None:
    file = write(tmp_path, text)
    message = refusal(file=file)
    assert message.startswith(f"{file}:{line}: ")
    assert part in message


def test_files_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    assert refusal(file=tmp_path / "absent.yaml").endswith("cannot be read: No such file or directory")
    assert refusal(file=tmp_path).endswith("cannot be read: Is a directory")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\x00\xff\xfe\x00")
    assert str(binary) in refusal(file=binary)
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (1024 * 1024 + 1))
    assert "larger than" in refusal(file=large)


@pytest.mark.parametrize("flag", ["produce.linger_ms", "=3", ""])
def test_a_malformed_flag_is_refused_with_the_form(flag: str) -> None:
    assert "write --set section.key=value" in refusal((flag,))


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (
            ["produce.chunk_bytes_max=999999999"],
            ["produce.chunk_bytes_max (999999999)", "produce.buffer_bytes_max"],
        ),
        (["produce.quiet_ms=50"], ["produce.quiet_ms (50)", "produce.linger_ms"]),
        (["limits.process_bytes_max=1024"], ["limits.request_bytes_max", "limits.process_bytes_max (1024)"]),
        (["replica.heartbeat_ms=60000"], ["replica.heartbeat_ms", "log.lease_ttl_s"]),
        (["log.url=sqlite:///x/y", "log.user=u", "log.password=p"], ["log.user", "not etcd"]),
        (["log.tls_ca_file=/ca.pem"], ["log.tls_ca_file", "log.tls=true"]),
        (["log.tls=true"], ["log.tls needs log.tls_ca_file"]),
        (
            ["log.tls=true", "log.tls_ca_file=/a", "log.tls_cert_file=/c"],
            ["tls_cert_file and log.tls_key_file"],
        ),
        (["log.user=u"], ["log.user and log.password"]),
        (["store.access_key=a"], ["store.access_key and store.secret_key"]),
        (["store.endpoint=http://m:9000"], ["store.allow_http=true"]),
        (["store.endpoint=m:9000"], ["http:// or https://"]),
        (["store.url=file:///x", "store.endpoint=https://m:9000"], ["store.endpoint", "local"]),
        (["store.url=file:///x", f"store.role_arn={ROLE}"], ["store.role_arn", "not s3:"]),
        (["store.role_sts_url=https://sts:1"], ["store.role_sts_url is set without store.role_arn"]),
        ([f"store.role_arn={ROLE}", "store.role_sts_url=http://sts:1"], ["https://", "store.allow_http"]),
        (["store.url=memory:"], ["memory:", "cannot be shared"]),
        (["log.url=memory:", "store.url=memory:"], ["tables.enabled=false"]),
        (["tables.warehouse=s3://bucket/prod2/t"], ["tables.warehouse", "below store.url"]),
        (["listeners.0.port=1", "listeners.1.port=2"], ["'PLAINTEXT' is used twice"]),
        (["listeners.0.port=1", "listeners.1.port=1", "listeners.1.name=B"], ["bound twice"]),
        (["listeners.0.port=8080"], ["0.0.0.0:8080 is also http.port"]),
        (["listeners.1.port=8080"], ["numbered from 0"]),
        (["shutdown.drain_ms=9000", "shutdown.timeout_ms=1000"], ["shutdown.drain_ms"]),
        (["log.url=zookeeper:2181"], ["etcd:, sqlite:, memory:"]),
        (["log.url=etcd://h:2379"], ["names no prefix"]),
        (["log.url=etcd://u:p@h:2379/x"], ["must not hold a user or password"]),
        (["log.url=etcd://h:2379,i:70000/x"], ["log.url 'etcd://i:70000'", "port is none from 1 to 65535"]),
        (["log.url=etcd://h:²/x"], ["log.url 'etcd://h:²'", "port is none"]),
        (["log.url=etcd://[::1/x"], ["log.url 'etcd://[::1/x'", "brackets do not match"]),
        (["store.endpoint=https://m:70000"], ["store.endpoint 'https://m:70000'", "port is none"]),
        (["oauth.jwks_url=https://[::1/"], ["oauth.jwks_url 'https://[::1/'", "brackets do not match"]),
        (["traces.endpoint=http://h:²/v1"], ["traces.endpoint 'http://h:²/v1'", "port is none"]),
        ([f"agent.processes={'9' * 5_000}"], ["agent.processes"]),
        ([f"agent.memory_bytes_max={'9' * 5_000}"], ["agent.memory_bytes_max"]),
        (["log.url=sqlite://relative"], ["absolute path"]),
        (["store.url=s3:///x"], ["names no bucket"]),
        (["listeners.0.tls_cert_file=/c"], ["listeners.0.tls_cert_file", "listeners.0.protocol=SSL"]),
        (["listeners.0.protocol=SSL"], ["listeners.0.protocol SSL needs listeners.0.tls_cert_file"]),
        (
            [
                "listeners.0.protocol=SSL",
                "listeners.0.tls_cert_file=/c",
                "listeners.0.tls_key_file=/k",
                "listeners.0.tls_client_auth=required",
            ],
            ["listeners.0.tls_client_auth required needs listeners.0.tls_ca_file"],
        ),
        (["listeners.0.tls_client_auth=required"], ["listeners.0.tls_client_auth", "has no TLS"]),
        (["relay.enabled=true"], ["relay.enabled", "peers.secret"]),
        (["relay.enabled=true", "peers.enabled=false"], ["relay.enabled", "peers.enabled=true"]),
        (["sasl.admin_user=a"], ["sasl.admin_user and sasl.admin_password"]),
        (
            ["listeners.0.protocol=SASL_PLAINTEXT", "listeners.0.sasl_mechanisms=PLAIN"],
            ["listeners.0.sasl_mechanisms", "sasl.users_file or sasl.admin_user"],
        ),
    ],
)
def test_contradictions_name_both_settings_and_the_place(flags: list[str], parts: list[str]) -> None:
    message = refusal(tuple(flags))
    assert all(part in message for part in parts), message
    assert "--set" in message


@pytest.mark.parametrize(("missing", "remedy"), [("LOG", "etcd://host:2379"), ("STORE", "s3://bucket")])
def test_a_missing_url_is_named_with_an_example(missing: str, remedy: str) -> None:
    environment: Mapping[str, str] = {k: v for k, v in REQUIRED.items() if missing not in k}
    with pytest.raises(ConfigError, match=f"{missing.lower()}.url is not set: .*{remedy}"):
        load(environment=environment)


def test_a_secret_that_is_refused_is_not_shown() -> None:
    assert "hunter2" not in refusal(("store.access_key=hunter2",))


def test_what_is_advertised_may_hold_placeholders(tmp_path: Path) -> None:
    """All pods of a set share one file; each advertises itself, per listener."""
    file = write(
        tmp_path,
        """
agent: {zone: eu-1a}
listeners:
  - {name: INTERNAL, port: 9092, advertised_host: "{ip}"}
  - {name: EXTERNAL, port: 9094, advertised_host: "{pod}.{zone}.example", advertised_port: "{ordinal+31000}"}
  - {name: NODES, port: 9095, advertised_host: "{node}", advertised_port: "{env:NODE_PORT}"}
http: {advertised_host: "{pod}.http"}
""",
    )
    pod = {"POD_NAME": "floe-2", "POD_IP": "10.0.0.7", "NODE_NAME": "n1", "NODE_PORT": "30500"}
    config = load(file, environment={**REQUIRED, **pod}).config
    told = [(each.name, each.advertised_host, each.advertised_port) for each in config.listeners]
    assert told == [
        ("INTERNAL", "10.0.0.7", 0),
        ("EXTERNAL", "floe-2.eu-1a.example", 31002),
        ("NODES", "n1", 30500),
    ]
    assert config.http.advertised_host == "floe-2.http"
    named = load(file, ["agent.name=a-7"], environment={**REQUIRED, **pod, "POD_NAME": ""}).config
    assert named.listeners[1].advertised_host == "a-7.eu-1a.example"
    only = ["listeners.2.advertised_port=7"]
    elsewhere = load(file, only, environment={**REQUIRED, "POD_NAME": "a-job"}, advertises=False).config
    told = [(each.name, each.advertised_host, each.advertised_port) for each in elsewhere.listeners]
    assert told == [("INTERNAL", "", 0), ("EXTERNAL", "", 0), ("NODES", "", 7)], "who is no agent needs none"


@pytest.mark.parametrize(
    ("given", "environment", "complaint"),
    [
        ("advertised_host={podd}", {}, "{podd} is not known; placeholders are {pod}"),
        ("advertised_host={pod", {"POD_NAME": "a"}, "a brace without its partner"),
        ("advertised_host={ordinal}", {"POD_NAME": "floe-abc"}, "'floe-abc' does not end in -<number>"),
        ("advertised_host={zone}", {}, "{zone} has no value: set agent.zone"),
        ("advertised_host={ip}", {}, "{ip} has no value: set the variable POD_IP"),
        ("advertised_host={env:X}", {}, "{env:X} has no value: set the variable X"),
        ("advertised_port={ordinal+70000}", {"POD_NAME": "a-1"}, "listeners.0.advertised_port"),
    ],
)
def test_a_placeholder_without_a_value_is_refused(
    given: str, environment: dict[str, str], complaint: str
) -> None:
    said = refusal((f"listeners.0.{given}",), **environment)
    assert complaint in said
    assert "listeners.0.advertised" in said


@pytest.mark.parametrize("roles", ["barista", "produce,", "produce fetch", ""])
def test_roles_that_do_not_exist_are_refused(roles: str) -> None:
    assert "agent.roles" in refusal((f"agent.roles={roles}",))


def test_roles() -> None:
    assert load(environment=REQUIRED).config.roles == ()
    some = load(None, ["agent.roles=fetch,produce,fetch"], environment=REQUIRED).config
    assert some.roles == ("fetch", "produce")
