"""Cycles by Spark (see cycles.py): by regions of a history, each small enough for one worker.

An edge is *backward* when its operation completed after the one that it leads to. Whatever goes round comes
back again, so a cycle lies where backward edges overlap without a gap: a *region*. Regions are found by one
window; edges outside of them are on no cycle, and in each a worker looks for strongly connected parts.
"""

from __future__ import annotations

from itertools import pairwise

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tests.checker.cycles import Graph, components, shortest

GRAPH = ["run", "graph"]


def cycles(edges: DataFrame) -> list[tuple[str, str, str]]:
    """(run, anomaly, weight) of each strongly connected part. `edges`: run, a, b, why ("ww" or "wr")."""
    both = edges.groupBy("run", "a", "b").agg(F.max("why").alias("why"))
    every = edges.select("run", F.col("why").alias("graph"), "a", "b", "why").union(
        both.select("run", F.lit("both").alias("graph"), "a", "b", "why")
    )
    found = F.udf(lambda graph, rows: named(graph, [tuple(row) for row in rows]), "array<string>")
    by_region = inside(every.cache()).groupBy(*GRAPH, "region")
    rows = by_region.agg(F.collect_list(F.struct("a", "b", "why")).alias("edges"))
    anomalies = rows.select("run", F.explode(found("graph", "edges")).alias("anomaly"))
    return [(run, *anomaly.split(" ", 1)) for run, anomaly in anomalies.collect()]


def regions(edges: DataFrame) -> DataFrame:
    """run, graph, region, start, end: where cycles may be."""
    back = edges.where("a > b").select(*GRAPH, F.col("b").alias("start"), F.col("a").alias("end"))
    order = Window.partitionBy(*GRAPH).orderBy("start", "end")
    before = F.max("end").over(order.rowsBetween(Window.unboundedPreceding, -1))
    begins = F.when(before.isNull() | (F.col("start") > before), 1).otherwise(0)
    counted = back.withColumn("begins", begins).withColumn("region", F.sum("begins").over(order))
    return counted.groupBy(*GRAPH, "region").agg(F.min("start").alias("start"), F.max("end").alias("end"))


def inside(edges: DataFrame) -> DataFrame:
    """The edges that lie in a region, with its number."""
    e, r = edges.alias("e"), regions(edges).alias("r")
    held = e.join(
        r,
        (F.col("e.run") == F.col("r.run")) & (F.col("e.graph") == F.col("r.graph"))
        & (F.least("e.a", "e.b") >= F.col("r.start")) & (F.greatest("e.a", "e.b") <= F.col("r.end")),
    )  # fmt: skip
    return held.select("e.run", "e.graph", "r.region", "e.a", "e.b", "e.why")


def named(graph: str, rows: list[tuple[int, int, str]]) -> list[str]:
    """ "anomaly weight" of each strongly connected part of one region."""
    edges: Graph = {}
    for a, b, why in rows:
        edges.setdefault(a, {})[b] = why
    parts = components(edges)
    if graph != "both":
        return ["G0 reported" if graph == "ww" else "G1c-wr fail" for _ in parts]
    rings = [shortest(edges, part) for part in parts]
    mixed = [{edges[a][b] for a, b in pairwise([*ring, ring[0]])} == {"ww", "wr"} for ring in rings]
    return ["G1c reported"] * sum(mixed)
