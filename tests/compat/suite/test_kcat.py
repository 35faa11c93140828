"""kcat with the librdkafka that Debian ships: an older one than confluent-kafka brings."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer

from deploy.setup.kcat import kcat_command
from tests.compat.suite.broker import Broker
from tests.compat.suite.clients import KCAT
from tests.compat.suite.conftest import Saw
from tests.compat.suite.rdkafka import consumer, owned

pytestmark = pytest.mark.client(KCAT)

WAIT_S_MAX = 60
OWNED_S_MAX = 120
RECORD = "%p %o %k %s %h\\n"


def kcat(broker: Broker, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """kcat run to its end; its exit status is the caller's to judge."""
    command = [*kcat_command(), "-b", broker.bootstrap, *arguments]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, check=False, timeout=WAIT_S_MAX
    )


def ok(broker: Broker, *arguments: str, stdin: str = "") -> str:
    """What kcat prints; it must succeed."""
    done = kcat(broker, *arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def produce(broker: Broker, topic: str, values: Sequence[str], *arguments: str) -> None:
    """Keyed lines into the topic."""
    lines = "".join(f"{value}:{value}\n" for value in values)
    ok(broker, "-P", "-t", topic, "-K:", *arguments, stdin=lines)


def test_metadata(broker: Broker, saw: Saw) -> None:
    """-L lists brokers, topics, partitions and leaders; an unknown topic has its error."""
    topic = broker.topic(partitions=3)
    found = json.loads(ok(broker, "-L", "-J", "-t", topic))
    brokers = {each["id"] for each in found["brokers"]}
    assert found["controllerid"] in brokers
    assert sorted(each["name"] for each in found["brokers"]) == sorted(broker.bootstrap.split(","))
    (described,) = found["topics"]
    assert {each["leader"] for each in described["partitions"]} <= brokers
    saw("partitions", [each["partition"] for each in described["partitions"]])
    assert f'topic "{topic}" with 3 partitions:' in ok(broker, "-L")
    said = ok(broker, "-L", "-J", "-t", broker.fresh("missing"), "-X", "allow.auto.create.topics=false")
    saw("unknown", [each.get("error") for each in json.loads(said)["topics"]])


@pytest.mark.parametrize(
    "codec",
    [
        "none",
        "zstd",
        *(pytest.param(name, marks=pytest.mark.compat_only) for name in ("gzip", "snappy", "lz4")),
    ],
)
def test_produce_and_consume(codec: str, broker: Broker, saw: Saw) -> None:
    """-P writes keys, headers and nulls in every codec, idempotently; -C reads them from several offsets."""
    topic = broker.topic()
    idempotent = ("-X", "enable.idempotence=true", "-z", codec)
    produce(broker, topic, [f"v{index}" for index in range(5)], "-p", "0", "-H", "a=1", *idempotent)
    ok(broker, "-P", "-t", topic, "-K:", "-Z", "-p", "0", *idempotent, stdin="gone:\n")
    every = ("-C", "-t", topic, "-p", "0", "-e", "-q", "-X", "check.crcs=true", "-f", RECORD)
    saw("everything", ok(broker, *every, "-o", "beginning"))
    saw("from 3", ok(broker, *every, "-o", "3"))
    saw("the last two", ok(broker, *every, "-o", "-2"))
    saw("one", ok(broker, *every, "-o", "1", "-c", "1"))
    whole = [json.loads(line) for line in ok(broker, "-C", "-t", topic, "-e", "-q", "-J").splitlines()]
    saw("as JSON", [(each["offset"], each["key"], each["payload"], each.get("headers")) for each in whole])


def test_a_group_reads_every_record_once(broker: Broker) -> None:
    """-G joins a group, commits, and a second run goes on where the first one ended."""
    topic, group = broker.topic(partitions=4), broker.fresh("group")
    produce(broker, topic, [f"early-{index}" for index in range(40)])
    joined = ("-G", group, "-e", "-q", "-f", "%s\\n", "-X", "auto.offset.reset=earliest", topic)
    assert sorted(ok(broker, *joined).split()) == sorted(f"early-{index}" for index in range(40))
    produce(broker, topic, [f"late-{index}" for index in range(10)])
    assert sorted(ok(broker, *joined).split()) == sorted(f"late-{index}" for index in range(10))
    assert ok(broker, *joined) == ""


MEMBER = ("-X", "session.timeout.ms=6000", "-X", "auto.offset.reset=earliest", "-f", "%p %s\\n", "-u", "-q")


@contextmanager
def members(broker: Broker, group: str, topic: str, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """So many members, each a process that prints what it reads; killed at the end."""
    command = [*kcat_command(), "-b", broker.bootstrap, "-G", group, *MEMBER, topic]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        yield running
    finally:
        for member in running:
            member.kill()
            member.wait(WAIT_S_MAX)
            assert member.stdout is not None
            member.stdout.close()


def read_until(member: subprocess.Popen[str], wanted: set[str]) -> None:
    """Wait until it has printed all of these."""
    assert member.stdout is not None
    found: set[str] = set()
    while not wanted <= found:
        line = member.stdout.readline()
        assert line, "it ended"
        found.add(line.strip())


def one_each(broker: Broker, topic: str, value: str, partitions: int) -> set[str]:
    """A record into each partition; what members print of them."""
    for part in range(partitions):
        produce(broker, topic, [f"{value}-{part}"], "-p", str(part))
    return {f"{part} {value}-{part}" for part in range(partitions)}


def test_a_killed_member_hands_over(broker: Broker) -> None:
    """-G: when a member dies without a word the other one gets its partitions after the session timeout."""
    topic, group = broker.topic(partitions=4), broker.fresh("group")
    with members(broker, group, topic, 2) as (first, second):
        one_each(broker, topic, "before", 4)
        first.kill()
        read_until(second, one_each(broker, topic, "after", 4))


def test_members_that_die_with_the_brokers(broker: Broker) -> None:
    """-G: brokers restart and two of three members never come back: the third one gets all partitions."""
    topic, group = broker.topic(partitions=6), broker.fresh("group")
    third = consumer(broker.bootstrap, group_id=group, session_timeout_ms=6000)
    with members(broker, group, topic, 2) as dying, third as survivor:
        survivor.subscribe([topic])
        poll_until_owned(survivor, 2)
        for member in dying:
            member.kill()
        broker.restart()
        poll_until_owned(survivor, 6)


def poll_until_owned(member: Consumer, count: int) -> None:
    """Poll until it has so many partitions; errors on the way are not the application's."""
    end = time.monotonic() + OWNED_S_MAX
    while len(owned(member)) != count:
        assert time.monotonic() < end, owned(member)
        message = member.poll(0.1)
        assert message is None or message.error() is None, message.error()


def test_offsets_by_time(broker: Broker, saw: Saw) -> None:
    """-Q asks for the earliest, the latest and the first offset at a time."""
    topic = broker.topic()
    produce(broker, topic, ["a", "b"])
    for at in ("-1", "-2", "1", "4102444800000"):
        saw(f"at {at}", ok(broker, "-Q", "-t", f"{topic}:0:{at}"))


def test_what_kcat_refuses(broker: Broker, saw: Saw) -> None:
    """A topic or partition that is not there is told as with Apache Kafka."""
    known, missing = broker.topic("known"), broker.fresh("missing")
    for name, arguments in {
        "unknown topic": ("-C", "-t", missing, "-e", "-X", "allow.auto.create.topics=false"),
        "unknown partition": ("-C", "-t", known, "-p", "7", "-e"),
        "unknown partition written": ("-P", "-t", known, "-p", "7"),
    }.items():
        done = kcat(broker, *arguments, stdin="x\n")
        saw(name, (done.returncode, done.stderr.splitlines()[-1:]))
