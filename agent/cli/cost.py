"""`floe cost`: what a load costs a month, beside Apache Kafka, by one price list. Asks nobody anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from agent.cli.failures import usage
from agent.cli.options import Assignments, ConfigFile, Form, Output
from agent.cli.output import print_json, print_table
from agent.config import load as load_config
from agent.costs import Bill, Load, LoadError, PricesError, Settings, Side, load_prices, reckoned
from agent.costs.load import AGENTS_MAX, PARTITIONS_MAX
from agent.costs.units import bytes_of, rate_of, seconds_of

NOWHERE = {"log": {"url": "etcd://nowhere:2379/floe"}, "store": {"url": "s3://nowhere/floe"}}
"""What a configuration must have, and what costs do not depend on: nothing is connected to."""
REPLICAS_MAX, ZONES_MAX = 9, 9


def _reading(read: Callable[[str], float]) -> Callable[[str], float]:
    """An option's text by its unit, refused as other options are."""

    def parse(value: str | float) -> float:
        if not isinstance(value, str):
            return value  # a default
        try:
            return read(value)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return parse


_RATE, _BYTES, _TIME = _reading(rate_of), _reading(bytes_of), _reading(seconds_of)


def cost(
    write: Annotated[
        float, typer.Option(parser=_RATE, metavar="RATE", help="Bytes written a second, such as 100MiB/s.")
    ],
    fanout: Annotated[float, typer.Option(min=0, max=1_000, help="How often each byte is read.")] = 3.0,
    retention: Annotated[
        float, typer.Option(parser=_TIME, metavar="TIME", show_default="7d", help="How long records stay.")
    ] = 7 * 86_400.0,
    zones: Annotated[int, typer.Option(min=1, max=ZONES_MAX, help="Zones of the cluster.")] = 3,
    partitions: Annotated[int, typer.Option(min=1, max=PARTITIONS_MAX, help="Of all topics.")] = 100,
    topics: Annotated[int, typer.Option(min=1, max=PARTITIONS_MAX, help="Topics, each a table.")] = 10,
    message_bytes: Annotated[
        float, typer.Option(parser=_BYTES, metavar="BYTES", show_default="1kB", help="Bytes of a message.")
    ] = 1_000.0,
    batch_bytes: Annotated[
        float,
        typer.Option(
            parser=_BYTES, metavar="BYTES", show_default="16KiB", help="Bytes of a batch, as filled."
        ),
    ] = 16_384.0,
    read_cold: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of the reads that are of old data.")
    ] = 0.0,
    zoned: Annotated[
        bool, typer.Option("--zoned/--unzoned", help="Whether clients say in which zone they are.")
    ] = True,
    agents: Annotated[
        int | None, typer.Option(min=1, max=AGENTS_MAX, help="Agents; else as many as are needed.")
    ] = None,
    cores_each: Annotated[
        float, typer.Option(min=0.5, max=64, help="Virtual cores of an agent, and of a broker.")
    ] = 2.0,
    busy: Annotated[
        float, typer.Option(min=0.05, max=1.0, help="Share of them that the steady load may take.")
    ] = 0.6,
    tables: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of the bytes that become tables.")
    ] = 1.0,
    table_ratio: Annotated[
        float, typer.Option(min=0.001, max=100, help="Bytes of Parquet for each byte of records.")
    ] = 1.0,
    table_retention: Annotated[
        float | None,
        typer.Option(parser=_TIME, metavar="TIME", help="How long rows stay; else as records do."),
    ] = None,
    compacted: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of the bytes with cleanup.policy=compact.")
    ] = 0.0,
    survives: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of these that compaction leaves.")
    ] = 0.5,
    put: Annotated[
        float,
        typer.Option(
            "--put-time",
            parser=_TIME,
            metavar="TIME",
            show_default="42ms",
            help="A PUT of a chunk, on average.",
        ),
    ] = 0.042,
    append: Annotated[
        float,
        typer.Option(
            "--append-time", parser=_TIME, metavar="TIME", show_default="3ms", help="An append to etcd."
        ),
    ] = 0.003,
    kafka_replicas: Annotated[int, typer.Option(min=1, max=REPLICAS_MAX, help="Of Apache Kafka.")] = 3,
    disk_free: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of Kafka's disks that is kept free.")
    ] = 0.3,
    prices: Annotated[
        Path | None, typer.Option(help="TOML file with prices; else a public cloud's (docs/cost.md).")
    ] = None,
    config: ConfigFile = None,
    assign: Assignments = None,
    output: Output = Form.TABLE,
) -> None:
    """Reckon what a load costs a month on Floe, and on Apache Kafka by the same price list.

    A model: nothing is connected to. Each row says which bench, setting or option its amount comes from;
    docs/cost.md says how to read it and what is not in it. Settings are an agent's (--config, --set).
    """
    settings = Settings.of(load_config(config, assign or (), base=NOWHERE, base_origin="floe cost").config)
    try:
        asked = Load(
            write=write,
            fanout=fanout,
            retention_s=retention,
            zones=zones,
            partitions=partitions,
            topics=topics,
            message_bytes=message_bytes,
            batch_bytes=batch_bytes,
            read_cold=read_cold,
            zoned=zoned,
            agents=agents,
            cores_each=cores_each,
            busy_max=busy,
            tables=tables if settings.tables.enabled else 0.0,
            table_ratio=table_ratio,
            table_retention_s=table_retention,
            compacted=compacted,
            survives=survives,
            put_s=put,
            append_s=append,
            kafka_replicas=kafka_replicas,
            disk_free=disk_free,
        )
        bill = reckoned(asked, settings, load_prices(prices))
    except (LoadError, PricesError) as error:
        raise usage(str(error)) from None
    if output is Form.JSON:
        print_json(bill.as_json())
    else:
        _show(bill)


def _show(bill: Bill) -> None:
    """The table, a line with what it comes to, and the notes."""
    currency = bill.prices.currency
    columns = ("of", "kind", "what", "amount", "unit", f"{currency} a month", "from")
    rows = [
        (row.side, row.kind, row.what, _amount(row.amount), row.unit, _money(row.cost), row.source)
        for row in bill.rows
    ]
    print_table(columns, rows)
    kafka, floe = bill.total(Side.KAFKA), bill.total(Side.FLOE)
    both = bill.total(Side.FLOE, Side.TABLES)
    print(
        f"total: Floe {_money(floe)} {currency} a month, with tables {_money(both)}; "
        f"Apache Kafka without tables {_money(kafka)}"
    )
    print(f"prices: {bill.prices.name}, {bill.prices.as_of} ({bill.prices.source})")
    for note in bill.notes:
        print(f"note: {note}")


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"


def _money(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"
