"""`mosq top --once` and `--json`: one reading as text or JSON. Needs no terminal and no further package."""

import json
import time

from mosq.tools.top import summary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from mosq.tools.top.broker import Broker
    from mosq.tools.top.reading import Reading
    from mosq.tools.top.views import View


def read(broker: "Broker", seconds: float) -> "Reading":
    """Return a reading with rates over this time. Raises BrokerError, RefusedError."""
    broker.read_stats()
    time.sleep(seconds)
    return broker.read_all()


def text(reading: "Reading", view: "View", url: str, columns: int,  # parameters: of one table
         limit: int, filter: str) -> "Iterator[str]":
    """Yield the lines of one table."""
    for line in summary.lines(reading, url, columns):
        yield line.rstrip()
    yield ""
    rows = view.rows(reading, filter)
    fit = view.fit(columns)
    yield view.head(fit).rstrip()
    for row in rows[:limit]:
        yield view.line(row, fit).rstrip()
    if len(rows) > limit:
        yield f"... {len(rows) - limit} more"


def document(reading: "Reading", view: "View", url: str, limit: int, filter: str) -> str:
    """Return one line of JSON with the same content; names are unchanged."""
    rows = view.rows(reading, filter)
    found: dict[str, Any] = {
        "broker": url, "stats": reading.stats, "rates": {**reading.rates, "drops": reading.drops_rate},
        "drops": reading.drops, "view": view.title, "matching": len(rows), view.title: rows[:limit],
        "complete": not reading.is_cut}
    return json.dumps(found, separators=(",", ":"))
