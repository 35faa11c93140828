"""The commands against a real `floe dev`: what a newcomer does in the first ten minutes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.cli.conftest import Dev, floe, inside

ORDER = """syntax = "proto3";
package shop.v1;
import "common/money.proto";
message Order { int64 id = 1; common.Money total = 2; repeated string tags = 3; }
"""
MONEY = 'syntax = "proto3"; package common; message Money { string currency = 1; int64 units = 2; }'
KEY = 'syntax = "proto3"; package shop.v1; message OrderKey { int64 id = 1; }'


@pytest.fixture(scope="session")
def protos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of .proto files that import each other."""
    root = tmp_path_factory.mktemp("protos")
    for name, text in {"shop/order.proto": ORDER, "common/money.proto": MONEY, "shop/key.proto": KEY}.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    return root


def records(out: str) -> list[dict[str, object]]:
    """The lines of `floe consume`."""
    return [json.loads(line) for line in out.splitlines()]


def test_records_go_in_and_come_out_as_json(dev: Dev, protos: Path) -> None:
    created = dev.run(
        *("topic", "create", "orders", "--partitions", "3", "--config", "retention.ms=600000"),
        *("--proto", str(protos / "shop/order.proto"), "--message", "shop.v1.Order"),
        *("--key-proto", str(protos / "shop/key.proto"), "--key-message", "shop.v1.OrderKey"),
        *("--proto-path", str(protos), "--framing", "confluent"),
    )
    assert (created.status, created.out.splitlines()[0]) == (0, "created topic orders with 3 partitions")
    assert "bound the values of orders to shop.v1.Order, schema id" in created.out

    given = [
        {"id": str(n), "total": {"currency": "EUR", "units": str(n)}, "tags": ["ü"]} for n in range(1, 5)
    ]
    lines = "".join(f'{{"id": {order["id"]}}}\t{json.dumps(order)}\n' for order in given)
    produced = dev.run("produce", "orders", "--key-separator", "\t", "-H", "trace=abc", stdin=lines)
    assert (produced.status, produced.out) == (0, "")
    assert "4 records written to orders" in produced.err

    consumed = dev.run("consume", "orders")
    got = sorted(records(consumed.out), key=lambda record: str(record["key"]))
    assert [record["value"] for record in got] == given
    assert [record["key"] for record in got] == [{"id": order["id"]} for order in given]
    assert got[0]["headers"] == [["trace", "abc"]]
    assert consumed.err == "4 records\n"

    described = json.loads(dev.run("topic", "describe", "orders", "--output", "json").out)
    assert sum(partition["end"] for partition in described["partitions"]) == 4
    assert described["configs"] == {"retention.ms": "600000"}
    bound = {schema["role"]: (schema["message"], schema["framing"]) for schema in described["schemas"]}
    assert bound == {"value": ("shop.v1.Order", "confluent"), "key": ("shop.v1.OrderKey", "confluent")}


def test_records_that_do_not_fit_are_refused_by_number_field_and_reason(dev: Dev, protos: Path) -> None:
    assert dev.run("topic", "create", "strict").status == 0
    bound = dev.run(
        *("topic", "bind", "strict", "--proto", str(protos / "shop/order.proto")),
        *("--proto-path", str(protos), "--message", "shop.v1.Order"),
    )
    assert bound.status == 0
    status, line = dev.fails("produce", "strict", "-v", '{"id": 1}', "-v", '{"idd": 2}')
    assert (status, "record 2" in line, "idd" in line) == (1, True, True)
    # Without the agent's HTTP side the command knows no binding and sends text: now the agent refuses.
    raw = dev.run(
        "produce", "strict", "-v", "", "-v", "not protobuf", "--http", "http://127.0.0.1:1", status=5
    )
    assert raw.status == 5
    assert "INVALID_RECORD: record 2: value:" in raw.err
    assert records(dev.run("consume", "strict").out) == []
    unbound = dev.run("topic", "bind", "strict", "--unbind", "value")
    assert (unbound.status, unbound.out) == (0, "unbound the values of strict\n")
    assert dev.run("produce", "strict", "-v", "not protobuf").status == 0


