"""Readers who have no key of the bucket: pyiceberg and Spark get keys with a table, which read that alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import ForbiddenError, NoSuchTableError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from agent.config.users import line_of
from deploy.services import Minio
from deploy.services.floe import FloeAgent
from deploy.services.s3 import S3Service

TABLE_SECONDS_MAX = 300
TOPICS = ("mine", "other")
ROWS = 20

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]


@dataclass(frozen=True, slots=True)
class Lake:
    """An agent whose tables `mine` and `other` are in a bucket; alice may read the topic `mine`."""

    agent: FloeAgent

    @property
    def uri(self) -> str:
        """The catalog's."""
        return f"{self.agent.http}/iceberg"

    def login(self, user: str) -> dict[str, str]:
        """Properties of a client of the catalog: nothing of the bucket."""
        return {
            "uri": self.uri,
            "credential": f"{user}:{user}'s",
            "oauth2-server-uri": f"{self.uri}/v1/oauth/tokens",
        }

    def catalog(self, user: str) -> RestCatalog:
        """pyiceberg's, which asks for keys by itself."""
        return RestCatalog("floe", **self.login(user))


def settings(folder: Path, minio: Minio, bucket: str) -> dict[str, Any]:
    users = folder / "users"
    users.write_text("\n".join(line_of(user, f"{user}'s", bytes(16)) for user in ("alice", "root")))
    return {
        "log": {"url": f"sqlite://{folder}/log"},
        "store": {
            "url": f"s3://{bucket}/floe",
            "endpoint": minio.endpoint,
            "access_key": minio.access_key,
            "secret_key": minio.secret_key,
            "allow_http": True,
        },
        "http": {"authentication": "required"},
        "authorizer": {"mode": "enforce", "super_users": "User:root;User:ANONYMOUS"},
        "catalog": {"token_secret": "0123456789abcdef" * 2, "vending_role_arn": "arn:aws:iam:::role/floe"},
        "sasl": {"users_file": str(users)},
        "tables": {"interval_ms": 200},
        "shutdown": {"drain_ms": 0},
    }


@pytest.fixture
def lake(
    minio: Minio, bucket: Callable[[S3Service], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lake]:
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with FloeAgent("a", settings(tmp_path, minio, bucket(minio)), tmp_path) as agent:
        found = Lake(agent)
        for topic in TOPICS:
            floe(agent, "topic", "create", topic, "--partitions", "1")
            floe(agent, "produce", topic, stdin="\n".join(f"{topic} {each}" for each in range(ROWS)))
        admin = AdminClient({"bootstrap.servers": agent.bootstrap})
        mine = (ResourceType.TOPIC, "mine", ResourcePatternType.LITERAL)
        allowed = AclBinding(*mine, "User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW)
        for each in admin.create_acls([allowed]).values():
            each.result(30)
        with found.catalog("root") as catalog:
            for name in TOPICS:
                wait_for(catalog, name)
        yield found


def floe(agent: FloeAgent, *words: str, stdin: str = "") -> None:
    line = [sys.executable, "-m", "agent", *words]
    where = {**os.environ, "FLOE_BOOTSTRAP": agent.bootstrap}
    subprocess.run(line, input=stdin, env=where, check=True, capture_output=True, text=True)


def wait_for(catalog: Catalog, name: str) -> None:
    until = time.monotonic() + TABLE_SECONDS_MAX
    while True:
        try:
            if catalog.load_table(f"floe.{name}").scan().to_arrow().num_rows == ROWS:
                return
        except NoSuchTableError:
            pass
        assert time.monotonic() < until, f"the table {name} does not get on"
        time.sleep(0.5)


def test_pyiceberg_reads_by_keys_that_read_one_table(lake: Lake) -> None:
    with lake.catalog("root") as catalog:
        other = catalog.load_table("floe.other").metadata_location
    catalog = lake.catalog("alice")
    with catalog:
        assert catalog.list_tables("floe") == [("floe", "mine")]
        with pytest.raises(NoSuchTableError):
            catalog.load_table("floe.other")
        mine = catalog.load_table("floe.mine")
        assert mine.scan().to_arrow().num_rows == ROWS
        with pytest.raises(ForbiddenError):
            mine.transaction().set_properties(a="b").commit_transaction()
        lent = catalog.load_credentials("floe.mine", mine.metadata_location)
        assert lent["s3.session-token"]
        with mine.io.new_input(mine.metadata_location).open() as stream:
            assert stream.read(1) == b"{"
        with pytest.raises(OSError, match=r"(?i)denied|403|forbidden"):
            mine.io.new_input(other).open().read()
        new = mine.io.new_output(f"{mine.location()}/data/of-alice")
        with pytest.raises(OSError, match=r"(?i)denied|403|forbidden"), new.create() as stream:
            stream.write(b"x")


def test_spark_reads_by_keys_that_it_gets_with_the_table(lake: Lake, spark: SparkSession) -> None:
    """With what docs/security.md says, and no key of its own."""
    given = {
        **lake.login("alice"),
        "type": "rest",
        "cache-enabled": "false",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "header.X-Iceberg-Access-Delegation": "vended-credentials",
    }
    spark.conf.set("spark.sql.catalog.lent", "org.apache.iceberg.spark.SparkCatalog")
    for name, value in given.items():
        spark.conf.set(f"spark.sql.catalog.lent.{name}", value)
    assert [each.tableName for each in spark.sql("SHOW TABLES IN lent.floe").collect()] == ["mine"]
    counted = spark.sql("SELECT count(*), count(DISTINCT kafka.offset) FROM lent.floe.mine").collect()
    assert tuple(counted[0]) == (ROWS, ROWS)
    assert spark.sql("SELECT * FROM lent.floe.mine.files").count() >= 1
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM lent.floe.other").collect()
    with pytest.raises(Exception, match="Alter on topic 'mine'"):  # whichever class pyspark gives it
        spark.sql("ALTER TABLE lent.floe.mine SET TBLPROPERTIES ('a' = 'b')")
