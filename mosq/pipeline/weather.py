"""Replay real weather for the demonstration: the data sets of Seattle and San Francisco in the package vega_datasets.

Years pass in the seconds of the demo. Nothing of the data is part of mosq.
"""

import csv
import datetime
import importlib.util
import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mosq.pipeline import MosqPipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = "vega_datasets"
MISSING = f"DATA=weather replays the package {PACKAGE}, which is not installed: pip install --no-deps {PACKAGE}==0.9.0"
DAILY = "seattle-weather.csv"  # date, precipitation (mm), temp_max, temp_min (Celsius), wind (m/s), weather
HOURLY = {"seattle": "seattle-temps.csv", "san-francisco": "sf-temps.csv"}  # date, temp (Fahrenheit)
FORMATS = ("%Y-%m-%d %H:%M", "%Y/%m/%d %H:%M", "%Y-%m-%d %H:%M:%S", "%Y/%m/%d %H:%M:%S")
ACKNOWLEDGED_S = 60.0
TICK_S = 0.05
SILVER = """\
[[silver]]
name = "daily"
topic = "weather/+/daily"
format = "json"
schema = "day DATE, precipitation DOUBLE, temp_max DOUBLE, temp_min DOUBLE, wind DOUBLE, weather STRING"
values = ["temp_max", "temp_min", "precipitation"]

[[silver]]
name = "hourly"
topic = "weather/+/hourly"
format = "csv"
schema = "at TIMESTAMP, fahrenheit DOUBLE"
values = ["fahrenheit"]
"""
ABOUT = """
All of this was measured: the weather in Seattle (2012 to 2015), the temperatures of Seattle and San Francisco in 2010.
Each series takes the whole time of the demonstration, so a window of gold is weeks or months of weather. The page has
the curves in its section "Values"; that the stations are silent now is only the end of the data."""
QUESTION = (
    "SELECT month(day) AS month, round(avg((temp_min + temp_max) / 2), 1) AS celsius,"
    " round(sum(precipitation) / count(DISTINCT year(day)), 1) AS rain_mm,"
    " sum(CASE WHEN weather = 'sun' THEN 1 ELSE 0 END) AS sunny_days"
    " FROM silver_daily GROUP BY month(day) ORDER BY month"
)

Message = tuple[datetime.datetime, str, str]  # time of the measurement, topic, payload


def folder() -> Path:
    """Return the folder of the data sets; the package is not imported, as it needs pandas."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise MosqPipelineError(MISSING)
    return Path(next(iter(found.submodule_search_locations))) / "_data"


def messages() -> list[Message]:
    """Return all measurements in the order of their time."""
    here = folder()
    try:
        return sorted([*_daily(here / DAILY), *(one for city in HOURLY for one in _hourly(here, city))])
    except (OSError, KeyError, ValueError) as error:
        raise MosqPipelineError(f"{here}: another version of {PACKAGE} than is expected ({error}): {MISSING}") from None


def paced(found: list[Message]) -> "list[tuple[float, str, str]]":
    """Return (part of the time, topic, payload) in the order of sending: each topic takes the whole time."""
    n = Counter(topic for _, topic, _ in found)
    sent: Counter[str] = Counter()
    timed = []
    for _, topic, payload in found:
        timed.append((sent[topic] / n[topic], topic, payload))
        sent[topic] += 1
    return sorted(timed, key=lambda one: one[0])


def _daily(path: Path) -> "Iterator[Message]":
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            at = datetime.datetime.strptime(row["date"], "%Y/%m/%d").replace(tzinfo=datetime.UTC)
            numbers = {name: float(row[name]) for name in ("precipitation", "temp_max", "temp_min", "wind")}
            content: dict[str, Any] = {"day": at.date().isoformat(), **numbers, "weather": row["weather"]}
            yield at, "weather/seattle/daily", json.dumps(content)


def _hourly(here: Path, city: str) -> "Iterator[Message]":
    with (here / HOURLY[city]).open(newline="") as file:
        for row in csv.DictReader(file):
            at = _time(row["date"])
            yield at, f"weather/{city}/hourly", f"{at:%Y-%m-%dT%H:%M:%SZ},{float(row['temp'])}"


def _time(text: str) -> datetime.datetime:
    for form in FORMATS:
        try:
            return datetime.datetime.strptime(text, form).replace(tzinfo=datetime.UTC)
        except ValueError:
            continue
    raise ValueError(f"{text} is no time")


class Weather(threading.Thread):
    """Publish all measurements within some seconds, each city as a client; `end()` sends the rest at once."""

    def __init__(self, host: str, port: int, seconds: float) -> None:
        import paho.mqtt.client as paho
        from paho.mqtt.enums import CallbackAPIVersion

        super().__init__(name="weather", daemon=True)
        self.messages = paced(messages())
        self.seconds, self.sent = seconds, 0
        self.hurry = threading.Event()
        self.error: Exception | None = None
        self.clients: dict[str, paho.Client] = {}
        for city in HOURLY:
            client = paho.Client(CallbackAPIVersion.VERSION2, f"station-{city}")
            client.connect(host, port)
            client.loop_start()
            self.clients[city] = client

    def run(self) -> None:
        try:
            self._run()
        except Exception as error:  # `end` raises it
            self.error = error

    def _run(self) -> None:
        began, last = time.monotonic(), {}
        for part, topic, payload in self.messages:
            due = began + self.seconds * part
            while not self.hurry.is_set() and time.monotonic() < due:
                self.hurry.wait(min(TICK_S, max(0.0, due - time.monotonic())))
            city = topic.split("/")[1]
            last[city] = self.clients[city].publish(topic, payload, qos=1)
            self.sent += 1
        for info in last.values():
            info.wait_for_publish(ACKNOWLEDGED_S)

    def end(self) -> None:
        self.hurry.set()
        self.join()
        for client in self.clients.values():
            client.disconnect()
            client.loop_stop()
        if self.error is not None:
            raise self.error