def test_a_topic_follows_a_subject(dev: Dev, protos: Path) -> None:
    assert dev.run("topic", "create", "followed").status == 0
    path = ("--proto-path", str(protos))
    assert (
        dev.run("schema", "register", "followed-value", str(protos / "shop/order.proto"), *path).status == 0
    )
    bound = dev.run("topic", "bind", "followed", "--subject", "followed-value", "--message", "shop.v1.Order")
    assert (bound.status, bound.out.splitlines()[0].rpartition(",")[0]) == (
        0,
        "bound the values of followed to all versions of subject followed-value, shop.v1.Order only",
    )
    raw = dev.run("produce", "followed", "-v", "text", status=5)
    assert "INVALID_RECORD: record 1: value: has no Confluent frame" in raw.err
    staying = ("--subject", "followed-value", "--version", "1", "--key-subject", "k")
    assert dev.run("topic", "bind", "followed", *staying).status == 0
    described = dev.run("topic", "describe", "followed").out
    assert "value: version 1 of subject followed-value (schema id" in described
    assert "key: all versions of subject k (schema id" in described
    assert dev.fails("topic", "bind", "followed", "--subject", "x", "--version", "7")[0] == 5
    assert dev.fails("topic", "bind", "followed", "--version", "7")[0] == 2
    assert dev.run("topic", "bind", "followed", "--unbind", "value").status == 0
    config = dev.run("topic", "config", "followed", "--set", "confluent.value.schema.validation=true")
    assert config.status == 0
    status, line = dev.fails("topic", "bind", "followed", "--unbind", "value")
    assert (status > 0, "set it to false first" in line) == (True, True)
    assert "value: all versions of subject followed-value" in dev.run("topic", "describe", "followed").out


def test_plain_topics_are_made_on_demand_and_read_in_parts(dev: Dev) -> None:
    assert dev.run("produce", "plain", stdin="".join(f"line {n}\n" for n in range(10))).status == 0
    assert [r["value"] for r in records(dev.run("consume", "plain").out)] == [f"line {n}" for n in range(10)]
    assert [r["offset"] for r in records(dev.run("consume", "plain", "--offset", "7").out)] == [7, 8, 9]
    assert len(records(dev.run("consume", "plain", "-n", "4").out)) == 4
    assert records(dev.run("consume", "plain", "--latest").out) == []
    assert records(dev.run("consume", "plain", "--partition", "0", "-n", "1").out)[0]["key"] is None
    assert dev.fails("consume", "plain", "--partition", "9") == (
        5,
        "floe: topic 'plain' has the partitions 0 to 0",
    )


def test_long_lines_are_written_by_as_many_requests_as_it_takes(dev: Dev) -> None:
    """A batch is a MiB at most, of however many lines."""
    lines = [f"{number:04}".ljust(length, ".") for number, length in enumerate([2_000] * 800 + [900_000, 1])]
    ran = dev.run("produce", "long", stdin="".join(f"{line}\n" for line in lines))
    assert ran.err == "802 records written to long: partition 0 at 0…801\n"
    assert [record["value"] for record in records(dev.run("consume", "long").out)] == lines
    status, line = dev.fails("produce", "long", "-v", "." * 2_000_000)
    assert (status, "1 record not written: MESSAGE_TOO_LARGE" in line) == (5, True), line


def test_topics_are_listed_configured_grown_and_deleted(dev: Dev) -> None:
    assert dev.run("topic", "create", "doomed").status == 0
    names = {
        row["topic"]: row["partitions"]
        for row in json.loads(dev.run("topic", "list", "--output", "json").out)
    }
    assert names["doomed"] == 1
    changed = dev.run(
        "topic", "config", "doomed", "--set", "retention.ms=5", "--partitions", "4", "--output", "json"
    )
    configs = {row["name"]: (row["value"], row["source"]) for row in json.loads(changed.out)}
    assert configs["retention.ms"] == ("5", "set")
    unset = json.loads(
        dev.run("topic", "config", "doomed", "--unset", "retention.ms", "--output", "json").out
    )
    assert {row["name"]: row["source"] for row in unset}["retention.ms"] == "default"
    assert len(json.loads(dev.run("topic", "describe", "doomed", "--output", "json").out)["partitions"]) == 4
    assert dev.run("topic", "delete", "doomed").out == "deleted doomed\n"
    assert "doomed" not in dev.run("topic", "list").out


