"""`floe` with records of a topic deleted as comparisons of an audit begin: `… BOOTSTRAP TOPIC ROUNDS WORDS`.

Ten records go before each of so many comparisons, when the audit has looked where the topic begins.
"""

from __future__ import annotations

import sys

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

import iceberg.spark.audit
from agent.cli import main
from iceberg.spark.audit import audit
from iceberg.spark.given import AuditInput
from iceberg.spark.verdict import Verdict

STEP = 10
WAIT_S_MAX = 60.0


def run() -> None:
    """The command that the words say, and a line about comparisons."""
    bootstrap, topic, rounds, *words = sys.argv[1:]
    compared = 0

    def while_leaving(spark: SparkSession, given: AuditInput) -> Verdict:
        nonlocal compared
        compared += 1
        if compared <= int(rounds):
            until = TopicPartition(topic, 0, STEP * compared)
            admin = AdminClient({"bootstrap.servers": bootstrap})
            admin.delete_records([until])[until].result(WAIT_S_MAX)
        return audit(spark, given)

    iceberg.spark.audit.audit = while_leaving
    try:
        main(words)
    finally:
        print(f"compared {compared} times", file=sys.stderr)


if __name__ == "__main__":
    run()