def test_damage_is_shown_and_passed_over_when_somebody_says_so(dev: Dev) -> None:
    """From the first reader's error to the consumer that goes on behind it."""
    dev.run("topic", "create", "hurt", "--partitions", "2")
    for number in range(3):
        dev.run("produce", "hurt", "--partition", "1", "-v", f"hurt-{number}")
    command = ("topic", "skip-damaged", "hurt", "--partition", "1", "--by", "me")
    assert dev.run(*command).out == "nothing of hurt-1 is damaged\n"
    (path,) = [each for each in dev.data_dir.rglob("*.chunk") if b"hurt-1" in each.read_bytes()]
    path.write_bytes(path.read_bytes().replace(b"hurt-1", b"hurt-x"))
    shown = dev.run(*command)
    columns = [line.split()[:4] for line in shown.out.splitlines()]
    assert columns == [["from", "to", "passed", "over"], ["1", "2", "no", path_key(path)]]
    assert "--partition 1 --yes" in shown.err
    told = json.loads(dev.run(*command, "--output", "json").out)
    assert ([d["skipped"] for d in told["damaged"]], told["skipped"]) == ([False], [])
    done = dev.run(*command, "--yes")
    assert "1 offsets of hurt-1 are passed over from now on" in done.err
    told = json.loads(dev.run(*command, "--output", "json").out)
    (row,) = told["skipped"]
    assert (row["from_offset"], row["to_offset"], row["by"]) == (1, 2, "me")
    assert [d["skipped"] for d in told["damaged"]] == [True]
    assert dev.fails("topic", "skip-damaged", "hurt", "--partition", "2")[0] == 5
    assert dev.fails("topic", "skip-damaged", "absent", "--partition", "0")[0] == 5


def test_the_bucket_is_scrubbed_on_somebodys_word(dev: Dev) -> None:
    """Two chunks that hold each other's bytes are found, told of, and put back."""
    dev.run("topic", "create", "worn")
    for number in range(2):
        dev.run("produce", "worn", "-v", f"worn-{number}")
    others = scrub(dev)  # that tests before have damaged
    chunks = dev.data_dir.rglob("*.chunk")
    first, second = sorted(each for each in chunks if b"worn-" in each.read_bytes())
    before = [first.read_bytes(), second.read_bytes()]
    first.write_bytes(before[1])
    second.write_bytes(before[0])
    told = scrub(dev)
    more = [told[each] - others[each] for each in ("found", "repairable", "repaired")]
    assert (told["done"], more) == (True, [2, 2, 0])
    assert first.read_bytes() == before[1], "without --repair nothing is changed"
    told = scrub(dev, "--repair", "--bytes-per-s", "100000000")
    assert told["repaired"] == others["repairable"] + 1, "with the first the second is whole, too"
    assert [first.read_bytes(), second.read_bytes()] == before
    table = next(each for each in dev.data_dir.rglob("*.metadata.json"))
    content = table.read_bytes()
    table.unlink()
    lost = dev.run("bucket", "scrub", "--repair", status=1)
    assert path_key(table).rsplit("/", 1)[-1] in lost.out.replace("\n", "")
    table.write_bytes(content)
    assert scrub(dev)["found"] == others["found"] - others["repairable"]


def scrub(dev: Dev, *more: str) -> dict[str, Any]:
    """What a run of everything found, well or not."""
    asked = ("bucket", "scrub", "--output", "json", *more)
    told: dict[str, Any] = json.loads(inside(*asked, FLOE_BOOTSTRAP=dev.bootstrap, FLOE_HTTP=dev.http).out)
    return told


def path_key(path: Path) -> str:
    """The object's key in the bucket."""
    return "/".join(path.parts[-3:])


def test_configs_of_the_cluster_are_shown_set_and_unset(dev: Dev) -> None:
    before = json.loads(dev.run("cluster", "config", "get", "message.max.bytes", "--output", "json").out)
    assert [(row["name"], row["source"]) for row in before] == [("message.max.bytes", "default")]
    done = dev.run("cluster", "config", "set", "message.max.bytes=77777", "log.retention.ms=88888")
    assert (done.status, done.out.split()) == (
        0, ["config", "value", "log.retention.ms", "88888", "message.max.bytes", "77777"],
    )  # fmt: skip
    shown = dev.run("cluster", "config", "get").out
    assert {line.split()[0]: line.split()[-1] for line in shown.splitlines()}["message.max.bytes"] == "set"
    assert dev.run("cluster", "config", "unset", "message.max.bytes", "log.retention.ms").status == 0
    assert (
        json.loads(dev.run("cluster", "config", "get", "message.max.bytes", "--output", "json").out) == before
    )
    refused = dev.run("cluster", "config", "set", "message.max.bytes=many", status=5)
    assert (refused.status, refused.out) == (5, "")
    assert "message.max.bytes" in refused.err
    dev.run("cluster", "config", "set", "nonsense", status=2)
    dev.run("cluster", "config", "get", "no.such", status=2)


def test_status_says_that_all_is_well(dev: Dev) -> None:
    shown = dev.run("status")
    assert (shown.status, shown.out.splitlines()[0]) == (0, "ready")
    status = json.loads(dev.run("status", "--output", "json").out)
    assert status["brokers"][0]["listeners"][0] == f"PLAINTEXT://{dev.bootstrap}"
    assert dev.run("table", "list").status == 0


@pytest.mark.parametrize(
    ("arguments", "status", "part"),
    [
        (("topic", "create", "a b"), 5, "INVALID_TOPIC_EXCEPTION: Topic name is invalid: 'a b'"),
        (("topic", "create", "x", "--config", "nope=1"), 5, "Unknown topic config name: nope"),
        (("topic", "create", "x", "--partitions", "0"), 5, "INVALID_PARTITIONS"),
        (("topic", "create", "x", "--config", "nope"), 2, "'nope' is not NAME=VALUE"),
        (
            ("topic", "create", "x", "--proto", "absent.proto", "--message", "a.B"),
            2,
            "absent.proto: no such file",
        ),
        (("topic", "create", "x", "--message", "a.B"), 2, "--proto and --message go together"),
        (("topic", "create", "x", "--framing", "avro"), 2, "any, plain, confluent"),
        (("topic", "describe", "absent"), 5, "topic 'absent' does not exist"),
        (("topic", "delete", "absent"), 5, "UNKNOWN_TOPIC_OR_PARTITION"),
        (("topic", "bind", "absent", "--unbind", "value"), 5, "floe topic create"),
        (("topic", "bind", "x"), 2, "nothing to bind"),
        (("consume", "absent"), 5, "topic 'absent' does not exist"),
        (("consume", "x", "--latest", "--offset", "3"), 2, "contradict"),
        (("produce", "empty-input"), 5, "nothing to write"),
        (("produce", "no-separator", "--key-separator", ":"), 2, "record 1 has no ':'"),
        (("produce", "one-partition", "--partition", "5", "-v", "x"), 5, "has the partitions 0 to 0"),
    ],
)
def test_what_is_refused_is_one_line_and_a_status(
    dev: Dev, arguments: tuple[str, ...], status: int, part: str
) -> None:
    stdin = "no key\n" if "no-separator" in arguments else ""
    got, line = dev.fails(*arguments, stdin=stdin)
    assert (got, part in line) == (status, True), line


@pytest.mark.parametrize(
    ("text", "message", "part"),
    [
        ('syntax = "proto3";\nmessage Order { int64 id = ; }\n', "Order", "broken.proto:2:"),
        (
            'syntax = "proto3"; import "gone.proto"; message Order {}',
            "Order",
            'import "gone.proto" is in none of',
        ),
        ('syntax = "proto3"; package shop; message Order {}', "shop.Ordr", "shop.Order"),
        ("\x00\x01", "Order", "broken.proto"),
    ],
)
def test_a_broken_proto_is_told_before_anything_is_created(
    dev: Dev, tmp_path: Path, text: str, message: str, part: str
) -> None:
    file = tmp_path / "broken.proto"
    file.write_text(text)
    status, line = dev.fails("topic", "create", "broken", "--proto", str(file), "--message", message)
    assert (status in (1, 2), part in line) == (True, True), line
    assert "broken" not in dev.run("topic", "list").out


def test_a_whole_process_does_the_same(dev: Dev) -> None:
    environment = {"FLOE_BOOTSTRAP": dev.bootstrap, "FLOE_HTTP": dev.http}
    written = floe("produce", "process", "-v", "a", "-v", "b", **environment)
    assert (written.status, written.out) == (0, "")
    read = floe("consume", "process", **environment)
    assert (read.status, [record["value"] for record in records(read.out)]) == (0, ["a", "b"])
    refused = floe("topic", "describe", "absent", **environment)
    expected = "floe: topic 'absent' does not exist; `floe topic list` shows what does\n"
    assert (refused.status, refused.out, refused.err) == (5, "", expected)
